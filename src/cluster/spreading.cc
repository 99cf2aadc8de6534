// How traffic spreads over equally good ways: see routing.h.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

#include "base/at.h"
#include "base/random.h"
#include "cluster/routing.h"

namespace talweg::cluster {
namespace {

constexpr double kSameLoad = 1e-10;  // but for rounding

}  // namespace

// All best ways from anywhere to one node.
class Routes::Downhill {
 public:
  Downhill(const Routes& routes, const Cluster& cluster, const Links& leaving, int target)
      : routes_(routes), cluster_(cluster), target_(target), next_(cluster.nodes.size()) {
    for (int node = 0; node < static_cast<int>(next_.size()); ++node) {
      const Pair& whole = routes.pair(node, target);
      // One link is one way: no link is written twice.
      if (whole.relayed || whole.count < 2) continue;
      for (const int link : leaving[at(node)])
        if (leads_on(cluster.links[at(link)], whole)) next_[at(node)].push_back(link);
      // A host shares out over ports that are alike, as over a bond; among others it chooses one.
      const int first = routes.path(node, target).front();
      const auto as_wide = [&](int link) {
        return cluster.links[at(link)].capacity == cluster.links[at(first)].capacity;
      };
      if (cluster.nodes[at(node)].kind != NodeKind::switch_ && !std::ranges::all_of(next_[at(node)], as_wide))
        next_[at(node)] = {first};
    }
  }

  // The links that what leaves `from` travels over, and the parts of it, in order of travel.
  Shares from(int source) const {
    Shares shares;
    if (const Pair& whole = routes_.pair(source, target_); whole.relayed || whole.count < 2) {
      for (const int link : routes_.path(source, target_)) shares.push_back({link, 1});
      return shares;
    }
    // All best ways from a node have equally many links, so those of a part arrive together.
    std::vector<std::pair<int, double>> here{{source, 1.0}}, arriving;
    while (!here.empty()) {
      arriving.clear();
      for (const auto& [node, part] : here) {
        const auto& links = choices(node);
        for (const int link : links) {
          shares.push_back({link, part / static_cast<double>(links.size())});
          arriving.emplace_back(cluster_.links[at(link)].to, shares.back().part);
        }
      }
      std::ranges::sort(arriving);
      here.clear();
      for (const auto& [node, part] : arriving) {
        if (here.empty() || here.back().first != node) here.emplace_back(node, 0.0);
        here.back().second += part;
      }
    }
    return shares;
  }

 private:
  bool leads_on(const Link& link, const Pair& whole) const {
    const Pair& rest = routes_.pair(link.to, target_);
    return rest.reachable && !rest.relayed && cluster_.nodes[at(link.to)].kind == NodeKind::switch_ &&
           link.latency.value + rest.latency.value == whole.latency.value && 1 + rest.count == whole.count;
  }
  // Of a node that is one link away: that link.
  std::span<const int> choices(int node) const {
    return next_[at(node)].empty() ? routes_.path(node, target_) : std::span<const int>(next_[at(node)]);
  }

  const Routes& routes_;
  const Cluster& cluster_;
  int target_;
  std::vector<std::vector<int>> next_;
};

void Routes::find_spreads(const Cluster& cluster, const Links& leaving, const Groups& groups_of) {
  leaders_.resize(cluster.links.size());
  std::iota(leaders_.begin(), leaders_.end(), 0);
  followers_.assign(cluster.links.size(), 1);
  // Where traffic begins and ends, stubs of a switch taken together; and who is there.
  std::vector<std::vector<int>> members(nodes_);
  std::vector<int> places;
  for (int node = 0; at(node) < nodes_; ++node) {
    const Node& end = cluster.nodes[at(node)];
    if (end.kind == NodeKind::switch_ && !can_aggregate(end)) continue;
    const int place = stubs_[at(node)].at >= 0 ? stubs_[at(node)].at : node;
    if (members[at(place)].empty()) places.push_back(place);
    members[at(place)].push_back(node);
  }
  if (!find_leaders(cluster, leaving, groups_of, places)) return;
  // Of all ways again: to keep those of the first time would take gigabytes.
  for (const int to : places) {
    const Downhill ways(*this, cluster, leaving, to);
    for (const int from : places) {
      Shares shares = ways.from(from);
      if (one_way(shares)) continue;
      std::erase_if(shares, [&](const Share& share) { return leader(share.link) != share.link; });
      shares.shrink_to_fit();
      spreads_.push_back(std::move(shares));
      for (const int sender : members[at(from)]) {
        for (const int receiver : members[at(to)]) {
          Pair& pair = pairs_[at(sender) * nodes_ + at(receiver)];
          pair.spread = static_cast<int>(spreads_.size()) - 1;
          pair.rate = spread_rate(cluster, groups_of, sender, receiver);
        }
      }
    }
  }
}

// Links are always loaded alike if sums over all traffic are the same, where everybody's has a weight drawn
// at random; two such sums, since one may be so by chance. Whether anything spreads at all.
bool Routes::find_leaders(const Cluster& cluster, const Links& leaving, const Groups& groups_of,
                          const std::vector<int>& places) {
  Random random(1);
  std::vector<std::pair<double, double>> loads(leaders_.size());
  bool any = false;
  for (const int to : places) {
    const Downhill ways(*this, cluster, leaving, to);
    for (const int from : places) {
      const double first = random.uniform(), second = random.uniform();
      const Shares shares = ways.from(from);
      any = any || !one_way(shares);
      for (const Share& share : shares) {
        loads[at(share.link)].first += first * share.part;
        loads[at(share.link)].second += second * share.part;
      }
    }
  }
  if (!any) return false;
  std::vector<int> order;  // links that no group holds, those of stubs left out as well
  for (int link = 0; at(link) < loads.size(); ++link)
    if (groups_of[at(link)].empty() && loads[at(link)].first > 0) order.push_back(link);
  const auto kind = [&](int link) {
    const Link& l = cluster.links[at(link)];
    return std::tuple(l.capacity.bits_per_second, l.burst.value);
  };
  std::ranges::sort(order, [&](int a, int b) {
    return std::tuple(kind(a), loads[at(a)].first, a) < std::tuple(kind(b), loads[at(b)].first, b);
  });
  const auto alike = [&](int a, int b) {
    const auto [first, second] = loads[at(a)];
    return kind(a) == kind(b) && std::abs(first - loads[at(b)].first) <= kSameLoad * first &&
           std::abs(second - loads[at(b)].second) <= kSameLoad * second;
  };
  for (auto begin = order.begin(); begin != order.end();) {
    const auto end = std::find_if(begin, order.end(), [&](int link) { return !alike(*begin, link); });
    const int leads = *std::min_element(begin, end);
    std::for_each(begin, end, [&](int link) { leaders_[at(link)] = leads; });
    followers_[at(leads)] = static_cast<int>(end - begin);
    begin = end;
  }
  return true;
}

Bandwidth Routes::spread_rate(const Cluster& cluster, const Groups& groups_of, int from, int to) const {
  Bandwidth rate{std::numeric_limits<double>::infinity()};
  std::vector<double> uses(cluster.groups.size());
  for_each_share(from, to, [&](int link, double part) {
    rate = std::min(rate, Bandwidth{cluster.links[at(link)].capacity.bits_per_second / part});
    for (const std::size_t g : groups_of[at(link)]) {
      uses[g] += part;
      rate = std::min(rate, Bandwidth{cluster.groups[g].capacity.bits_per_second / uses[g]});
    }
  });
  return rate;
}

}  // namespace talweg::cluster
