#include "steer/plan_cache.h"

namespace talweg::steer {

std::shared_ptr<const protocol::Plan> PlanCache::find(const forest::Request& request) {
  if (const auto it = plans_.find(request); it != plans_.end()) return it->second;
  auto plan = protocol::make_plan(chooser_.first(request).forest, rank_);
  if (plans_.size() >= kMaxPlans) {
    plans_.erase(plans_.find(*order_.front()));
    order_.pop_front();
  }
  const auto added = plans_.emplace(request, std::move(plan)).first;
  order_.push_back(&added->first);
  return added->second;
}

}  // namespace talweg::steer
