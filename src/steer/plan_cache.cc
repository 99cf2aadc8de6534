#include "steer/plan_cache.h"

#include <utility>

#include "forest/block_turns.h"
#include "forest/cost.h"
#include "protocol/plans.h"

namespace talweg::steer {

std::shared_ptr<const protocol::Plan> PlanCache::find(const forest::Request& request) {
  if (const auto it = plans_.find(request); it != plans_.end()) return it->second;
  auto forest = chooser_.first(request).forest;
  const forest::CostModel& model = *chooser_.model();
  protocol::PlanLimits limits;
  if (request.root == rank_) limits.lanes = forest::lanes_of(request, model.network(), model.routes());
  auto plan = protocol::make_plan(std::move(forest), rank_, limits);
  if (plans_.size() >= kMaxPlans) {
    plans_.erase(plans_.find(*order_.front()));
    order_.pop_front();
  }
  const auto added = plans_.emplace(request, std::move(plan)).first;
  order_.push_back(&added->first);
  return added->second;
}

}  // namespace talweg::steer
