#include "sim/host_calls.h"

#include "base/at.h"
#include "base/fail.h"

namespace talweg::sim {

bool HostCalls::run(std::span<const SumOperands> operands, const Calls& calls, Picoseconds horizon,
                    Trace* trace, std::span<const int> nodes) {
  operands_ = operands;
  nodes_ = nodes;
  count_.emplace(calls, operands.size());
  trace_ = trace;
  running_ = true;
  const struct Over {  // however it ends
    bool& running;
    ~Over() { running = false; }
  } over{running_};
  for (int rank = 0; rank < static_cast<int>(operands_.size()); ++rank) start(rank, simulation_.now());
  return simulation_.run(horizon);
}

void HostCalls::start(int rank, Picoseconds when) {
  simulation_.at(when, [this, rank] { start_(rank, operands_[at(rank)]); });
}

void HostCalls::ended(int rank, Picoseconds started) {
  if (!running_) return;  // of a run that has failed
  const Picoseconds now = simulation_.now();
  if (trace_ != nullptr)
    trace_->span(nodes_.empty() ? rank : nodes_[at(rank)], name(Collective::all_reduce), started, now);
  switch (count_->ended(rank, started, now)) {
    case CallCount::Next::its_own:
      return start(rank, now);
    case CallCount::Next::all:
      for (int r = 0; r < static_cast<int>(operands_.size()); ++r) start(r, now + count_->rest());
      return;
    case CallCount::Next::nothing:
      if (count_->over()) simulation_.stop();
  }
}

}  // namespace talweg::sim
