#include "steer/plan_cache.h"

#include "base/collectives.h"

namespace talweg::steer {

bool is_shared(const forest::Request& request) {
  return request.ranks > 1 && request.op != Collective::send_recv && facts(request.op).knows == Knows::all;
}

std::shared_ptr<const protocol::LocalPlan> PlanCache::find(const forest::Request& request) {
  if (const auto it = plans_.find(request); it != plans_.end()) return it->second;
  auto plan = protocol::make_local_plan(chooser_.first(request).forest, rank_);
  if (plans_.size() >= kMaxPlans) {
    plans_.erase(plans_.find(*order_.front()));
    order_.pop_front();
  }
  const auto added = plans_.emplace(request, std::move(plan)).first;
  order_.push_back(&added->first);
  return added->second;
}

}  // namespace talweg::steer
