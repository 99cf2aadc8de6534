// How fast a group's calls are sent: as their plans have it, where the network is known.
#include "group/group_impl.h"

namespace talweg::group {

void GroupImpl::pace(bool described) {
  const auto guard = world_->lock();
  paced_ = true;
  described_ = described;
}

const GroupImpl::CallPaces& GroupImpl::paces_of(const protocol::Plan& plan) {
  if (paced_for_ != chooser_.model()) {
    paced_for_ = chooser_.model();
    paces_.clear();
    world_->pacer().renew();
  }
  if (paces_.size() >= steer::SharedPlans::kMostRequests) paces_.clear();
  const auto [entry, made] = paces_.try_emplace(plan.digest);
  CallPaces& call = entry->second;
  if (!made) return call;
  const std::vector<forest::Pace> all = forest::paces_of(*plan.forest, *paced_for_);
  for (const auto& [from, to, bytes_per_second] : forest::paces_from(all, rank()))
    call.paces.push_back({from, seats_[static_cast<std::size_t>(to)], bytes_per_second});
  if (!all.empty()) call.seconds_needed = forest::seconds_needed(*plan.forest, *paced_for_, rank());
  return call;
}

// Before the session knows the plan: it may end the call at once.
void GroupImpl::begin_paced(WorkImpl& work, const protocol::Plan& plan) {
  if (!paced_ || !described_) return;
  const CallPaces& call = paces_of(plan);
  if (call.paces.empty()) return;
  work.set_paced(call.seconds_needed);
  world_->pacer().begin(call.paces, live::now_ns());
}

}  // namespace talweg::group
