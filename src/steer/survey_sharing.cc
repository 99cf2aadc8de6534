// Survey, fourth part: which hosts share a way to all others, and what that carries.
#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "steer/survey.h"

namespace talweg::steer {
namespace {

// Hosts whose flows to the others lose less than this part to each other share nothing worth knowing.
constexpr double kOneWay = 0.07;
// In so many companies flows from the same hosts are measured.
constexpr int kCompanies = 3;
// After so many that were supposed in vain, others are less likely still.
constexpr int kMostRefuted = 4;

}  // namespace

// Rounds with flows that are slow for no reason, once more; not where they are more than this part of all.
void Survey::doubt_rounds(double most) {
  std::vector<Index> again;
  for (const Index r : rounds_)
    if (series_[r].repeats.size() < 2 && !unexplained(observed(r), known_).empty()) again.push_back(r);
  if (static_cast<double>(again.size()) <= most * static_cast<double>(rounds_.size()))
    queue_.insert(queue_.end(), again.begin(), again.end());
}

// As many flows at once as can be from those hosts to the others: the fastest first, no host in two, and in
// other company than before, with other hosts where there are enough.
std::vector<Flow> Survey::across(const std::vector<bool>& from,
                                 const std::vector<std::vector<Flow>>& before) const {
  // Receivers behind one uplink might hold each other up there: they are taken in turn.
  const std::vector<Uplink> known_uplinks = uplinks();
  std::vector<int> used(known_uplinks.size());
  const auto crowd = [&](int h) {
    int most = 0;
    for (std::size_t u = 0; u < known_uplinks.size(); ++u) {
      const std::vector<bool>& inside = known_uplinks[u].inside;
      if (inside[host(h)] && inside != from && rest_of(inside) != from) most = std::max(most, used[u]);
    }
    return most;
  };
  // Nor is anybody to send against the others on a way that is known.
  std::vector<Flow> flows;
  const auto against = [&](const Flow& flow) {
    return std::ranges::any_of(ways_, [&](const Way& way) {
      const auto crosses = [&](const Flow& f) {  // 1: out of those hosts, -1: in
        return static_cast<int>(way.senders[host(f.from)]) - static_cast<int>(way.senders[host(f.to)]);
      };
      return std::ranges::any_of(flows, [&](const Flow& f) { return crosses(f) * crosses(flow) < 0; });
    });
  };
  std::vector<int> turns(host(hosts_));
  std::vector<Flow> met;
  for (const std::vector<Flow>& company : before)
    for (const Flow& flow : company) {
      met.push_back(flow);
      ++turns[host(flow.from)];
      ++turns[host(flow.to)];
    }
  const long inside = std::ranges::count(from, true);
  const bool few_senders = inside <= hosts_ - inside;  // the smaller side chooses
  std::vector<int> few, many;
  for (int h = 0; h < hosts_; ++h) (from[host(h)] == few_senders ? few : many).push_back(h);
  for (const int one : few) {
    const auto flow_to = [&](int other) { return few_senders ? Flow{one, other} : Flow{other, one}; };
    const auto rank = [&](int other) {
      const Flow flow = flow_to(other);
      return std::tuple(against(flow), crowd(other), turns[host(other)], std::ranges::count(met, flow),
                        -base(flow));
    };
    const auto best = std::ranges::min_element(many, {}, rank);
    flows.push_back(flow_to(*best));
    for (std::size_t u = 0; u < known_uplinks.size(); ++u)
      if (known_uplinks[u].inside[host(*best)]) ++used[u];
    many.erase(best);
  }
  return flows;
}

// Tries sets of hosts, one after the other; false when none is left to try.
bool Survey::share() {
  if (supposed_) {
    if (test_supposed()) return true;
    const Way way = std::move(*supposed_);
    supposed_.reset();
    if (way.rate) {
      refuted_ = 0;
      known_.push_back({way.senders, rest_of(way.senders), false, way.rate->value});
      ways_.push_back(way);
      // What leads out leads in, too.
      if (std::vector<bool> back = rest_of(way.senders); std::ranges::find(tried_, back) == tried_.end()) {
        suppose(std::move(back));
        return true;
      }
    } else {
      ++refuted_;
    }
  }
  const auto senders = to_suppose();
  if (senders) suppose(*senders);
  return senders.has_value();
}

// The set that explains most; or, where nothing is left to explain, the hosts that are behind no uplink when
// others are: traffic between them and those is held up there already.
std::optional<std::vector<bool>> Survey::to_suppose() const {
  if (haste_ == Haste::finish || refuted_ >= kMostRefuted || static_cast<int>(tried_.size()) >= 2 * hosts_)
    return std::nullopt;
  if (auto senders = find_shared_exit(observed_rounds(), known_, hosts_, tried_)) return senders;
  std::vector<bool> rest = all(hosts_);
  for (const Uplink& u : uplinks())
    for (int h = 0; h < hosts_; ++h)
      if (u.inside[host(h)]) rest[host(h)] = false;
  const long count = std::ranges::count(rest, true);
  if (count < 2 || hosts_ - count < 2 || std::ranges::find(tried_, rest) != tried_.end()) return std::nullopt;
  return rest;
}

void Survey::suppose(std::vector<bool> senders) {
  Way way;
  std::vector<std::vector<Flow>> companies;
  for (int c = 0; c < kCompanies; ++c) companies.push_back(across(senders, companies));
  std::vector<Flow> parts[2];
  for (std::size_t f = 0; f < companies[0].size(); ++f) parts[f % 2].push_back(companies[0][f]);
  for (std::vector<Flow>& flows : companies) way.companies.push_back(make(std::move(flows), 0));
  for (std::vector<Flow>& flows : parts) way.parts.push_back(make(std::move(flows), 0));
  tried_.push_back(senders);
  way.senders = std::move(senders);
  supposed_ = std::move(way);
}

// Whether, by all that is known, no acknowledgements of these flows wait behind data on a way.
bool Survey::goes_one_way(Index series) const {
  const std::vector<Flow>& flows = series_[series].trial.flows;
  const std::vector<double> most(flows.size(), std::numeric_limits<double>::infinity());
  const Observation expected{flows, fair_rates(flows, known_, most)};
  return std::ranges::none_of(ways_, [&](const Way& way) {
    const Bottleneck known{way.senders, rest_of(way.senders), false, way.rate->value};
    return expected.through(known) >= kMayWait * known.capacity &&
           std::ranges::any_of(flows, [&](const Flow& flow) {
             return known.carries({flow.to, flow.from});
           });
  });
}

Supposition Survey::way_supposition(const Way& way) const {
  Supposition supposed;
  for (const Index company : way.companies)  // one that says nothing counts as apart anyway
    supposed.companies.push_back({goes_one_way(company) ? apart(company) : 0, totals(company)});
  supposed.times_in_parts = series_[way.parts[0]].repeats.size();
  for (const Index part : way.parts) {
    const std::vector<double> sums = totals(part);
    if (!sums.empty()) supposed.in_parts += *std::ranges::max_element(sums);
  }
  supposed.carried = carried({way.senders, rest_of(way.senders), false, 0});
  supposed.elsewhere = carried({all(hosts_), all(hosts_), false, 0});
  return supposed;
}

// Whether it asks for more; then that is in the queue.
bool Survey::test_supposed() {
  Way& way = *supposed_;
  const Judgement found = judge(way_supposition(way), noise(), standard(kOneWay));
  if (found.verdict == Judgement::Verdict::unsure) {
    if (found.company) {
      queue_.push_back(way.companies[*found.company]);
    } else {
      queue_.insert(queue_.end(), way.parts.begin(), way.parts.end());
    }
    return true;
  }
  if (found.verdict == Judgement::Verdict::apart) return false;
  if (haste_ == Haste::none && found.capacity.half_width > options_.confidence &&
      few_repeats(way.companies[0])) {
    queue_.push_back(way.companies[0]);
    return true;
  }
  way.rate = found.capacity;
  way.doubt = found.doubt;
  return false;
}

// With pairs known, what seemed wrong before may be right.
void Survey::forget_refuted() {
  refuted_ = 0;
  tried_.clear();
  for (const Way& way : ways_)
    for (const std::vector<bool>& senders : {way.senders, rest_of(way.senders)})
      if (std::ranges::find(tried_, senders) == tried_.end()) tried_.push_back(senders);
}

// Leaving the outer side is entering the inner one.
std::vector<Survey::Uplink> Survey::uplinks() const {
  std::vector<Uplink> list;
  for (const Way& way : ways_) {
    const long senders = std::ranges::count(way.senders, true);
    const bool out = 2 * senders < hosts_ || (2 * senders == hosts_ && way.senders[0]);
    const std::vector<bool> inside = out ? way.senders : rest_of(way.senders);
    auto same = std::ranges::find_if(list, [&](const Uplink& other) { return other.inside == inside; });
    if (same == list.end()) same = list.insert(list.end(), Uplink{inside, {}, {}});
    (out ? same->leaving : same->entering) = way.rate;
  }
  return list;
}

}  // namespace talweg::steer
