// A connection matrix on a simulated network: which flow ended when, and what became of the network.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "sim/matrix_file.h"
#include "sim/report.h"
#include "sim/simulation.h"
#include "sim/trace.h"

namespace talweg::sim {

struct FlowResult {
  Connection connection;
  Picoseconds started = 0;
  Picoseconds ended = 0;  // its last byte arrived
  FlowCounters counters;
};

// A matrix while it runs, beside other things in the same simulation. Throws Error{invalid_argument} for a
// matrix that the network has not hosts enough for.
class MatrixRun : private FlowClient {
 public:
  // `on_end`: all flows have ended.
  MatrixRun(Simulation& simulation, const Matrix& matrix, Trace* trace, std::function<void()> on_end);
  ~MatrixRun() override;

  bool done() const { return left_ == 0; }
  // "2 of 3 flows had not ended: 1 (0->1), 2 (1->2, never started)"
  std::string missing() const;
  std::vector<FlowResult> take();

 private:
  void start(std::size_t index);
  void on_delivered(FlowId flow, std::int64_t bytes, Picoseconds now) override;
  void on_writable(FlowId, Picoseconds) override {}
  void pull(int trigger);

  Simulation& simulation_;
  Trace* trace_;
  std::function<void()> on_end_;
  std::vector<FlowResult> flows_;
  FlowId first_ = 0;
  std::vector<int> pulls_;                         // that each trigger still needs
  std::vector<std::vector<std::size_t>> waiting_;  // for each trigger
  std::size_t left_ = 0;
};

// Throws Error{invalid_argument} for a matrix that the network has not hosts enough for, Error{timeout} that
// names the flows which the horizon left unfinished.
std::vector<FlowResult> run_matrix(Simulation& simulation, const Matrix& matrix, Picoseconds horizon,
                                   Trace* trace = nullptr);

// Why a run is over before its end, for messages.
std::string horizon_text(Picoseconds horizon);

// The least time of which at least `share` (0 .. 1) of the flows needed no more.
Picoseconds completion_percentile(const std::vector<FlowResult>& flows, double share);

}  // namespace talweg::sim
