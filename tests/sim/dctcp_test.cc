// The transport with windows: line rate, fair shares, short queues, and nothing missing whatever the wire
// does.
#include "sim/dctcp.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "sim/matrix_run.h"
#include "sim/shapes.h"
#include "sim/simulation.h"
#include "sim/tapped.h"
#include "sim/topologies.h"
#include "talweg/error.h"

namespace talweg::sim {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

SimulationOptions with_marks() {
  SimulationOptions o;
  o.network.switch_queue.limit_bytes = 150'000;
  o.network.switch_queue.mark_bytes = 30'000;
  o.network.host_queue.mark_bytes = 30'000;
  return o;
}

TEST(Dctcp, OneFlowFillsALink) {
  Simulation s(star(2, kTen), with_marks());
  const auto flows = run_matrix(s, matrix_of(2, {{0, 1}}, 100'000'000), kNever);
  const double line_rate = 100e6 * 8 / 10e9 * 1514 / 1448;
  EXPECT_NEAR(seconds(flows[0].ended), line_rate, 0.01 * line_rate);
  EXPECT_EQ(flows[0].counters.retransmissions, 0U);
  EXPECT_EQ(flows[0].counters.delivered_bytes, 100'000'000);
}

TEST(Dctcp, ALoneFlowFillsAFastLinkWhereMarksGoByDelay) {
  const auto lasts = [](std::int64_t bytes) {
    SimulationOptions o;
    o.transport.turns = true;
    o.network.switch_queue.mark_by_delay = true;
    o.network.switch_queue.limit_bytes = 1 << 20;
    Simulation s(fat_tree(16, 3, 1, {Bandwidth{100e9}, Nanoseconds{1000}}), o);
    const auto flows = run_matrix(s, matrix_of(16, {{0, 15}}, bytes), kNever);
    EXPECT_EQ(flows[0].counters.marked, 0U) << "it waits on its own host alone";
    return seconds(flows[0].ended);
  };
  // Once its window has opened, which takes it a constant time.
  const double begun = lasts(100'000'000), line_rate = 200e6 * 8 / 100e9 * 1514 / 1448;
  EXPECT_NEAR(lasts(300'000'000) - begun, line_rate, 0.001 * line_rate);
  EXPECT_LT(begun, line_rate / 2 + 1e-3);
}

// Ten packets at first, twice as many each round trip, then the link's rate.
TEST(Dctcp, AWindowDoublesUntilItFillsTheWayWhetherHostsTakeTurnsOrNot) {
  struct Way {
    double rate;
    std::int64_t latency_ns;  // of either link
  };
  for (const Way way : {Way{1e9, 1'000'000}, Way{25e9, 100'000}, Way{10e9, 25'000}, Way{40e9, 7'000}})
    for (const bool turns : {false, true}) {
      SimulationOptions o;
      o.transport.turns = turns;
      o.network.host_queue.limit_bytes = o.network.switch_queue.limit_bytes = 0;
      Simulation s(star(2, {Bandwidth{way.rate}, Nanoseconds{way.latency_ns}}), o);
      const auto flows = run_matrix(s, matrix_of(2, {{0, 1}}, 16'000'000), kNever);
      const double round_trip = 4e-9 * static_cast<double>(way.latency_ns);
      const double line_rate = 16e6 * 8 / way.rate * 1514 / 1448;
      const double doublings = std::log2(std::max(2.0, way.rate * round_trip / 8 / 14'480));
      const double took = seconds(flows[0].ended);
      EXPECT_GT(took, line_rate + (doublings - 1) * round_trip) << way.rate << " " << turns;
      EXPECT_LT(took, 1.01 * line_rate + (doublings + 2) * round_trip) << way.rate << " " << turns;
    }
}

TEST(Dctcp, TwoFlowsFillAFastLinkWhereMarksGoByDelay) {
  SimulationOptions o;
  o.transport.turns = true;
  o.network.switch_queue.mark_by_delay = true;
  o.network.switch_queue.limit_bytes = 1 << 20;
  Simulation s(fat_tree(16, 3, 1, {Bandwidth{100e9}, Nanoseconds{1000}}), o);
  const auto flows = run_matrix(s, matrix_of(16, {{0, 15}, {4, 15}}, 200'000'000), kNever);
  const double line_rate = 400e6 * 8 / 100e9 * 1514 / 1448;
  EXPECT_LT(seconds(completion_percentile(flows, 1)), 1.02 * line_rate);
  const NetworkSummary n = summarise(s.network(), s.now());
  EXPECT_GT(n.marked, 0U);
  EXPECT_EQ(n.dropped, 0U);
}

TEST(Dctcp, FlowsShareABottleneckFairlyAndKeepItsQueueShort) {
  Simulation s(star(5, kTen), with_marks());
  const auto flows = run_matrix(s, matrix_of(5, {{0, 4}, {1, 4}, {2, 4}, {3, 4}}, 50'000'000), kNever);
  const double all = 4 * 50e6 * 8 / 10e9 * 1514 / 1448;
  EXPECT_NEAR(seconds(completion_percentile(flows, 1)), all, 0.01 * all);
  EXPECT_GT(seconds(completion_percentile(flows, 0)), 0.9 * all);
  const NetworkSummary n = summarise(s.network(), s.now());
  EXPECT_EQ(n.dropped, 0U);
  EXPECT_GT(n.marked, 0U);
  // The queue is longest at the start. First windows come at four times the rate at which they leave, so the
  // first 4/3 K bytes find less than K and are not marked; each segment of those lets one more go than came.
  EXPECT_LT(n.most_queued_bytes, 4 * (10 + 1) * 1514 + 30'000 * 4 / 3);
}

TEST(Dctcp, APacedFlowIsNoFasterThanItsPaceUntilThatIsLifted) {
  for (const bool turns : {false, true}) {
    SimulationOptions o = with_marks();
    o.transport.turns = turns;
    Simulation s(star(2, kTen), o);
    const FlowId flow = s.transport().open({0, 1, 0, kNoRoute});
    const FlowId other = s.transport().open({1, 0, 0, kNoRoute});
    s.transport().pace(flow, 1e8);  // bytes a second, a twelfth of the link
    EXPECT_EQ(s.transport().pace_of(flow), 1e8);
    EXPECT_EQ(s.transport().pace_of(other), 0);
    s.transport().write(flow, 10'000'000, 0);
    s.transport().write(other, 10'000'000, 0);
    s.at(kPicosecondsPerSecond / 20, [&] {  // 50 ms
      EXPECT_NEAR(static_cast<double>(s.transport().delivered_bytes(flow)), 5e6, 5 * 1448);
      EXPECT_EQ(s.transport().delivered_bytes(other), 10'000'000);
      s.transport().pace(flow, 0);
    });
    s.run();
    EXPECT_EQ(s.transport().delivered_bytes(flow), 10'000'000);
    EXPECT_NEAR(seconds(s.transport().heard(flow)), 0.05 + 5e6 * 8 / 10e9 * 1514 / 1448, 0.001);
    EXPECT_EQ(s.transport().counters(flow).timeouts, 0U);
  }
}

TEST(Dctcp, EverythingArrivesOnceWhateverTheWireDoes) {
  for (const bool spray : {false, true})
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
      SimulationOptions o = with_marks();
      o.seed = o.network.seed = seed;
      o.transport.spray = spray;
      o.network.loss.loss = 0.02 * static_cast<double>(seed);
      o.network.loss.duplicate = 0.05;
      o.network.loss.damage = 0.02;
      o.network.loss.delay = 0.1;
      o.network.loss.most_delay = Nanoseconds{50'000};
      Simulation s(leaf_spine(2, 2, 2, kTen, kTen), o);
      const auto flows =
          run_matrix(s, matrix_of(4, {{0, 2}, {1, 3}, {2, 1}}, 300'000), 100 * kPicosecondsPerSecond);
      for (const FlowResult& f : flows) EXPECT_EQ(f.counters.delivered_bytes, 300'000) << seed;
      s.run();
      EXPECT_EQ(s.network().packets().in_use(), 0U) << seed;
    }
}

TEST(Dctcp, ALonelyLossCostsARoundTripAndNoTimeout) {
  SimulationOptions o = with_marks();
  o.network.loss.loss = 0.0005;
  Simulation s(star(2, kTen), o);
  const auto flows = run_matrix(s, matrix_of(2, {{0, 1}}, 20'000'000), kNever);
  EXPECT_GT(flows[0].counters.retransmissions, 5U);
  EXPECT_EQ(flows[0].counters.timeouts, 0U);
}

TEST(Dctcp, ALostLastSegmentIsSentAgainByTheTimer) {
  SimulationOptions o = with_marks();
  Simulation s(star(2, kTen), o);
  s.network().set_link(0, false);
  s.at(kPicosecondsPerSecond / 200, [&s] { s.network().set_link(0, true); });  // 5 ms
  const auto flows = run_matrix(s, matrix_of(2, {{0, 1}}, 1000), kNever);
  EXPECT_EQ(flows[0].counters.timeouts, 1U);
  EXPECT_NEAR(seconds(flows[0].ended), 0.010, 0.0001);  // first_rto
}

TEST(Dctcp, TheTimerIsPutOffNoFurtherThanItsMost) {
  SimulationOptions o = with_marks();
  o.transport.most_rto = Nanoseconds{20'000'000};
  Simulation s(star(2, kTen), o);
  s.network().set_link(0, false);
  s.at(kPicosecondsPerSecond / 2, [&s] {
    EXPECT_EQ(s.transport().answered(0), 0);
    s.network().set_link(0, true);
  });
  const auto flows = run_matrix(s, matrix_of(2, {{0, 1}}, 1000), kNever);
  EXPECT_LT(seconds(flows[0].ended), 0.521);  // doubling on and on: 0.63
  s.run();
  EXPECT_EQ(s.transport().heard(0), flows[0].ended);
  EXPECT_GT(s.transport().answered(0), flows[0].ended);
}

TEST(Dctcp, AnIncastThroughAShallowQueueEnds) {
  SimulationOptions o = with_marks();
  o.network.switch_queue.limit_bytes = 40'000;
  std::vector<std::pair<int, int>> pairs;
  for (int h = 0; h < 31; ++h) pairs.emplace_back(h, 31);
  Simulation s(star(32, kTen), o);
  const auto flows = run_matrix(s, matrix_of(32, pairs, 1'000'000), kPicosecondsPerSecond);
  EXPECT_GT(summarise(s.network(), s.now()).dropped, 0U);
  EXPECT_LT(seconds(completion_percentile(flows, 1)), 2 * 31e6 * 8 / 10e9);
}

TEST(Dctcp, WhatFollowsInAMessageIsDemotedAsMoreOfItHasGone) {
  SimulationOptions o = with_marks();
  o.transport.demote_bytes = {10 * 1448, 30 * 1448};
  o.transport.ack_every = 1;
  Tapped t(star(2, kTen), o);
  const FlowId flow = t.transport->open({.from = 0, .to = 1, .priority = 3});
  for (int message = 0; message < 2; ++message) {
    t.arrived.clear();
    t.transport->write(flow, 40 * 1448, t.now);
    t.run();
    ASSERT_EQ(t.arrived.size(), 80U);
    std::uint32_t n = 0;
    for (const Packet& p : t.arrived) {
      if (p.kind == PacketKind::acknowledgement) {
        EXPECT_EQ(p.priority, 0);
      } else {
        EXPECT_EQ(p.priority, 3 + (n >= 10) + (n >= 30)) << "segment " << n << " of message " << message;
        ++n;
      }
    }
  }
}

TEST(Dctcp, WhatIsSentAgainCountsAndBeginsNoMessage) {
  SimulationOptions o = with_marks();
  o.transport.demote_bytes = {1448, 2 * 1448, 3 * 1448};
  Tapped t(star(2, kTen), o);
  const FlowId flow = t.transport->open({0, 1});
  t.network.set_node(1, false);
  t.transport->write(flow, 1448, 0);
  t.run(15 * 1000 * kMicrosecond);  // the first, and again after 10 ms
  t.network.set_node(1, true);
  t.run();
  ASSERT_EQ(t.transport->delivered_bytes(flow), 1448);
  EXPECT_EQ(t.arrived.front().priority, 2) << "the third time";
}

TEST(Dctcp, AShortFlowPassesLongOnesThatAreDemoted) {
  const auto took = [](bool demotes) {
    SimulationOptions o;
    o.transport.turns = true;
    o.network.switch_queue.limit_bytes = 1 << 20;
    o.network.switch_queue.mark_bytes = 100 << 10;
    if (demotes) {
      o.network.switch_queue.priorities = o.network.host_queue.priorities = kPriorities;
      o.transport.demote_bytes = {100'000, 1'000'000};
    }
    Simulation s(star(4, {Bandwidth{100e9}, Nanoseconds{1000}}), o);
    Matrix m = matrix_of(4, {{0, 3}, {1, 3}, {2, 3}}, 20'000'000);
    m.connections[2].bytes = 50'000;
    m.connections[2].start = 500 * kMicrosecond;
    const auto flows = run_matrix(s, m, kNever);
    EXPECT_EQ(flows[0].counters.delivered_bytes, 20'000'000);
    return seconds(flows[2].ended - flows[2].started);
  };
  EXPECT_LT(took(true), 0.5 * took(false));
}

// Hand-made segments reach the receiver of a flow whose own ones were lost; a second passes before anything
// is sent again.
class Receiving : public Tapped {
 public:
  static constexpr int kSegments = 64;
  static constexpr Picoseconds kDelay = kPicosecondsPerSecond / 5;

  Receiving() : Tapped(star(2, kTen), options()) {
    flow_ = transport->open({0, 1});
    network.set_node(1, false);
    transport->write(flow_, kSegments * 1448, 0);
    run(kPicosecondsPerSecond / 100);
    network.set_node(1, true);
  }
  // What is answered until a millisecond later: the first number that has not come.
  std::vector<std::uint32_t> come(std::uint32_t number, std::uint8_t flags = 0) {
    arrived.clear();
    Packet* packet = network.packets().take();
    *packet = Packet{};
    packet->flow = flow_;
    packet->number = number;
    packet->source = 0;
    packet->destination = 1;
    packet->flags = flags;
    transport->on_packet(packet, now);
    run(now + kPicosecondsPerSecond / 1000);
    return numbers_of_answers();
  }
  // Segments from the first one before the second.
  void all_come(std::uint32_t first, std::uint32_t end) {
    for (std::uint32_t n = first; n < end; ++n) come(n);
  }
  std::vector<std::uint32_t> numbers_of_answers() const {
    std::vector<std::uint32_t> all;
    for (const Packet& p : arrived)
      if (p.kind == PacketKind::acknowledgement) all.push_back(p.number);
    return all;
  }

 private:
  static SimulationOptions options() {
    SimulationOptions o;
    o.transport.first_window = kSegments;
    o.transport.least_rto = o.transport.first_rto = Nanoseconds{1'000'000'000};
    return o;
  }
  FlowId flow_ = 0;
};

TEST(Dctcp, EverySecondSegmentIsAnsweredOnceAFlowHasBegun) {
  Receiving r;
  for (std::uint32_t n = 0; n < 16; ++n) EXPECT_THAT(r.come(n), ElementsAre(n + 1));
  EXPECT_THAT(r.come(16), ElementsAre());
  EXPECT_THAT(r.come(17), ElementsAre(18));
  EXPECT_EQ(r.arrived.back().echo, 17U);
  EXPECT_THAT(r.come(18), ElementsAre());
}

TEST(Dctcp, ASegmentOutOfOrderIsAnsweredAtOnceAndSoIsWhatComesWhileOneIsMissing) {
  Receiving r;
  r.all_come(0, 17);
  EXPECT_THAT(r.come(18), ElementsAre(17));
  EXPECT_THAT(r.come(20), ElementsAre(17));
  EXPECT_THAT(r.come(17), ElementsAre(19)) << "19 is missing still";
  EXPECT_THAT(r.come(19), ElementsAre(21));
  EXPECT_THAT(r.come(3), ElementsAre(21)) << "it came before";
  EXPECT_THAT(r.come(21), ElementsAre());
  EXPECT_THAT(r.come(22, kTrimmed), ElementsAre(22, 22)) << "what waits was not trimmed";
  EXPECT_THAT(r.come(22), ElementsAre());
  EXPECT_THAT(r.come(23), ElementsAre(24));
}

TEST(Dctcp, WhereMarksBeginAndEndWhatCameBeforeIsAnsweredAsItCame) {
  const auto marked = [](const Receiving& r) {
    std::vector<bool> all;
    for (const Packet& p : r.arrived) all.push_back((p.flags & kMarked) != 0);
    return all;
  };
  Receiving r;
  r.all_come(0, 17);
  EXPECT_THAT(r.come(17, kMarked), ElementsAre(17, 18));
  EXPECT_THAT(marked(r), ElementsAre(false, true));
  EXPECT_THAT(r.come(18, kMarked), ElementsAre());
  EXPECT_THAT(r.come(19, kMarked), ElementsAre(20));
  EXPECT_THAT(r.come(20), ElementsAre(21));
  EXPECT_THAT(marked(r), ElementsAre(false));
}

TEST(Dctcp, WhatNothingFollowsIsAnsweredByATimerAndAtOnceWhereItEndsAMessage) {
  Receiving r;
  r.all_come(0, 16);
  const Picoseconds came = r.now;
  EXPECT_THAT(r.come(16), ElementsAre());
  r.run(came + Receiving::kDelay - 1);
  EXPECT_THAT(r.numbers_of_answers(), ElementsAre());
  r.run(came + Receiving::kDelay + kMicrosecond * 10);
  EXPECT_THAT(r.numbers_of_answers(), ElementsAre(17));
  r.all_come(17, Receiving::kSegments - 2);
  EXPECT_THAT(r.come(Receiving::kSegments - 2), ElementsAre(Receiving::kSegments - 1));
  EXPECT_THAT(r.come(Receiving::kSegments - 1), ElementsAre(Receiving::kSegments)) << "the last one";
}

TEST(Dctcp, AfterARestEachSegmentIsAnsweredAgain) {
  Tapped t(star(2, kTen), {});
  const FlowId flow = t.transport->open({0, 1});
  const auto answers_to = [&](int segments) {
    t.arrived.clear();
    t.transport->write(flow, segments * 1448, t.now);
    t.run(t.now + kPicosecondsPerSecond / 2000);  // shorter than `least_rto`
    return t.arrived.size() - t.numbers().size();
  };
  EXPECT_EQ(answers_to(100), 16U + 84 / 2);
  EXPECT_EQ(answers_to(20), 20U / 2);
  t.run(t.now + kPicosecondsPerSecond);
  EXPECT_EQ(answers_to(20), 16U + 4 / 2);
}

TEST(Dctcp, NoWindowIsSoSmallThatTheTimerIsWaitedFor) {
  for (const auto& [segments, every] : {std::pair{1, 2}, {2, 2}, {3, 2}, {2, 8}, {7, 8}, {8, 8}}) {
    SimulationOptions o;
    o.transport.ack_every = every;
    o.transport.least_rto = o.transport.first_rto = Nanoseconds{1'000'000'000};
    o.transport.first_window = segments;
    o.transport.most_window_bytes = segments * 1448;
    Simulation s(star(2, kTen), o);
    const auto flows = run_matrix(s, matrix_of(2, {{0, 1}}, 1000 * 1448), kNever);
    EXPECT_LT(flows[0].ended, Receiving::kDelay / 10) << segments << " of " << every;
  }
}

std::string run_once(std::uint64_t seed) {
  SimulationOptions o = with_marks();
  o.seed = o.network.seed = seed;
  o.network.loss.loss = 0.01;
  o.transport.spray = true;
  Simulation s(leaf_spine(4, 4, 4, kTen, kTen), o);
  std::vector<std::pair<int, int>> pairs;
  for (int h = 0; h < 16; ++h) pairs.emplace_back(h, (h + 5) % 16);
  std::string text;
  for (const FlowResult& f : run_matrix(s, matrix_of(16, pairs, 1'000'000), kNever))
    text += std::to_string(f.ended) + " " + std::to_string(f.counters.retransmissions) + "\n";
  return text + std::to_string(s.events());
}

TEST(Dctcp, ASeedGivesTheSameRunAndAnotherSeedAnotherOne) {
  const std::string one = run_once(1);
  EXPECT_EQ(one, run_once(1));
  EXPECT_NE(one, run_once(2));
}

TEST(Matrix, TheHorizonNamesTheFlowsThatHadNotEnded) {
  Simulation s(star(3, kTen), with_marks());
  Matrix m = matrix_of(3, {{0, 1}, {1, 2}}, 1'000'000'000);
  m.connections[0].bytes = 1000;
  try {
    run_matrix(s, m, kPicosecondsPerSecond / 1000);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::timeout);
    EXPECT_THAT(error.what(), HasSubstr("at the horizon of 1 ms: "));
    EXPECT_THAT(error.what(), HasSubstr("1 of 2 flows had not ended: 1 (1->2)"));
  }
}

TEST(Matrix, ATriggeredFlowStartsWhenAllBeforeItHaveEnded) {
  Simulation s(star(4, kTen), with_marks());
  const auto flows = run_matrix(s,
                                parse_matrix("Nodes 4\nConnections 3\nTriggers 1\n"
                                             "0->3 id 1 start 0 size 100000 recv_done_trigger 1\n"
                                             "1->3 id 2 start 5000000 size 200000 send_done_trigger 1\n"
                                             "2->3 id 3 trigger 1 size 1000\n"
                                             "trigger id 1 barrier count 2\n",
                                             "three.cm"),
                                kNever);
  EXPECT_EQ(flows[1].started, 5'000'000);
  EXPECT_EQ(flows[2].started, std::max(flows[0].ended, flows[1].ended));
}

TEST(Simulation, TwoInOneProcessDoNotMeet) {
  Simulation a(star(2, kTen), with_marks());
  Simulation b(star(2, kTen), with_marks());
  const Matrix m = matrix_of(2, {{0, 1}}, 1'000'000);
  const auto first = run_matrix(a, m, kNever);
  const auto second = run_matrix(b, m, kNever);
  EXPECT_EQ(first[0].ended, second[0].ended);
}

}  // namespace
}  // namespace talweg::sim
