// What a group does for its aggregators, and without them.
//
// Ranks learn of a loss at different moments, and must go on without the node from the same call on. So each
// says to all others, at the moment at which it learns of it, which call it begins next, and holds its calls
// until it has heard from all: the greatest number is the first call that is planned without. Those before it
// had been begun by somebody with the lost node, and fail on all ranks.
#include <fmt/format.h>

#include <algorithm>

#include "group/group_impl.h"

namespace talweg::group {

void GroupImpl::lose_helper(int node) {
  for (const Loss& loss : losses_)
    if (loss.node == node) return;
  log_.log(rank() == 0 ? LogLevel::warn : LogLevel::info, "plan",
           "aggregator {} is lost: the group goes on without it",
           identity_.helpers[static_cast<std::size_t>(node - size())].name);
  const std::uint64_t next = held_.empty() ? session_.next_sequence() : held_.front().call;
  losses_.push_back({node, std::vector<bool>(static_cast<std::size_t>(size()), false), next});
  losses_.back().heard[static_cast<std::size_t>(rank())] = true;
  const wire::Header said = wire::encode(wire::Lost{identity_.id, static_cast<std::uint32_t>(node), next});
  for (int r = 0; r < size(); ++r)
    if (r != rank()) send(r, said, nullptr, {}, protocol::kUrgent, true);
  losing_ = true;
}

void GroupImpl::on_lost(int from, const wire::Lost& lost) {
  const auto node = static_cast<int>(lost.node);
  if (from >= size() || node < size() || node >= static_cast<int>(seats_.size())) return;
  const bool known =
      std::any_of(losses_.begin(), losses_.end(), [&](const Loss& l) { return l.node == node; });
  if (!known)
    on_peer_gone(seats_[static_cast<std::size_t>(node)], ErrorCode::peer_failed,
                 fmt::format("rank {} has lost it", from));
  for (Loss& loss : losses_) {
    if (loss.node != node) continue;
    loss.heard[static_cast<std::size_t>(from)] = true;
    loss.from = std::max(loss.from, lost.next);
  }
  agree_on_losses();
}

void GroupImpl::agree_on_losses() {
  for (Loss& loss : losses_) {
    if (loss.agreed || !std::all_of(loss.heard.begin(), loss.heard.end(), [](bool h) { return h; })) continue;
    loss.agreed = true;
    shared_plans_.forget(loss.from);
    // Rank 0 may have plans to make for calls before that.
    if (!leader_) chooser_.change_to(cluster::without(chooser_.network(), std::vector<int>{loss.node}));
  }
  if (!losing_ || !std::all_of(losses_.begin(), losses_.end(), [](const Loss& l) { return l.agreed; }))
    return;
  losing_ = false;
  plan_held();
}

}  // namespace talweg::group
