// Flows at their receivers' pace: what is trimmed goes once more and no sooner than it is asked for, the link
// to a receiver is never idle, and nothing is missing whatever the wire does.
#include "sim/pulled.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "sim/matrix_run.h"
#include "sim/pulled_options.h"
#include "sim/report.h"
#include "sim/shapes.h"
#include "sim/simulation.h"
#include "sim/topologies.h"

namespace talweg::sim {
namespace {

constexpr std::int64_t kFullPacket = 1448 + 66;

std::vector<std::pair<int, int>> all_to_last(int senders) {
  std::vector<std::pair<int, int>> flows;
  for (int h = 0; h < senders; ++h) flows.emplace_back(h, senders);
  return flows;
}

// What so many bytes take at 10 Gbit/s, with their headers.
double line_seconds(double bytes) {
  return bytes * 8 / 10e9 * static_cast<double>(kFullPacket) / 1448;
}

std::uint64_t resent(const std::vector<FlowResult>& flows) {
  return std::accumulate(flows.begin(), flows.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const auto& f) { return sum + f.counters.retransmissions; });
}

// The part of the time since the start in which the link to a host has carried something.
double use_of_link_to(const Simulation& s, int host) {
  const auto& links = s.network().cluster().links;
  for (std::size_t l = 0; l < links.size(); ++l)
    if (links[l].to == host)
      return static_cast<double>(s.network().counters(static_cast<int>(l)).bytes) /
             (links[l].capacity.bytes_per_second() * seconds(s.now()));
  return 0;
}

TEST(Pulled, OneFlowFillsALink) {
  for (const int window : {30, 0}) {
    Simulation s(star(2, kTen), pulled_options(window));
    const auto flows = run_matrix(s, matrix_of(2, {{0, 1}}, 100'000'000), kNever);
    EXPECT_NEAR(seconds(flows[0].ended), line_seconds(100e6), 0.005 * line_seconds(100e6)) << window;
    EXPECT_EQ(flows[0].counters.retransmissions, 0U) << window;
    EXPECT_EQ(flows[0].counters.delivered_bytes, 100'000'000) << window;
  }
}

TEST(Pulled, AnIncastResendsItsFirstWindowsAtMostAndKeepsTheLinkBusy) {
  constexpr int kSenders = 63;
  for (const int window : {30, 0}) {
    Simulation s(star(kSenders + 1, kTen), pulled_options(window));
    const auto flows = run_matrix(s, matrix_of(kSenders + 1, all_to_last(kSenders), 1'000'000), kNever);
    const NetworkSummary n = summarise(s.network(), s.now());
    // 43,533 segments. Only what goes unasked meets in the queue; what is asked for comes at the link's pace.
    const auto first = static_cast<std::uint64_t>(s.transport().window_bytes(0) / 1448);
    EXPECT_GT(resent(flows), 0U) << window;
    EXPECT_LT(resent(flows), kSenders * first * 11 / 10) << window;
    EXPECT_EQ(resent(flows), n.trimmed) << "each header is answered by one packet; window " << window;
    EXPECT_EQ(n.dropped, 0U) << window;
    for (const FlowResult& f : flows) EXPECT_EQ(f.counters.timeouts, 0U) << window;
    EXPECT_GT(use_of_link_to(s, kSenders), 0.97) << window;
    EXPECT_LT(seconds(s.now()), 1.03 * line_seconds(kSenders * 1e6)) << window;
    EXPECT_GT(seconds(completion_percentile(flows, 0)), 0.9 * seconds(s.now())) << "even shares";
  }
}

TEST(Pulled, WhatWasTrimmedWaitsUntilItIsAskedFor) {
  // Two first windows of 20 come at once; the queue takes some, the rest comes back as headers. Of what is
  // asked for at the pace of the link, hardly anything is trimmed a second time.
  Simulation s(star(3, kTen), pulled_options(20));
  const auto flows = run_matrix(s, matrix_of(3, {{0, 2}, {1, 2}}, 20 * 1448), kNever);
  EXPECT_GT(resent(flows), 5U);
  EXPECT_LE(resent(flows), 20U) << "of 40, one leaves for two that come";
  EXPECT_EQ(resent(flows), summarise(s.network(), s.now()).trimmed);
}

TEST(Pulled, APermutationOnAFatTreeEndsWithinATenthOfTheIdeal) {
  const LinkShape link{Bandwidth{100e9}, Nanoseconds{500}};
  SimulationOptions o = pulled_options(50);
  o.transport.payload_bytes = 4000;
  o.transport.header_bytes = o.transport.acknowledgement_bytes = 64;
  o.network.switch_queue.limit_bytes = 8 * 4064;
  Simulation s(fat_tree(54, 3, 1, link), o);
  std::vector<std::pair<int, int>> pairs;
  for (int h = 0; h < 54; ++h) pairs.emplace_back(h, (h * 5 + 7) % 54);
  for (const auto& [from, to] : pairs) ASSERT_NE(from, to);
  const auto flows = run_matrix(s, matrix_of(54, pairs, 8'000'000), kNever);
  const double ideal = 2000 * 4064 * 8 / 100e9 + 6 * 0.5e-6;
  EXPECT_LT(seconds(completion_percentile(flows, 1)), 1.1 * ideal);
  EXPECT_GT(seconds(completion_percentile(flows, 0)), ideal) << "nothing is quicker than the line";
  for (const FlowResult& f : flows) EXPECT_EQ(f.counters.timeouts, 0U);
}

TEST(Pulled, FlowsAreAskedInTurnSoALateShortOneIsNotLast) {
  Matrix m = matrix_of(9, all_to_last(8), 20'000'000);
  m.connections[7].bytes = 100'000;
  m.connections[7].start = kPicosecondsPerSecond / 1000;
  Simulation s(star(9, kTen), pulled_options(30));
  const auto flows = run_matrix(s, m, kNever);
  // Every eighth packet at least is its own.
  EXPECT_LT(seconds(flows[7].ended - flows[7].started), 8 * line_seconds(100e3) + 100e-6);
}

TEST(Pulled, TheFirstWindowIsWhatThePathHoldsUnlessItIsGiven) {
  // 2 x (1 us + 1.211 us) there and 2 x (1 us + 0.053 us) back: 6.53 us, in which 5.4 full packets are sent.
  Simulation path(star(2, kTen), pulled_options(0));
  EXPECT_EQ(path.transport().window_bytes(path.transport().open({0, 1})), 2 * 6 * 1448);
  Simulation given(star(2, kTen), pulled_options(17));
  EXPECT_EQ(given.transport().window_bytes(given.transport().open({0, 1})), 17 * 1448);
}

TEST(Pulled, AStreamThatIsWrittenPieceByPieceKeepsItsLinkBusy) {
  // The second piece comes while nearly all of the first window is in flight, announced by one packet.
  Simulation s(star(2, kTen), pulled_options(30));
  Transport& t = s.transport();
  const FlowId flow = t.open({0, 1});
  s.at(0, [&] { t.write(flow, 29 * 1448, s.now()); });
  s.at(kMicrosecond, [&] { t.write(flow, 2000 * 1448, s.now()); });
  s.run();
  EXPECT_EQ(t.delivered_bytes(flow), 2029 * 1448);
  EXPECT_LT(seconds(t.heard(flow)), 1.02 * line_seconds(2029 * 1448));
}

TEST(Pulled, ASenderWithManyFlowsServesThemAlike) {
  Simulation s(star(9, kTen), pulled_options(30));
  std::vector<std::pair<int, int>> pairs;
  for (int h = 1; h < 9; ++h) pairs.emplace_back(0, h);
  const auto flows = run_matrix(s, matrix_of(9, pairs, 2'000'000), kNever);
  const double all = line_seconds(8 * 2e6);
  EXPECT_NEAR(seconds(completion_percentile(flows, 1)), all, 0.01 * all);
  EXPECT_GT(seconds(completion_percentile(flows, 0)), 0.98 * all);
  EXPECT_EQ(resent(flows), 0U);
}

TEST(Pulled, EverythingArrivesOnceWhateverTheWireDoes) {
  for (const int window : {30, 0})
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
      SimulationOptions o = pulled_options(window);
      o.seed = o.network.seed = seed;
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

TEST(Pulled, LostPullsAreMadeGoodByTheNextAnswer) {
  const cluster::Cluster cluster = star(2, kTen);
  Simulation s(cluster, pulled_options(30));
  int back = 0;  // from the receiver to the switch
  while (cluster.links[static_cast<std::size_t>(back)].from != 1) ++back;
  s.at(100 * kMicrosecond, [&] { s.network().set_link(back, false); });
  s.at(300 * kMicrosecond, [&] { s.network().set_link(back, true); });
  const auto flows = run_matrix(s, matrix_of(2, {{0, 1}}, 10'000'000), kNever);
  EXPECT_EQ(flows[0].counters.delivered_bytes, 10'000'000);
  // The flow stands still until its timer ends, once, and then goes on at the rate of the line.
  EXPECT_LT(seconds(flows[0].ended), line_seconds(10e6) + 0.003);
  EXPECT_LE(flows[0].counters.timeouts, 2U);
}

std::string run_pulled(std::uint64_t seed) {
  SimulationOptions o = pulled_options(0);
  o.seed = o.network.seed = seed;
  o.network.loss.loss = 0.001;
  Simulation s(leaf_spine(4, 4, 4, kTen, kTen), o);
  std::vector<std::pair<int, int>> pairs;
  for (int a = 0; a < 16; ++a)
    for (int b = 0; b < 16; ++b)
      if (a != b) pairs.emplace_back(a, b);
  std::string text;
  for (const FlowResult& f : run_matrix(s, matrix_of(16, pairs, 100'000), kNever))
    text += std::to_string(f.ended) + " " + std::to_string(f.counters.retransmissions) + "\n";
  return text + std::to_string(s.events());
}

TEST(Pulled, ASeedGivesTheSameRunAndAnotherSeedAnotherOne) {
  const std::string one = run_pulled(1);
  EXPECT_EQ(one, run_pulled(1));
  EXPECT_NE(one, run_pulled(2));
}

TEST(Turns, FlowsOfAHostShareItsLinkWhateverTheirWindows) {
  // In one queue the second flow would wait behind all that the first has in flight: megabytes, as nothing
  // marks or drops.
  SimulationOptions o;
  o.transport.turns = true;
  Simulation s(star(3, kTen), o);
  Matrix m = matrix_of(3, {{0, 1}, {0, 2}}, 50'000'000);
  m.connections[1].bytes = 1'000'000;
  m.connections[1].start = kPicosecondsPerSecond / 100;
  const auto flows = run_matrix(s, m, kNever);
  const double half_rate = 2 * line_seconds(1e6);
  EXPECT_NEAR(seconds(flows[1].ended - flows[1].started), half_rate, 0.05 * half_rate);
  EXPECT_NEAR(seconds(flows[0].ended), line_seconds(51e6), 0.01 * line_seconds(51e6));
  EXPECT_LT(s.network().counters(0).most_queued_bytes, 4 * kFullPacket) << "nothing waits at the host";
}

}  // namespace
}  // namespace talweg::sim
