// Networks of many kinds from a seed, for properties that all of them must have.
#pragma once

#include <fmt/format.h>

#include <cstdint>

#include "base/random.h"
#include "cluster/cluster.h"

namespace talweg::forest {

// A star, two racks of a leaf-spine, a grid, a sparse or complete directed graph, with capacities that differ
// by host or pair or direction; some with shared cards.
inline cluster::Cluster random_network(std::uint64_t seed, int workers) {
  Random random{seed};
  const double rates[] = {1, 2, 5, 10, 20, 40};
  const auto rate = [&] { return Bandwidth{rates[random.below(6)] * 5e6}; };
  cluster::Cluster cluster;
  for (int i = 0; i < workers; ++i) cluster.nodes.push_back({.name = fmt::format("h{}", i)});
  const auto join = [&](int a, int b, bool alike) {
    cluster.links.push_back({a, b, rate(), {10000}});
    cluster.links.push_back({b, a, alike ? cluster.links.back().capacity : rate(), {10000}});
  };
  const auto add_switch = [&] {
    cluster.nodes.push_back(
        {.name = fmt::format("s{}", cluster.nodes.size()), .kind = cluster::NodeKind::switch_});
    return static_cast<int>(cluster.nodes.size()) - 1;
  };
  const bool alike = random.below(2) == 0;
  switch (random.below(5)) {
    case 0: {
      const int hub = add_switch();
      for (int i = 0; i < workers; ++i) join(i, hub, alike);
      break;
    }
    case 1: {
      const int spine = add_switch(), left = add_switch(), right = add_switch();
      join(spine, left, alike);
      join(spine, right, alike);
      for (int i = 0; i < workers; ++i) join(i, i % 2 == 0 ? left : right, alike);
      break;
    }
    case 2: {
      const int width = workers > 6 ? 3 : 2;
      for (int i = 0; i < workers; ++i) {
        if (i + width < workers) join(i, i + width, alike);
        if (i % width + 1 < width && i + 1 < workers) join(i, i + 1, alike);
      }
      break;
    }
    case 3:  // a tree, and every fourth pair
      for (int i = 1; i < workers; ++i)
        for (int j = 0; j < i; ++j)
          if (j == i / 2 || random.below(4) == 0) join(i, j, alike);
      break;
    default:
      for (int i = 1; i < workers; ++i)
        for (int j = 0; j < i; ++j) join(i, j, alike);
  }
  if (random.below(3) == 0) {  // some worker sends and receives by turns
    const int chosen = static_cast<int>(random.below(static_cast<std::uint64_t>(workers)));
    cluster::CapacityGroup card{"card", rate(), {}};
    for (std::size_t link = 0; link < cluster.links.size(); ++link)
      if (cluster.links[link].from == chosen || cluster.links[link].to == chosen)
        card.links.push_back(static_cast<int>(link));
    cluster.groups.push_back(card);
  }
  validate(cluster);
  return cluster;
}

// The same network with one to three aggregators: on a port for every worker, on a switch, or on some
// workers.
inline cluster::Cluster with_aggregators(cluster::Cluster cluster, std::uint64_t seed) {
  Random random{seed};
  const int workers = cluster.workers(), before = static_cast<int>(cluster.nodes.size());
  const double rates[] = {1, 5, 20, 80};
  const auto join = [&](int node, int aggregator) {
    const Bandwidth rate{rates[random.below(4)] * 5e6};
    cluster.links.push_back({node, aggregator, rate, {10000}});
    cluster.links.push_back({aggregator, node, rate, {10000}});
  };
  for (std::uint64_t left = 1 + random.below(3); left > 0; --left) {
    const int added = static_cast<int>(cluster.nodes.size());
    cluster.nodes.push_back({.name = fmt::format("agg{}", left), .kind = cluster::NodeKind::aggregator});
    const auto how = random.below(3);
    if (how == 0) {
      for (int worker = 0; worker < workers; ++worker) join(worker, added);
    } else if (how == 1 && before > workers) {
      join(workers, added);
    } else {
      for (int worker = static_cast<int>(random.below(2)); worker < workers; worker += 2) join(worker, added);
    }
  }
  validate(cluster);
  return cluster;
}

}  // namespace talweg::forest
