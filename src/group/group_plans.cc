// How a group's ranks come to the same plans: what rank 0 says of them, and the calls that wait for it.
#include <cstring>

#include "base/units.h"
#include "group/group_impl.h"

namespace talweg::group {

namespace {
constexpr std::size_t kPartBytes = 64U << 10;  // of a frame: it holds up others no longer than a chunk does
}  // namespace

void GroupImpl::adapt() {
  // Between ranks of one host there is no network to follow.
  if (size() < 2 || world_->engine().all_local()) return;
  const auto guard = world_->lock();
  follows_ = true;
  shared_plans_.expect_turns();
  if (rank() != protocol::kPlanner) return;
  adaptation_ = std::make_unique<steer::Adaptation>(chooser_.network(), world_->replanning());
  leader_ = std::make_unique<steer::PlanLeader>(shared_plans_, chooser_, adaptation_.get());
}

std::shared_ptr<const protocol::Plan> GroupImpl::plan_for(std::uint64_t call,
                                                          const forest::Request& request) {
  for (auto loss = to_avoid_.begin(); loss != to_avoid_.end();) {
    if (call < loss->from) {
      ++loss;
      continue;
    }
    chooser_.change_to(cluster::without(chooser_.network(), std::vector<int>{loss->node}));
    loss = to_avoid_.erase(loss);
  }
  // Rank 0 says something where nobody could go on without it, and only there.
  auto plan = find_plan(call, request);
  if (plan != nullptr || !leader_) return plan;
  if (const auto word = leader_->lead(call, request)) say(*word);
  return find_plan(call, request);
}

std::shared_ptr<const protocol::Plan> GroupImpl::find_plan(std::uint64_t call,
                                                           const forest::Request& request) {
  auto plan = shared_plans_.find(call, request);
  if (const auto rates = shared_plans_.take_rates(); !rates.empty() && !leader_)
    chooser_.change_to(rates, nullptr);
  return plan;
}

// Ahead of the data: whoever gets those may be waiting for this.
void GroupImpl::say(const steer::PlanWord& word) {
  note_word(word);
  const std::vector<std::byte> bytes = to_bytes(word);
  for (std::size_t at = 0; at < bytes.size(); at += kPartBytes) {
    const std::size_t n = std::min(kPartBytes, bytes.size() - at);
    const std::string part(reinterpret_cast<const char*>(bytes.data() + at), n);
    const wire::Header header =
        encode(wire::PlanPart{identity_.id, at + n == bytes.size(), static_cast<std::uint32_t>(n)});
    for (int node = 0; node < static_cast<int>(seats_.size()); ++node)
      if (node != rank()) send_text(node, header, part);
  }
  if (word.forget) session_.renew_plans(word.call);
  if (word.report) adaptation_->hear(rank(), meter_.take(world_->engine().peer_statistics()), live::now_ns());
}

void GroupImpl::hear(int from, const wire::Header& header, const std::byte* payload) {
  try {
    if (header.type == wire::FrameType::report) {
      std::vector<double> report(header.length / sizeof(double));
      std::memcpy(report.data(), payload, report.size() * sizeof(double));
      if (!adaptation_ || !adaptation_->hear(from, report, live::now_ns()))
        throw Error(ErrorCode::corrupted, "it reports what nobody has asked for");
      return;
    }
    if (from != protocol::kPlanner)
      throw Error(ErrorCode::corrupted, "it speaks of plans, which rank 0 alone makes");
    const auto word = word_.add({payload, header.length}, wire::plan_part_of(header).last);
    if (word) take_up(*word);
  } catch (const Error& e) {
    session_.on_damaged(from, e.code(), e.what());
  } catch (const std::bad_alloc&) {
    session_.on_damaged(from, ErrorCode::corrupted, "it speaks of a plan that memory does not hold");
  }
}

void GroupImpl::take_up(const steer::PlanWord& word) {
  shared_plans_.hear(word);
  note_word(word);
  if (word.forget) session_.renew_plans(word.call);
  if (word.report) {  // also before adapt(): rank 0 may be ahead, and waits for all
    const std::vector<double> report = meter_.take(world_->engine().peer_statistics());
    const std::string bytes(reinterpret_cast<const char*>(report.data()), report.size() * sizeof(double));
    send_text(protocol::kPlanner,
              encode(wire::Report{identity_.id, static_cast<std::uint32_t>(bytes.size())}), bytes);
  }
  plan_held();
}

void GroupImpl::plan_held() {
  for (; !held_.empty() && !losses_.open(); held_.pop_front()) {
    const Held next = held_.front();
    if (!session_.waits_for_plan(next.call)) continue;  // it has failed
    std::shared_ptr<const protocol::Plan> plan;
    try {
      plan = with_switch(plan_for(next.call, next.request), next.type, next.reduction, next.priority);
    } catch (const std::exception& e) {
      session_.abort(e.what());  // what was planned with a node has no plan without it
      break;
    }
    if (plan == nullptr) break;
    begin_paced(*next.work, *plan);
    session_.plan(next.call, std::move(plan));
  }
}

void GroupImpl::note_word(const steer::PlanWord& word) {
  if (!log_.shows(LogLevel::info)) return;
  if (!word.rates.empty()) log_.log(LogLevel::info, "plan", "the network has changed: other plans");
  if (word.forest == nullptr) return;
  std::int64_t bytes = 0;
  for (const std::int64_t count : word.request->counts) bytes += count * word.request->element_size;
  log_.log(LogLevel::info, "plan", "{} of {}: {}", name(word.request->op), to_string(Bytes{bytes}),
           steer::describe(*word.forest, *chooser_.model()));
}

}  // namespace talweg::group
