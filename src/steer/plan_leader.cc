#include "steer/plan_leader.h"

#include <algorithm>
#include <utility>

namespace talweg::steer {

std::optional<PlanWord> PlanLeader::lead(std::uint64_t call, const forest::Request& request) {
  PlanWord word;
  word.call = call;
  const bool turns = plans_.turn_is_due(call);
  if (turns) {
    NetworkWatch::Turn turn = watch_->turn(call);
    word.forget = !turn.rates.empty();
    if (word.forget) source_.change_to(turn.rates, std::move(turn.ahead));
    word.rates = std::move(turn.rates);
    word.report = turn.report;
    word.next_turn = std::max(turn.next, call + 1);
  }
  const SharedPlans::Due due = plans_.due(call, request);
  if (due.first || word.forget) {
    word.forget = word.forget || plans_.full();
    PlanSource::Plan plan = source_.first(request);
    word.request = request;
    word.forest = std::move(plan.forest);
    if (!plan.final) word.next = call + 1;
  } else if (due.again) {
    PlanSource::Plan plan = source_.later(request);
    word.request = request;
    if (plan.forest != nullptr && *plan.forest != *due.forest) word.forest = std::move(plan.forest);
    if (!plan.final) word.next = call + (call - due.since);
  } else if (!turns) {
    return std::nullopt;
  }
  plans_.hear(word);
  if (word.forest != nullptr) word.digest = plans_.find(call, request)->digest;
  return word;
}

}  // namespace talweg::steer
