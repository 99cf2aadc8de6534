#include "forest/tree_exchange.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <vector>

#include "cluster/cluster.h"
#include "forest/random_networks.h"
#include "forest/topologies.h"

namespace talweg::forest {
namespace {

// How busy the busiest resource is, as a part of its capacity.
double busiest(const TreeMarket& market, const std::vector<PackedTree>& trees) {
  std::vector<double> load(market.capacities().size());
  for (const PackedTree& tree : trees)
    for (const auto& term : market.use(tree.trees))
      load[static_cast<std::size_t>(term.row)] +=
          term.amount * tree.rate / market.capacities()[static_cast<std::size_t>(term.row)];
  return *std::max_element(load.begin(), load.end());
}

bool spans(const std::vector<NodeId>& parents, NodeId root) {
  for (NodeId node = 0; node < std::ssize(parents); ++node) {
    NodeId here = node;
    for (std::size_t steps = 0; here != root; ++steps) {
      if (steps == parents.size()) return false;
      here = parents[static_cast<std::size_t>(here)];
    }
  }
  return true;
}

std::vector<PackedTree> cheapest_for_all(TreeMarket& market, double rate) {
  market.set_prices(std::vector<double>(market.capacities().size(), 1));
  std::vector<PackedTree> trees;
  for (NodeId root = 0; root < market.workers(); ++root)
    trees.push_back({market.shallow(market.symmetric() ? 0 : root, 0.1), rate});
  return trees;
}

TEST(TreeExchange, SharesARingOutSoThatEachLinkIsLeftOutOnce) {
  for (const Topology& topology : topologies()) {
    if (topology.id != "t16") continue;
    TreeMarket market(topology.cluster, Collective::all_reduce, 0, TreeMarket::Paths::routes);
    auto trees = cheapest_for_all(market, market.capacities()[0] / 7);
    EXPECT_NEAR(busiest(market, trees), 8.0 / 7, 1e-9);
    TreeExchange exchange(market, trees);
    exchange.even_out(trees, 5000, 1);
    EXPECT_NEAR(busiest(market, trees), 1, 1e-9);
  }
}

TEST(TreeExchange, KeepsTreesAndRatesAndDepthAndLoadsTheBusiestLess) {
  int better = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const auto cluster = random_network(seed, 4 + static_cast<int>(seed % 6));
    for (const Collective op : {Collective::all_reduce, Collective::reduce, Collective::broadcast}) {
      TreeMarket market(cluster, op, 1, TreeMarket::Paths::routes);
      auto before = cheapest_for_all(market, 1e6);
      const double most = busiest(market, before);
      for (PackedTree& tree : before) tree.rate /= most;
      int deepest = 0;
      for (const PackedTree& tree : before)
        deepest = std::max(
            {deepest, depth(tree.trees.up, tree.trees.root), depth(tree.trees.down, tree.trees.root)});
      auto trees = before;
      TreeExchange exchange(market, before);
      exchange.even_out(trees, 4000, 1);
      ASSERT_EQ(trees.size(), before.size());
      for (std::size_t i = 0; i < trees.size(); ++i) {
        auto& [root, up, down] = trees[i].trees;
        EXPECT_EQ(trees[i].rate, before[i].rate);
        EXPECT_EQ(up.size(), before[i].trees.up.size());
        EXPECT_EQ(down.size(), before[i].trees.down.size());
        EXPECT_TRUE(spans(up, root) && spans(down, root)) << seed << " " << name(op);
        if (market.symmetric()) {
          root = centre(down, root);
          up = down;
        } else {
          EXPECT_EQ(root, before[i].trees.root);
        }
        EXPECT_LE(std::max(depth(up, root), depth(down, root)), deepest) << seed << " " << name(op);
        // Every edge is one that there is.
        for (NodeId node = 0; node < market.workers(); ++node) {
          const auto child = static_cast<std::size_t>(node);
          if (node == root) continue;
          EXPECT_TRUE(down.empty() || !market.resources_between(down[child], node).empty());
          EXPECT_TRUE(up.empty() || !market.resources_between(node, up[child]).empty());
        }
      }
      EXPECT_LE(busiest(market, trees), 1.02) << seed << " " << name(op);
      better += busiest(market, trees) < 0.99 ? 1 : 0;
    }
  }
  EXPECT_GT(better, 30);
}

TEST(TreeExchange, FindsTheSameTreesEveryTime) {
  const auto topology = topologies().front();
  TreeMarket market(topology.cluster, Collective::all_reduce, 0, TreeMarket::Paths::routes);
  const auto before = cheapest_for_all(market, market.capacities()[0] / 2);
  auto once = before, again = before;
  TreeExchange(market, before).even_out(once, 3000, 1);
  TreeExchange(market, before).even_out(again, 3000, 1);
  EXPECT_EQ(once, again);
  EXPECT_NE(once, before);
}

}  // namespace
}  // namespace talweg::forest
