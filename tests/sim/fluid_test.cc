// Rates without packets: max-min fair, and what becomes of long flows as with packets.
#include "sim/fluid.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "sim/matrix_run.h"
#include "sim/max_min.h"
#include "sim/pulled_options.h"
#include "sim/report.h"
#include "sim/shapes.h"
#include "sim/simulation.h"
#include "sim/topologies.h"
#include "sim/traffic.h"
#include "sim/workload_run.h"

namespace talweg::sim {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using Uses = std::vector<MaxMin::Use>;

std::vector<double> filled(const std::vector<double>& capacities, const std::vector<Uses>& flows) {
  MaxMin shares(capacities);
  std::vector<const Uses*> pointers;
  for (const Uses& uses : flows) pointers.push_back(&uses);
  std::vector<double> rates;
  shares.fill(pointers, rates);
  shares.fill(pointers, rates);  // nothing is left of the first time
  return rates;
}

TEST(MaxMin, FlowsThatMeetShareAndOthersTakeWhatIsLeft) {
  // Two links of 10 and 4; the first flow passes both, the others one each.
  EXPECT_THAT(filled({10, 4}, {{{0, 1}, {1, 1}}, {{0, 1}}, {{1, 1}}}),
              ElementsAre(DoubleNear(2, 1e-9), DoubleNear(8, 1e-9), DoubleNear(2, 1e-9)));
  // A flow of which half passes the link counts for half.
  EXPECT_THAT(filled({9}, {{{0, 0.5}}, {{0, 1}}}), ElementsAre(DoubleNear(6, 1e-9), DoubleNear(6, 1e-9)));
  // Without a way there is no rate.
  EXPECT_THAT(filled({9}, {{}, {{0, 1}}}), ElementsAre(0, DoubleNear(9, 1e-9)));
}

TEST(MaxMin, NoRateCanGrowWithoutTakingFromOneThatIsNotHigher) {
  Random random(5);
  for (int round = 0; round < 50; ++round) {
    std::vector<double> capacities;
    for (int r = 0; r < 12; ++r) capacities.push_back(1 + 99 * random.uniform());
    std::vector<Uses> flows(20);
    for (Uses& uses : flows)
      for (std::uint32_t r = 0; r < 12; ++r)
        if (random.below(3) == 0) uses.push_back({r, static_cast<float>(1 + random.below(2))});
    std::erase_if(flows, [](const Uses& uses) { return uses.empty(); });
    const std::vector<double> rates = filled(capacities, flows);
    std::vector<double> taken(12);
    std::vector<double> highest(12);
    for (std::size_t f = 0; f < flows.size(); ++f)
      for (const MaxMin::Use& use : flows[f]) {
        taken[use.resource] += static_cast<double>(use.weight) * rates[f];
        highest[use.resource] = std::max(highest[use.resource], rates[f]);
      }
    for (std::size_t r = 0; r < 12; ++r) EXPECT_LE(taken[r], capacities[r] * (1 + 1e-9));
    for (std::size_t f = 0; f < flows.size(); ++f)
      EXPECT_TRUE(std::ranges::any_of(flows[f],
                                      [&](const MaxMin::Use& use) {
                                        return taken[use.resource] > capacities[use.resource] * (1 - 1e-9) &&
                                               rates[f] > highest[use.resource] * (1 - 1e-9);
                                      }))
          << "flow " << f << " of round " << round << " has no bottleneck";
  }
}

SimulationOptions fluid_options() {
  SimulationOptions o;
  o.transport.kind = TransportKind::fluid;
  return o;
}

std::vector<FlowResult> flows_over(const cluster::Cluster& cluster, const SimulationOptions& options,
                                   const Matrix& matrix) {
  Simulation s(cluster, options);
  return run_matrix(s, matrix, kNever);
}

// What bytes take at 10 Gbit/s with headers.
double at_ten(double bytes) {
  return bytes * 8 / 10e9 * 1514 / 1448;
}

TEST(Fluid, FlowsEndWhenTheirSharesSaySo) {
  // Both at half of the rate until the short one has ended, then the long one alone.
  Matrix m = matrix_of(3, {{0, 2}, {1, 2}}, 10'000'000);
  m.connections[1].bytes = 2'000'000;
  const auto flows = flows_over(star(3, kTen), fluid_options(), m);
  EXPECT_NEAR(seconds(flows[1].ended), at_ten(4e6), 10e-6);
  EXPECT_NEAR(seconds(flows[0].ended), at_ten(12e6), 10e-6);
  EXPECT_EQ(flows[0].counters.delivered_bytes, 10'000'000);
}

TEST(Fluid, AByteAloneTakesLatenciesAndStoresAndForwards) {
  const auto flows = flows_over(star(2, kTen), fluid_options(), matrix_of(2, {{0, 1}}, 1000));
  // 1066 bytes on two links of 1 us each; packets do the same.
  SimulationOptions packets;
  const auto exact = flows_over(star(2, kTen), packets, matrix_of(2, {{0, 1}}, 1000));
  EXPECT_NEAR(seconds(flows[0].ended), seconds(exact[0].ended), 0.05e-6);
}

TEST(Fluid, AcknowledgementsTakeTheirPartOfTheWayBack) {
  const auto flows = flows_over(star(2, kTen), fluid_options(), matrix_of(2, {{0, 1}, {1, 0}}, 50'000'000));
  const double both = 50e6 * 8 / 10e9 * (1514 + 66.0 / 2) / 1448;
  EXPECT_NEAR(seconds(flows[0].ended), both, 0.005 * both);
}

TEST(Fluid, SharedCapacitiesAreShared) {
  cluster::Cluster cluster = star(3, kTen);
  cluster.groups.push_back({"riser", Bandwidth{10e9}, {0, 2}});  // from h0 and from h1
  const auto flows = flows_over(cluster, fluid_options(), matrix_of(3, {{0, 2}, {1, 0}}, 10'000'000));
  EXPECT_NEAR(seconds(flows[0].ended), at_ten(20e6), 0.05 * at_ten(20e6));
}

// Long flows: the last ends within 5 % of when it ends with packets, and each within 15 %.
void expect_as_with_packets(const cluster::Cluster& cluster, const SimulationOptions& packets,
                            const Matrix& matrix) {
  SimulationOptions fluid = packets;
  fluid.transport.kind = TransportKind::fluid;
  const auto water = flows_over(cluster, fluid, matrix);
  const auto exact = flows_over(cluster, packets, matrix);
  const double last = seconds(completion_percentile(exact, 1));
  EXPECT_NEAR(seconds(completion_percentile(water, 1)), last, 0.05 * last);
  for (std::size_t f = 0; f < exact.size(); ++f) {
    const double took = seconds(exact[f].ended - exact[f].started);
    EXPECT_NEAR(seconds(water[f].ended - water[f].started), took, 0.15 * took) << "flow " << f;
  }
}

TEST(Fluid, LongFlowsAreNearThoseOfPackets) {
  expect_as_with_packets(star(8, kTen), pulled_options(), parse_traffic("shuffle:size=4MB", 8, 1));
  expect_as_with_packets(star(8, kTen), pulled_options(), parse_traffic("incast:size=10MB", 8, 1));
  expect_as_with_packets(fat_tree(16, 3, 1, kTen), pulled_options(),
                         parse_traffic("permutation:size=20MB", 16, 3));
}

TEST(Fluid, LinksOfDifferentRatesAreNearThoseOfPackets) {
  cluster::Cluster cluster = star(4, kTen);
  for (cluster::Link& link : cluster.links)
    if (link.from == 1 || link.to == 2) link.capacity = Bandwidth{4e9};
  SimulationOptions packets;
  packets.transport.turns = true;
  packets.network.switch_queue.mark_by_delay = true;
  packets.network.switch_queue.mark_bytes = 60'000;
  expect_as_with_packets(cluster, packets, matrix_of(4, {{0, 3}, {1, 3}, {0, 2}}, 30'000'000));
}

TEST(Fluid, AFailedSpineIsAvoidedAndAFlowWithoutAWayWaits) {
  const cluster::Cluster cluster = leaf_spine(2, 1, 2, kTen, kTen);
  const auto change = [&](std::int64_t at_us, const char* spine, bool up) {
    NetworkChange c = change_of(spine, cluster);
    c.at = Nanoseconds{at_us * 1000};
    c.up = up;
    return c;
  };
  Simulation s(cluster, fluid_options());
  schedule(s, {change(1000, "spine0", false), change(2000, "spine1", false), change(5000, "spine0", true)});
  const auto flows = run_matrix(s, matrix_of(2, {{0, 1}}, 10'000'000), kNever);
  EXPECT_NEAR(seconds(flows[0].ended), at_ten(10e6) + 0.003, 20e-6);
}

std::string run_fluid(std::uint64_t seed) {
  SimulationOptions o = fluid_options();
  o.seed = seed;
  std::string text;
  for (const FlowResult& f :
       flows_over(fat_tree(16, 3, 1, kTen), o, parse_traffic("mixed:size=2MB,flows=8", 16, seed)))
    text += std::to_string(f.ended) + "\n";
  return text;
}

TEST(Fluid, ASeedGivesTheSameRunAndAnotherSeedAnotherOne) {
  const std::string one = run_fluid(1);
  EXPECT_EQ(one, run_fluid(1));
  EXPECT_NE(one, run_fluid(2));
}

TEST(Fluid, LinksCountWhatFlowsTake) {
  Simulation s(star(2, kTen), fluid_options());
  run_matrix(s, matrix_of(2, {{0, 1}}, 10'000'000), kNever);
  const double sent = static_cast<double>(s.network().counters(0).bytes);
  EXPECT_NEAR(sent, 10e6 * 1514 / 1448, 2 * 1514);
  EXPECT_GT(summarise(s.network(), s.now()).busiest_utilisation, 0.99);
}

}  // namespace
}  // namespace talweg::sim
