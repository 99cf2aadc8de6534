// A group that measures the network between its hosts, and plans with what it found.
#include <fmt/format.h>

#include "group/group_impl.h"

namespace talweg::group {

steer::ProbeResult GroupImpl::probe_in_full(const ProbeOptions& options) {
  if (!(options.confidence > 0 && options.confidence < 1))
    throw Error(ErrorCode::invalid_argument,
                fmt::format("probe: confidence {}: expected a part of the rates, such as 0.05 for 5 %",
                            options.confidence));
  if (options.budget.count() < 0)
    throw Error(ErrorCode::invalid_argument, "probe: expected a budget of zero or more");
  steer::ProbeResult result = steer::probe(*this, identity_.machines, options);
  if (follows_) return result;  // its plans follow the network by themselves
  cluster::Cluster network = result.network;
  const auto guard = world_->lock();
  network.shared_cores = chooser_.network().shared_cores;  // of this machine, not of the network
  network.processor = chooser_.network().processor;
  chooser_.change_to(network);
  described_ = true;
  shared_plans_.forget(session_.next_sequence());  // the same number on all ranks
  return result;
}

std::string GroupImpl::probe(const ProbeOptions& options) {
  std::string network = cluster::to_yaml(probe_in_full(options).network);
  if (rank() == 0 && !identity_.helpers.empty())
    log_.log(LogLevel::warn, "plan", "aggregators are not probed: plans lead through none from now on");
  return network;
}

}  // namespace talweg::group
