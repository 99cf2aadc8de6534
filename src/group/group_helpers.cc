// What a group does for its aggregators, and without them: see steer::Losses.
#include <fmt/format.h>

#include "group/group_impl.h"

namespace talweg::group {

void GroupImpl::lose_helper(int node) {
  if (losses_.knows(node)) return;
  log_.log(rank() == 0 ? LogLevel::warn : LogLevel::info, "plan",
           "aggregator {} is lost: the group goes on without it",
           identity_.helpers[static_cast<std::size_t>(node - size())].name);
  const std::uint64_t next = held_.empty() ? session_.next_sequence() : held_.front().call;
  losses_.lose(node, next);
  const protocol::Outcome& why = session_.loss_of(node);
  const wire::Header said = wire::encode(wire::Lost{identity_.id, static_cast<std::uint32_t>(node), next,
                                                    why.code, static_cast<std::uint32_t>(why.text.size())});
  for (int r = 0; r < size(); ++r)
    if (r != rank()) send_text(r, said, why.text);
}

void GroupImpl::on_lost(int from, const wire::Lost& lost, const std::byte* payload) {
  const auto node = static_cast<int>(lost.node);
  if (from >= size() || node < size() || node >= static_cast<int>(seats_.size())) return;
  if (!losses_.knows(node)) {
    note_missing();
    session_.on_helper_lost(node, lost.code,
                            std::string(reinterpret_cast<const char*>(payload), lost.text_bytes));
    lose_helper(node);
  }
  losses_.hear(from, node, lost.next);
  agree_on_losses();
}

void GroupImpl::agree_on_losses() {
  const std::vector<steer::Losses::Agreed> agreed = losses_.take();
  for (const steer::Losses::Agreed& loss : agreed) {
    shared_plans_.forget(loss.from);
    if (leader_)
      to_avoid_.push_back(loss);  // there may be plans to make for calls before that
    else
      chooser_.change_to(cluster::without(chooser_.network(), std::vector<int>{loss.node}));
  }
  if (losses_.open()) {
    session_.plans_wait_for(losses_.missing());
  } else if (!agreed.empty()) {
    session_.plans_wait_for({protocol::kPlanner});
    plan_held();
  }
}

}  // namespace talweg::group
