// What a call takes besides its data: ranks that wait for each other's announcement, blocks that wait for
// blocks before them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>

#include "base/collectives.h"
#include "forest/agreement.h"
#include "forest/cost.h"
#include "forest/planner.h"
#include "forest/requests.h"

namespace talweg::forest {
namespace {

constexpr double kStarRate = 1e9 / 8;  // bytes per second of gigabit_star()

double seconds_of(const char* planner, Collective op, const cluster::Cluster& cluster, std::int64_t bytes,
                  const CostParameters& parameters = {}) {
  const Request request = make_request(op, cluster.workers(), bytes, false, 0, 1);
  return predict_seconds(find_planner(planner).plan(request, cluster), cluster, parameters);
}

TEST(CostOfCalls, WhereDataDoNotTellAllThatAllHaveBegunTheyWaitForTheLastOne) {
  constexpr CostParameters kPlain{.tcp_payload = 1, .tcp_acknowledgements = 0};
  constexpr std::int64_t kBytes = 1000;
  const double batch = kPlain.tcp.per_batch, header = static_cast<double>(kPlain.header_bytes);
  const double frame = kBytes + header;
  // From the root straight to its only peer. The switch has all of the packet before it passes it on.
  const auto two = gigabit_star(2);
  const double straight = 2 * batch + 60e-6 + 2 * frame * kPlain.tcp.per_byte + 2 * frame / kStarRate;
  const double agreed = 2 * batch + 60e-6 + header / kStarRate;
  EXPECT_NEAR(seconds_of("direct", Collective::send_recv, two, kBytes, kPlain), straight, 1e-9);
  EXPECT_NEAR(seconds_of("direct", Collective::broadcast, two, kBytes, kPlain), straight + agreed, 1e-9);
  EXPECT_NEAR(seconds_of("direct", Collective::scatter, two, kBytes, kPlain), straight + agreed, 1e-9);
  // The last of nine tells eight others.
  const auto nine = gigabit_star(9);
  const double of_nine = 9 * batch + 60e-6 + 8 * (header + 66) / kStarRate;
  EXPECT_GT(seconds_of("direct", Collective::gather, nine, 0), of_nine + 60e-6);
  EXPECT_LT(seconds_of("direct", Collective::gather, nine, 0), of_nine + 60e-6 + 10 * batch);
}

TEST(CostOfCalls, WhereMessagesBeforeHaveToldThatAllHaveBegunNobodyWaits) {
  const auto two = gigabit_star(2);
  const CostModel model(two);
  const double agreed = 2 * CostParameters{}.tcp.per_batch + 60e-6 +
                        static_cast<double>(CostParameters{}.header_bytes + 66) / kStarRate;
  for (const Collective op : {Collective::broadcast, Collective::all_reduce}) {
    const char* const planner = op == Collective::broadcast ? "direct" : "one_hop";
    const Forest forest = find_planner(planner).plan(make_request(op, 2, 1000, false, 0, 1), two);
    const double waits = op == Collective::broadcast ? agreed : 0;
    EXPECT_NEAR(model.seconds(forest) - model.seconds(forest, true), waits, 1e-6) << name(op);
    EXPECT_NEAR(model.breakdown(forest, true).seconds(), model.seconds(forest, true), 1e-12) << name(op);
  }
}

TEST(CostOfCalls, WhereDataTellThatAllHaveBegunNobodyWaits) {
  for (const Collective op : {Collective::all_reduce, Collective::reduce_scatter, Collective::barrier})
    EXPECT_TRUE(data_carry_agreement(make_request(op, 4, op == Collective::barrier ? 0 : 8))) << name(op);
  for (const Collective op : {Collective::reduce, Collective::broadcast, Collective::all_gather,
                              Collective::all_to_all, Collective::gather, Collective::scatter})
    EXPECT_FALSE(data_carry_agreement(make_request(op, 4, 8))) << name(op);
  const auto four = gigabit_star(4);
  EXPECT_LT(seconds_of("one_hop", Collective::all_reduce, four, 4),
            60e-6 + 10 * CostParameters{}.tcp.per_batch);
}

TEST(CostOfCalls, RanksThatShareMemoryAnnounceThemselvesThere) {
  const auto memory = cluster::uniform_mesh(4, {1e12}, {500});
  const CostParameters parameters;
  const double agreed = 4 * parameters.memory.per_batch + 500e-9;
  Breakdown breakdown = CostModel(memory).breakdown(
      find_planner("direct").plan(make_request(Collective::broadcast, 4, 0, false, 0, 1), memory));
  EXPECT_NEAR(breakdown.latency, 1000e-9, 1e-12);
  EXPECT_GT(breakdown.seconds(), agreed + 500e-9 + 2 * parameters.memory.per_batch);
  EXPECT_LT(breakdown.seconds(), agreed + 500e-9 + 6 * parameters.memory.per_batch);
}

// A source of 1 Gbit/s; to ranks 1 and `second` lead only 100 Mbit/s.
double scattered(int second, std::int64_t bytes, int ranks = 7) {
  auto cluster = gigabit_star(ranks);
  for (cluster::Link& link : cluster.links)
    if (link.to == 1 || link.to == second) link.capacity = {1e8};
  CostParameters links_alone{.tcp_payload = 1, .tcp_acknowledgements = 0};
  links_alone.tcp.per_batch = links_alone.tcp.per_byte = 0;
  return seconds_of("direct", Collective::scatter, cluster, bytes, links_alone);
}

TEST(CostOfCalls, SlowBlocksOfAScatterGoFirstAndQuickOnesBesideThem) {
  constexpr std::int64_t kBlock = 1 << 20;
  const double quick = kBlock / kStarRate, slow = 10 * quick;
  for (const int second : {1, 2, 6}) EXPECT_NEAR(scattered(second, kBlock), slow, 0.01 * slow) << second;
}

TEST(CostOfCalls, WhereWaysAreLongTheBlocksOfAScatterWaitForWordOfThoseBeforeThem) {
  constexpr std::int64_t kBlock = 128 << 10;  // two of them are on their way at a time
  constexpr double kRoundTrip = 4 * 10e-3;
  auto cluster = gigabit_star(7);
  for (cluster::Link& link : cluster.links) link.latency = {10'000'000};
  const double seconds = seconds_of("direct", Collective::scatter, cluster, kBlock);
  // After half a round trip in which all have begun. Two that end together are waited for, too.
  EXPECT_GT(seconds, 3.5 * kRoundTrip + 6 * kBlock / kStarRate);
  EXPECT_LT(seconds, 3.8 * kRoundTrip);
}

TEST(CostOfCalls, OfAScatterWithHundredsOfBlocksUnderWayLinksAreNeverIdle) {
  constexpr std::int64_t kBlock = 1 << 20;
  auto cluster = gigabit_star(201);
  for (cluster::Link& link : cluster.links)
    if (link.to <= 200) link.capacity.bits_per_second /= link.to % 2 == 0 ? 90 : 180;
  CostParameters links_alone{.tcp_payload = 1, .tcp_acknowledgements = 0};
  links_alone.tcp.per_batch = links_alone.tcp.per_byte = 0;
  EXPECT_NEAR(seconds_of("direct", Collective::scatter, cluster, kBlock, links_alone),
              200 * kBlock / kStarRate, 0.01 * 200 * kBlock / kStarRate);
}

// Racks of ten with an uplink each, far away: a rack has two blocks on their way, however many racks there
// are.
TEST(CostOfCalls, OfAScatterToManyRacksFarAwayEachRackWaitsForAnswers) {
  const auto seconds = [](int racks) {
    cluster::Cluster cluster;
    const auto add = [&](std::string name, cluster::NodeKind kind) {
      cluster.nodes.push_back({std::move(name), kind});
      return static_cast<NodeId>(cluster.nodes.size() - 1);
    };
    const auto join = [&](NodeId a, NodeId b, double rate, std::int64_t ns) {
      cluster.links.push_back({a, b, {rate}, {ns}});
      cluster.links.push_back({b, a, {rate}, {ns}});
    };
    for (int h = 0; h <= 10 * racks; ++h) add(fmt::format("h{}", h), cluster::NodeKind::worker);
    const NodeId spine = add("spine", cluster::NodeKind::switch_);
    join(0, spine, 1e11, 20'000'000);
    for (int r = 0; r < racks; ++r) {
      const NodeId leaf = add(fmt::format("leaf{}", r), cluster::NodeKind::switch_);
      join(spine, leaf, 1e9, 0);
      for (int h = 1; h <= 10; ++h) join(leaf, 10 * r + h, 1e11, 0);
    }
    CostParameters links_alone{.tcp_payload = 1, .tcp_acknowledgements = 0};
    links_alone.tcp.per_batch = links_alone.tcp.per_byte = 0;
    return seconds_of("direct", Collective::scatter, cluster, 1 << 20, links_alone);
  };
  const double one_by_one = seconds(30), at_once = seconds(34);  // 60 and 68 blocks under way
  EXPECT_GT(one_by_one, 5 * 0.04) << "ten blocks, two at a time, are each answered after 40 ms";
  EXPECT_NEAR(at_once / one_by_one, 1, 0.05);
}

TEST(CostOfCalls, SmallBlocksOfAScatterWaitForNothing) {
  constexpr std::int64_t kSmall = 8 << 10;
  const double quick = kSmall / kStarRate;
  EXPECT_LT(scattered(2, kSmall), 11 * quick + 4 * 30e-6 + 20e-6);
  EXPECT_GT(scattered(2, kSmall), 10 * quick);
}

TEST(CostOfCalls, OfAScatterItIsSaidThatLinksLimitIt) {
  // Seven with slow links that together carry no more than one of them: they begin too late.
  auto cluster = gigabit_star(15);
  cluster.groups.push_back({"rack", {3.1e8}, {}});
  for (std::size_t i = 0; i < cluster.links.size(); ++i) {
    if (cluster.links[i].to < 1 || cluster.links[i].to > 7) continue;
    cluster.links[i].capacity = {3e8};
    cluster.groups[0].links.push_back(static_cast<int>(i));
  }
  const Forest forest =
      find_planner("direct").plan(make_request(Collective::scatter, 15, 1 << 20, false, 0, 1), cluster);
  const Breakdown found = CostModel(cluster).breakdown(forest);
  EXPECT_EQ(found.limit, Breakdown::Limit::links);
  EXPECT_EQ(found.reason, "links limit: few blocks are on their way at a time, and others wait for these");
  EXPECT_NEAR(found.seconds() / CostModel(cluster).seconds(forest), 1, 1e-12);
}

TEST(CostOfCalls, SumsGoUpInTheBatchesThatGrantsLetThemHave) {
  const auto four = cluster::uniform_star(4, {1e12}, {1000});
  Forest forest = find_planner("star").plan(make_request(Collective::reduce, 4, 1 << 20, false, 0, 1), four);
  ASSERT_EQ(forest.trees.size(), 1U);
  forest.trees[0].chunk = 16 << 10;  // 64 chunks, of which eight may be ahead
  CostParameters slow;
  slow.tcp.per_batch = 50e-6;
  slow.tcp.per_byte = slow.reduce_per_byte = 0;
  constexpr double kBatches = 2 + 56 / 4.0, kGrants = 56 / 4.0;
  constexpr double kAnnouncements = 4;
  const double seconds = predict_seconds(forest, four, slow);
  EXPECT_GT(seconds, (kAnnouncements + 3 * (kBatches + kGrants)) * 50e-6);
  EXPECT_LT(seconds, (kAnnouncements + 3 * (kBatches + kGrants) + 4) * 50e-6);
}

}  // namespace
}  // namespace talweg::forest
