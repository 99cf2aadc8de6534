#include <algorithm>
#include <numeric>
#include <utility>

#include "cluster/cluster.h"

namespace talweg::cluster {
namespace {

// These nodes, then all others.
std::vector<int> first_of_all(const Cluster& cluster, std::vector<int> order) {
  std::vector<bool> taken(cluster.nodes.size());
  for (const int node : order) taken[static_cast<std::size_t>(node)] = true;
  for (std::size_t node = 0; node < taken.size(); ++node)
    if (!taken[node]) order.push_back(static_cast<int>(node));
  return order;
}

// The nodes in this order, which names each once.
Cluster renumbered(const Cluster& cluster, const std::vector<int>& order) {
  Cluster result = cluster;
  std::vector<int> moved(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    result.nodes[i] = cluster.nodes[static_cast<std::size_t>(order[i])];
    moved[static_cast<std::size_t>(order[i])] = static_cast<int>(i);
  }
  for (Link& link : result.links) {
    link.from = moved[static_cast<std::size_t>(link.from)];
    link.to = moved[static_cast<std::size_t>(link.to)];
  }
  return result;
}

}  // namespace

Cluster staffed(const Cluster& cluster, std::span<const std::string> names) {
  std::vector<int> order(static_cast<std::size_t>(cluster.workers()));
  std::iota(order.begin(), order.end(), 0);
  std::vector<int> idle = aggregators(cluster);
  for (const std::string& name : names) {
    const auto found = std::ranges::find_if(
        idle, [&](int node) { return cluster.nodes[static_cast<std::size_t>(node)].name == name; });
    if (found == idle.end()) continue;
    order.push_back(*found);
    idle.erase(found);
  }
  return renumbered(without(cluster, idle), first_of_all(cluster, std::move(order)));
}

Cluster without(const Cluster& cluster, std::span<const int> nodes) {
  Cluster result = cluster;
  for (const int node : nodes) {
    Node& idle = result.nodes[static_cast<std::size_t>(node)];
    idle = {idle.name, NodeKind::switch_, false, false};
  }
  return result;
}

Cluster restrict_to(const Cluster& cluster, std::span<const int> workers) {
  Cluster result = renumbered(cluster, first_of_all(cluster, {workers.begin(), workers.end()}));
  for (std::size_t i = workers.size(); i < result.nodes.size(); ++i)
    if (Node& node = result.nodes[i]; node.kind == NodeKind::worker)
      node = {node.name, NodeKind::switch_, false, false};
  result.shared_cores = 0;
  return result;
}

}  // namespace talweg::cluster
