// Least cuts and weakest partitions by discrete Newton steps (Dinkelbach 1967): to minimise a quotient f(S) /
// g(S), guess its value, find the S for which f(S) is furthest below the guess times g(S), and guess again
// from that S. Guesses are fractions of small integers, every step is a maximum flow, and a few steps
// suffice.
#include "forest/bound_exact.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "base/at.h"
#include "cluster/max_flow.h"
#include "forest/tree_market.h"

namespace talweg::forest {
namespace {

constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max() / 4;

struct Arc {
  int from, to;
  std::int64_t capacity;
};

std::vector<Arc> arcs(const cluster::Cluster& cluster, const ExactCapacities& capacities, bool reversed) {
  std::vector<Arc> result;
  for (std::size_t link = 0; link < cluster.links.size(); ++link) {
    const auto& [from, to] = std::pair{cluster.links[link].from, cluster.links[link].to};
    result.push_back({reversed ? to : from, reversed ? from : to, capacities.links[link]});
  }
  return result;
}

std::int64_t leaving(const std::vector<Arc>& arcs, const std::vector<bool>& side) {
  std::int64_t sum = 0;
  for (const Arc& arc : arcs)
    if (side[at(arc.from)] && !side[at(arc.to)]) sum += arc.capacity;
  return sum;
}

struct Cut {
  std::int64_t capacity = kUnlimited;
  std::vector<bool> side;  // where what crosses comes from
};

// The least cut between `root` and any other worker.
Cut cut_from(const std::vector<Arc>& arcs, int nodes, int workers, NodeId root) {
  cluster::MaxFlow flow(nodes);
  for (const Arc& arc : arcs) flow.add_arc(arc.from, arc.to, arc.capacity);
  Cut least;
  for (NodeId worker = 0; worker < workers; ++worker) {
    if (worker == root) continue;
    const std::int64_t capacity = flow.solve(root, worker);
    if (capacity < least.capacity) least = {capacity, flow.source_side()};
  }
  return least;
}

// The set of nodes, without some worker of `sinks`, that least capacity leaves for each of its workers.
// Guess p/q: every worker sends p of its own over arcs of q times their capacity; all n p of it reach every
// sink, or a least cut shows a set with less than p/q (section 2 of Zhao et al., "Efficient direct-connect
// topologies for collective communications").
std::vector<bool> gather_cut(const std::vector<Arc>& arcs, int nodes, int workers,
                             const std::vector<NodeId>& sinks) {
  std::vector<bool> best;
  std::int64_t p = kUnlimited, q = 1;
  const auto consider = [&](const std::vector<bool>& side) {
    const std::int64_t capacity = leaving(arcs, side);
    const std::int64_t senders = std::count(side.begin(), side.begin() + workers, true);
    if (static_cast<Wide>(capacity) * q >= static_cast<Wide>(p) * senders) return false;
    const std::int64_t common = std::gcd(capacity, senders);
    p = capacity / common;
    q = senders / common;
    best = side;
    return true;
  };
  for (int worker = 0; worker < workers; ++worker) {
    std::vector<bool> alone(at(nodes)), others(at(nodes), true);
    alone[at(worker)] = true;
    others[at(worker)] = false;
    if (sinks != std::vector<NodeId>{worker}) consider(alone);
    if (std::ranges::count(sinks, worker) > 0) consider(others);
  }
  for (bool better = true; better;) {
    better = false;
    cluster::MaxFlow flow(nodes + 1);
    for (const Arc& arc : arcs) flow.add_arc(arc.from, arc.to, q * arc.capacity);
    for (int worker = 0; worker < workers; ++worker) flow.add_arc(nodes, worker, p);
    const std::int64_t wanted = workers * p;
    for (const NodeId sink : sinks) {
      if (flow.solve(nodes, sink) >= wanted) continue;
      auto side = flow.source_side();
      side.pop_back();
      better = consider(side) || better;
    }
  }
  return best;
}

}  // namespace

ExactCapacities::ExactCapacities(const cluster::Cluster& cluster) {
  constexpr double kFinest = 1 << 20;
  std::vector<double> all;
  for (const auto& link : cluster.links) all.push_back(link.capacity.bits_per_second);
  for (const auto& group : cluster.groups) all.push_back(group.capacity.bits_per_second);
  double scale = 1;
  const auto whole = [&](double capacity) { return capacity * scale == std::floor(capacity * scale); };
  while (scale < kFinest && !std::ranges::all_of(all, whole)) scale *= 2;
  // Sums of capacities are multiplied by numbers of workers.
  const double most = std::ldexp(1.0, 60) / (4.0 * (cluster.workers() + 1));
  const double sum = std::accumulate(all.begin(), all.end(), 0.0);
  double coarse = 1;
  std::int64_t common = 0;
  const auto rounded = [&](double capacity) {
    return static_cast<std::int64_t>(std::ceil(capacity * scale / coarse));
  };
  if (sum * scale < std::ldexp(1.0, 62))
    for (const double capacity : all) common = std::gcd(common, rounded(capacity));
  common = std::max<std::int64_t>(1, common);
  if (sum * scale / static_cast<double>(common) > most) {
    common = 1;
    while (sum * scale / coarse > most) coarse *= 2;
  }
  for (std::size_t i = 0; i < all.size(); ++i)
    (i < cluster.links.size() ? links : groups).push_back(rounded(all[i]) / common);
  unit = static_cast<double>(common) * coarse / scale;
}

Ratio ExactCapacities::rate(Wide over, Wide under) const {
  if (under == 0) return Ratio(1, 0);
  double whole = unit;
  Wide parts = 1;
  for (; whole != std::floor(whole); whole *= 2) parts *= 2;
  const Ratio units = reduced(over, under);
  return reduced(static_cast<Wide>(units.numerator) * static_cast<Wide>(whole), units.denominator * parts);
}

Ratio reduced(Wide over, Wide under) {
  Wide common = over;
  for (Wide rest = under; rest != 0;) {
    common %= rest;
    std::swap(common, rest);
  }
  over /= common;
  under /= common;
  constexpr Wide kMost = std::numeric_limits<std::int64_t>::max();
  if (over <= kMost && under <= kMost)
    return {static_cast<std::int64_t>(over), static_cast<std::int64_t>(under)};
  const double value = static_cast<double>(over) / static_cast<double>(under);
  double parts = 1;
  while (value * parts < 1e15) parts *= 2;
  return {static_cast<std::int64_t>(std::ceil(value * parts)), static_cast<std::int64_t>(parts)};
}

std::vector<bool> narrowest_cut(const cluster::Cluster& cluster, const ExactCapacities& capacities,
                                Collective op, NodeId root) {
  const int nodes = static_cast<int>(cluster.nodes.size()), workers = cluster.workers();
  const auto forward = arcs(cluster, capacities, false), backward = arcs(cluster, capacities, true);
  const auto complement = [](std::vector<bool> side) {
    for (std::size_t node = 0; node < side.size(); ++node) side[node] = !side[node];
    return side;
  };
  std::vector<NodeId> sinks{root};
  if (!facts(op).rooted) {
    sinks.resize(at(workers));
    std::iota(sinks.begin(), sinks.end(), 0);
  }
  if (op == Collective::all_gather || op == Collective::gather)
    return gather_cut(forward, nodes, workers, sinks);
  if (op == Collective::reduce_scatter || op == Collective::scatter)
    return complement(gather_cut(backward, nodes, workers, sinks));
  Cut down, up;
  if (goes_down(op)) down = cut_from(forward, nodes, workers, root);
  if (goes_up(op)) up = cut_from(backward, nodes, workers, root);
  return down.capacity <= up.capacity ? down.side : complement(up.side);
}

// Sets grow together over the least busy link that leaves one of them (Kruskal's order), so that what is left
// between them is ever busier.
std::vector<bool> narrowest_set(const cluster::Cluster& cluster, const ExactCapacities& capacities,
                                const std::vector<double>& busy) {
  const std::size_t nodes = cluster.nodes.size(), workers = at(cluster.workers());
  constexpr std::size_t kAlone = std::numeric_limits<std::size_t>::max();  // in no group
  std::vector<std::size_t> group_of(cluster.links.size(), kAlone);         // the first, of several
  for (std::size_t group = cluster.groups.size(); group-- > 0;)
    for (const int link : cluster.groups[group].links) group_of[at(link)] = group;

  std::vector<bool> best;
  Wide least = 0, pairs = 0;  // of the best: capacity and pairs
  const auto consider = [&](const std::vector<bool>& side) {
    const std::int64_t inside =
        std::count(side.begin(), side.begin() + static_cast<std::ptrdiff_t>(workers), true);
    const std::int64_t crossing = inside * (static_cast<std::int64_t>(workers) - inside);
    if (crossing == 0) return;
    Wide capacity = 0;
    std::vector<std::int64_t> in_group(cluster.groups.size());
    for (std::size_t link = 0; link < cluster.links.size(); ++link) {
      if (!side[at(cluster.links[link].from)] || side[at(cluster.links[link].to)]) continue;
      if (group_of[link] == kAlone)
        capacity += capacities.links[link];
      else
        in_group[group_of[link]] += capacities.links[link];
    }
    for (std::size_t group = 0; group < in_group.size(); ++group)
      capacity += std::min(in_group[group], capacities.groups[group]);
    if (!best.empty() && capacity * pairs >= least * crossing) return;
    best = side;
    least = capacity;
    pairs = crossing;
  };
  const auto consider_both_ways = [&](std::vector<bool> side) {
    consider(side);
    side.flip();
    consider(side);
  };
  std::vector<std::vector<bool>> sets(nodes, std::vector<bool>(nodes));
  std::vector<std::size_t> set_of(nodes);
  for (std::size_t node = 0; node < nodes; ++node) {
    sets[node][node] = true;
    set_of[node] = node;
    if (node < workers) consider_both_ways(sets[node]);
  }
  const auto ends = [&](std::size_t link) -> std::pair<int, int> {
    return std::minmax(cluster.links[link].from, cluster.links[link].to);
  };
  std::map<std::pair<int, int>, double> busier;  // of both ways
  std::vector<std::size_t> order(cluster.links.size());
  for (std::size_t link = 0; link < order.size(); ++link) {
    double& way = busier[ends(link)];
    way = std::max(way, busy[link]);
    order[link] = link;
  }
  std::ranges::stable_sort(order, {}, [&](std::size_t link) { return busier.at(ends(link)); });
  for (const std::size_t link : order) {
    const std::size_t into = set_of[at(cluster.links[link].from)], gone = set_of[at(cluster.links[link].to)];
    if (into == gone) continue;
    for (std::size_t node = 0; node < nodes; ++node) {
      if (set_of[node] != gone) continue;
      set_of[node] = into;
      sets[into][node] = true;
    }
    consider_both_ways(sets[into]);
  }
  return best;
}

// Newton's step at p/q: the partition that least capacity separates, p/q being granted for every part. That
// minimum over partitions of the sum of g(S) = q d(S) - 2p, d(S) being what leaves S, is found one node at a
// time (the Dilworth truncation of g; Cunningham 1985, Barahona 1992): y(v) is the most by which v can extend
// y to a vector with y(S) <= g(S) for all S among the nodes so far; the sets that stop it merge the parts
// that they meet.
std::vector<int> weakest_partition(const cluster::Cluster& cluster, const ExactCapacities& capacities) {
  const int nodes = static_cast<int>(cluster.nodes.size());
  std::vector<int> part(at(nodes));
  std::iota(part.begin(), part.end(), 0);
  // Twice the capacity between parts, over the number of parts less one.
  const auto weigh = [&] {
    std::int64_t capacity = 0;
    for (std::size_t link = 0; link < cluster.links.size(); ++link)
      if (part[at(cluster.links[link].from)] != part[at(cluster.links[link].to)])
        capacity += capacities.links[link];
    auto names = part;
    std::ranges::sort(names);
    return Ratio(capacity, std::unique(names.begin(), names.end()) - names.begin() - 1);
  };
  for (;;) {
    const Ratio guess = weigh();
    const std::int64_t granted = guess.numerator, q = guess.denominator;
    const int source = nodes, sink = nodes + 1;
    cluster::MaxFlow flow(nodes + 2);
    for (std::size_t link = 0; link < cluster.links.size(); ++link)
      flow.add_arc(cluster.links[link].from, cluster.links[link].to, q * capacities.links[link]);
    std::vector<int> wanted, unwanted;
    for (int node = 0; node < nodes; ++node) {
      wanted.push_back(flow.add_arc(source, node, 0));
      unwanted.push_back(flow.add_arc(node, sink, kUnlimited));
    }
    std::vector<int> found(at(nodes));
    std::iota(found.begin(), found.end(), 0);
    std::int64_t total = 0, positive = 0;
    for (int node = 0; node < nodes; ++node) {
      flow.set_capacity(wanted[at(node)], kUnlimited);
      flow.set_capacity(unwanted[at(node)], 0);
      const std::int64_t y = flow.solve(source, sink) - positive - granted;
      const auto stops = flow.source_side();
      for (int other = 0; other < node; ++other) {
        if (!stops[at(other)] || found[at(other)] == found[at(node)]) continue;
        const int merged = found[at(other)];
        std::ranges::replace(found, merged, found[at(node)]);
      }
      flow.set_capacity(wanted[at(node)], std::max<std::int64_t>(0, y));
      flow.set_capacity(unwanted[at(node)], std::max<std::int64_t>(0, -y));
      positive += std::max<std::int64_t>(0, y);
      total += y;
    }
    if (total >= -granted) return part;
    part = found;
  }
}

}  // namespace talweg::forest
