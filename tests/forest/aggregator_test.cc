// Forests whose trees lead through nodes that are not ranks.
#include <gmock/gmock.h>

#include <algorithm>
#include <set>
#include <vector>

#include "forest/bound.h"
#include "forest/oracle.h"
#include "forest/packed.h"
#include "forest/planner.h"
#include "forest/random_networks.h"
#include "forest/requests.h"
#include "forest/verify.h"
#include "sanitized.h"

namespace talweg::forest {
namespace {

using enum Collective;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr Collective kRootedTrees[] = {all_reduce, reduce, broadcast, reduce_scatter, all_gather};

// `ranks` hosts on a switch, and an aggregator with a port for each of them.
cluster::Cluster port_per_host(int ranks) {
  cluster::Cluster cluster = gigabit_star(ranks);
  cluster.nodes.push_back({.name = "agg", .kind = cluster::NodeKind::aggregator});
  for (const auto& [from, to] : {std::pair(ranks, ranks + 1), std::pair(ranks + 1, ranks)})
    cluster.links.push_back({from, to, {1e9 * ranks}, {30000}});
  return cluster;
}

// Bytes over the busiest link, as a part of what it carries in the time of one vector over a host's link.
double busiest(const Forest& forest, const cluster::Cluster& cluster) {
  const Verification load = verify(forest, &cluster);
  double bytes = 0, most = 0;
  for (const std::int64_t count : forest.request.counts)
    bytes += static_cast<double>(count * forest.request.element_size);
  for (std::size_t link = 0; link < cluster.links.size(); ++link)
    most = std::max(most, static_cast<double>(load.link_bytes[link].value) * 1e9 /
                              cluster.links[link].capacity.bits_per_second);
  return most / bytes;
}

TEST(Aggregator, WithAPortForEachHostCarriesAnAllReduceAtTheRateOfALink) {
  for (const int ranks : {4, 8}) {
    const cluster::Cluster cluster = port_per_host(ranks);
    const Request request = make_request(all_reduce, ranks, 16 << 20);
    EXPECT_NEAR(best_rate(cluster, all_reduce).rate.value(), 1e9, 1);
    for (const char* planner : {"packed", "sharded_star"}) {
      const Forest forest = find_planner(planner).plan(request, cluster);
      EXPECT_LE(busiest(forest, cluster), 1 / 0.99) << planner << " " << ranks;
      EXPECT_THAT(aggregators_of(forest), ElementsAre(ranks + 1)) << planner << " " << ranks;
    }
    const Forest chosen = plan_best(request, cluster);
    EXPECT_THAT(aggregators_of(chosen), ElementsAre(ranks + 1));
    const double ring = busiest(find_planner("ring").plan(request, cluster), cluster);
    EXPECT_LT(busiest(chosen, cluster), 0.7 * ring);
  }
}

TEST(Aggregator, ThatIsNotThereIsPlannedWithout) {
  const cluster::Cluster cluster = cluster::without(port_per_host(4), std::vector{5});
  for (const Planner& planner : planners())
    for (const Collective op : all_operations()) {
      const Request request = make_request(op, 4, 1000);
      if (!planner.serves(request)) continue;
      const Forest forest = planner.plan(request, cluster);
      EXPECT_THAT(aggregators_of(forest), IsEmpty()) << describe(planner.name, request);
      EXPECT_EQ(forest.nodes, 4);
    }
}

// A rack's sum crosses the thin link between racks once, whatever the number of hosts in it.
TEST(Aggregator, OfEachRackSumsItBeforeItLeaves) {
  cluster::Cluster cluster;
  for (int i = 0; i < 8; ++i) cluster.nodes.push_back({.name = fmt::format("h{}", i)});
  for (const char* name : {"left", "right"})
    cluster.nodes.push_back(
        {.name = name, .kind = cluster::NodeKind::switch_, .can_multicast = true, .can_aggregate = true});
  const auto join = [&](int a, int b, double rate) {
    cluster.links.push_back({a, b, {rate}, {10000}});
    cluster.links.push_back({b, a, {rate}, {10000}});
  };
  for (int i = 0; i < 8; ++i) join(i, 8 + i / 4, 1e9);
  join(8, 9, 1e9);
  const Forest forest = find_planner("packed").plan(make_request(all_reduce, 8, 16 << 20), cluster);
  EXPECT_LE(busiest(forest, cluster), 1 / 0.99);
  EXPECT_THAT(aggregators_of(forest), ElementsAre(8, 9));
}

TEST(Aggregator, ThatOnlySumsTakesPartInWhatGoesUpAlone) {
  cluster::Cluster cluster = gigabit_star(4);
  cluster.nodes[4].can_aggregate = true;
  for (const Collective op : kRootedTrees) {
    const Forest forest = find_planner("packed").plan(make_request(op, 4, 1 << 20), cluster);
    EXPECT_NO_THROW(verify(forest, &cluster)) << name(op);
    if (goes_down(op)) {
      EXPECT_THAT(aggregators_of(forest), IsEmpty()) << name(op);
    }
    if (op == reduce) {
      EXPECT_THAT(aggregators_of(forest), ElementsAre(4));
    }
  }
}

TEST(Aggregator, SeveralInRandomNetworksAreUsedAsFarAsTheyHelp) {
  int used = 0;
  for (std::uint64_t seed = 0; seed < fewer(60U); ++seed) {
    const auto before = random_network(seed, 3 + static_cast<int>(seed % 6));
    const auto cluster = with_aggregators(before, seed);
    const Collective op = kRootedTrees[seed % std::size(kRootedTrees)];
    const Request request = make_request(op, cluster.workers(), 1 << 24, false, 1);
    const CostModel model(cluster);
    const Packing packing = pack(request, model).front();
    EXPECT_GE(packing.rate, 0.99 * packing.upper) << seed;
    EXPECT_GE(packing.rate, 0.98 * pack(request, CostModel(before)).front().rate) << seed;
    const Forest forest = find_planner("packed").plan(request, cluster);
    EXPECT_NO_THROW(verify(forest, &cluster)) << seed;
    used += aggregators_of(forest).empty() ? 0 : 1;
    for (const Planner& planner : planners()) {
      const Request small = make_request(op, cluster.workers(), 40, true, 1);
      if (!planner.serves(small)) continue;
      EXPECT_TRUE(computes_its_collective(planner.plan(small, cluster))) << seed << " " << planner.name;
    }
  }
  EXPECT_GT(used, static_cast<int>(fewer(20U)));
}

}  // namespace
}  // namespace talweg::forest
