#include "study/flow_statistics.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "sim/topologies.h"

namespace talweg::study {
namespace {

constexpr sim::LinkShape kTenGigabit{Bandwidth{10e9}, Nanoseconds{1000}};

sim::FlowResult flow(int from, int to, std::int64_t bytes, sim::Picoseconds took) {
  sim::FlowResult result;
  result.connection.from = from;
  result.connection.to = to;
  result.connection.bytes = bytes;
  result.started = 1'000'000;
  result.ended = result.started + took;
  return result;
}

TEST(LoneFlow, SendsItsPacketsOverTheNarrowestLinkOneBehindTheOther) {
  cluster::Cluster network = sim::star(3, kTenGigabit);
  for (cluster::Link& link : network.links)
    if (link.to == 1) link.capacity = {1e9};
  LoneFlow alone(network, {});
  // 100 packets of 1514 bytes; the first also crosses the quick link. Two hops of a microsecond.
  EXPECT_NEAR(alone.seconds(0, 1, 144'800), 2e-6 + 1514 * 0.8e-9 + 100 * 1514 * 8e-9, 1e-12);
  EXPECT_NEAR(alone.seconds(0, 2, 100), 2e-6 + 2 * 166 * 0.8e-9, 1e-12);
}

// What it says, a simulation of that flow alone comes to, where the window is no limit.
TEST(LoneFlow, TakesWhatAnEmptyNetworkGives) {
  const cluster::Cluster network = sim::leaf_spine(2, 2, 2, kTenGigabit, kTenGigabit);
  sim::SimulationOptions options;
  options.transport.first_window = 1000;
  sim::Simulation simulation(network, options);
  const auto flows = sim::run_matrix(
      simulation, sim::parse_matrix("Nodes 4\nConnections 1\n0->3 id 1 start 0 size 200000\n", "a.cm"),
      sim::kNever);
  const double alone = LoneFlow(network, options.transport).seconds(0, 3, 200'000);
  EXPECT_NEAR(sim::seconds(flows[0].ended), alone, 0.01 * alone);
}

TEST(LoneFlow, PassesAsFewHostsAsItCan) {
  // From 0 to 2 through host 1, quickly, or through two switches, slowly.
  cluster::Cluster network;
  for (const char* name : {"a", "b", "c"}) network.nodes.push_back({.name = name});
  for (const char* name : {"s", "t"})
    network.nodes.push_back({.name = name, .kind = cluster::NodeKind::switch_});
  for (const auto& [from, to] : {std::pair{0, 1}, {1, 2}}) network.links.push_back({from, to, {1e12}, {0}});
  for (const auto& [from, to] : {std::pair{0, 3}, {3, 4}, {4, 2}})
    network.links.push_back({from, to, {1e9}, {1'000'000}});
  EXPECT_GT(LoneFlow(network, {}).seconds(0, 2, 1000), 3e-3);
  EXPECT_EQ(LoneFlow(network, {}).seconds(2, 0, 1000), 0);  // no way back
}

TEST(FlowStatistics, AHundredThousandFlowsAreFiveHundredPointsThatRise) {
  const cluster::Cluster network = sim::star(4, kTenGigabit);
  std::vector<sim::FlowResult> flows;
  for (int i = 0; i < 100'000; ++i) flows.push_back(flow(i % 4, (i + 1) % 4, 1000, 1'000'000 + 10 * i));
  const FlowStatistics found = statistics_of(flows, network, {});
  ASSERT_EQ(found.completion.size(), FlowStatistics::kMostPoints);
  EXPECT_TRUE(std::ranges::is_sorted(found.completion));
  EXPECT_EQ(found.completion.back().second, 1);
  EXPECT_NEAR(found.completion.back().first, 2e-6, 1e-10);
  EXPECT_NEAR(found.completion[249].first, 1.5e-6, 1e-9);  // the median
  EXPECT_EQ(found.completion[249].second, 0.5);
}

TEST(FlowStatistics, SlowdownIsOverWhatAFlowAloneOfTheSizeTakes) {
  const cluster::Cluster network = sim::star(4, kTenGigabit);
  LoneFlow alone(network, {});
  std::vector<sim::FlowResult> flows;
  for (const std::int64_t bytes : {1000, 1'000'000})
    for (int i = 0; i < 100; ++i) {
      const double times = bytes == 1000 ? 2 : i < 98 ? 3 : 30;
      flows.push_back(flow(0, 1, bytes, std::llround(times * alone.seconds(0, 1, bytes) * 1e12)));
    }
  const FlowStatistics found = statistics_of(flows, network, {});
  ASSERT_EQ(found.by_size.size(), 2u);
  EXPECT_EQ(found.by_size[0].bytes, 1000);
  EXPECT_EQ(found.by_size[0].flows, 100u);
  EXPECT_NEAR(found.by_size[0].p50, 2, 1e-3);
  EXPECT_NEAR(found.by_size[0].p99, 2, 1e-3);
  EXPECT_NEAR(found.by_size[1].p50, 3, 1e-3);
  EXPECT_NEAR(found.by_size[1].p99, 30, 1e-3);
}

}  // namespace
}  // namespace talweg::study
