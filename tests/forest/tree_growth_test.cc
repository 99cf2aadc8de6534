#include "forest/tree_growth.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <vector>

#include "forest/bound.h"
#include "forest/fat_tree.h"
#include "forest/random_networks.h"

namespace talweg::forest {
namespace {

using Paths = TreeMarket::Paths;

// A market with prices, as growth wants it.
TreeMarket priced(const cluster::Cluster& cluster, Collective op, Paths paths = Paths::routes) {
  TreeMarket market(cluster, op, 0, paths);
  market.set_prices(std::vector<double>(market.capacities().size(), 1));
  return market;
}

double bound_of(const cluster::Cluster& cluster, Collective op = Collective::all_reduce) {
  return best_rate(cluster, op).rate.value();
}

bool reaches_all(const std::vector<NodeId>& parents, NodeId root) {
  for (NodeId node = 0; node < std::ssize(parents); ++node) {
    NodeId here = node;
    for (std::size_t steps = 0; here != root; ++steps) {
      if (steps == parents.size()) return false;
      here = parents[static_cast<std::size_t>(here)];
    }
  }
  return true;
}

TEST(TreeGrowth, ReachesTheBoundOfUnevenFatTreesWithOneTree) {
  for (const Switches switches : {Switches::each, Switches::as_one}) {
    const auto cluster = fat_tree(8, Hosts::uneven, switches);
    auto market = priced(cluster, Collective::all_reduce);
    TreeGrowth growth(market, 10e9);
    EXPECT_EQ(growth.rate(), 0);
    growth.next();
    EXPECT_DOUBLE_EQ(growth.rate(), 10e9);
  }
}

TEST(TreeGrowth, RunsThroughEvenFatTreesInARowThatClosesToABestRing) {
  for (const int ports : {4, 6, 8}) {
    for (const Switches switches : {Switches::each, Switches::as_one}) {
      const auto cluster = fat_tree(ports, Hosts::even, switches);
      const double hosts = cluster.workers(), best = 40e9 * hosts / (2 * (hosts - 1));
      auto market = priced(cluster, Collective::all_reduce);
      TreeGrowth growth(market, best);
      const TreePair tree = growth.next();
      EXPECT_DOUBLE_EQ(growth.rate(), 20e9) << ports;
      EXPECT_NEAR(ring_rate(market, tree) / best, 1, 1e-12) << ports;
    }
  }
}

TEST(TreeGrowth, PassesASlowUplinkOnce) {
  auto cluster = fat_tree(8, Hosts::even, Switches::as_one);
  const int leaf = cluster.workers() + 5;
  for (auto& link : cluster.links)
    if ((link.from == leaf || link.to == leaf) && std::max(link.from, link.to) > leaf)
      link.capacity.bits_per_second = 5e9;
  auto market = priced(cluster, Collective::all_reduce);
  TreeGrowth growth(market, 5e9);
  growth.next();
  EXPECT_DOUBLE_EQ(growth.rate(), 5e9);
}

// Two leaves of two hosts, and two spines: each edge loads links alike both ways, unless one spine is a
// little further on the way back.
TEST(TreeMarket, IsSymmetricWhereTrafficSpreadsAlikeBothWays) {
  for (const bool alike : {true, false}) {
    cluster::Cluster cluster;
    for (int host = 0; host < 4; ++host) cluster.nodes.push_back({.name = fmt::format("h{}", host)});
    for (const char* const name : {"leaf0", "leaf1", "spine0", "spine1"})
      cluster.nodes.push_back({.name = name, .kind = cluster::NodeKind::switch_});
    const auto join = [&](int a, int b) {
      cluster.links.push_back({a, b, {1e9}, {1000}});
      cluster.links.push_back({b, a, {1e9}, {1000}});
    };
    for (int host = 0; host < 4; ++host) join(host, 4 + host / 2);
    for (const int leaf : {4, 5})
      for (const int spine : {6, 7}) join(leaf, spine);
    if (!alike) cluster.links.back().latency.value += 1;  // from the second spine to the second leaf
    EXPECT_EQ(TreeMarket(cluster, Collective::all_reduce, 0, Paths::routes).symmetric(), alike);
  }
}

TEST(TreeGrowth, CountsOnAllEquallyGoodPathsAndOverAnyPathsOnEachAlone) {
  // Two leaves of four hosts, and four spines between them that are as narrow as hosts.
  cluster::Cluster cluster;
  for (int host = 0; host < 8; ++host) cluster.nodes.push_back({.name = fmt::format("h{}", host)});
  for (int i = 0; i < 6; ++i)
    cluster.nodes.push_back({.name = fmt::format("s{}", i), .kind = cluster::NodeKind::switch_});
  const auto join = [&](int a, int b, double rate) {
    cluster.links.push_back({a, b, {rate}, {1000}});
    cluster.links.push_back({b, a, {rate}, {1000}});
  };
  for (int host = 0; host < 8; ++host) join(host, 8 + host / 4, 4e9);
  for (int leaf = 8; leaf < 10; ++leaf)
    for (int spine = 10; spine < 14; ++spine) join(leaf, spine, 5e8);
  auto over_routes = priced(cluster, Collective::all_reduce);
  auto over_all = priced(cluster, Collective::all_reduce, Paths::all);
  TreeGrowth on_routes(over_routes, 2e9), on_all(over_all, 2e9);
  on_routes.next();
  for (int tree = 0; tree < 4; ++tree) on_all.next();
  // Each tree crosses once: over four spines at once, or over one.
  EXPECT_DOUBLE_EQ(on_routes.rate(), 2e9);
  EXPECT_DOUBLE_EQ(on_all.rate(), 2e9);
}

TEST(TreeGrowth, GrowsTreesOfEdgesThatThereAreAndKnowsTheirRate) {
  int grown = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const auto cluster = random_network(seed, 3 + static_cast<int>(seed % 7));
    for (const Collective op : {Collective::all_reduce, Collective::reduce, Collective::broadcast}) {
      for (const Paths paths : {Paths::routes, Paths::all}) {
        auto market = priced(cluster, op, paths);
        TreeGrowth growth(market, bound_of(cluster, op));
        ASSERT_TRUE(growth.spans()) << seed << " " << name(op);
        std::vector<double> load(market.capacities().size());
        for (int count = 1; count <= 3; ++count) {
          const TreePair tree = growth.next();
          EXPECT_EQ(tree.up.empty(), !goes_up(op));
          EXPECT_EQ(tree.down.empty(), !goes_down(op));
          EXPECT_TRUE(reaches_all(tree.up, tree.root) && reaches_all(tree.down, tree.root)) << seed;
          for (NodeId node = 0; node < market.workers(); ++node) {
            const auto child = static_cast<std::size_t>(node);
            if (node == tree.root) continue;
            EXPECT_TRUE(tree.down.empty() || !market.links_between(tree.down[child], node).empty()) << seed;
            EXPECT_TRUE(tree.up.empty() || !market.links_between(node, tree.up[child]).empty()) << seed;
          }
          for (const auto& term : market.use(tree)) load[static_cast<std::size_t>(term.row)] += term.amount;
          double most = 0;
          for (std::size_t i = 0; i < load.size(); ++i)
            most = std::max(most, load[i] / market.capacities()[i]);
          EXPECT_NEAR(growth.rate() * most, count, 1e-9) << seed << " " << name(op);
          EXPECT_LE(growth.rate(), bound_of(cluster, op) * (1 + 1e-9)) << seed << " " << name(op);
          ++grown;
        }
      }
    }
  }
  EXPECT_EQ(grown, 60 * 3 * 2 * 3);
}

TEST(TreeGrowth, KnowsThatEdgesOneWayJoinNobodyBothWays) {
  // A ring of one-way links: every worker is reached by passing others only.
  cluster::Cluster cluster;
  for (int host = 0; host < 3; ++host) cluster.nodes.push_back({.name = fmt::format("h{}", host)});
  for (int host = 0; host < 3; ++host) cluster.links.push_back({host, (host + 1) % 3, {1e9}, {1000}});
  auto both = priced(cluster, Collective::all_reduce), down = priced(cluster, Collective::broadcast);
  EXPECT_FALSE(TreeGrowth(both, 1e9).spans());
  TreeGrowth growth(down, 1e9);
  EXPECT_TRUE(growth.spans());
  growth.next();
  EXPECT_DOUBLE_EQ(growth.rate(), 1e9);
}

TEST(TreeGrowth, TakesNothingButPathsForRings) {
  const auto star = cluster::uniform_star(4, {1e9}, {1000});
  const auto market = priced(star, Collective::all_reduce);
  EXPECT_DOUBLE_EQ(ring_rate(market, {1, {1, 1, 1, 2}, {1, 1, 1, 2}}), 1e9 * 4 / 6);
  EXPECT_EQ(ring_rate(market, {1, {1, 1, 1, 1}, {1, 1, 1, 1}}), 0);
}

}  // namespace
}  // namespace talweg::forest
