#include "cluster/routing.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <tuple>

#include "base/at.h"
#include "cluster/stubs.h"

namespace talweg::cluster {
namespace {

// What is minimised, in this order.
struct Cost {
  int relays = 0;  // workers passed through
  std::int64_t latency = 0;
  int hops = 0;
  auto operator<=>(const Cost&) const = default;
};

constexpr Cost kUnreached{std::numeric_limits<int>::max(), 0, 0};
constexpr int kNoLink = -1;

// Dijkstra from one node: the link by which each node is entered, or kNoLink.
std::vector<int> entering_links(const Cluster& cluster, const std::vector<std::vector<int>>& leaving,
                                int source) {
  std::vector<Cost> best(cluster.nodes.size(), kUnreached);
  std::vector<int> entering(cluster.nodes.size(), kNoLink);
  using Entry = std::tuple<Cost, int>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
  best[static_cast<std::size_t>(source)] = {};
  queue.emplace(Cost{}, source);
  while (!queue.empty()) {
    const auto [cost, node] = queue.top();
    queue.pop();
    if (cost != best[static_cast<std::size_t>(node)]) continue;
    const bool relays =
        node != source && cluster.nodes[static_cast<std::size_t>(node)].kind == NodeKind::worker;
    for (const int index : leaving[static_cast<std::size_t>(node)]) {
      const Link& link = cluster.links[static_cast<std::size_t>(index)];
      const Cost next{cost.relays + (relays ? 1 : 0), cost.latency + link.latency.value, cost.hops + 1};
      if (next < best[static_cast<std::size_t>(link.to)]) {
        best[static_cast<std::size_t>(link.to)] = next;
        entering[static_cast<std::size_t>(link.to)] = index;
        queue.emplace(next, link.to);
      }
    }
  }
  return entering;
}

}  // namespace

Routes::Routes(const Cluster& cluster)
    : nodes_(cluster.nodes.size()), pairs_(nodes_ * nodes_), stubs_(find_stubs(cluster)) {
  std::vector<std::vector<int>> leaving(nodes_);
  for (std::size_t i = 0; i < cluster.links.size(); ++i) {
    leaving[static_cast<std::size_t>(cluster.links[i].from)].push_back(static_cast<int>(i));
  }
  Groups groups_of(cluster.links.size());
  for (std::size_t g = 0; g < cluster.groups.size(); ++g) {
    for (const int link : cluster.groups[g].links) groups_of[static_cast<std::size_t>(link)].push_back(g);
  }
  std::vector<std::vector<int>> from_switch(nodes_);  // where stubs hang on it

  for (std::size_t from = 0; from < nodes_; ++from) {
    const Stub& stub = stubs_[from];
    std::vector<int> entering;
    if (stub.at >= 0) {
      auto& shared = from_switch[at(stub.at)];
      if (shared.empty()) shared = entering_links(cluster, leaving, stub.at);
      entering = shared;
      entering[at(stub.at)] = stub.up;
    } else {
      entering = entering_links(cluster, leaving, static_cast<int>(from));
    }
    for (std::size_t to = 0; to < nodes_; ++to) {
      Pair& pair = pairs_[from * nodes_ + to];
      pair.first = links_.size();
      pair.rate.bits_per_second = std::numeric_limits<double>::infinity();
      pair.reachable = from == to || entering[to] != kNoLink;
      if (!pair.reachable || from == to) continue;
      for (std::size_t node = to; node != from;) {
        const int index = entering[node];
        links_.push_back(index);
        node = static_cast<std::size_t>(cluster.links[static_cast<std::size_t>(index)].from);
      }
      pair.count = links_.size() - pair.first;
      const std::span path(links_.data() + pair.first, pair.count);
      std::ranges::reverse(path);
      for (const int index : path) {
        const Link& link = cluster.links[at(index)];
        pair.latency.value += link.latency.value;
        if (link.to == static_cast<int>(to)) continue;
        const NodeKind kind = cluster.nodes[at(link.to)].kind;
        pair.relayed |= kind != NodeKind::switch_;
        if (kind == NodeKind::worker) ++pair.relays;
      }
    }
  }
  choose_relays(cluster, leaving);
  measure_rates(cluster, groups_of);
  find_spreads(cluster, leaving, groups_of);
}

// Each node on the way looks at where it has to go from there, and at nothing else: so do tables of routes.
void Routes::choose_relays(const Cluster& cluster, const Links& leaving) {
  const auto cost = [&](int node, int to) {
    if (node == to) return Cost{};
    const Pair& rest = pair(node, to);
    if (!rest.reachable) return kUnreached;
    return Cost{rest.relays, rest.latency.value, static_cast<int>(rest.count)};
  };
  const auto is_best = [&](int index, const Cost& wanted, int to) {
    const Link& link = cluster.links[at(index)];
    Cost through = cost(link.to, to);
    if (through == kUnreached) return false;
    if (link.to != to && cluster.nodes[at(link.to)].kind == NodeKind::worker) ++through.relays;
    through.latency += link.latency.value;
    ++through.hops;
    return through == wanted;
  };
  const auto nodes = static_cast<int>(nodes_);
  for (int from = 0; from < nodes; ++from)
    for (int to = 0; to < nodes; ++to) {
      const Pair& found = pair(from, to);
      if (found.relays == 0) continue;
      int node = from;
      for (std::size_t i = 0; i < found.count; ++i) {
        const Pair& rest = pair(node, to);
        const Cost wanted = cost(node, to);
        const int next = rest.relays == 0 ? path(node, to).front()
                                          : *std::ranges::find_if(leaving[at(node)], [&](int index) {
                                              return is_best(index, wanted, to);
                                            });
        links_[found.first + i] = next;
        node = cluster.links[at(next)].to;
      }
    }
}

void Routes::measure_rates(const Cluster& cluster, const Groups& groups_of) {
  std::vector<int> uses(cluster.groups.size());
  for (Pair& pair : pairs_) {
    const std::span path(links_.data() + pair.first, pair.count);
    if (path.empty()) continue;
    std::ranges::fill(uses, 0);
    for (const int index : path) {
      pair.rate = std::min(pair.rate, cluster.links[at(index)].capacity);
      for (const std::size_t g : groups_of[at(index)]) {
        ++uses[g];
        pair.rate = std::min(pair.rate, Bandwidth{cluster.groups[g].capacity.bits_per_second / uses[g]});
      }
    }
  }
}

std::span<const int> Routes::path(int from, int to) const {
  const Pair& found = pair(from, to);
  return {links_.data() + found.first, found.count};
}

}  // namespace talweg::cluster
