#include "forest/planner.h"

#include <gmock/gmock.h>

#include "forest/requests.h"
#include "forest/verify.h"
#include "sanitized.h"
#include "talweg/error.h"

namespace talweg::forest {
namespace {

struct Counts {
  std::int64_t base;
  bool uneven;
};

class EveryPlanner : public testing::TestWithParam<std::size_t> {
 protected:
  const Planner& planner() const { return planners()[GetParam()]; }
};

INSTANTIATE_TEST_SUITE_P(Planners, EveryPlanner, testing::Range(std::size_t{0}, planners().size()),
                         [](const auto& each) { return planners()[each.param].name; });

TEST_P(EveryPlanner, ComputesWhatItServesForEveryNumberOfRanksAndCount) {
  int served = 0;
  for (const Collective op : all_operations()) {
    for (const int ranks : {1, 2, 3, 4, 5, 6, 7, 8, 9, 16}) {
      if (kSanitized && ranks > 9) continue;
      const auto cluster = gigabit_star(ranks);
      for (const Counts& counts : {Counts{0, false}, {1, false}, {17, false}, {1 << 24, false}, {3, true}}) {
        for (const NodeId root : {0, ranks - 1}) {
          const Request request = make_request(op, ranks, counts.base, counts.uneven, root);
          if (!planner().serves(request)) continue;
          ++served;
          const Forest forest = planner().plan(request, cluster);
          EXPECT_NO_THROW(verify(forest, &cluster)) << describe(planner().name, request);
          EXPECT_EQ(forest.planner, planner().name);
          EXPECT_EQ(forest.request, request);
          EXPECT_FALSE(forest.trees.empty());
        }
      }
    }
  }
  EXPECT_GT(served, 0);
}

TEST_P(EveryPlanner, AnswersTheSameQuestionTheSameWay) {
  const auto cluster = gigabit_star(5);
  for (const Collective op : all_operations()) {
    const Request request = make_request(op, 5, 1000, true);
    if (planner().serves(request)) {
      EXPECT_EQ(planner().plan(request, cluster), planner().plan(request, cluster));
    }
  }
}

TEST_P(EveryPlanner, RefusesWhatItDoesNotServe) {
  for (const Collective op : all_operations()) {
    const Request request = make_request(op, 4, 8);
    if (planner().serves(request)) continue;
    try {
      planner().plan(request, gigabit_star(4));
      ADD_FAILURE() << planner().name << " planned " << name(op);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unsupported);
      EXPECT_EQ(error.what(), planner().name + " does not serve " + name(op));
    }
  }
}

TEST_P(EveryPlanner, WorksWithElementsOfEverySize) {
  const auto cluster = gigabit_star(6);
  for (const std::int64_t element_size : {1, 2, 3, 8, 16, 100}) {
    for (const Collective op : all_operations()) {
      const Request request = make_request(op, 6, 100001, false, 0, element_size);
      if (!planner().serves(request)) continue;
      EXPECT_NO_THROW(verify(planner().plan(request, cluster), &cluster))
          << describe(planner().name, request);
    }
  }
}

TEST(Planners, ServeEveryCollective) {
  for (const Collective op : all_operations()) {
    for (const int ranks : {1, 2, 3, 16}) {
      const auto cluster = gigabit_star(ranks);
      EXPECT_NO_THROW(verify(plan_best(make_request(op, ranks, 5, true), cluster), &cluster)) << name(op);
    }
  }
}

TEST(Planners, AreFoundByName) {
  for (const Planner& planner : planners()) EXPECT_EQ(find_planner(planner.name).name, planner.name);
  try {
    find_planner("rong");
    FAIL() << "found";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_STREQ(
        error.what(),
        "algorithm \"rong\": expected one of halving_doubling, ring, chain, double_binary_tree, binomial, "
        "star, sharded_star, direct, one_hop, recursive_doubling, packed");
  }
}

TEST(Planners, RefuseAClusterOfAnotherSizeAndWrongRequests) {
  const Request request = make_request(Collective::all_reduce, 4, 8);
  EXPECT_THROW(plan_best(request, gigabit_star(3)), Error);
  EXPECT_THROW(find_planner("ring").plan(request, gigabit_star(5)), Error);
  Request wrong = request;
  wrong.counts = {1, 2};
  EXPECT_THROW(plan_best(wrong, gigabit_star(4)), Error);
}

TEST(PlanBest, TakesTheCheapestOfTheTable) {
  const auto cluster = gigabit_star(8);
  for (const std::int64_t count : {1, 1000, 100000, 10000000}) {
    for (const Collective op : {Collective::all_reduce, Collective::broadcast, Collective::all_gather}) {
      const Request request = make_request(op, 8, count);
      const auto table = rank_planners(request, cluster);
      const Forest best = plan_best(request, cluster);
      EXPECT_EQ(predict_seconds(best, cluster), table.front().seconds);
      if (count <= 1000) {  // short: of those that take the same, the first
        EXPECT_EQ(best.planner, table.front().planner) << name(op) << " " << count;
      }
      EXPECT_TRUE(std::is_sorted(table.begin(), table.end(),
                                 [](const auto& a, const auto& b) { return a.seconds < b.seconds; }));
    }
  }
}

TEST(PlanBest, TakesOfLongPlansThatTieTheOneWithTheFewestFlows) {
  const auto cluster = gigabit_star(8);
  const CostModel model(cluster);
  const auto request = [](std::int64_t count) { return make_request(Collective::all_reduce, 8, count); };
  const auto offered = [&](const char* planner, std::int64_t count) {
    return offer(find_planner(planner).plan(request(count), cluster), model);
  };
  constexpr std::int64_t kLong = 1 << 18;  // elements
  EXPECT_EQ(offered("ring", kLong).flows, 8);
  EXPECT_EQ(offered("halving_doubling", kLong).flows, 8 * 3);
  EXPECT_EQ(offered("sharded_star", kLong).flows, 8 * 7);
  EXPECT_EQ(offered("star", kLong).flows, 2 * 7) << "there and back";
  EXPECT_EQ(offered("sharded_star", 1).flows, 2 * 7) << "what is empty does not flow";
  ASSERT_EQ(offered("ring", kLong).seconds, offered("halving_doubling", kLong).seconds);
  EXPECT_EQ(plan_best(request(kLong), cluster).planner, "ring");
}

// Asked of offers that are made up.
TEST(PlanBest, LetsFlowsDecideAmongEqualsWhoseFlowsAreLong) {
  const CostModel model(gigabit_star(4));
  const auto taken = [&](std::int64_t bytes, double ring_seconds, int ring_flows) {
    const Choice choice =
        choose(make_request(Collective::all_reduce, 4, bytes / 4), model, [&](const std::string& planner) {
          if (planner == "halving_doubling") return Offer{1, 8};
          return planner == "ring" ? Offer{ring_seconds, ring_flows} : Offer{2, 1};
        });
    return choice.taken;
  };
  EXPECT_EQ(taken(256 << 10, 1, 4), "ring");
  EXPECT_EQ(taken(256 << 10, 1, 8), "halving_doubling") << "no fewer";
  EXPECT_EQ(taken(256 << 10, 1.001, 4), "halving_doubling") << "no tie";
  EXPECT_EQ(taken(255 << 10, 1, 4), "halving_doubling") << "short flows: the first";
  EXPECT_EQ(taken(255 << 10, 0.999, 4), "ring");
}

TEST(PlanBest, KeepsTheOneHopExchangeForSmallMessages) {
  const auto cluster = gigabit_star(2);
  EXPECT_EQ(plan_best(make_request(Collective::all_reduce, 2, 1), cluster).planner, "one_hop");
  // Two ranks that swap their vectors move as much as a ring does, so the prediction alone does not exclude
  // it.
  for (std::int64_t count = 1 << 17; count <= 1 << 24; count *= 2) {
    EXPECT_NE(plan_best(make_request(Collective::all_reduce, 2, count), cluster).planner, "one_hop") << count;
  }
}

TEST(PlanBest, ServesLongVectorsFromTheFastHostsWhereSomeAreSlow) {
  const auto cluster =
      cluster::load_cluster(std::string(TALWEG_SOURCE_DIR) + "/examples/clusters/uneven4.yaml");
  const Forest forest = plan_best(make_request(Collective::all_reduce, 4, 1 << 24), cluster);
  EXPECT_EQ(forest.planner, "sharded_star");
  ASSERT_EQ(forest.trees.size(), 2u);
  EXPECT_EQ(forest.trees[0].root, 0);
  EXPECT_EQ(forest.trees[1].root, 1);
}

TEST(PlanBest, PlansTheExamplesWithLinksForEveryPair) {
  const auto cluster =
      cluster::load_cluster(std::string(TALWEG_SOURCE_DIR) + "/examples/clusters/pairwise4.yaml");
  for (const Collective op : all_operations()) {
    EXPECT_NO_THROW(verify(plan_best(make_request(op, 4, 100000), cluster), &cluster)) << name(op);
  }
}

TEST(PlanBest, RanksThatKnowOnlyTheirOwnCountsAgreeOnTheTreesTheyShare) {
  constexpr int kRanks = 5;
  const auto cluster = gigabit_star(kRanks);
  for (const Collective op : {Collective::all_to_all, Collective::gather, Collective::scatter}) {
    const Request full = make_request(op, kRanks, 5000, true, 2);
    const Forest reference = plan_best(full, cluster);
    for (NodeId rank = 0; rank < kRanks; ++rank) {
      // What this rank knows: its row and column, or all on the root, or its own.
      Request view = full;
      for (std::size_t i = 0; i < view.counts.size(); ++i) {
        const auto index = static_cast<NodeId>(i);
        const bool known = op == Collective::all_to_all ? index / kRanks == rank || index % kRanks == rank
                                                        : rank == full.root || index == rank;
        if (!known) view.counts[i] = 0;
      }
      const Forest seen = plan_best(view, cluster);
      ASSERT_EQ(seen.trees.size(), reference.trees.size());
      for (std::size_t i = 0; i < seen.trees.size(); ++i) {
        Tree tree = seen.trees[i];
        const Tree& real = reference.trees[i];
        const bool takes_part = real.root == rank || real.receivers[0] == rank;
        if (!takes_part) continue;
        if (real.contributors[0] == rank) {
          EXPECT_EQ(input_offset(view, rank, tree.slice), input_offset(full, rank, real.slice));
        }
        if (real.receivers[0] == rank) {
          EXPECT_EQ(output_offset(view, rank, tree.slice), output_offset(full, rank, real.slice));
        }
        tree.slice.offset = real.slice.offset;  // counted in what the rank knows
        EXPECT_EQ(tree, real);
      }
    }
  }
}

}  // namespace
}  // namespace talweg::forest
