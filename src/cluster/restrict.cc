#include <algorithm>

#include "cluster/cluster.h"

namespace talweg::cluster {

Cluster restrict_to(const Cluster& cluster, std::span<const int> workers) {
  std::vector<int> moved(cluster.nodes.size(), -1);
  Cluster result;
  const auto take = [&](std::size_t old) {
    moved[old] = static_cast<int>(result.nodes.size());
    result.nodes.push_back(cluster.nodes[old]);
  };
  for (const int worker : workers) take(static_cast<std::size_t>(worker));
  for (std::size_t i = 0; i < cluster.nodes.size(); ++i) {
    if (moved[i] >= 0) continue;
    take(i);
    Node& node = result.nodes.back();
    if (node.kind == NodeKind::worker) node = {node.name, NodeKind::switch_, false, false};
  }
  result.links = cluster.links;
  for (Link& link : result.links) {
    link.from = moved[static_cast<std::size_t>(link.from)];
    link.to = moved[static_cast<std::size_t>(link.to)];
  }
  result.groups = cluster.groups;
  result.processor = cluster.processor;
  result.confidence = cluster.confidence;
  result.measured = cluster.measured;
  return result;
}

}  // namespace talweg::cluster
