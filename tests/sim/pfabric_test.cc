// Queues that send what has least left first, and flows that leave it to them.
#include "sim/pfabric.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "sim/matrix_run.h"
#include "sim/report.h"
#include "sim/shapes.h"
#include "sim/simulation.h"
#include "sim/tapped.h"
#include "sim/topologies.h"
#include "talweg/error.h"

namespace talweg::sim {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr LinkShape kHundred{Bandwidth{100e9}, Nanoseconds{1000}};

// As --transport pfabric sets it.
SimulationOptions by_what_is_left(int round_trips = 2) {
  SimulationOptions o;
  o.transport.kind = TransportKind::pfabric;
  o.transport.first_window = 0;
  o.transport.least_rto = Nanoseconds{0};
  o.transport.spray = true;
  o.network.switch_queue.least_left_first = true;
  o.network.switch_queue.limit_bytes = 8 * 1514;
  o.network.switch_queue.limit_round_trips = round_trips;
  return o;
}

SimulationOptions windows_and_marks() {
  SimulationOptions o;
  o.transport.turns = true;
  o.transport.least_rto = Nanoseconds{10'000'000};
  o.network.switch_queue.limit_bytes = 1 << 20;
  o.network.switch_queue.mark_bytes = 100 << 10;
  o.network.switch_queue.mark_by_delay = true;
  return o;
}

SimulationOptions queue_of(std::int64_t bytes) {
  SimulationOptions o = by_what_is_left(0);
  o.network.switch_queue.limit_bytes = bytes;
  return o;
}

// Hosts 0 and 1 send to host 2 at twice the rate at which it receives.
cluster::Cluster two_to_one() {
  cluster::Cluster cluster = star(3, kGigabit);
  for (cluster::Link& link : cluster.links)
    if (link.to == 2) link.capacity = Bandwidth{0.1e9};
  return cluster;
}

TEST(LeastLeft, WhatHasLeastLeftGoesFirstAndOfOneFlowWhatCameFirst) {
  Tapped t(two_to_one(), queue_of(0));
  t.put(0, 2, 1, 10, 90'000);
  t.put(0, 2, 1, 11, 88'500);
  t.put(0, 2, 2, 20, 6'000);
  t.put(0, 2, 3, 30, 9'000);
  t.put(0, 2, 2, 21, 4'500);
  t.put(0, 2, 3, 31, 3'000);  // its flow is the one with least left now
  t.put(0, 2, 4, 40, 0, 66);
  t.run();
  EXPECT_THAT(t.numbers(), ElementsAre(10, 40, 30, 31, 20, 21, 11));
}

TEST(LeastLeft, FlowsOfOneNumberFromTwoHostsAreTwo) {
  Tapped t(two_to_one(), queue_of(0));
  t.put(0, 2, 1, 10, 90'000);
  t.put(0, 2, 1, 11, 80'000);
  t.put(1, 2, 1, 20, 70'000);
  t.put(1, 2, 1, 21, 60'000);
  t.run();
  // 20 comes while 10 is being sent; 11 waits for both of the other host.
  EXPECT_THAT(t.numbers(), ElementsAre(10, 20, 21, 11));
}

TEST(LeastLeft, AFullQueueDropsWhatHasMostLeft) {
  Tapped t(two_to_one(), queue_of(3 * 1500));
  t.put(0, 2, 1, 10, 10'000);  // is being sent
  t.put(0, 2, 2, 20, 50'000);
  t.put(0, 2, 3, 30, 30'000);
  t.put(0, 2, 2, 21, 50'000);
  t.put(0, 2, 3, 31, 20'000);  // in place of 21, the last of those with most left
  t.put(0, 2, 4, 40, 40'000);  // in place of 20
  t.put(0, 2, 5, 50, 40'000);  // no less than any: it goes itself
  t.put(0, 2, 6, 60, 60'000);
  t.run();
  EXPECT_THAT(t.numbers(), ElementsAre(10, 30, 31, 40));
  const NetworkSummary n = summarise(t.network, t.now);
  EXPECT_EQ(n.dropped, 4U);
  EXPECT_EQ(t.network.packets().in_use(), 0U);
}

TEST(LeastLeft, AQueueOfOnePacketGoesOn) {
  Tapped t(two_to_one(), queue_of(1500));
  for (std::uint32_t i = 0; i < 40; ++i) t.put(0, 2, i, i, 100'000 - 1000 * i);
  t.run();
  // The first, of the nine that come while it is sent the last, and so on; nothing is stuck.
  EXPECT_EQ(t.numbers().front(), 0U);
  EXPECT_EQ(t.numbers().back(), 39U);
  EXPECT_EQ(t.numbers().size(), 5U);
  EXPECT_EQ(t.network.packets().in_use(), 0U);
}

TEST(LeastLeft, ALinkThatFailsLosesWhatWaits) {
  Tapped t(two_to_one(), queue_of(0));
  for (std::uint32_t i = 0; i < 8; ++i) t.put(0, 2, i, i, 1000);
  t.run(200 * kMicrosecond);
  t.network.set_node(2, false);
  t.run();
  EXPECT_EQ(t.numbers().size(), 1U);
  EXPECT_EQ(t.network.packets().in_use(), 0U);
}

TEST(LeastLeft, APolicyWithPrioritiesAsWellIsRefused) {
  SimulationOptions o = by_what_is_left();
  o.network.switch_queue.priorities = 2;
  EXPECT_THAT(message_of([&] { Simulation(star(2, kTen), o); }), HasSubstr("what has least left first"));
}

TEST(LeastLeft, AQueueHoldsTwoRoundTripsOfTheLongestPath) {
  SimulationOptions o = by_what_is_left();
  Tapped t(star(3, kHundred), o);
  // There 2 x (1514 x 8 / 100 + 1000) ns, back 2 x (5.28 + 1000): 4.25 us, of which a link sends 53.2 KB.
  for (std::uint32_t i = 0; i < 200; ++i) {
    t.put(0, 2, 1, i, 1000);
    t.put(1, 2, 2, i, 1000);
  }
  t.run();
  EXPECT_EQ(summarise(t.network, t.now).dropped, 400U - t.numbers().size());
  std::int64_t most = 0;
  for (std::size_t l = 0; l < t.network.cluster().links.size(); ++l)
    if (t.network.cluster().links[l].to == 2)
      most = t.network.counters(static_cast<int>(l)).most_queued_bytes;
  EXPECT_NEAR(static_cast<double>(most), 2 * 53'200 + 1500, 1600);
}

TEST(PFabric, OneFlowFillsALinkFromItsFirstRoundTripOn) {
  Simulation s(star(2, kHundred), by_what_is_left());
  const auto flows = run_matrix(s, matrix_of(2, {{0, 1}}, 10'000'000), kNever);
  const double line_rate = 10e6 * 8 / 100e9 * 1514 / 1448;
  EXPECT_NEAR(seconds(flows[0].ended), line_rate + 2.2e-6, 0.002 * line_rate);
  EXPECT_EQ(flows[0].counters.retransmissions, 0U);
  EXPECT_EQ(flows[0].counters.delivered_bytes, 10'000'000);
}

TEST(PFabric, SegmentsSayWhatIsLeftAndAnswersGoFirst) {
  Tapped t(star(2, kTen), by_what_is_left());
  const FlowId flow = t.transport->open({0, 1});
  t.transport->write(flow, 100 * 1448, 0);
  t.run();
  ASSERT_EQ(t.transport->delivered_bytes(flow), 100 * 1448);
  std::uint32_t last = 100 * 1448 + 1;
  for (const Packet& p : t.arrived) {
    if (p.kind == PacketKind::acknowledgement) continue;
    // Of what was acknowledged when it left, a window behind at most.
    EXPECT_LE(p.credit, last);
    EXPECT_GE(p.credit, (100 - p.number) * 1448);
    last = p.credit;
  }
  EXPECT_LT(last, 10'000U);
}

TEST(PFabric, AShortFlowPassesALongOneThatDctcpLetsItWaitFor) {
  const auto took = [](const SimulationOptions& options) {
    Simulation s(star(4, kHundred), options);
    Matrix m = matrix_of(4, {{0, 3}, {1, 3}, {2, 3}}, 20'000'000);
    m.connections[2].bytes = 50'000;
    m.connections[2].start = 500 * kMicrosecond;
    const auto flows = run_matrix(s, m, kNever);
    return flows[2].ended - flows[2].started;
  };
  const double alone = 50'000.0 * 8 / 100e9 * 1514 / 1448 + 2.2e-6;
  EXPECT_LT(seconds(took(by_what_is_left())), 1.3 * alone);
  EXPECT_GT(seconds(took(windows_and_marks())), 2 * alone);
}

TEST(PFabric, AHostsOwnLinkSendsWhatHasLeastLeftFirst) {
  Simulation s(star(3, kHundred), by_what_is_left());
  Matrix m = matrix_of(3, {{0, 1}, {0, 2}, {0, 1}}, 10'000'000);
  m.connections[2].bytes = 100'000;
  m.connections[2].start = 100 * kMicrosecond;
  const auto flows = run_matrix(s, m, kNever);
  const double alone = 100e3 * 8 / 100e9 * 1514 / 1448 + 2.2e-6;
  EXPECT_LT(seconds(flows[2].ended - flows[2].started), 1.1 * alone);
}

TEST(PFabric, FlowsThatMeetEndOneBehindTheOther) {
  std::vector<std::pair<int, int>> senders;
  for (int h = 0; h < 15; ++h) senders.emplace_back(h, 15);
  const auto mean = [&](const SimulationOptions& options, Picoseconds& last) {
    Simulation s(star(16, kHundred), options);
    const auto flows = run_matrix(s, matrix_of(16, senders, 500'000), kNever);
    double sum = 0;
    for (const FlowResult& f : flows) sum += seconds(f.ended - f.started);
    last = completion_percentile(flows, 1);
    return sum / static_cast<double>(flows.size());
  };
  Picoseconds last_left = 0, last_fair = 0;
  const double left = mean(by_what_is_left(), last_left), fair = mean(windows_and_marks(), last_fair);
  const double all = 15 * 500e3 * 8 / 100e9 * 1514 / 1448;
  EXPECT_LT(left, 0.62 * all) << "half of what fair shares take, where all are equal";
  EXPECT_LT(left, 0.7 * fair);
  EXPECT_LT(static_cast<double>(last_left), 1.1 * static_cast<double>(last_fair));
}

TEST(PFabric, NothingIsMissingWhateverTheWireDoes) {
  SimulationOptions o = by_what_is_left();
  o.network.loss.loss = 0.05;
  o.network.loss.duplicate = 0.01;
  o.network.loss.damage = 0.01;
  o.network.loss.delay = 0.05;
  o.network.loss.most_delay = Nanoseconds{20'000};
  Simulation s(star(4, kTen), o);
  const auto flows =
      run_matrix(s, matrix_of(4, {{0, 3}, {1, 3}, {2, 3}, {3, 0}}, 2'000'000), 10 * kPicosecondsPerSecond);
  for (const FlowResult& f : flows) {
    EXPECT_EQ(f.counters.delivered_bytes, 2'000'000);
    EXPECT_GT(f.counters.retransmissions, 0U);
  }
}

TEST(PFabric, AFlowThatIsStarvedProbesAndGoesOnOnceThereIsRoom) {
  Tapped t(star(3, kTen), by_what_is_left());
  const FlowId whale = t.transport->open({0, 2});
  t.transport->write(whale, 20'000'000, 0);
  t.run(1000 * kMicrosecond);
  // From now on 2 ms of flows that have less left, one behind the other.
  const std::int64_t before = t.transport->delivered_bytes(whale);
  for (int i = 0; i < 25; ++i) t.transport->write(t.transport->open({1, 2}), 100'000, t.now);
  t.run(2800 * kMicrosecond);
  EXPECT_LT(t.transport->delivered_bytes(whale) - before, 300'000) << "what was on the way, and some crumbs";
  const std::int64_t starved = t.transport->delivered_bytes(whale);
  EXPECT_GE(t.transport->counters(whale).timeouts, 5U);
  t.run(4300 * kMicrosecond);  // what they need, and a millisecond
  EXPECT_GT(t.transport->delivered_bytes(whale) - starved, 1'000'000);
  EXPECT_TRUE(std::ranges::any_of(t.arrived, [&](const Packet& p) {
    return p.flow == whale && p.kind == PacketKind::data && (p.flags & kTrimmed) != 0 && p.bytes == 67;
  })) << "probes";
  t.run();
  EXPECT_EQ(t.transport->delivered_bytes(whale), 20'000'000);
}

TEST(PFabric, WhatAFailureHasCutOffForGoodProbesRarerAndRarer) {
  Tapped t(star(2, kTen), by_what_is_left());
  const FlowId flow = t.transport->open({0, 1});
  t.transport->write(flow, 1'000'000, 0);
  t.run(100 * kMicrosecond);
  t.network.set_node(1, false);
  t.run(3600 * kPicosecondsPerSecond);
  EXPECT_GT(t.transport->counters(flow).timeouts, 100U);
  EXPECT_LT(t.happened, 10'000U);
  t.network.set_node(1, true);
  t.run();
  EXPECT_EQ(t.transport->delivered_bytes(flow), 1'000'000);
}

TEST(PFabric, TheSameRunIsTheSame) {
  const auto run = [](std::uint64_t seed) {
    SimulationOptions o = by_what_is_left();
    o.seed = o.network.seed = seed;
    o.network.loss.loss = 0.01;
    Simulation s(leaf_spine(4, 4, 2, kHundred, kHundred), o);
    std::vector<std::pair<int, int>> pairs;
    for (int a = 0; a < 16; ++a) pairs.insert(pairs.end(), {{a, (a + 5) % 16}, {a, (a + 9) % 16}});
    std::vector<Picoseconds> ends;
    for (const FlowResult& f : run_matrix(s, matrix_of(16, pairs, 300'000), kNever)) ends.push_back(f.ended);
    return ends;
  };
  EXPECT_EQ(run(1), run(1));
  EXPECT_NE(run(1), run(2));
}

}  // namespace
}  // namespace talweg::sim
