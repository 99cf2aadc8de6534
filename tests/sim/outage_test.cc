// What failed is named as the cause of what did not end, and nothing else is.
#include "sim/outage.h"

#include <gmock/gmock.h>

#include <memory>

#include "cluster/cluster.h"
#include "forest/cost.h"
#include "forest/planner.h"
#include "sim/collectives.h"
#include "sim/shapes.h"
#include "sim/topologies.h"
#include "sim/workload_run.h"

namespace talweg::sim {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr Picoseconds kTenMilliseconds = 10'000 * kMicrosecond;

// What a run says that the horizon ends.
std::string said_by(const cluster::Cluster& cluster, const std::string& text) {
  return message_of([&] {
    const Workload workload = parse_workload(text, "w.yaml", cluster);
    Simulation simulation(cluster, {});
    WorkloadOptions how;
    how.horizon = kTenMilliseconds;
    run_workload(simulation, workload, how);
  });
}

const std::string kJob =
    "groups: [{name: job, ranks: all, repeat: 99, steps: [{op: all_reduce, bytes: 1MiB, algo: ring}]}]\n";

TEST(Outage, AFailedHostIsTheCauseWithItsTime) {
  EXPECT_EQ(said_by(star(4, kTen), kJob + "changes: [{at: 1ms, fail: h2}]\n"),
            "at the horizon of 10 ms: h2 failed at 1 ms and was not repaired: group job had not ended: "
            "4 of 4 ranks go on");
}

TEST(Outage, OnlyWhatNeedsAFailedHostIsSaidToLackIt) {
  EXPECT_EQ(said_by(star(4, kTen),
                    "groups:\n"
                    "  - {name: a, ranks: [h0, h1], steps: [{compute: 1s}]}\n"
                    "  - {name: b, ranks: [h2, h3], steps: [{op: all_reduce, bytes: 1MiB}]}\n"
                    "changes: [{at: 0ms, fail: h3}]\n"),
            "at the horizon of 10 ms: group a had not ended: 2 of 2 ranks go on; h3 failed at 0 ns and was "
            "not repaired: group b had not ended: 2 of 2 ranks go on");
}

TEST(Outage, ASwitchOrALinkIsTheCauseWhereItCutsHostsOff) {
  EXPECT_THAT(said_by(leaf_spine(2, 2, 1, kTen, kTen), kJob + "changes: [{at: 1ms, fail: leaf1}]\n"),
              HasSubstr("10 ms: leaf1 failed at 1 ms and was not repaired, which cuts h2, h3 off from h0, "
                        "h1: group job had not ended"));
  EXPECT_THAT(said_by(leaf_spine(3, 1, 1, kTen, kTen),
                      kJob + "changes: [{at: 1ms, fail: leaf0->spine0}, {at: 2ms, fail: spine0->leaf0}]\n"),
              HasSubstr("10 ms: leaf0->spine0 failed at 1 ms, spine0->leaf0 failed at 2 ms and were not "
                        "repaired, which cuts h0 off from h1, h2: group job had not ended"));
}

TEST(Outage, WhatIsRepairedOrHasAnotherWayRoundIsNotBlamed) {
  EXPECT_THAT(said_by(leaf_spine(2, 2, 2, kTen, kTen),
                      kJob + "changes: [{at: 1ms, fail: spine1}, {at: 1ms, fail: h0}, "
                             "{at: 2ms, repair: h0}]\n"),
              AllOf(HasSubstr("group job had not ended"), Not(HasSubstr("failed"))));
}

TEST(Outage, FlowsThatLeadToAFailedHostNameIt) {
  EXPECT_EQ(said_by(star(3, kTen),
                    "flows: [{from: h0, to: h1, bytes: 1GB}, {from: h2, to: h0, bytes: 1kB}]\n"
                    "changes: [{at: 1ms, fail: h1}]\n"),
            "at the horizon of 10 ms: h1 failed at 1 ms and was not repaired: 1 of 2 flows had not ended: "
            "1 (0->1)");
}

TEST(Outage, AnAggregatorThatAPlanNeedsIsNamedToo) {
  const cluster::Cluster cluster =
      cluster::load_cluster(TALWEG_SOURCE_DIR "/examples/clusters/aggregator4.yaml");
  const std::string job =
      "groups: [{name: job, ranks: all, steps: [{op: all_reduce, bytes: 16MiB, algorithm: packed}]}]\n";
  EXPECT_THAT(said_by(cluster, job + "changes: [{at: 1ms, fail: agg}]\n"),
              HasSubstr("10 ms: agg failed at 1 ms and was not repaired: group job had not ended: 4 of 4"));
}

TEST(Outage, CallsNameTheFailedHostAndWhoWaitsForIt) {
  const cluster::Cluster cluster = star(3, kTen);
  const auto said = message_of([&] {
    Simulation simulation(cluster, {});
    NetworkChange failure;
    failure.node = 1;
    schedule(simulation, {failure});
    RanksOptions options;
    options.carry_payloads = false;
    Ranks ranks(simulation, options);
    auto forest = std::make_shared<forest::Forest>(forest::find_planner("ring").plan(
        forest::even_request(Collective::all_reduce, 3, 0, 1 << 20, 4), cluster));
    forest::choose_chunks(*forest, cluster);
    run_calls(simulation, ranks, forest, DataType::f32, {0, 1}, kTenMilliseconds);
  });
  EXPECT_EQ(said,
            "h1 failed at 0 ns and was not repaired: all_reduce of ring had not ended on h0, h1, h2 at "
            "10 ms");
}

TEST(Outage, OfManyNamesTheFirstAreTold) {
  std::vector<std::string> names;
  for (int i = 0; i < 10; ++i) names.push_back("h" + std::to_string(i));
  EXPECT_EQ(abridged(names), "h0, h1, h2, h3, h4, h5, h6, h7 and 2 more");
  names.resize(8);
  EXPECT_EQ(abridged(names), "h0, h1, h2, h3, h4, h5, h6, h7");
  EXPECT_EQ(abridged({}), "");
}

}  // namespace
}  // namespace talweg::sim
