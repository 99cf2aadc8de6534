// What a rank is told of a forest, one rank at a time or all at once.
#include "protocol/forest/local_plan.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "forest/cost.h"
#include "forest/planner.h"

namespace talweg::protocol {
namespace {

cluster::Cluster idle_star(int hosts) {
  cluster::Cluster c;
  for (int h = 0; h < hosts; ++h) c.nodes.push_back({.name = "h" + std::to_string(h)});
  c.nodes.push_back({.name = "switch", .kind = cluster::NodeKind::switch_});
  for (int h = 0; h < hosts; ++h)
    for (const auto& [from, to] : {std::pair{h, hosts}, {hosts, h}})
      c.links.push_back({from, to, Bandwidth{1e9}, Nanoseconds{1000}, {}});
  return c;
}

int plans_made_at_once_and_one_by_one(int ranks) {
  const cluster::Cluster network = idle_star(ranks);
  int compared = 0;
  for (const Collective op :
       {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather, Collective::broadcast,
        Collective::reduce, Collective::all_to_all, Collective::gather, Collective::scatter})
    for (const forest::Planner& planner : forest::planners()) {
      // Blocks of a scatter are acknowledged where they are not small.
      const std::int64_t count = op == Collective::scatter ? 60'000 : 6000;
      const forest::Request request = forest::even_request(op, ranks, 0, count, 4);
      if (!planner.serves(request)) continue;
      auto forest = std::make_shared<forest::Forest>(planner.plan(request, network));
      forest::choose_chunks(*forest, network);
      const auto all = make_local_plans(forest);
      EXPECT_EQ(all.size(), static_cast<std::size_t>(ranks));
      for (int r = 0; r < ranks; ++r) {
        const auto one = make_local_plan(forest, r);
        const LocalPlan& other = *all[static_cast<std::size_t>(r)];
        EXPECT_EQ(other.self, r);
        EXPECT_EQ(other.forest, forest);
        EXPECT_EQ(other.trees, one->trees) << planner.name << ", rank " << r;
        EXPECT_EQ(other.position, one->position);
        EXPECT_EQ(other.announce_to, one->announce_to);
        EXPECT_EQ(other.slices_overlap, one->slices_overlap);
        EXPECT_EQ(other.ahead_bytes, one->ahead_bytes);
        ++compared;
      }
    }
  return compared;
}

TEST(LocalPlan, PlansOfAllRanksMadeAtOnceAreThoseMadeOneByOne) {
  EXPECT_GT(plans_made_at_once_and_one_by_one(1), 5);
  EXPECT_GT(plans_made_at_once_and_one_by_one(2), 10);
  EXPECT_GT(plans_made_at_once_and_one_by_one(6), 50);
}

TEST(LocalPlan, EveryRankStartsWithAnotherPeerSoThatNoLinkIsFlooded) {
  const int ranks = 5;
  const cluster::Cluster network = idle_star(ranks);
  for (const Collective op : {Collective::all_to_all, Collective::reduce_scatter, Collective::all_gather}) {
    const forest::Request request = forest::even_request(op, ranks, 0, 10000, 4);
    auto forest = std::make_shared<forest::Forest>(forest::find_planner("direct").plan(request, network));
    forest::choose_chunks(*forest, network);
    for (int r = 0; r < ranks; ++r) {
      const auto plan = make_local_plan(forest, r);
      std::vector<NodeId> peers;
      for (const LocalTree& tree : plan->trees) {
        if (tree.up_parent != kNone) peers.push_back(tree.up_parent);
        peers.insert(peers.end(), tree.down_children.begin(), tree.down_children.end());
      }
      EXPECT_EQ(peers, (std::vector<NodeId>{(r + 1) % 5, (r + 2) % 5, (r + 3) % 5, (r + 4) % 5})) << name(op);
    }
  }
}

TEST(LocalPlan, LargeExchangesGoOnlyAFewPeersAheadOfWhatHasArrived) {
  const int ranks = 6;
  const cluster::Cluster network = idle_star(ranks);
  for (const std::int64_t block :
       {std::int64_t{100}, PlanLimits{}.ahead_bytes / 3 + 4, PlanLimits{}.ahead_bytes * 4}) {
    const forest::Request request =
        forest::even_request(Collective::all_to_all, ranks, 0, block / 4 * ranks, 4);
    auto forest = std::make_shared<forest::Forest>(forest::find_planner("direct").plan(request, network));
    const int ahead = block == 100 ? ranks : block < PlanLimits{}.ahead_bytes ? 3 : 2;
    for (int r = 0; r < ranks; ++r) {
      const auto plan = make_local_plan(forest, r);
      std::vector<std::pair<NodeId, NodeId>> order;  // received from, then sent to
      int waiting = 0;
      for (const LocalTree& tree : plan->trees) {
        waiting += tree.waits ? 1 : 0;
        if (tree.then < 0) continue;
        const LocalTree& next = plan->trees[static_cast<std::size_t>(tree.then)];
        EXPECT_TRUE(next.waits);
        order.emplace_back((r - tree.down_parent + ranks) % ranks,
                           (next.down_children.at(0) - r + ranks) % ranks);
      }
      std::sort(order.begin(), order.end());
      std::vector<std::pair<NodeId, NodeId>> expected;
      for (int d = 1; d + ahead < ranks; ++d) expected.emplace_back(d, d + ahead);
      EXPECT_EQ(order, expected);
      EXPECT_EQ(waiting, static_cast<int>(expected.size()));
    }
  }
}

// On long ways more blocks are sent ahead, and nobody waits where each pair has a link.
TEST(LocalPlan, ExchangesGoAsFarAheadAsWiresHold) {
  constexpr int kExchanging = 9;
  constexpr std::int64_t kBlock = PlanLimits{}.ahead_bytes;
  const forest::Request request =
      forest::even_request(Collective::all_to_all, kExchanging, 0, kBlock / 4 * kExchanging, 4);
  auto forest =
      std::make_shared<forest::Forest>(forest::find_planner("direct").plan(request, idle_star(kExchanging)));
  forest::LookAhead ahead;
  for (const std::int64_t wire :
       {std::int64_t{0}, 3 * kBlock, 3 * kBlock + 1, 7 * kBlock, forest::kNobodyWaits})
    ahead.wires.push_back(wire);
  ahead.wires.resize(kExchanging);
  const std::vector<int> waiting{6, 4, 3, 0, 0, 6, 6, 6, 6};  // of eight, but for those that go ahead
  const auto all = make_local_plans(forest, 0, ahead);
  for (std::size_t r = 0; r < all.size(); ++r) {
    EXPECT_EQ(std::ranges::count_if(all[r]->trees, [](const LocalTree& t) { return t.waits; }), waiting[r])
        << r;
    EXPECT_EQ(make_local_plan(forest, static_cast<NodeId>(r), {.wire_bytes = ahead.wires[r]})->trees,
              all[r]->trees)
        << r;
  }
}

// Of each rank, how many sends wait for something.
std::vector<int> waiting_sends(const std::vector<std::int64_t>& blocks, int ranks) {
  const forest::Request request{Collective::all_to_all, ranks, 0, 0, blocks, 4};
  auto forest =
      std::make_shared<forest::Forest>(forest::find_planner("direct").plan(request, idle_star(ranks)));
  std::vector<int> waiting;
  for (int r = 0; r < ranks; ++r) {
    const auto plan = make_local_plan(forest, r);
    waiting.push_back(static_cast<int>(
        std::count_if(plan->trees.begin(), plan->trees.end(), [](const LocalTree& t) { return t.waits; })));
  }
  return waiting;
}

TEST(LocalPlan, UnevenExchangesDoNotWaitForWhatIsNotTheirs) {
  const int ranks = 10;
  const std::vector<int> nobody(ranks, 0);
  const std::int64_t large = PlanLimits{}.ahead_bytes * 4;
  std::vector<std::int64_t> chain(100, 0);  // four send a block each, at other distances
  chain[0 * 10 + 1] = chain[1 * 10 + 4] = chain[4 * 10 + 9] = chain[9 * 10 + 6] = large;
  EXPECT_EQ(waiting_sends(chain, ranks), nobody);
  std::vector<std::int64_t> one_sends(100, 0);
  one_sends[2] = one_sends[5] = one_sends[9] = large;
  EXPECT_EQ(waiting_sends(one_sends, ranks), nobody);
  std::vector<std::int64_t> to_one(100,
                                   PlanLimits{}.ahead_bytes / 16);  // rank 0 sends little, and gets very much
  for (std::size_t r = 1; r < 10; ++r) to_one[r * 10] = large * 8;
  EXPECT_EQ(waiting_sends(to_one, ranks)[0], 0);
  EXPECT_EQ(waiting_sends(std::vector<std::int64_t>(100, large), ranks), std::vector<int>(ranks, 7));
}

}  // namespace
}  // namespace talweg::protocol
