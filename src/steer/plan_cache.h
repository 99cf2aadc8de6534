// Which forest carries which call: chosen by cost when a shape is first seen, then kept.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>

#include "base/log.h"
#include "cluster/cluster.h"
#include "forest/packed.h"
#include "protocol/forest/local_plan.h"

namespace talweg::steer {

class PlanCache {
 public:
  // `algorithm` as GroupOptions::algorithm. Throws Error{invalid_argument} for planners that do not exist or
  // operations that are none, Error{unsupported} for a planner that does not serve the operation it is named
  // for.
  PlanCache(int rank, cluster::Cluster network, const std::string& algorithm, const Logger& log);

  // This rank's part of the forest for `request`. Throws Error{unsupported} when the planner that was asked
  // for does not serve it.
  std::shared_ptr<const protocol::LocalPlan> find(const forest::Request& request);
  // "ring, 64 chunks of 64 KiB, predicted 8.9 ms".
  std::string explain(const forest::Request& request);
  const cluster::Cluster& network() const { return network_; }
  // From now on plans are made for this network; those of messages stay, since ranks change at a collective
  // and messages are not ordered against these.
  void change_to(cluster::Cluster network);

 private:
  struct Hash {
    std::size_t operator()(const forest::Request& request) const;
  };
  forest::Forest plan(const forest::Request& request);

  // Shapes that are kept; of a program with more the oldest goes for each new one, which costs planning time
  // but never memory.
  static constexpr std::size_t kMaxPlans = 512;

  const int rank_;
  const cluster::Cluster given_;
  cluster::Cluster network_;
  std::map<Collective, std::string> chosen_;  // by the user
  std::string chosen_for_all_;
  const Logger& log_;
  forest::PackingMemo packings_;  // of network_
  using Plans = std::unordered_map<forest::Request, std::shared_ptr<const protocol::LocalPlan>, Hash>;
  Plans plans_;
  std::deque<const forest::Request*> order_;  // the keys of plans_, oldest first
};

}  // namespace talweg::steer
