#include "steer/plan_cache.h"

#include <utility>

#include "base/collectives.h"
#include "forest/block_turns.h"
#include "forest/look_ahead.h"
#include "protocol/plans.h"

namespace talweg::steer {

std::shared_ptr<const protocol::Plan> PlanCache::find(const forest::Request& request) {
  if (model_ != chooser_.model()) {
    model_ = chooser_.model();
    plans_.clear();
    order_.clear();
  }
  if (const auto it = plans_.find(request); it != plans_.end()) return it->second;
  protocol::PlanLimits limits;
  if (request.op == Collective::scatter && request.root == rank_)
    limits.lanes = forest::lanes_of(request, model_->network(), model_->routes());
  if (request.op == Collective::all_to_all)
    limits.wire_bytes = forest::exchange_wire(rank_, request.ranks, model_->network(), model_->routes());
  auto plan = protocol::make_plan(chooser_.first(request).forest, rank_, limits);
  if (plans_.size() >= kMaxPlans) {
    plans_.erase(plans_.find(*order_.front()));
    order_.pop_front();
  }
  const auto added = plans_.emplace(request, std::move(plan)).first;
  order_.push_back(&added->first);
  return added->second;
}

}  // namespace talweg::steer
