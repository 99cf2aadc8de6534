// Links, queues and switches against arithmetic: what a packet takes, what a full queue does, where packets
// go.
#include "sim/network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "sim/shapes.h"
#include "sim/simulation.h"
#include "sim/topologies.h"
#include "talweg/error.h"

namespace talweg::sim {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::uint32_t kPort = 7;

struct Arrival {
  Picoseconds at;
  std::uint32_t number;
  int node;
  std::uint8_t flags;
};

// A simulation that remembers the datagrams which its hosts receive.
struct Recorder {
  explicit Recorder(const cluster::Cluster& cluster, const SimulationOptions& options = {})
      : simulation(cluster, options) {
    for (int h = 0; h < cluster.workers(); ++h)
      simulation.bind(h, kPort, [this, h](const Packet& p) {
        arrivals.push_back({simulation.now(), p.number, h, p.flags});
      });
  }
  void send(int from, int to, std::uint32_t number, std::uint8_t priority = 0, std::uint16_t bytes = 1500,
            std::uint32_t spread = 0) {
    simulation.send({from, to, kPort, number, bytes, priority, kNoRoute, spread, false});
  }
  std::vector<std::uint32_t> numbers() const {
    std::vector<std::uint32_t> n;
    for (const Arrival& a : arrivals) n.push_back(a.number);
    return n;
  }
  Simulation simulation;
  std::vector<Arrival> arrivals;
};

// The link between two nodes.
int link_of(const cluster::Cluster& cluster, const std::string& from, const std::string& to) {
  for (std::size_t l = 0; l < cluster.links.size(); ++l)
    if (cluster.nodes[static_cast<std::size_t>(cluster.links[l].from)].name == from &&
        cluster.nodes[static_cast<std::size_t>(cluster.links[l].to)].name == to)
      return static_cast<int>(l);
  ADD_FAILURE() << from << "->" << to;
  return -1;
}

TEST(EventQueue, GivesEventsByTimeAndEqualTimesInTheOrderOfScheduling) {
  EventQueue queue;
  Random random(3);
  std::vector<std::pair<Picoseconds, std::uint32_t>> expected;
  for (std::uint32_t i = 0; i < 1000; ++i) {
    const auto time = static_cast<Picoseconds>(random.below(50));
    queue.push(time, EventKind::callback, i);
    expected.emplace_back(time, i);
  }
  std::stable_sort(expected.begin(), expected.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [time, target] : expected) {
    ASSERT_EQ(queue.top().time, time);
    ASSERT_EQ(queue.top().target(), target);
    queue.pop();
  }
  EXPECT_TRUE(queue.empty());
}

TEST(Network, APacketTakesTransmissionAndLatencyOnEveryLink) {
  Recorder r(star(2, kGigabit));
  r.send(0, 1, 0);
  r.simulation.run();
  ASSERT_EQ(r.arrivals.size(), 1U);
  EXPECT_EQ(r.arrivals[0].at, 2 * (12 + 1) * kMicrosecond);
}

TEST(Network, APacketMayTakeHours) {
  for (const std::int64_t bits_per_second : {1, 500, 1000, 1500}) {
    Recorder r(star(2, {Bandwidth{static_cast<double>(bits_per_second)}, Nanoseconds{1000}}));
    r.send(0, 1, 0);
    r.send(0, 1, 1);
    r.simulation.run();
    ASSERT_EQ(r.arrivals.size(), 2U) << bits_per_second;
    const Picoseconds once = 12'000 * kPicosecondsPerSecond / bits_per_second;
    EXPECT_EQ(r.arrivals[0].at, 2 * (once + kMicrosecond)) << bits_per_second;
    EXPECT_EQ(r.arrivals[1].at, 3 * once + 2 * kMicrosecond) << bits_per_second;
  }
}

TEST(TransmitTime, OfMoreThanThereIsTimeForIsForEver) {
  const TransmitTime slow{Bandwidth{1}};
  EXPECT_EQ(slow.of(1 << 20), kForever);
  EXPECT_EQ(slow.of(std::int64_t{1} << 62), kForever);
  EXPECT_EQ(slow.of(1), 8 * kPicosecondsPerSecond);
}

TEST(Network, PacketsBackToBackArriveAtTheRateOfTheSlowestLink) {
  cluster::Cluster cluster = star(2, kGigabit);
  cluster.links[3].capacity = Bandwidth{0.5e9};  // switch -> h1
  ASSERT_EQ(cluster.links[3].to, 1);
  Recorder r(cluster);
  for (std::uint32_t i = 0; i < 100; ++i) r.send(0, 1, i);
  r.simulation.run();
  ASSERT_EQ(r.arrivals.size(), 100U);
  EXPECT_EQ(r.arrivals[0].at, (13 + 25) * kMicrosecond);
  EXPECT_EQ(r.arrivals[99].at, (13 + 1 + 24 * 100) * kMicrosecond);
  const LinkCounters c = r.simulation.network().counters(3);
  EXPECT_EQ(c.packets, 100U);
  EXPECT_EQ(c.bytes, 150000);
}

TEST(Network, AFullQueueDropsWhatDoesNotFit) {
  SimulationOptions options;
  options.network.switch_queue.limit_bytes = 4 * 1500;
  Recorder r(star(3, kGigabit), options);
  for (std::uint32_t i = 0; i < 10; ++i) {
    r.send(0, 2, i);
    r.send(1, 2, 100 + i);
  }
  r.simulation.run();
  // Of two that come every 12 us one leaves: after the third pair four are there, and every second is too
  // much.
  EXPECT_EQ(r.arrivals.size(), 13U);
  const LinkCounters c = r.simulation.network().counters(5);
  EXPECT_EQ(c.dropped[0], 7U);
  EXPECT_EQ(c.most_queued_bytes, 4 * 1500);
}

TEST(Network, MarksWhatComesToALongQueueAndNothingElse) {
  SimulationOptions options;
  options.network.host_queue.mark_bytes = 3 * 1500;
  Recorder r(star(2, kGigabit), options);
  for (std::uint32_t i = 0; i < 6; ++i) r.send(0, 1, i);
  r.simulation.run();
  std::vector<bool> marked;
  for (const Arrival& a : r.arrivals) marked.push_back((a.flags & kMarked) != 0);
  EXPECT_THAT(marked, ElementsAre(false, false, false, false, true, true));
}

TEST(Network, DropsWhatCannotBeMarkedWhereItMarksOthers) {
  for (const bool red : {false, true}) {
    SimulationOptions options;
    if (red)
      options.network.host_queue.red = {3 * 1500, 3 * 1500 + 1, 1, true};
    else
      options.network.host_queue.mark_bytes = 3 * 1500;
    Recorder r(star(2, kGigabit), options);
    for (std::uint32_t i = 0; i < 12; ++i)
      r.simulation.send(
          {.from = 0, .to = 1, .port = 7, .number = i, .bytes = 1500, .unmarkable = i % 2 != 0});
    r.simulation.run();
    // What was dropped takes no room: 4, 6, 8 and 10 find it full for the others.
    std::vector<std::pair<std::uint32_t, bool>> came;
    for (const Arrival& a : r.arrivals) came.emplace_back(a.number, (a.flags & kMarked) != 0);
    EXPECT_THAT(
        came, ElementsAre(std::pair(0, false), std::pair(1, false), std::pair(2, false), std::pair(3, false),
                          std::pair(4, true), std::pair(6, true), std::pair(8, true), std::pair(10, true)));
    const LinkCounters c = r.simulation.network().counters(0);
    EXPECT_EQ(c.dropped[0], 4U);
    EXPECT_EQ(c.marked[0], 4U);
  }
}

TEST(Network, MarksByDelayWhereMoreWaitsThanTheLinkSendsInARoundTrip) {
  // 100 Gbit/s, 80 ps a byte: 2 x (1 us + 1514 bytes) there and 2 x (1 us + 66 bytes) back are 4252.8 ns, in
  // which 53,160 bytes are sent.
  const cluster::Cluster cluster = star(3, {Bandwidth{100e9}, Nanoseconds{1000}});
  const auto marked = [&](std::int64_t least, bool by_delay, std::int64_t limit = 0) {
    SimulationOptions options;
    options.network.switch_queue.mark_bytes = least;
    options.network.switch_queue.mark_by_delay = by_delay;
    options.network.switch_queue.limit_bytes = limit;
    Recorder r(cluster, options);
    for (std::uint32_t i = 0; i < 100; ++i)
      for (const int from : {0, 1}) r.send(from, 2, i);
    r.simulation.run();
    return r.simulation.network().counters(link_of(cluster, "switch", "h2")).marked[0];
  };
  EXPECT_GT(marked(53'160, false), 50U);
  EXPECT_EQ(marked(0, true), marked(53'160, false));
  EXPECT_NE(marked(0, true), marked(53'160 - 3000, false));
  EXPECT_EQ(marked(90'000, true), marked(90'000, false)) << "the least that marks begin at";
  EXPECT_EQ(marked(0, true, 60'000), marked(30'000, false, 60'000)) << "at most half of the queue";
}

TEST(Network, RedTakesNothingFromShortQueuesAndEverythingFromLongOnes) {
  // Packets that come at once find k = 0, 1, ... in the queue, and move on to k + 1 unless they are dropped:
  // up to k = 5 never, from there with probability (k - 5) / 15 * 0.5, beyond k = 20 always. So 21 pass, and
  // the last of them is on average the (6 + sum of 1 / (1 - p_k))-th to come.
  double expected = 6;
  double variance = 0;
  for (int k = 6; k <= 20; ++k) {
    const double p = 0.5 * (k - 5) / 15;
    expected += 1 / (1 - p);
    variance += p / ((1 - p) * (1 - p));
  }
  constexpr int kRuns = 200;
  double sum = 0;
  for (int run = 0; run < kRuns; ++run) {
    SimulationOptions options;
    options.network.host_queue.red = {5 * 1500, 20 * 1500, 0.5, false};
    options.network.seed = static_cast<std::uint64_t>(run);
    Recorder r(star(2, kGigabit), options);
    for (std::uint32_t i = 0; i < 100; ++i) r.send(0, 1, i);
    r.simulation.run();
    ASSERT_EQ(r.arrivals.size(), 21U);
    for (std::uint32_t i = 0; i < 6; ++i) EXPECT_EQ(r.arrivals[i].number, i);
    sum += r.arrivals.back().number + 1;
  }
  EXPECT_NEAR(sum / kRuns, expected, 4 * std::sqrt(variance / kRuns));
}

TEST(Network, AnUnimportantClassIsDroppedBeforeTheQueueIsFull) {
  SimulationOptions options;
  options.network.host_queue.limit_bytes = 10 * 1500;
  options.network.host_queue.class_limit_bytes[5] = 2 * 1500;
  Recorder r(star(2, kGigabit), options);
  for (std::uint32_t i = 0; i < 6; ++i) r.send(0, 1, i, i % 2 == 0 ? 0 : 5);
  r.simulation.run();
  EXPECT_THAT(r.numbers(), ElementsAre(0, 1, 2, 4));
  EXPECT_EQ(r.simulation.network().counters(0).dropped[5], 2U);
}

TEST(Network, AnUrgentPacketOvertakesAllThatWaitButNotTheOneBeingSent) {
  SimulationOptions options;
  options.network.host_queue.priorities = 8;
  Recorder r(star(2, kGigabit), options);
  for (std::uint32_t i = 0; i < 4; ++i) r.send(0, 1, i, 7);
  r.send(0, 1, 10, 1);
  r.send(0, 1, 11, 0);
  r.simulation.run();
  EXPECT_THAT(r.numbers(), ElementsAre(0, 11, 10, 1, 2, 3));
  EXPECT_EQ(r.arrivals.back().at, (6 * 12 + 12 + 2) * kMicrosecond);
}

TEST(Network, ASegmentThatDoesNotFitIsTrimmedAndOvertakes) {
  SimulationOptions options;
  options.network.switch_queue.priorities = 2;
  options.network.switch_queue.limit_bytes = 3000;
  options.network.switch_queue.trim = true;
  const cluster::Cluster cluster = star(3, kGigabit);
  Recorder r(cluster, options);
  std::vector<std::uint32_t> order;
  Simulation& s = r.simulation;
  // Data packets, not datagrams: only those are trimmed. A flow each, so all ten meet at h2 at once.
  for (int i = 0; i < 5; ++i)
    for (const int from : {0, 1}) {
      const FlowId flow = s.transport().open({from, 2, 1, kNoRoute});
      s.transport().write(flow, 1448, 0);
    }
  s.run();
  EXPECT_GT(s.network().counters(5).trimmed, 0U);
  EXPECT_EQ(s.network().counters(5).dropped, (std::array<std::uint64_t, kPriorities>{}));
  for (FlowId flow = 0; flow < 10; ++flow) {
    EXPECT_EQ(s.transport().counters(flow).delivered_bytes, 1448);
    EXPECT_EQ(s.transport().counters(flow).timeouts, 0U);
  }
}

TEST(Network, RefusesPoliciesThatCannotWork) {
  SimulationOptions options;
  options.network.host_queue.trim = true;
  EXPECT_THAT(message_of([&] { Recorder r(star(2, kGigabit), options); }),
              HasSubstr("trimming needs a limit"));
  options = {};
  options.network.loss.loss = 1.5;
  EXPECT_THAT(message_of([&] { Recorder r(star(2, kGigabit), options); }),
              HasSubstr("1.5 is no probability"));
}

TEST(Network, IndependentLossTakesItsShare) {
  SimulationOptions options;
  Recorder r(star(2, kGigabit), options);
  LossModel model;
  model.loss = 0.1;
  r.simulation.network().set_loss(0, model);
  for (std::uint32_t i = 0; i < 20000; ++i) r.send(0, 1, i);
  r.simulation.run();
  EXPECT_NEAR(static_cast<double>(r.arrivals.size()), 18000, 200);
  EXPECT_EQ(r.simulation.network().counters(0).lost, 20000 - r.arrivals.size());
}

TEST(Network, BurstsOfLossAreAsLongAsTheModelSays) {
  Recorder r(star(2, kGigabit));
  LossModel model;
  model.burst_begins = 0.01;
  model.burst_ends = 0.2;  // five packets on average
  r.simulation.network().set_loss(0, model);
  for (std::uint32_t i = 0; i < 50000; ++i) r.send(0, 1, i);
  r.simulation.run();
  int bursts = 0;
  for (std::size_t i = 1; i < r.arrivals.size(); ++i)
    bursts += r.arrivals[i].number != r.arrivals[i - 1].number + 1 ? 1 : 0;
  const double lost = 50000.0 - static_cast<double>(r.arrivals.size());
  EXPECT_NEAR(lost / bursts, 5, 0.6);
  EXPECT_NEAR(lost / 50000, 0.01 / 0.21, 0.006);
}

TEST(Network, BurstsOfLossMayLastATime) {
  Recorder r(star(2, kGigabit));
  LossModel model;
  model.burst_begins = 0.01;
  model.burst_lasts = Nanoseconds{120'000};  // 1500 bytes take 12 us
  r.simulation.network().set_loss(0, model);
  for (std::uint32_t i = 0; i < 50000; ++i) r.send(0, 1, i);
  r.simulation.run();
  const double lost = 50000.0 - static_cast<double>(r.arrivals.size());
  EXPECT_NEAR(lost / 50000, 0.1 / 1.09, 0.01);
  // Nobody has to send for one to end.
  Recorder slow(star(2, kGigabit));
  slow.simulation.network().set_loss(0, model);
  for (std::uint32_t i = 0; i < 5000; ++i)
    slow.simulation.at(i * 1000 * kMicrosecond, [&slow, i] { slow.send(0, 1, i); });
  slow.simulation.run();
  EXPECT_NEAR(static_cast<double>(slow.arrivals.size()), 4950, 30);
}

TEST(Network, WrongBitsCostLongPacketsMoreOften) {
  for (const std::uint16_t bytes : std::initializer_list<std::uint16_t>{100, 1500}) {
    Recorder r(star(2, kGigabit));
    LossModel model;
    model.bit_error_rate = 1e-5;
    r.simulation.network().set_loss(0, model);
    for (std::uint32_t i = 0; i < 20000; ++i) r.send(0, 1, i, 0, bytes);
    r.simulation.run();
    const double expected = std::exp(-8e-5 * bytes);
    EXPECT_NEAR(static_cast<double>(r.arrivals.size()) / 20000, expected, 0.01) << bytes;
  }
}

TEST(Network, ALinkMayDoubleDamageAndReorder) {
  Recorder r(star(2, kGigabit));
  LossModel model;
  model.duplicate = 0.1;
  model.damage = 0.1;
  model.delay = 0.2;
  model.most_delay = Nanoseconds{100'000};
  r.simulation.network().set_loss(0, model);
  for (std::uint32_t i = 0; i < 2000; ++i) r.send(0, 1, i);
  r.simulation.run();
  EXPECT_NEAR(static_cast<double>(r.arrivals.size()), 2200, 60);
  const auto damaged = std::count_if(r.arrivals.begin(), r.arrivals.end(),
                                     [](const Arrival& a) { return (a.flags & kDamaged) != 0; });
  EXPECT_NEAR(static_cast<double>(damaged), 220, 60);
  EXPECT_FALSE(std::is_sorted(r.arrivals.begin(), r.arrivals.end(),
                              [](const Arrival& a, const Arrival& b) { return a.number < b.number; }));
  for (std::size_t i = 1; i < r.arrivals.size(); ++i) EXPECT_LE(r.arrivals[i - 1].at, r.arrivals[i].at);
  EXPECT_EQ(r.simulation.network().packets().in_use(), 0U);
}

TEST(Network, AFailedSpineIsAvoidedAndUsedAgainOnceRepaired) {
  const cluster::Cluster cluster = leaf_spine(2, 1, 2, kGigabit, kGigabit);
  Recorder r(cluster);
  Network& n = r.simulation.network();
  const int up0 = link_of(cluster, "leaf0", "spine0");
  const int up1 = link_of(cluster, "leaf0", "spine1");
  const int spine0 = cluster.links[static_cast<std::size_t>(up0)].to;
  for (std::uint32_t i = 0; i < 100; ++i)
    r.simulation.at(i * 20 * kMicrosecond, [&r, i] { r.send(0, 1, i, 0, 1500, i); });
  r.simulation.at(1001 * kMicrosecond, [&] { n.set_node(spine0, false); });
  r.simulation.at(1501 * kMicrosecond, [&] { n.set_node(spine0, true); });
  r.simulation.run();
  // Packet i is at the leaf 13 us after it was sent at 20 i us. Those that get there while the spine is away,
  // from 1001 to 1501 us, are 50 .. 74; the 13 even ones of them take the other spine. None was on its way to
  // or from the spine at 1001 us: packet 48 left it at 999 us.
  EXPECT_EQ(n.counters(up1).packets, 50U + 13U);
  EXPECT_EQ(n.counters(up0).packets, 50U - 13U);
  EXPECT_EQ(r.arrivals.size(), 100U);
  EXPECT_EQ(n.packets().in_use(), 0U);
}

TEST(Network, WithoutAWayPacketsAreCountedAndGone) {
  const cluster::Cluster cluster = leaf_spine(2, 1, 1, kGigabit, kGigabit);
  Recorder r(cluster);
  r.simulation.network().set_link(link_of(cluster, "leaf0", "spine0"), false);
  r.send(0, 1, 0);
  r.simulation.run();
  EXPECT_TRUE(r.arrivals.empty());
  EXPECT_EQ(r.simulation.network().counters().unroutable, 1U);
  EXPECT_EQ(r.simulation.network().packets().in_use(), 0U);
}

TEST(Network, SprayingUsesAllPathsAlikeAndOneConstantOnlyOne) {
  const cluster::Cluster cluster = leaf_spine(2, 1, 4, kGigabit, kGigabit);
  Recorder spray(cluster);
  Recorder hash(cluster);
  for (std::uint32_t i = 0; i < 80; ++i) {
    spray.send(0, 1, i, 0, 1500, 12345 + i);
    hash.send(0, 1, i, 0, 1500, 12345);
  }
  spray.simulation.run();
  hash.simulation.run();
  std::vector<std::uint64_t> sprayed;
  std::vector<std::uint64_t> hashed;
  for (const char* spine : {"spine0", "spine1", "spine2", "spine3"}) {
    sprayed.push_back(spray.simulation.network().counters(link_of(cluster, "leaf0", spine)).packets);
    hashed.push_back(hash.simulation.network().counters(link_of(cluster, "leaf0", spine)).packets);
  }
  EXPECT_THAT(sprayed, ElementsAre(20, 20, 20, 20));
  std::sort(hashed.begin(), hashed.end());
  EXPECT_THAT(hashed, ElementsAre(0, 0, 0, 80));
}

TEST(Network, AGivenRouteIsFollowed) {
  const cluster::Cluster cluster = leaf_spine(2, 1, 4, kGigabit, kGigabit);
  Recorder r(cluster);
  Network& n = r.simulation.network();
  const std::vector<int> links = {link_of(cluster, "h0", "leaf0"), link_of(cluster, "leaf0", "spine2"),
                                  link_of(cluster, "spine2", "leaf1"), link_of(cluster, "leaf1", "h1")};
  const std::uint32_t route = n.add_route(links);
  r.simulation.send({0, 1, kPort, 0, 1500, 0, route, 0, false});
  r.simulation.run();
  EXPECT_EQ(r.arrivals.size(), 1U);
  EXPECT_EQ(n.counters(links[2]).packets, 1U);
}

TEST(Network, RefusesRoutesWithGapsAndLoops) {
  const cluster::Cluster cluster = leaf_spine(2, 1, 2, kGigabit, kGigabit);
  Recorder r(cluster);
  Network& n = r.simulation.network();
  const auto link = [&](const char* a, const char* b) { return link_of(cluster, a, b); };
  EXPECT_THAT(message_of([&] {
                n.add_route({link("h0", "leaf0"), link("spine0", "leaf1")});
              }),
              HasSubstr("spine0 does not follow on leaf0"));
  EXPECT_THAT(message_of([&] {
                n.add_route({link("leaf0", "spine0"), link("spine0", "leaf1"), link("leaf1", "spine1"),
                             link("spine1", "leaf0"), link("leaf0", "h0")});
              }),
              HasSubstr("comes to leaf0 twice"));
  EXPECT_THAT(message_of([&] { n.add_route({99}); }), HasSubstr("there is no link 99"));
}

TEST(Network, MulticastReachesEachLeafOfItsTreeOnce) {
  const cluster::Cluster cluster = star(4, kGigabit);
  Recorder r(cluster);
  const int group = r.simulation.network().add_multicast(
      {link_of(cluster, "h0", "switch"), link_of(cluster, "switch", "h1"), link_of(cluster, "switch", "h2"),
       link_of(cluster, "switch", "h3")});
  r.simulation.send({0, group, kPort, 5, 1500, 0, kNoRoute, 0, true});
  r.simulation.run();
  std::vector<int> nodes;
  for (const Arrival& a : r.arrivals) nodes.push_back(a.node);
  std::sort(nodes.begin(), nodes.end());
  EXPECT_THAT(nodes, ElementsAre(1, 2, 3));
  EXPECT_EQ(r.simulation.network().counters(0).packets, 1U);  // h0 sends it once
  EXPECT_EQ(r.simulation.network().packets().in_use(), 0U);
}

TEST(Network, LinksOfAGroupShareItsCapacity) {
  cluster::Cluster cluster = star(2, kGigabit);
  cluster.groups.push_back({"half duplex", Bandwidth{1e9}, {0, 1}});  // both links of h0
  Recorder r(cluster);
  for (std::uint32_t i = 0; i < 500; ++i) {
    r.send(0, 1, i);
    r.send(1, 0, i);
  }
  r.simulation.run();
  EXPECT_NEAR(static_cast<double>(r.arrivals.back().at), 12e6 * 1000, 12e6 * 10);
}

// The link would send five times as much in the time that its packets wait.
TEST(Network, WhatWaitsForASlowerGroupIsCountedAtTheRateOfTheGroup) {
  cluster::Cluster cluster = star(2, kTen);
  cluster.groups.push_back({"riser", Bandwidth{2e9}, {0}});
  SimulationOptions options;
  options.network.host_queue.limit_bytes = 20 * 1500;
  options.network.host_queue.mark_bytes = 10 * 1500;
  Recorder r(cluster, options);
  for (std::uint32_t i = 0; i < 40; ++i) r.send(0, 1, i);
  const Network& network = r.simulation.network();
  EXPECT_NEAR(static_cast<double>(network.queued_bytes(0, 0)), 20 * 1500, 1500);
  EXPECT_NEAR(static_cast<double>(network.sent_bytes(0, 0)), 0, 1500);
  r.simulation.run();
  EXPECT_EQ(r.arrivals.size(), 20U);
  EXPECT_EQ(network.counters(0).marked[0], 9U);
  EXPECT_NEAR(static_cast<double>(network.counters(0).most_queued_bytes), 20 * 1500, 1);
}

// A packet of 1514 bytes and one of 66 back take 11.4 us, in which the group sends 2840 bytes.
TEST(Network, MarksByDelayGoByTheRateOfASlowerGroup) {
  cluster::Cluster cluster = star(2, kTen);
  cluster.groups.push_back({"riser", Bandwidth{2e9}, {0}});
  SimulationOptions options;
  options.network.host_queue.mark_by_delay = true;
  Recorder r(cluster, options);
  for (std::uint32_t i = 0; i < 10; ++i) r.send(0, 1, i);
  r.simulation.run();
  EXPECT_EQ(r.simulation.network().counters(0).marked[0], 7U);
}

TEST(Network, ABurstPassesATokenBucketAtOnce) {
  cluster::Cluster cluster = star(2, kGigabit);
  cluster.links[0].burst = Bytes{6000};
  Recorder r(cluster);
  r.simulation.at(kPicosecondsPerSecond, [&r] {
    for (std::uint32_t i = 0; i < 8; ++i) r.send(0, 1, i);
  });
  r.simulation.run();
  // Four pass at once and queue at the switch; the rest come at the bucket's rate, at which the switch sends.
  EXPECT_EQ(r.arrivals[0].at - kPicosecondsPerSecond, (1 + 13) * kMicrosecond);
  EXPECT_EQ(r.arrivals[7].at - kPicosecondsPerSecond, (1 + 8 * 12 + 1) * kMicrosecond);
}

TEST(Network, ABucketThatLastsForHoursLetsAllPass) {
  for (const int bits : {30, 31, 40, 62}) {
    cluster::Cluster cluster = star(2, kGigabit);
    cluster.links[0].burst = Bytes{std::int64_t{1} << bits};
    Recorder r(cluster);
    r.simulation.at(kPicosecondsPerSecond, [&r] {
      for (std::uint32_t i = 0; i < 8; ++i) r.send(0, 1, i);
    });
    r.simulation.run();
    EXPECT_EQ(r.arrivals[0].at - kPicosecondsPerSecond, (1 + 13) * kMicrosecond) << bits;
    EXPECT_EQ(r.arrivals[7].at - kPicosecondsPerSecond, (1 + 8 * 12 + 1) * kMicrosecond) << bits;
  }
}

TEST(Network, AQueueFedAtRandomIsAsLongAsTheoryHasIt) {
  // M/D/1: with load rho and service time s, packets wait rho s / (2 (1 - rho)) on average.
  constexpr double kLoad = 0.8;
  constexpr double kService = 12e6;
  Recorder r(star(2, kGigabit));
  Random random(11);
  std::vector<Picoseconds> sent;
  double at = 0;
  constexpr std::uint32_t kPackets = 200000;
  for (std::uint32_t i = 0; i < kPackets; ++i) {
    at += -std::log(1 - random.uniform()) * kService / kLoad;
    sent.push_back(static_cast<Picoseconds>(at));
  }
  std::uint32_t next = 0;
  const std::function<void()> feed = [&] {
    r.send(0, 1, next++);
    if (next < kPackets) r.simulation.at(sent[next], feed);
  };
  r.simulation.at(sent[0], feed);
  r.simulation.run();
  double waited = 0;
  for (const Arrival& a : r.arrivals) waited += static_cast<double>(a.at - sent[a.number]) - 26e6;
  EXPECT_NEAR(waited / kPackets, kLoad * kService / (2 * (1 - kLoad)), 0.05 * 24e6);
}

}  // namespace
}  // namespace talweg::sim
