// HostCalls: sums that hosts make by a protocol of their own, one behind the other: each rank starts the next
// when it has ended the last.
//
//   HostCalls calls(simulation, [&](int rank, const SumOperands& o) { rank's host starts a sum; });
//   calls.run(operands, how, horizon, trace);   // and calls.ended(rank, started) when a rank has ended one
//   calls.count().take()
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <utility>

#include "sim/collectives.h"
#include "sim/simulation.h"
#include "sim/trace.h"

namespace talweg::sim {

// One worker's vector, in every call. `out` may be `in`; workers may have the same `out`, whose contents they
// do not look at.
struct SumOperands {
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
};

class HostCalls {
 public:
  using Start = std::function<void(int rank, const SumOperands& operands)>;
  HostCalls(Simulation& simulation, Start start) : simulation_(simulation), start_(std::move(start)) {}

  // Operands by rank; `nodes` too, for the trace, where they are not the workers 0, 1, ... True unless the
  // horizon came first. What a host throws passes through, and then the calls are over.
  bool run(std::span<const SumOperands> operands, const Calls& calls, Picoseconds horizon, Trace* trace,
           std::span<const int> nodes = {});
  // A rank's sum that began then has ended now.
  void ended(int rank, Picoseconds started);
  // Of the last run.
  CallCount& count() { return *count_; }

 private:
  void start(int rank, Picoseconds when);

  Simulation& simulation_;
  const Start start_;
  std::span<const SumOperands> operands_;
  std::span<const int> nodes_;
  std::optional<CallCount> count_;
  Trace* trace_ = nullptr;
  bool running_ = false;
};

}  // namespace talweg::sim
