#include "fabric/lab_paths.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/fail.h"
#include "cluster/routing.h"

namespace talweg::fabric {

namespace {

using cluster::Cluster;
using cluster::Link;
using cluster::NodeKind;

bool is_switch(const Cluster& cluster, int node) {
  return cluster.nodes[node].kind == NodeKind::switch_;
}

// A process runs on it.
bool is_host(const Cluster& cluster, int node) {
  return can_aggregate(cluster.nodes[node]);
}

void attach(const Cluster& cluster, LabPaths& paths, int host, int to) {
  int& at = paths.switch_of[host];
  if (at >= 0 && at != to)
    throw_error(ErrorCode::unsupported,
                "cannot emulate the cluster: {} has links to {} and {}; a host of a lab has either one "
                "switch or links straight to other hosts",
                cluster.nodes[host].name, cluster.nodes[at].name, cluster.nodes[to].name);
  at = to;
}

int next_host(const Cluster& cluster, const cluster::Routes& routes, int from, int to) {
  for (const int l : routes.path(from, to))
    if (!is_switch(cluster, cluster.links[l].to) || cluster.links[l].to == to) return cluster.links[l].to;
  return -1;
}

void find_trunks(const Cluster& cluster, const cluster::Routes& routes, LabPaths& paths) {
  std::set<std::pair<int, int>> used;  // either way
  const int nodes = static_cast<int>(cluster.nodes.size());
  for (int from = 0; from < nodes; ++from) {
    for (int to = 0; to < nodes; ++to) {
      if (!is_host(cluster, from) || !is_host(cluster, to)) continue;
      for (const int l : routes.path(from, to))
        used.insert(std::minmax(cluster.links[l].from, cluster.links[l].to));
    }
  }
  for (std::size_t l = 0; l < cluster.links.size(); ++l) {
    const Link& link = cluster.links[l];
    if (!is_switch(cluster, link.from) || !is_switch(cluster, link.to)) continue;
    if (used.count(std::minmax(link.from, link.to)) == 0)
      paths.left_out.push_back(static_cast<int>(l));
    else if (link.from < link.to)
      paths.trunks.push_back(static_cast<int>(l));
  }
}

}  // namespace

LabPaths find_paths(const Cluster& cluster) {
  LabPaths paths;
  paths.switch_of.assign(cluster.nodes.size(), -1);
  for (int node = 0; node < static_cast<int>(cluster.nodes.size()); ++node)
    if (is_switch(cluster, node) && is_host(cluster, node)) paths.switch_of[node] = node;
  for (std::size_t l = 0; l < cluster.links.size(); ++l) {
    const Link& link = cluster.links[l];
    const bool from_switch = is_switch(cluster, link.from), to_switch = is_switch(cluster, link.to);
    if (from_switch && !to_switch) attach(cluster, paths, link.to, link.from);
    if (!from_switch && to_switch) attach(cluster, paths, link.from, link.to);
  }
  for (const Link& link : cluster.links) {
    if (is_switch(cluster, link.from) || is_switch(cluster, link.to)) continue;
    for (const int host : {link.from, link.to})
      if (paths.switch_of[host] >= 0) attach(cluster, paths, host, host == link.from ? link.to : link.from);
  }
  const int nodes = static_cast<int>(cluster.nodes.size());
  const cluster::Routes routes(cluster);
  find_trunks(cluster, routes, paths);
  paths.next_hop.assign(nodes, std::vector<int>(nodes, -1));
  for (int from = 0; from < nodes; ++from)
    for (int to = 0; to < nodes; ++to) paths.next_hop[from][to] = next_host(cluster, routes, from, to);
  return paths;
}

Cluster without_links(const Cluster& cluster, const std::vector<int>& links) {
  Cluster rest = cluster;
  rest.links.clear();
  std::vector<int> place(cluster.links.size(), 0);  // in `rest`; -1: none
  for (const int l : links) place[l] = -1;
  for (std::size_t l = 0; l < place.size(); ++l) {
    if (place[l] < 0) continue;
    place[l] = static_cast<int>(rest.links.size());
    rest.links.push_back(cluster.links[l]);
  }
  for (cluster::CapacityGroup& group : rest.groups) {
    for (int& l : group.links) l = place[l];
    std::erase(group.links, -1);
  }
  std::erase_if(rest.groups, [](const cluster::CapacityGroup& group) { return group.links.empty(); });
  return rest;
}

}  // namespace talweg::fabric
