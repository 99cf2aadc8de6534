#include "cluster/racks.h"

#include <cstddef>
#include <limits>

namespace talweg::cluster {

namespace {

constexpr int kFar = std::numeric_limits<int>::max();

// Links on the shortest way from `start`, by node.
std::vector<int> links_from(const Cluster& cluster, int start) {
  std::vector<std::vector<int>> next(cluster.nodes.size());
  for (const Link& link : cluster.links) next[static_cast<std::size_t>(link.from)].push_back(link.to);
  std::vector<int> links(cluster.nodes.size(), kFar);
  links[static_cast<std::size_t>(start)] = 0;
  std::vector<int> reached{start};
  for (std::size_t i = 0; i < reached.size(); ++i)
    for (const int node : next[static_cast<std::size_t>(reached[i])]) {
      int& way = links[static_cast<std::size_t>(node)];
      if (way != kFar) continue;
      way = links[static_cast<std::size_t>(reached[i])] + 1;
      reached.push_back(node);
    }
  return links;
}

}  // namespace

std::vector<int> racks_of(const Cluster& cluster) {
  std::vector<int> racks;
  std::vector<int> nearest(static_cast<std::size_t>(cluster.workers()), kFar);
  for (std::size_t node = 0; node < cluster.nodes.size(); ++node) {
    if (cluster.nodes[node].above.empty()) continue;
    racks.resize(nearest.size(), static_cast<int>(node));
    const std::vector<int> links = links_from(cluster, static_cast<int>(node));
    for (std::size_t worker = 0; worker < nearest.size(); ++worker) {
      if (links[worker] >= nearest[worker]) continue;
      nearest[worker] = links[worker];
      racks[worker] = static_cast<int>(node);
    }
  }
  return racks;
}

}  // namespace talweg::cluster
