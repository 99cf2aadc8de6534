// What makes each algorithm what its name says, beyond being right.
#include <gmock/gmock.h>

#include <set>

#include "forest/planner.h"
#include "forest/requests.h"

namespace talweg::forest {
namespace {

using testing::ElementsAre;

Forest plan(const char* planner, Collective op, int ranks, std::int64_t count, NodeId root = 0) {
  return find_planner(planner).plan(make_request(op, ranks, count, false, root), gigabit_star(ranks));
}

int depth_below(const std::vector<Edge>& edges, NodeId node) {
  for (const Edge& edge : edges) {
    if (edge.child == node) return 1 + depth_below(edges, edge.parent);
  }
  return 0;
}

int depth_below(const std::vector<Edge>& edges) {
  int most = 0;
  for (const Edge& edge : edges) most = std::max(most, depth_below(edges, edge.child));
  return most;
}

std::size_t children(const std::vector<Edge>& edges, NodeId node) {
  std::size_t count = 0;
  for (const Edge& edge : edges) count += edge.parent == node ? 1 : 0;
  return count;
}

TEST(Ring, UsesTheSameDirectedLinksBothWays) {
  for (const Tree& tree : plan("ring", Collective::all_reduce, 5, 100).trees) {
    for (const Edge& edge : tree.up) EXPECT_EQ(edge.parent, (edge.child + 1) % 5);
    for (const Edge& edge : tree.down) EXPECT_EQ(edge.child, (edge.parent + 1) % 5);
  }
}

TEST(Ring, GivesEveryRankAnEvenShare) {
  const Forest forest = plan("ring", Collective::all_reduce, 4, 10);
  std::vector<std::int64_t> counts;
  for (const Tree& tree : forest.trees) counts.push_back(tree.slice.count);
  EXPECT_THAT(counts, ElementsAre(3, 3, 2, 2));
}

TEST(Ring, CutsLongVectorsAtCacheLines) {
  const Forest forest = plan("ring", Collective::all_reduce, 3, 1000003);
  ASSERT_EQ(forest.trees.size(), 3u);
  for (const Tree& tree : forest.trees) EXPECT_EQ(tree.slice.offset * 4 % 64, 0);
}

TEST(Ring, SendsNothingForEmptySlices) {
  EXPECT_EQ(plan("ring", Collective::all_reduce, 8, 3).trees.size(), 3u);
  EXPECT_EQ(plan("ring", Collective::all_reduce, 8, 0).trees.size(), 1u);
}

TEST(Chain, IsOnePathFromTheRoot) {
  const Forest forest = plan("chain", Collective::broadcast, 5, 100, 3);
  ASSERT_EQ(forest.trees.size(), 1u);
  EXPECT_EQ(forest.trees[0].root, 3);
  EXPECT_EQ(depth_below(forest.trees[0].down), 4);
}

TEST(DoubleBinaryTree, InnerRanksOfOneTreeAreLeavesOfTheOther) {
  for (int ranks = 2; ranks <= 33; ++ranks) {
    const Forest forest = plan("double_binary_tree", Collective::all_reduce, ranks, 100);
    ASSERT_EQ(forest.trees.size(), 2u);
    for (NodeId rank = 0; rank < ranks; ++rank) {
      const auto first = children(forest.trees[0].up, rank), second = children(forest.trees[1].up, rank);
      EXPECT_LE(first, 2u);
      EXPECT_LE(second, 2u);
      EXPECT_TRUE(first == 0 || second == 0) << "rank " << rank << " of " << ranks;
    }
  }
}

TEST(DoubleBinaryTree, WithAGivenRootTheSameHoldsForAllOthers) {
  for (int ranks = 2; ranks <= 17; ++ranks) {
    const NodeId root = ranks / 2;
    const Forest forest = plan("double_binary_tree", Collective::broadcast, ranks, 100, root);
    for (NodeId rank = 0; rank < ranks; ++rank) {
      const auto first = children(forest.trees[0].down, rank), second = children(forest.trees[1].down, rank);
      EXPECT_LE(first + second, 2u);
      EXPECT_TRUE(rank == root || first == 0 || second == 0) << "rank " << rank << " of " << ranks;
    }
  }
}

TEST(DoubleBinaryTree, IsLogarithmicallyDeep) {
  for (const Tree& tree : plan("double_binary_tree", Collective::all_reduce, 64, 100).trees) {
    EXPECT_LE(depth_below(tree.up), 8);
  }
}

TEST(HalvingDoubling, ExchangesWithOnePartnerARound) {
  // In round k all slices that leave a rank go to the same partner, whose index differs in one bit.
  const Forest forest = plan("halving_doubling", Collective::all_reduce, 8, 800);
  ASSERT_EQ(forest.trees.size(), 8u);
  std::map<std::pair<NodeId, NodeId>, int> sent;
  for (const Tree& tree : forest.trees) {
    EXPECT_EQ(tree.up, tree.down);
    EXPECT_LE(depth_below(tree.up), 3);
    for (const Edge& edge : tree.up) ++sent[{edge.child, edge.parent}];
  }
  for (NodeId rank = 0; rank < 8; ++rank) {
    EXPECT_EQ((sent[{rank, rank ^ 4}]), 4);
    EXPECT_EQ((sent[{rank, rank ^ 2}]), 2);
    EXPECT_EQ((sent[{rank, rank ^ 1}]), 1);
  }
}

TEST(HalvingDoubling, SendsTheSameFromEveryRankForAnyNumberOfRanks) {
  for (const int ranks : {3, 5, 6, 7, 12}) {
    std::vector<int> sent(static_cast<std::size_t>(ranks));
    for (const Tree& tree : plan("halving_doubling", Collective::all_reduce, ranks, 1200).trees) {
      for (const Edge& edge : tree.up) ++sent[static_cast<std::size_t>(edge.child)];
    }
    for (const int count : sent) EXPECT_EQ(count, ranks - 1);
  }
}

TEST(Binomial, ReachesEveryoneInLogarithmicallyManyRounds) {
  const Forest forest = plan("binomial", Collective::broadcast, 16, 100, 5);
  EXPECT_EQ(forest.trees[0].root, 5);
  EXPECT_EQ(depth_below(forest.trees[0].down), 4);
  EXPECT_EQ(children(forest.trees[0].down, 5), 4u);
}

TEST(Star, PutsTheServerOnTheBestConnectedWorker) {
  cluster::Cluster cluster = gigabit_star(4);
  cluster.links[4].capacity = cluster.links[5].capacity = {1e10};
  EXPECT_EQ(find_planner("star").plan(make_request(Collective::all_reduce, 4, 100), cluster).trees[0].root,
            2);
}

TEST(Star, CountsACapacityGroupOnce) {
  // host0 has two links to each other host, all through one card of 1 Gbit/s.
  cluster::Cluster cluster = cluster::uniform_mesh(3, {1e9}, {30000});
  cluster::CapacityGroup card{"card", {1e9}, {}};
  for (std::size_t i = 0; i < cluster.links.size(); ++i) {
    if (cluster.links[i].from == 0 || cluster.links[i].to == 0) card.links.push_back(static_cast<int>(i));
  }
  cluster.groups.push_back(card);
  EXPECT_EQ(find_planner("star").plan(make_request(Collective::all_reduce, 3, 100), cluster).trees[0].root,
            1);
}

TEST(ShardedStar, IsAServerOnEveryRankWhereLinksAreEqual) {
  const Forest forest = plan("sharded_star", Collective::all_reduce, 6, 6000000);
  std::set<NodeId> roots;
  for (const Tree& tree : forest.trees) roots.insert(tree.root);
  EXPECT_EQ(roots.size(), 6u);
}

TEST(Direct, NumbersAllToAllTreesBySourceAndDestinationWhateverTheCounts) {
  for (const std::int64_t count : {0, 7}) {
    const Forest forest = plan("direct", Collective::all_to_all, 3, count);
    ASSERT_EQ(forest.trees.size(), 9u);
    for (std::size_t i = 0; i < 9; ++i) {
      EXPECT_THAT(forest.trees[i].contributors, ElementsAre(static_cast<NodeId>(i / 3)));
      EXPECT_THAT(forest.trees[i].receivers, ElementsAre(static_cast<NodeId>(i % 3)));
    }
  }
}

TEST(Direct, HasATreeForEveryRankOfGatherAndScatterWhateverTheCounts) {
  EXPECT_EQ(plan("direct", Collective::gather, 4, 0).trees.size(), 4u);
  EXPECT_EQ(plan("direct", Collective::scatter, 4, 0).trees.size(), 4u);
}

TEST(OneHop, DeliversEveryTreeToItsOwnRoot) {
  const Forest forest = plan("one_hop", Collective::all_reduce, 4, 2);
  ASSERT_EQ(forest.trees.size(), 4u);
  for (const Tree& tree : forest.trees) {
    EXPECT_THAT(tree.receivers, ElementsAre(tree.root));
    EXPECT_EQ(tree.slice, (Slice{0, 2}));
    EXPECT_EQ(depth_below(tree.up), 1);
    EXPECT_TRUE(tree.down.empty());
  }
}

}  // namespace
}  // namespace talweg::forest
