#include "steer/shared_plans.h"

#include <algorithm>
#include <utility>

#include "forest/forest_bytes.h"
#include "talweg/error.h"

namespace talweg::steer {

std::size_t RequestHash::operator()(const forest::Request& r) const {
  std::size_t h = static_cast<std::size_t>(r.op) * 0x9e3779b97f4a7c15ULL + static_cast<std::size_t>(r.root);
  const auto mix = [&](std::int64_t v) {
    h = (h ^ static_cast<std::size_t>(v)) * 0x100000001b3ULL ^ (h >> 31);
  };
  mix(r.peer);
  mix(r.element_size);
  for (const std::int64_t count : r.counts) mix(count);
  return h;
}

SharedPlan SharedPlans::make(std::shared_ptr<const forest::Forest> forest) const {
  const std::uint32_t digest = forest::digest(*forest);
  auto plan = std::make_shared<protocol::LocalPlan>(
      *protocol::make_local_plan(std::move(forest), self_, {.nodes = nodes_}));
  plan->digest = digest;
  return plan;
}

void SharedPlans::hear(const PlanWord& word) {
  if (word.next_turn) turn_words_.push_back({word.call, *word.next_turn});
  if (word.forget) forget(word.call, word.rates);
  if (!word.request) return;
  if (self_ >= word.request->ranks) {
    if (!word.forest) return;
    if (lately_.size() == 2 * kMostRequests) lately_.pop_front();
    lately_.push_back(make(word.forest));
    return;
  }
  Shape& shape = plans_[*word.request];
  const bool holds =
      !shape.told.empty() && (forgets_.empty() || shape.told.back().from >= forgets_.back().from);
  if (!holds && !word.forest)
    throw Error(ErrorCode::corrupted, "rank 0 says that a plan stays which it has never told");
  if (!holds) shape.since = word.call;
  shape.told.push_back({word.call, word.next, word.forest ? make(word.forest) : shape.told.back().plan});
}

void SharedPlans::forget(std::uint64_t call, std::vector<double> rates) {
  const auto after = std::ranges::find_if(forgets_, [&](const Forget& f) { return f.from > call; });
  forgets_.insert(after, {call, std::move(rates)});
}

// Forgets what holds no longer at `call`.
void SharedPlans::pass(std::uint64_t call) {
  while (!forgets_.empty() && forgets_.front().from <= call) {
    const std::uint64_t from = forgets_.front().from;
    if (!forgets_.front().rates.empty()) rates_ = std::move(forgets_.front().rates);
    forgets_.pop_front();
    for (auto shape = plans_.begin(); shape != plans_.end();) {
      std::erase_if(shape->second.told, [&](const Told& told) { return told.from < from; });
      shape = shape->second.told.empty() ? plans_.erase(shape) : std::next(shape);
    }
  }
  while (turn_words_.size() > 1 && turn_words_[1].from <= call) turn_words_.pop_front();
}

bool SharedPlans::turn_is_due(std::uint64_t call) const {
  if (!turns_) return false;
  std::uint64_t next = 0;
  for (const Turn& turn : turn_words_)
    if (turn.from <= call) next = turn.next;
  return next <= call;
}

SharedPlans::Told* SharedPlans::told_for(std::uint64_t call, const forest::Request& request) {
  const auto known = plans_.find(request);
  if (known == plans_.end()) return nullptr;
  auto& told = known->second.told;
  while (told.size() > 1 && told[1].from <= call) told.erase(told.begin());
  return told.front().from <= call ? &told.front() : nullptr;
}

SharedPlans::Due SharedPlans::due(std::uint64_t call, const forest::Request& request) {
  pass(call);
  const Told* const told = told_for(call, request);
  if (told == nullptr) return {true, false, call, nullptr};
  return {false, told->next <= call, plans_.find(request)->second.since, told->plan->forest.get()};
}

SharedPlan SharedPlans::find(std::uint64_t call, const forest::Request& request) {
  pass(call);
  if (turn_is_due(call)) return nullptr;
  const Told* const told = told_for(call, request);
  return told == nullptr || told->next <= call ? nullptr : told->plan;
}

SharedPlan SharedPlans::find(std::uint32_t digest) const {
  const auto found = std::find_if(lately_.rbegin(), lately_.rend(),
                                  [&](const SharedPlan& plan) { return plan->digest == digest; });
  return found == lately_.rend() ? nullptr : *found;
}

}  // namespace talweg::steer
