// Fat trees of three tiers (Al-Fares et al. 2008), for tests and measurements.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/random.h"
#include "cluster/cluster.h"

namespace talweg::forest {

enum class Hosts { even, uneven };     // of 40 Gbit/s; of 10, 20 or 40
enum class Switches { each, as_one };  // as_one: those of a pod's middle tier are summed up, and the cores

// Of switches with `ports` ports of 40 Gbit/s: ports^3 / 4 hosts, ports / 2 to a leaf; ports pods.
inline cluster::Cluster fat_tree(int ports, Hosts kind, Switches switches) {
  Random random(7);
  cluster::Cluster result;
  const int half = ports / 2, hosts = half * half * ports, leaves = half * ports;
  const double rates[] = {10e9, 20e9, 40e9};
  const auto add = [&](const std::string& name, int count, cluster::NodeKind node) {
    const int first = static_cast<int>(result.nodes.size());
    for (int i = 0; i < count; ++i)
      result.nodes.push_back({.name = fmt::format("{}{}", name, i), .kind = node});
    return first;
  };
  const auto join = [&](int a, int b, double rate) {
    result.links.push_back({a, b, {rate}, {1000}});
    result.links.push_back({b, a, {rate}, {1000}});
  };
  const bool one = switches == Switches::as_one;
  const int middles_of_pod = one ? 1 : half, cores_of_middle = one ? 1 : half;
  add("h", hosts, cluster::NodeKind::worker);
  const int leaf = add("leaf", leaves, cluster::NodeKind::switch_);
  const int middle = add("middle", middles_of_pod * ports, cluster::NodeKind::switch_);
  const int core = add("core", middles_of_pod * cores_of_middle, cluster::NodeKind::switch_);
  for (int host = 0; host < hosts; ++host)
    join(host, leaf + host / half, kind == Hosts::even ? 40e9 : rates[random.below(3)]);
  for (int i = 0; i < leaves; ++i)
    for (int up = 0; up < middles_of_pod; ++up)
      join(leaf + i, middle + i / half * middles_of_pod + up, one ? half * 40e9 : 40e9);
  for (int i = 0; i < middles_of_pod * ports; ++i)
    for (int up = 0; up < cores_of_middle; ++up)
      join(middle + i, core + i % middles_of_pod * cores_of_middle + up, one ? half * half * 40e9 : 40e9);
  return result;
}

// The same network without so many links between switches, both ways, drawn at random; workers still reach
// each other.
inline cluster::Cluster with_failed_links(cluster::Cluster cluster, int count, std::uint64_t seed) {
  Random random(seed);
  while (count > 0) {
    const cluster::Link failed = cluster.links[random.below(cluster.links.size())];
    if (std::min(failed.from, failed.to) < cluster.workers()) continue;
    cluster::Cluster less = cluster;
    std::erase_if(less.links, [&](const cluster::Link& link) {
      return std::minmax(link.from, link.to) == std::minmax(failed.from, failed.to);
    });
    if (find_problem(less)) continue;
    cluster = std::move(less);
    --count;
  }
  return cluster;
}

}  // namespace talweg::forest
