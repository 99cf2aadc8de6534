#include "cluster/multicast.h"

#include <algorithm>

#include "base/at.h"

namespace talweg::cluster {

std::vector<int> multicast_tree(const Cluster& cluster, const Routes& routes, int from,
                                std::span<const int> to) {
  std::vector<int> tree;
  std::vector<bool> reached(cluster.nodes.size(), false);
  std::vector<int> copies(cluster.nodes.size(), 0);
  reached[at(from)] = true;
  for (const int node : to) {
    if (!routes.reachable(from, node) || node == from) return {};
    const std::span<const int> path = routes.path(from, node);
    // Paths that are equally good may meet again: from there on there is one.
    std::size_t first = path.size();
    while (first > 0 && !reached[at(cluster.links[at(path[first - 1])].to)]) --first;
    for (const int link : path.subspan(first)) {
      tree.push_back(link);
      ++copies[at(cluster.links[at(link)].from)];
      reached[at(cluster.links[at(link)].to)] = true;
    }
  }
  for (int node = 0; node < static_cast<int>(cluster.nodes.size()); ++node) {
    if (node == from || copies[at(node)] == 0) continue;
    const bool is_worker = node < cluster.workers();
    const bool is_leaf = std::ranges::find(to, node) != to.end();
    if (is_worker || is_leaf || (copies[at(node)] > 1 && !can_multicast(cluster.nodes[at(node)]))) return {};
  }
  return tree;
}

}  // namespace talweg::cluster
