#include "steer/shared_plans.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/collectives.h"
#include "base/fail.h"
#include "forest/forest_bytes.h"
#include "forest/verify.h"

namespace talweg::steer {

bool is_shared(const forest::Request& request) {
  return request.ranks > 1 && request.op != Collective::send_recv && facts(request.op).knows == Knows::all;
}

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

// This node's part of the word's forest, if it has one.
SharedPlan SharedPlans::make(const PlanWord& word) const {
  const auto refuse = [&](const std::string& why) {
    throw_error(ErrorCode::corrupted, "what rank 0 says of plans at call {}: {}", word.call, why);
  };
  if (word.call < next_word_) refuse("it has spoken of this call or a later one before");
  if (word.next <= word.call || (word.next_turn && *word.next_turn <= word.call))
    refuse("the next word is for no later call");
  if (!word.request) return nullptr;
  if (word.request->ranks != ranks_)
    refuse(fmt::format("a plan for {} ranks, the group has {}", word.request->ranks, ranks_));
  if (!is_shared(*word.request))
    refuse(fmt::format("a plan for {}, which every rank makes for itself", name(word.request->op)));
  if (!word.forest) {
    if (self_ < ranks_ && (word.forget || told_before(word) == nullptr))
      refuse("a plan stays which it has never told");
    return nullptr;
  }
  if (word.forest->request != *word.request) refuse("the plan is for another call");
  if (word.forest->nodes > nodes_)
    refuse(fmt::format("a plan among {} nodes, the group has {}", word.forest->nodes, nodes_));
  const std::uint32_t digest = forest::digest(*word.forest);
  if (word.digest != 0 && word.digest != digest)
    refuse(
        fmt::format("rank 0's build of Talweg knows the plan as {:08x}, the one here as {:08x}: install the "
                    "same version everywhere",
                    word.digest, digest));
  try {
    forest::verify(*word.forest);
    return protocol::make_plan(word.forest, self_, {.nodes = nodes_, .digest = digest});
  } catch (const Error& e) {
    refuse(e.what());
  }
  return nullptr;
}

void SharedPlans::hear(const PlanWord& word) {
  const SharedPlan plan = make(word);
  next_word_ = word.call + 1;
  if (word.next_turn) turn_words_.push_back({word.call, *word.next_turn});
  if (word.forget) forget(word.call, word.rates);
  if (!word.request) return;
  if (self_ >= ranks_) {
    if (plan) kept_[plan->digest] = {plan, word.call};
    return;
  }
  const Told* const before = told_before(word);
  Shape& shape = plans_[*word.request];
  if (before == nullptr) shape.since = word.call;
  shape.told.push_back({word.call, word.next, plan ? plan : before->plan});
}

// What was said last of the same request and still holds at the word's call. What is forgotten later does not
// matter: losses are agreed on ahead of time.
const SharedPlans::Told* SharedPlans::told_before(const PlanWord& word) const {
  const auto known = plans_.find(*word.request);
  if (known == plans_.end() || known->second.told.empty()) return nullptr;
  const Told& last = known->second.told.back();
  const bool forgotten = std::ranges::any_of(
      forgets_, [&](const Forget& f) { return f.from <= word.call && last.from < f.from; });
  return forgotten ? nullptr : &last;
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
    last_ = nullptr;
    for (auto shape = plans_.begin(); shape != plans_.end();) {
      std::erase_if(shape->second.told, [&](const Told& told) { return told.from < from; });
      shape = shape->second.told.empty() ? plans_.erase(shape) : std::next(shape);
    }
  }
  while (turns_ && turn_words_.size() > 1 && turn_words_[1].from <= call) turn_words_.pop_front();
}

bool SharedPlans::turn_is_due(std::uint64_t call) const {
  if (!turns_) return false;
  std::uint64_t next = 0;
  for (const Turn& turn : turn_words_)
    if (turn.from <= call) next = turn.next;
  return next <= call;
}

SharedPlans::Shape* SharedPlans::shape_of(const forest::Request& request) {
  if (last_ == nullptr || last_->first != request) {
    const auto known = plans_.find(request);
    last_ = known == plans_.end() ? nullptr : &*known;
  }
  return last_ == nullptr ? nullptr : &last_->second;
}

const SharedPlans::Told* SharedPlans::told_for(std::uint64_t call, Shape* shape) {
  if (shape == nullptr) return nullptr;
  auto& told = shape->told;
  while (told.size() > 1 && told[1].from <= call) told.erase(told.begin());
  return told.front().from <= call ? &told.front() : nullptr;
}

SharedPlans::Due SharedPlans::due(std::uint64_t call, const forest::Request& request) {
  pass(call);
  Shape* const shape = shape_of(request);
  const Told* const told = told_for(call, shape);
  if (told == nullptr) return {true, false, call, nullptr};
  return {false, told->next <= call, shape->since, told->plan->forest.get()};
}

SharedPlan SharedPlans::find(std::uint64_t call, const forest::Request& request) {
  pass(call);
  if (turn_is_due(call)) return nullptr;
  const Told* const told = told_for(call, shape_of(request));
  return told == nullptr || told->next <= call ? nullptr : told->plan;
}

SharedPlan SharedPlans::find(std::uint64_t call, std::uint32_t digest) {
  const auto found = kept_.find(digest);
  if (found == kept_.end()) return nullptr;
  found->second.last = std::max(found->second.last, call);
  return found->second.plan;
}

void SharedPlans::passed(int rank, std::uint64_t call) {
  std::uint64_t& of_rank = passed_[static_cast<std::size_t>(rank)];
  of_rank = std::max(of_rank, call);
  const std::uint64_t all = *std::ranges::min_element(passed_);
  for (; !forgets_.empty() && forgets_.front().from <= all; forgets_.pop_front())
    std::erase_if(kept_, [&](const auto& entry) { return entry.second.last < forgets_.front().from; });
}

}  // namespace talweg::steer
