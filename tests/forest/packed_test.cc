#include "forest/packed.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "base/at.h"
#include "base/random.h"
#include "forest/bound.h"
#include "forest/cost.h"
#include "forest/fat_tree.h"
#include "forest/planner.h"
#include "forest/random_networks.h"
#include "forest/requests.h"
#include "forest/topologies.h"
#include "forest/verify.h"
#include "sanitized.h"
#include "talweg/error.h"

namespace talweg::forest {
namespace {

using enum Collective;

constexpr Collective kOperations[] = {all_reduce, reduce, broadcast, reduce_scatter, all_gather};

// A request for about `elements` in all, of 4 bytes each.
Request long_vector(Collective op, int ranks, std::int64_t elements = std::int64_t{1} << 34) {
  const bool split = op == all_gather || op == reduce_scatter;
  return make_request(op, ranks, split ? elements / ranks : elements, false, 1 % ranks);
}

// The rate at which the busiest link or group lets the forest go, in bit/s: from what the verifier counts.
double rate_of(const Forest& forest, const cluster::Cluster& cluster) {
  const Verification load = verify(forest, &cluster);
  double bits_of_time = 0, bits = 0;
  for (std::size_t link = 0; link < cluster.links.size(); ++link)
    bits_of_time = std::max(bits_of_time, 8.0 * static_cast<double>(load.link_bytes[link].value) /
                                              cluster.links[link].capacity.bits_per_second);
  for (std::size_t group = 0; group < cluster.groups.size(); ++group)
    bits_of_time = std::max(bits_of_time, 8.0 * static_cast<double>(load.group_bytes[group].value) /
                                              cluster.groups[group].capacity.bits_per_second);
  for (const std::int64_t count : forest.request.counts)
    bits += 8.0 * static_cast<double>(count * forest.request.element_size);
  return bits / bits_of_time;
}

Forest packed(const Request& request, const cluster::Cluster& cluster) {
  return find_planner("packed").plan(request, cluster);
}

// By a model without acknowledgements: bounds know of data alone.
Forest packed_for_data(const Request& request, const cluster::Cluster& cluster) {
  CostParameters parameters;
  parameters.tcp_acknowledgements = 0;
  PackingMemo memo;
  return plan_by(find_planner("packed"), request, CostModel(cluster, parameters), memo);
}

// As packed, unless acknowledgements fill slow links that lead back so that other trees are predicted to be
// quicker than those that carry most data: then those.
Forest packed_unless_acknowledged(const Request& request, const cluster::Cluster& cluster) {
  Forest forest = packed(request, cluster);
  Forest for_data = packed_for_data(request, cluster);
  const CostModel model(cluster);
  return model.seconds(forest) < model.seconds(for_data) ? for_data : forest;
}

TEST(Packed, ReachesTheBoundsOfTheLiteratureWithFewTrees) {
  for (const Topology& topology : topologies()) {
    const int workers = topology.cluster.workers();
    for (const Collective op : kOperations) {
      if (workers > 16 && (op != all_reduce || kSanitized))
        continue;  // takes seconds, minutes with sanitizers
      const Forest forest = packed(long_vector(op, workers), topology.cluster);
      const double bound = best_rate(topology.cluster, op, 1).rate.value();
      EXPECT_GE(rate_of(forest, topology.cluster), 0.99 * bound) << topology.id << " " << name(op);
      EXPECT_LE(rate_of(forest, topology.cluster), bound * (1 + 1e-9)) << topology.id << " " << name(op);
      // As many trees as workers do for all_reduce. Where each root's trees have a rate of their own one tree
      // each cannot use all links: the DGX-1 has 48 for 8 trees of 7 edges.
      const bool per_root = op == all_gather || op == reduce_scatter;
      const int times = per_root ? 4 : op == all_reduce ? 1 : 3;
      EXPECT_LE(std::ssize(forest.trees), times * workers) << topology.id << " " << name(op);
    }
  }
}

TEST(Packed, ReachesTheBoundsOfRandomNetworks) {
  for (std::uint64_t seed = 0; seed < fewer(90U); ++seed) {
    const auto cluster = random_network(seed, 3 + static_cast<int>(seed % (seed < 80 ? 8 : 14)));
    const Collective op = kOperations[seed % std::size(kOperations)];
    const double bound = best_rate(cluster, op, 1).rate.value();
    const Request request = long_vector(op, cluster.workers());
    EXPECT_GE(rate_of(packed_unless_acknowledged(request, cluster), cluster), 0.99 * bound)
        << "seed " << seed << " " << name(op);
  }
}

// What takes seconds each; bounds as above.
TEST(Packed, ReachesTheBoundsOfEveryCollectiveOnTheLargestBoxes) {
  if (kSanitized) GTEST_SKIP() << "takes minutes, and smaller boxes run through the same";
  for (const Topology& topology : topologies()) {
    const int workers = topology.cluster.workers();
    if (workers <= 16) continue;
    for (const Collective op : kOperations) {
      const double bound = best_rate(topology.cluster, op, 1).rate.value();
      const double rate = rate_of(packed(long_vector(op, workers), topology.cluster), topology.cluster);
      EXPECT_GE(rate, 0.99 * bound) << topology.id << " " << name(op);
      EXPECT_LE(rate, bound * (1 + 1e-9)) << topology.id << " " << name(op);
    }
  }
}

TEST(Packed, ReachesTheBoundsOfRandomNetworksOfUpTo32) {
  double worst = 1;
  for (std::uint64_t seed = 0; seed < fewer(20U); ++seed) {
    const auto cluster = random_network(1000 + seed, 17 + static_cast<int>(seed * 15 / 19));
    const Collective op = kOperations[seed % std::size(kOperations)];
    const double bound = best_rate(cluster, op, 1).rate.value();
    const Request request = long_vector(op, cluster.workers());
    const double share = rate_of(packed_unless_acknowledged(request, cluster), cluster) / bound;
    EXPECT_GE(share, 0.99) << "seed " << seed << " " << name(op) << " among " << cluster.workers();
    worst = std::min(worst, share);
  }
  std::cout << "the worst reaches " << worst << " of its bound\n";
}

// More hosts than programs are solved for at once.
TEST(Packed, ReachesTheBoundsOfFatTreesOfHundredsOfHosts) {
  using Case = std::pair<Hosts, bool>;
  for (const auto& [hosts, slow] :
       {Case{Hosts::even, false}, Case{Hosts::uneven, false}, Case{Hosts::even, true}}) {
    auto cluster = fat_tree(10, hosts, Switches::as_one);
    for (auto& link : cluster.links)  // the uplink of one leaf, upward
      if (slow && link.from == cluster.workers() + 3 && link.to > link.from)
        link.capacity.bits_per_second = 5e9;
    const Forest forest = packed(long_vector(all_reduce, cluster.workers()), cluster);
    const double bound = best_rate(cluster, all_reduce).rate.value();
    EXPECT_GE(rate_of(forest, cluster), 0.99 * bound) << slow;
    EXPECT_LE(rate_of(forest, cluster), bound * (1 + 1e-9)) << slow;
    EXPECT_LE(forest.trees.size(), 16u) << slow;
  }
}

// Leaves of some hosts, and spines that each leaf reaches over uplinks of one rate; and the same where the
// spines are written as one switch.
std::pair<cluster::Cluster, cluster::Cluster> random_leaf_spine(std::uint64_t seed) {
  Random random(seed);
  const int leaves = 2 + static_cast<int>(random.below(4)), hosts = 2 + static_cast<int>(random.below(3));
  const int spines = 2 + static_cast<int>(random.below(4));
  cluster::Cluster each;
  for (int i = 0; i < leaves * hosts; ++i) each.nodes.push_back({.name = fmt::format("h{}", i)});
  for (int i = 0; i < leaves + spines; ++i)
    each.nodes.push_back({.name = fmt::format("s{}", i), .kind = cluster::NodeKind::switch_});
  cluster::Cluster one = each;
  one.nodes.resize(at(leaves * hosts + leaves + 1));
  const auto join = [](cluster::Cluster& cluster, int a, int b, double rate) {
    cluster.links.push_back({a, b, {rate}, {1000}});
    cluster.links.push_back({b, a, {rate}, {1000}});
  };
  const double rates[] = {5e9, 10e9, 20e9, 40e9};
  for (int leaf = 0; leaf < leaves; ++leaf) {
    const int node = leaves * hosts + leaf;
    for (int host = leaf * hosts; host < (leaf + 1) * hosts; ++host) {
      const double rate = rates[random.below(4)];
      for (auto* const cluster : {&each, &one}) join(*cluster, host, node, rate);
    }
    const double uplink = rates[random.below(4)] / 4;
    for (int spine = 0; spine < spines; ++spine) join(each, node, leaves * hosts + leaves + spine, uplink);
    join(one, node, leaves * hosts + leaves, spines * uplink);
  }
  return {each, one};
}

TEST(Packed, UsesAllSpinesAsIfTheyWereOneSwitch) {
  for (std::uint64_t seed = 100; seed < 100 + fewer(30U); ++seed) {
    const auto [each, one] = random_leaf_spine(seed);
    const Collective op = kOperations[seed % std::size(kOperations)];
    const Request request = long_vector(op, each.workers());
    const double bound = best_rate(each, op, 1).rate.value();
    EXPECT_DOUBLE_EQ(best_rate(one, op, 1).rate.value(), bound) << seed;
    const Forest forest = packed(request, each);
    EXPECT_GE(rate_of(forest, each), 0.99 * bound) << seed << " " << name(op);
    EXPECT_LE(rate_of(forest, each), bound * (1 + 1e-9)) << seed << " " << name(op);
    EXPECT_NEAR(rate_of(forest, each) / rate_of(forest, one), 1, 1e-6) << seed;
    EXPECT_NEAR(predict_seconds(forest, each) / predict_seconds(forest, one), 1, 1e-6) << seed;
    EXPECT_EQ(packed(request, one).trees.size(), forest.trees.size()) << seed << " " << name(op);
  }
}

TEST(Packed, ReachesTheBoundsOfFatTreesWithFailedLinks) {
  for (std::uint64_t seed = 100; seed < 100 + fewer(6U); ++seed) {
    auto cluster = with_failed_links(fat_tree(8, Hosts::uneven, Switches::each), 20, seed);
    for (auto& link : cluster.links)  // a pod's narrow hosts take more than one link
      if (std::min(link.from, link.to) >= cluster.workers()) link.capacity.bits_per_second = 10e9;
    const double bound = best_rate(cluster, all_reduce).rate.value();
    const Forest forest = packed(long_vector(all_reduce, cluster.workers()), cluster);
    EXPECT_GE(rate_of(forest, cluster), 0.95 * bound) << seed;
    EXPECT_LE(rate_of(forest, cluster), bound * (1 + 1e-9)) << seed;
  }
}

TEST(Packed, SharesPartsOfAnySizes) {
  for (std::uint64_t seed = 0; seed < fewer(20U); ++seed) {
    const auto cluster = random_network(seed, 3 + static_cast<int>(seed % 5));
    for (const Collective op : {all_gather, reduce_scatter}) {
      Request request = long_vector(op, cluster.workers());
      for (std::size_t rank = 0; rank < request.counts.size(); ++rank)
        request.counts[rank] = rank == 1 ? 0 : request.counts[rank] * static_cast<std::int64_t>(rank * rank);
      request.counts[0] = 1;
      const Forest forest = packed(request, cluster);
      EXPECT_NO_THROW(verify(forest, &cluster)) << seed << " " << name(op);
      // No slower than with equal parts as long as the longest.
      const auto longest = *std::max_element(request.counts.begin(), request.counts.end());
      std::int64_t sum = 0;
      for (const std::int64_t count : request.counts) sum += count;
      const double part = static_cast<double>(sum) / static_cast<double>(longest * request.ranks);
      EXPECT_GE(rate_of(forest, cluster), 0.98 * part * best_rate(cluster, op).rate.value())
          << seed << " " << name(op);
    }
  }
}

TEST(Packed, IsTakenWhereItWinsAndTheChoiceIsNeverSlowerThanOtherPlanners) {
  int taken = 0;
  for (std::uint64_t seed = 0; seed < fewer(40U); ++seed) {
    const auto cluster = random_network(seed, 3 + static_cast<int>(seed % 6));
    for (const std::int64_t count : {100, 100000, 10000000}) {
      const Request request = make_request(all_reduce, cluster.workers(), count);
      const Forest best = plan_best(request, cluster);
      taken += best.planner == "packed" ? 1 : 0;
      const double seconds = predict_seconds(best, cluster);
      for (const auto& [planner, other, through, flows] : rank_planners(request, cluster)) {
        if (planner == "packed") {
          EXPECT_GE(other, 0.95 * seconds) << "seed " << seed;
        } else if (planner != "one_hop" && planner != "recursive_doubling") {
          EXPECT_LE(seconds, other) << "seed " << seed << " " << planner;
        }
      }
    }
  }
  EXPECT_GT(taken, fewer(20));
}

TEST(Packed, IsNotTriedWhereOthersReachTheBound) {
  const auto star = cluster::uniform_star(8, {1e9}, {30000});
  for (const Collective op : kOperations) {
    const Request request = long_vector(op, 8, 1 << 26);
    const CostModel model(star);
    double least = 1e9;
    for (const Candidate& candidate : rank_planners(request, star)) {
      if (candidate.planner != "packed") least = std::min(least, candidate.seconds);
    }
    EXPECT_FALSE(packing_may_beat(least, request, model)) << name(op);
    EXPECT_TRUE(packing_may_beat(2 * least, request, model)) << name(op);
  }
}

TEST(Packed, LeavesDeepTreesDryWhenVectorsAreShort) {
  for (const Topology& topology : topologies()) {
    if (topology.id != "t1" && topology.id != "t9" && topology.id != "t13a") continue;
    const auto trees = [&](std::int64_t count) {
      const Request request = make_request(all_reduce, topology.cluster.workers(), count);
      return packed(request, topology.cluster).trees.size();
    };
    EXPECT_EQ(trees(1), 1u) << topology.id;
    EXPECT_LE(trees(20000), trees(std::int64_t{1} << 30)) << topology.id;
    EXPECT_GT(trees(std::int64_t{1} << 30), 2u) << topology.id;
  }
}

TEST(Packed, GivesTheSharesThatEndTogether) {
  // The vector is so long that fills hardly matter.
  const auto cluster = topologies()[0].cluster;
  const Request request = make_request(all_reduce, 8, std::int64_t{1} << 34);
  const CostModel model(cluster);
  const auto packings = pack(request, model);
  const Forest forest = packed(request, cluster);
  const auto& trees = packings.front().trees;
  ASSERT_EQ(forest.trees.size(), trees.size());
  for (std::size_t i = 0; i < trees.size(); ++i)
    EXPECT_NEAR(static_cast<double>(forest.trees[i].slice.count) / static_cast<double>(request.counts[0]),
                trees[i].rate / packings.front().rate, 0.01);
}

TEST(Packed, OffersPackingsOfFewerAndFewerTrees) {
  for (const Topology& topology : topologies()) {
    if (topology.cluster.workers() > 16) continue;
    const CostModel model(topology.cluster);
    const auto packings = pack(long_vector(all_reduce, topology.cluster.workers()), model);
    EXPECT_GE(packings.front().rate, 0.99 * packings.front().upper) << topology.id;
    for (std::size_t i = 1; i < packings.size(); ++i)
      EXPECT_LT(packings[i].trees.size(), packings[i - 1].trees.size()) << topology.id;
  }
}

TEST(Packed, PlansTheSameWithPackingsThatWereMadeBefore) {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    const auto cluster = random_network(seed, 3 + static_cast<int>(seed % 5));
    PackingMemo memo;
    for (const Collective op : kOperations) {
      for (const std::int64_t elements : {1000, 1000000, 100000000}) {
        for (const int root : {0, 1}) {
          Request request = long_vector(op, cluster.workers(), elements);
          if (op == reduce || op == broadcast) request.root = root;
          if (op == all_gather && root == 1) request.counts[1] *= 2;
          EXPECT_EQ(plan_by(find_planner("packed"), request, cluster, memo), packed(request, cluster))
              << seed << " " << name(op) << " " << elements << " " << root;
          EXPECT_EQ(plan_best(request, CostModel(cluster), memo), plan_best(request, cluster))
              << seed << " " << name(op);
        }
      }
    }
  }
}

// Two racks joined by a slow link, whose hosts' ports differ: where rings and servers leave much unused.
cluster::Cluster uneven_racks(int hosts) {
  cluster::Cluster racks;
  for (int i = 0; i < hosts; ++i) racks.nodes.push_back({.name = "h" + std::to_string(i)});
  for (const char* name : {"left", "right"})
    racks.nodes.push_back({.name = name, .kind = cluster::NodeKind::switch_});
  const auto join = [&](int a, int b, double rate) {
    racks.links.push_back({a, b, {rate}, {10000}});
    racks.links.push_back({b, a, {rate}, {10000}});
  };
  for (int i = 0; i < hosts; ++i) join(i, hosts + i % 2, i % 5 == 0 ? 3e8 : 1e9);
  join(hosts, hosts + 1, 7e8);
  return racks;
}

TEST(Packed, IsTakenAmongManyRanksAsAmongFew) {
  for (const int hosts : {8, 24, 40}) {
    const auto racks = uneven_racks(hosts);
    const Forest best = plan_best(make_request(all_reduce, hosts, 1 << 24), racks);
    EXPECT_EQ(best.planner, "packed") << hosts;
    EXPECT_NO_THROW(verify(best, &racks));
  }
}

TEST(PlanAtOnce, IsTheBestPlanWhereNoPlannerTakesLong) {
  int complete = 0;
  for (std::uint64_t seed = 0; seed < fewer(20U); ++seed) {
    const CostModel model(random_network(seed, 3 + static_cast<int>(seed % 4)));
    PackingMemo memo, all;
    for (const std::int64_t elements : {100, 100000, 10000000}) {
      const Request request = make_request(all_reduce, model.network().workers(), elements);
      const Planned plan = plan_at_once(request, model, memo);
      complete += plan.complete() ? 1 : 0;
      if (!plan.complete()) continue;
      EXPECT_EQ(plan.forest, plan_best(request, model, all)) << seed << " " << elements;
    }
  }
  EXPECT_GE(complete, fewer(50));
}

TEST(PlanAtOnce, LeavesOutWhatWouldTakeTooLongAndSaysSo) {
  const CostModel model(random_network(1, 12));
  const Request request = make_request(all_reduce, 12, 1 << 24);
  PackingMemo memo, all;
  const Planned plan = plan_at_once(request, model, memo);
  EXPECT_FALSE(plan.complete());
  EXPECT_NE(plan.forest.planner, "packed");
  EXPECT_EQ(plan.choice.taken, plan.forest.planner);
  const Planned best = plan_in_full(request, model, all);
  EXPECT_TRUE(best.complete());
  EXPECT_EQ(best.choice.taken, "packed");
  EXPECT_EQ(best.forest.planner, "packed");
  EXPECT_LT(model.seconds(best.forest), 0.95 * model.seconds(plan.forest));
}

TEST(Packed, GivesUpWhereItsWorkIsLimitedAndRemembersThat) {
  const CostModel model(random_network(1, 10));
  const Request request = make_request(all_reduce, 10, 1 << 24);
  PackingMemo memo;
  WorkLimit first(5'000'000), second(5'000'000);
  EXPECT_THROW(memo.find(request, model, &first), WorkLimit::Reached);
  EXPECT_THROW(memo.find(request, model, &second), WorkLimit::Reached);
  EXPECT_EQ(second.left(), 5'000'000);
  WorkLimit nobody_waits(1'000'000'000'000, [] { return true; });
  EXPECT_THROW(pack(request, model, Trees::few, &nobody_waits), WorkLimit::Reached);
}

TEST(Packed, RefusesNetworksThatDoNotHangTogether) {
  auto star = cluster::uniform_star(3, {1e9}, {1000});
  star.links.pop_back();
  EXPECT_THROW(packed(make_request(all_reduce, 3, 100), star), Error);
}

}  // namespace
}  // namespace talweg::forest
