#include "steer/plan_cache.h"

#include <utility>

#include "base/collectives.h"
#include "forest/block_turns.h"
#include "protocol/plans.h"

namespace talweg::steer {

std::shared_ptr<const protocol::Plan> PlanCache::find(const forest::Request& request) {
  if (model_ != chooser_.model()) {
    model_ = chooser_.model();
    take_turns_anew();
  }
  if (const auto it = plans_.find(request); it != plans_.end()) return it->second;
  auto plan = plan_of(request, chooser_.first(request).forest);
  if (plans_.size() >= kMaxPlans) {
    plans_.erase(plans_.find(*order_.front()));
    order_.pop_front();
  }
  const auto added = plans_.emplace(request, std::move(plan)).first;
  order_.push_back(&added->first);
  return added->second;
}

std::shared_ptr<const protocol::Plan> PlanCache::plan_of(const forest::Request& request,
                                                         std::shared_ptr<const forest::Forest> forest) const {
  protocol::PlanLimits limits;
  if (request.root == rank_) limits.lanes = forest::lanes_of(request, model_->network(), model_->routes());
  return protocol::make_plan(std::move(forest), rank_, limits);
}

// In which turns blocks go, which their source alone decides, depends on the network of now. Trees and chunks
// stay: who receives has planned the same.
void PlanCache::take_turns_anew() {
  for (auto& [request, plan] : plans_)
    if (request.op == Collective::scatter && request.root == rank_) plan = plan_of(request, plan->forest);
}

}  // namespace talweg::steer
