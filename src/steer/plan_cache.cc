#include "steer/plan_cache.h"

#include <utility>

#include "base/collectives.h"
#include "forest/block_turns.h"
#include "protocol/plans.h"

namespace talweg::steer {

std::shared_ptr<const protocol::Plan> PlanCache::find(const forest::Request& request) {
  if (model_ != chooser_.model()) {
    forget_scatters();
    model_ = chooser_.model();
  }
  if (const auto it = plans_.find(request); it != plans_.end()) return it->second;
  auto forest = chooser_.first(request).forest;
  protocol::PlanLimits limits;
  if (request.root == rank_) limits.lanes = forest::lanes_of(request, model_->network(), model_->routes());
  auto plan = protocol::make_plan(std::move(forest), rank_, limits);
  if (plans_.size() >= kMaxPlans) {
    plans_.erase(plans_.find(*order_.front()));
    order_.pop_front();
  }
  const auto added = plans_.emplace(request, std::move(plan)).first;
  order_.push_back(&added->first);
  return added->second;
}

// In which turns blocks go, which their source alone decides, depends on the network of now.
void PlanCache::forget_scatters() {
  const auto sends_blocks = [&](const forest::Request& request) {
    return request.op == Collective::scatter && request.root == rank_;
  };
  std::erase_if(order_, [&](const forest::Request* request) { return sends_blocks(*request); });
  std::erase_if(plans_, [&](const auto& plan) { return sends_blocks(plan.first); });
}

}  // namespace talweg::steer
