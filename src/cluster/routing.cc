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
  std::vector<int> uses(cluster.groups.size());
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
      std::ranges::fill(uses, 0);
      for (const int index : path) {
        const auto at = static_cast<std::size_t>(index);
        const Link& link = cluster.links[at];
        pair.latency.value += link.latency.value;
        pair.relayed |=
            link.to != static_cast<int>(to) && cluster.nodes[talweg::at(link.to)].kind != NodeKind::switch_;
        pair.rate = std::min(pair.rate, link.capacity);
        for (const std::size_t g : groups_of[at]) {
          ++uses[g];
          pair.rate = std::min(pair.rate, Bandwidth{cluster.groups[g].capacity.bits_per_second / uses[g]});
        }
      }
    }
  }
  find_spreads(cluster, leaving, groups_of);
}

std::span<const int> Routes::path(int from, int to) const {
  const Pair& found = pair(from, to);
  return {links_.data() + found.first, found.count};
}

}  // namespace talweg::cluster
