// Survey, fourth part: which hosts share a way to all others, and what that carries.
#include <algorithm>
#include <tuple>
#include <utility>

#include "steer/survey.h"

namespace talweg::steer {
namespace {

// Flows that reach this part of what they reach alone are not held up.
constexpr double kFree = 0.93;
// So many measurements that agree make a limit.
constexpr int kSumBelieved = 3;

}  // namespace

void Survey::doubt_rounds() {
  for (const Index r : rounds_)
    if (!unexplained(observed(r), known_).empty()) queue_.push_back(r);
}

// As many flows at once as can be from those hosts to the others: the fastest first, no host in two.
std::vector<Flow> Survey::across(const std::vector<bool>& from) const {
  // Receivers behind one uplink might hold each other up there: they are taken in turn.
  std::vector<int> used(uplinks_.size());
  const auto crowd = [&](int h) {
    int most = 0;
    for (std::size_t u = 0; u < uplinks_.size(); ++u)
      if (uplinks_[u].inside[host(h)] && uplinks_[u].inside != from && rest_of(uplinks_[u].inside) != from)
        most = std::max(most, used[u]);
    return most;
  };
  const long inside = std::ranges::count(from, true);
  const bool few_senders = inside <= hosts_ - inside;  // the smaller side chooses
  std::vector<int> few, many;
  for (int h = 0; h < hosts_; ++h) (from[host(h)] == few_senders ? few : many).push_back(h);
  std::vector<Flow> flows;
  for (const int one : few) {
    const auto flow_to = [&](int other) { return few_senders ? Flow{one, other} : Flow{other, one}; };
    const auto best = std::ranges::min_element(many, [&](int a, int b) {
      const int crowd_a = crowd(a), crowd_b = crowd(b);
      if (crowd_a != crowd_b) return crowd_a < crowd_b;
      return base(flow_to(a)) > base(flow_to(b));
    });
    flows.push_back(flow_to(*best));
    for (std::size_t u = 0; u < uplinks_.size(); ++u)
      if (uplinks_[u].inside[host(*best)]) ++used[u];
    many.erase(best);
  }
  return flows;
}

// The capacity of what the flows of this trial share; none if they do not hold each other up.
std::optional<Estimate> Survey::judge_way(Index series) const {
  double free = 0;
  for (const Flow& flow : series_[series].trial.flows) free += base(flow);
  const Estimate rate = total(series);
  if (rate.value >= kFree * free) return std::nullopt;
  return rate;
}

void Survey::share() {
  // Only the last one can be waiting for its measurement.
  if (!uplinks_.empty() && uplinks_.back().leaving && !uplinks_.back().leaving_rate) {
    Uplink& supposed = uplinks_.back();
    const Index series = *supposed.leaving;
    const bool believed = total(series).agreeing >= kSumBelieved;
    if (unsure(total(series), series) || (!believed && haste_ == Haste::none && few_repeats(series))) {
      queue_.push_back(series);
      return;
    }
    // Busy hosts slow flows down as well, but hardly three times alike.
    if (believed || haste_ != Haste::none) supposed.leaving_rate = judge_way(series);
    if (supposed.leaving_rate) {
      known_.push_back({supposed.inside, rest_of(supposed.inside), false, supposed.leaving_rate->value});
    } else {
      uplinks_.pop_back();
    }
  }
  const bool enough = static_cast<int>(supposed_.size()) >= hosts_;
  const auto senders = enough ? std::nullopt : find_shared_exit(observed_rounds(), known_, hosts_, supposed_);
  if (!senders) {
    stage_ = Stage::ways;
    return;
  }
  Uplink supposed{*senders, {}, {}, {}, {}};
  supposed.leaving = make(across(*senders), 2);
  supposed_.push_back(*senders);
  uplinks_.push_back(std::move(supposed));
}

// Leaving the outer side is entering the inner one; and what was found one way is measured the other way too.
bool Survey::measure_ways() {
  std::vector<Uplink> merged;
  for (Uplink& u : uplinks_) {
    const long inside = std::ranges::count(u.inside, true);
    if (2 * inside > hosts_ || (2 * inside == hosts_ && !u.inside[0])) {
      u.inside.flip();
      std::swap(u.leaving, u.entering);
      std::swap(u.leaving_rate, u.entering_rate);
    }
    const auto same =
        std::ranges::find_if(merged, [&](const Uplink& other) { return other.inside == u.inside; });
    if (same == merged.end()) {
      merged.push_back(u);
    } else {
      if (u.leaving) std::tie(same->leaving, same->leaving_rate) = std::tie(u.leaving, u.leaving_rate);
      if (u.entering) std::tie(same->entering, same->entering_rate) = std::tie(u.entering, u.entering_rate);
    }
  }
  uplinks_ = std::move(merged);
  for (Uplink& u : uplinks_) {
    if (!u.leaving) u.leaving = make(across(u.inside), 2);
    if (!u.entering) u.entering = make(across(rest_of(u.inside)), 2);
  }
  if (!queue_.empty()) return true;
  for (Uplink& u : uplinks_) {
    for (const Index series : {*u.leaving, *u.entering})
      if (unsure(total(series), series)) queue_.push_back(series);
    u.leaving_rate = judge_way(*u.leaving);
    u.entering_rate = judge_way(*u.entering);
  }
  if (!queue_.empty()) return true;
  for (const Uplink& u : uplinks_) {
    if (u.leaving_rate) known_.push_back({u.inside, rest_of(u.inside), false, u.leaving_rate->value});
    if (u.entering_rate) known_.push_back({rest_of(u.inside), u.inside, false, u.entering_rate->value});
  }
  return false;
}

}  // namespace talweg::steer
