// Collectives on simulated ranks: forests turned into operations, and calls one behind the other.
#pragma once

#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "forest/forest.h"
#include "forest/paces.h"
#include "protocol/plans.h"
#include "sim/ranks.h"
#include "sim/trace.h"

namespace talweg::sim {

// What node `plan->self` passes to its session for its part of a forest; an aggregator has no `in` and `out`.
// Of payloads that are not carried nothing is added up.
protocol::Operation operation_for(std::shared_ptr<const protocol::Plan> plan, DataType type,
                                  ReduceOp reduction, const std::byte* in, std::byte* out,
                                  bool carry_payloads);

// Operands of payloads that are not carried: never read or written but by address arithmetic and copies of
// zeros, so all ranks share them.
class SharedOperands {
 public:
  explicit SharedOperands(const forest::Forest& forest);
  SharedOperands(std::int64_t in, std::int64_t out, std::int64_t element_size);  // so many elements
  const std::byte* in() const { return in_.get(); }
  std::byte* out() const { return out_.get(); }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> in_, out_;
};

// The paces of a forest's flows, where the ranks' calls are sent at such; else none.
std::vector<forest::Pace> paces_for(const Simulation& simulation, const Ranks& ranks,
                                    const forest::Forest& forest);

// Calls of one forest: each rank starts the next when it has ended the last. Payloads are not carried.
struct Calls {
  int warm_up = 0;  // before the others, not counted
  int timed = 1;
  // Above 0: once the warm-up has ended everywhere, all ranks rest so long and start the timed calls
  // together. Token buckets fill meanwhile.
  Picoseconds rest = 0;
};

// How they went.
struct CallTimes {
  std::vector<Picoseconds> of_call;               // mean over the ranks of what each call took
  std::vector<std::vector<Picoseconds>> of_rank;  // by call and rank
  Picoseconds total = 0;                          // of all calls, mean over the ranks
};

// Which call each rank is at, and what calls took: for whoever runs them.
class CallCount {
 public:
  CallCount(const Calls& calls, std::size_t ranks);

  // What begins now that a call of a rank has ended.
  enum class Next {
    its_own,  // the rank's next call
    all,      // that of all ranks, which have rested so long
    nothing,
  };
  Next ended(int rank, Picoseconds started, Picoseconds ended);
  bool over() const { return left_ == 0; }  // all calls of all ranks
  bool over(int rank) const { return done_[static_cast<std::size_t>(rank)] == calls_.warm_up + calls_.timed; }
  Picoseconds rest() const { return calls_.rest; }
  CallTimes take() { return std::move(times_); }

 private:
  const Calls calls_;
  CallTimes times_;
  std::vector<int> done_;  // by rank
  std::size_t warming_, left_;
};

// Of calls that the horizon, or the end of all that can happen, came before. `nodes`: of the ranks; `needed`:
// whose failure may be why. Throws Error{timeout} that names the ranks.
[[noreturn]] void throw_not_ended(const Simulation& simulation, const CallCount& count,
                                  std::span<const int> nodes, const std::vector<int>& needed,
                                  const std::string& what, bool early, Picoseconds horizon);

// Throws what the operations ended in; Error{timeout} that names the ranks when the horizon comes first.
CallTimes run_calls(Simulation& simulation, Ranks& ranks, const std::shared_ptr<const forest::Forest>& forest,
                    DataType type, const Calls& calls, Picoseconds horizon, Trace* trace = nullptr);

}  // namespace talweg::sim
