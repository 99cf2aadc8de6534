// The plans that each rank makes for itself: of messages, and of collectives whose counts no rank knows in
// full. For these there is one way to do them, so that no two ranks can choose differently.
//
// None outlives the network that it was made for: one rank may have made its part of a call before the
// network was measured anew, and another, to whom the same call is another request, after it. Chunks would
// not be the same then.
#pragma once

#include <deque>
#include <memory>
#include <unordered_map>

#include "forest/cost.h"
#include "protocol/plans.h"
#include "steer/plan_chooser.h"

namespace talweg::steer {

class PlanCache {
 public:
  PlanCache(int rank, PlanChooser& chooser) : rank_(rank), chooser_(chooser) {}
  // This rank's part of the forest for `request`. Throws Error where nothing serves it.
  std::shared_ptr<const protocol::Plan> find(const forest::Request& request);

 private:
  // Requests that are kept; of a program with more the oldest goes for each new one, which costs planning
  // time but never memory.
  static constexpr std::size_t kMaxPlans = 512;

  const int rank_;
  PlanChooser& chooser_;
  std::shared_ptr<const forest::CostModel> model_;  // that plans_ are made by
  std::unordered_map<forest::Request, std::shared_ptr<const protocol::Plan>, RequestHash> plans_;
  std::deque<const forest::Request*> order_;  // the keys of plans_, oldest first
};

}  // namespace talweg::steer
