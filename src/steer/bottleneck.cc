#include "steer/bottleneck.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>
#include <set>
#include <utility>

#include "base/at.h"

namespace talweg::steer {
namespace {

// Two measurements of the same thing differ by less than this.
constexpr double kAgree = 0.9;

Flow reverse(const Flow& flow) {
  return {flow.to, flow.from};
}

// What find_shared_exit looks at: one observation without what is beside the point.
struct Case {
  std::vector<Flow> flows;
  std::vector<double> rates;
  std::vector<Reason> reasons;
  bool held_up(std::size_t f) const { return reasons[f] == Reason::unknown; }
};

class Search {
 public:
  Search(const std::vector<Observation>& seen, const std::vector<Bottleneck>& known, int hosts)
      : hosts_(hosts) {
    for (const Observation& o : seen) cases_.push_back({o.flows, o.rates, explain(o, known)});
  }

  // How many flows that are held up the senders' shared exit explains; less for those that are none of it.
  int explained(const std::vector<bool>& senders) const {
    double most = 0;
    std::vector<double> loads;
    std::vector<int> held_up;
    for (const Case& one : cases_) {
      double load = 0;
      int crossing = 0, stuck = 0;
      for (std::size_t f = 0; f < one.flows.size(); ++f) {
        if (!senders[at(one.flows[f].from)] || senders[at(one.flows[f].to)]) continue;
        load += one.rates[f];
        ++crossing;
        stuck += one.held_up(f) ? 1 : 0;
      }
      most = std::max(most, load);
      loads.push_back(load);
      held_up.push_back(crossing > 1 ? stuck : 0);  // alone it shares nothing
    }
    int sum = 0;
    for (std::size_t c = 0; c < loads.size(); ++c)
      if (loads[c] >= kFull * most) sum += held_up[c];
    return sum;
  }

  std::vector<std::vector<bool>> all_sets() const {
    std::vector<std::vector<bool>> sets;
    for (std::uint32_t mask = 0; mask < (1U << hosts_); ++mask) {
      std::vector<bool> set(at(hosts_));
      for (int h = 0; h < hosts_; ++h) set[at(h)] = (mask >> h & 1U) != 0;
      sets.push_back(std::move(set));
    }
    return sets;
  }

  // For each host, those that it was never held up with, in either direction: likely its rack. From there,
  // and from all others, uphill by one host at a time.
  std::vector<std::vector<bool>> near_sets() const {
    std::set<std::vector<bool>> found;
    for (int h = 0; h < hosts_; ++h) {
      std::vector<bool> free(at(hosts_)), held_up(at(hosts_));
      for (const Case& one : cases_)
        for (std::size_t f = 0; f < one.flows.size(); ++f) {
          const Flow& flow = one.flows[f];
          if (flow.from != h && flow.to != h) continue;
          const int other = flow.from == h ? flow.to : flow.from;
          if (one.reasons[f] == Reason::acknowledgements) continue;  // nobody knows
          (one.held_up(f) ? held_up : free)[at(other)] = true;
        }
      std::vector<bool> near(at(hosts_));
      for (int other = 0; other < hosts_; ++other)
        near[at(other)] = other == h || (free[at(other)] && !held_up[at(other)]);
      found.insert(climb(near));
      near.flip();
      found.insert(climb(std::move(near)));
    }
    return {found.begin(), found.end()};
  }

 private:
  std::vector<bool> climb(std::vector<bool> set) const {
    for (int best = explained(set);;) {
      int chosen = -1;
      for (int h = 0; h < hosts_; ++h) {
        set[at(h)] = !set[at(h)];
        if (const int value = explained(set); value > best) {
          best = value;
          chosen = h;
        }
        set[at(h)] = !set[at(h)];
      }
      if (chosen < 0) return set;
      set[at(chosen)] = !set[at(chosen)];
    }
  }

  const int hosts_;
  std::vector<Case> cases_;
};

}  // namespace

Estimate estimate(std::vector<double> values) {
  if (values.empty()) return {};
  if (values.size() == 1) return {values[0], 1, 1};
  std::ranges::sort(values, std::greater<>());
  std::size_t first = 0, last = values.size() - 1;
  int agreeing = 0;
  for (std::size_t i = 0; i + 1 < values.size(); ++i) {
    if (values[i + 1] < kAgree * values[i]) continue;
    first = last = i;
    while (last + 1 < values.size() && values[last + 1] >= kAgree * values[first]) ++last;
    agreeing = static_cast<int>(last - first) + 1;
    break;
  }
  const double middle = (values[first] + values[last]) / 2;
  if (middle <= 0) return {};
  return {middle, (values[first] - values[last]) / 2 / middle, agreeing};
}

Estimate fastest(std::vector<double> values) {
  if (values.empty()) return {};
  const double best = *std::ranges::max_element(values);
  std::erase_if(values, [&](double value) { return value < kAgree * best; });
  return estimate(std::move(values));
}

std::vector<bool> only(int hosts, int host) {
  std::vector<bool> set(static_cast<std::size_t>(hosts));
  set[static_cast<std::size_t>(host)] = true;
  return set;
}

std::vector<bool> all(int hosts) {
  return std::vector<bool>(static_cast<std::size_t>(hosts), true);
}

std::vector<bool> rest_of(std::vector<bool> set) {
  set.flip();
  return set;
}

bool Bottleneck::carries(const Flow& flow) const {
  const bool sent = senders[at(flow.from)], received = receivers[at(flow.to)];
  return either ? sent || received : sent && received;
}

double Observation::through(const Bottleneck& bottleneck) const {
  double sum = 0;
  for (std::size_t f = 0; f < flows.size(); ++f)
    if (bottleneck.carries(flows[f])) sum += rates[f];
  return sum;
}

std::vector<Reason> explain(const Observation& seen, const std::vector<Bottleneck>& known) {
  std::vector<Reason> reasons(seen.flows.size(), Reason::unknown);
  for (const Bottleneck& b : known) {
    double acknowledged = 0;
    for (std::size_t f = 0; f < seen.flows.size(); ++f)
      if (b.carries(reverse(seen.flows[f]))) acknowledged += seen.rates[f];
    const double load = seen.through(b) + kAcknowledgements * acknowledged;
    if (load < kMayWait * b.capacity) continue;
    for (std::size_t f = 0; f < seen.flows.size(); ++f) {
      if (load >= kFull * b.capacity && b.carries(seen.flows[f])) {
        reasons[f] = Reason::full;
      } else if (b.carries(reverse(seen.flows[f]))) {
        reasons[f] = std::max(reasons[f], Reason::acknowledgements);
      }
    }
  }
  return reasons;
}

std::vector<std::size_t> unexplained(const Observation& seen, const std::vector<Bottleneck>& known) {
  const std::vector<Reason> reasons = explain(seen, known);
  std::vector<std::size_t> list;
  for (std::size_t f = 0; f < reasons.size(); ++f)
    if (reasons[f] == Reason::unknown) list.push_back(f);
  return list;
}

// Raises all rates together; whenever a bottleneck is full, its flows are settled (Bertsekas and Gallager,
// Data Networks, 6.5.2).
std::vector<double> fair_rates(const std::vector<Flow>& flows, const std::vector<Bottleneck>& known,
                               const std::vector<double>& most) {
  struct Shared {
    double left = 0;
    std::size_t open = 0;  // of its flows, those that are not settled
    std::vector<std::size_t> flows;
  };
  std::vector<Shared> shared;
  std::vector<std::vector<std::size_t>> by_flow(flows.size());
  for (const Bottleneck& b : known) {
    Shared one{b.capacity, 0, {}};
    for (std::size_t f = 0; f < flows.size(); ++f) {
      if (!b.carries(flows[f])) continue;
      one.flows.push_back(f);
      by_flow[f].push_back(shared.size());
    }
    one.open = one.flows.size();
    if (one.open > 0) shared.push_back(std::move(one));
  }
  std::vector<std::size_t> slowest(flows.size());
  std::iota(slowest.begin(), slowest.end(), std::size_t{0});
  std::ranges::sort(slowest, {}, [&](std::size_t f) { return most[f]; });
  std::vector<double> rates(most);
  std::vector<bool> settled(flows.size());
  const auto settle = [&](std::size_t f, double rate) {
    rates[f] = rate;
    settled[f] = true;
    for (const std::size_t s : by_flow[f]) {
      shared[s].left -= rate;
      --shared[s].open;
    }
  };
  for (auto next = slowest.begin(); next != slowest.end();) {
    if (settled[*next]) {
      ++next;
      continue;
    }
    double least = most[*next];
    const Shared* tightest = nullptr;
    for (const Shared& one : shared) {
      if (one.open == 0) continue;
      const double each = std::max(0.0, one.left / static_cast<double>(one.open));
      if (each >= least) continue;
      least = each;
      tightest = &one;
    }
    if (tightest == nullptr) {
      settle(*next, least);
    } else {
      for (const std::size_t f : tightest->flows)
        if (!settled[f]) settle(f, least);
    }
  }
  return rates;
}

std::optional<std::vector<bool>> find_shared_exit(const std::vector<Observation>& seen,
                                                  const std::vector<Bottleneck>& known, int hosts,
                                                  const std::vector<std::vector<bool>>& not_these) {
  constexpr int kTryAll = 16;
  const Search search(seen, known, hosts);
  std::optional<std::vector<bool>> best;
  int most = 1;  // one flow that is held up is no company
  long fewest = 0;
  for (const std::vector<bool>& set : hosts <= kTryAll ? search.all_sets() : search.near_sets()) {
    const long inside = std::ranges::count(set, true);
    if (inside < 2 || hosts - inside < 2) continue;
    if (std::ranges::find(not_these, set) != not_these.end()) continue;
    const int value = search.explained(set);
    const long pairs = inside * (hosts - inside);  // what explains as much with less is likelier
    if (value < most || value < 2 || (value == most && best && pairs >= fewest)) continue;
    best = set;
    most = value;
    fewest = pairs;
  }
  return best;
}

}  // namespace talweg::steer
