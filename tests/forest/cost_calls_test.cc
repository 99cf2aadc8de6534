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

TEST(CostOfCalls, WhereProcessorsAreSlowTheBlocksOfAScatterWaitForWordOfThoseBeforeThem) {
  constexpr std::int64_t kBlock = 128 << 10;  // two of them are on their way at a time
  constexpr double kBatch = 10e-3;
  CostParameters slow;
  slow.tcp.per_batch = kBatch;
  const auto cluster = gigabit_star(7);
  const Forest forest =
      find_planner("direct").plan(make_request(Collective::scatter, 7, kBlock, false, 0, 1), cluster);
  const double seconds = CostModel(cluster, slow).seconds(forest, true);
  // There and back a batch at either end, twice; and there.
  EXPECT_GT(seconds, 10 * kBatch + 6 * kBlock / kStarRate);
  EXPECT_LT(seconds, 10.1 * kBatch + 6.6 * kBlock / kStarRate);
}

// As many as the wire holds are on their way, and nobody waits for word of the last ones.
TEST(CostOfCalls, WhereWaysAreLongTheBlocksOfAScatterFillThem) {
  constexpr std::int64_t kBlock = 128 << 10;
  constexpr double kOneWay = 2 * 10e-3;
  auto cluster = gigabit_star(7);
  for (cluster::Link& link : cluster.links) link.latency = {10'000'000};
  const Forest forest =
      find_planner("direct").plan(make_request(Collective::scatter, 7, kBlock, false, 0, 1), cluster);
  const double seconds = CostModel(cluster).seconds(forest, true);
  EXPECT_GT(seconds, kOneWay + 6 * kBlock / kStarRate);
  EXPECT_LT(seconds, kOneWay + 6.6 * kBlock / kStarRate);
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

// The last of them come after what takes them longest from where links have passed them, and those that take
// no longer are not waited for.
TEST(CostOfCalls, OfAScatterWithHundredsOfBlocksUnderWayTheLastIsAsFarAwayAsItIs) {
  constexpr std::int64_t kBlock = 1 << 20;
  constexpr double kLinks = 200 * kBlock / kStarRate;
  auto cluster = gigabit_star(201);
  for (cluster::Link& link : cluster.links)
    if (link.to <= 200) link.capacity.bits_per_second /= link.to % 2 == 0 ? 90 : 180;
  const Forest forest =
      find_planner("direct").plan(make_request(Collective::scatter, 201, kBlock, false, 0, 1), cluster);
  CostParameters links_alone{.tcp_payload = 1, .tcp_acknowledgements = 0};
  links_alone.tcp.per_batch = links_alone.tcp.per_byte = 0;
  const double near = CostModel(cluster, links_alone).breakdown(forest, true).seconds();
  EXPECT_NEAR(near, kLinks, 0.002 * kLinks);
  for (cluster::Link& link : cluster.links) link.latency = {50'000'000};
  const Breakdown far = CostModel(cluster, links_alone).breakdown(forest, true);
  EXPECT_NEAR(far.latency, 100e-3, 1e-6);
  EXPECT_NEAR(far.seconds() - near, 100e-3, 0.1e-3);
  for (cluster::Link& link : cluster.links) link.latency = {3'000};
  constexpr double kByte =
      0.1e-6;  // a chunk of it takes some 0.1 s at either end, all blocks less than links
  const std::int64_t chunk = forest.trees.back().chunk;
  links_alone.tcp.per_byte = kByte / static_cast<double>(chunk);
  const Breakdown busy = CostModel(cluster, links_alone).breakdown(forest, true);
  EXPECT_NEAR(busy.processors, 2 * kByte, 0.01 * kByte);
}

// Racks of ten with an uplink each, far away: of blocks of 8 MiB a rack has two on their way, of 1 MiB the
// six that fill its uplink for a round trip and one, however many racks there are.
TEST(CostOfCalls, OfAScatterToManyRacksFarAwayEachRackWaitsForAnswers) {
  const auto seconds = [](int racks, std::int64_t block) {
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
    return seconds_of("direct", Collective::scatter, cluster, block, links_alone);
  };
  constexpr double kRoundTrip = 40e-3, kOneWay = kRoundTrip / 2;
  struct Case {
    std::int64_t block;
    int waits;            // for an answer
    int played, at_once;  // racks: of the first at most 64 blocks are under way together
  };
  for (const auto& [block, waits, played, at_once] : {Case{8 << 20, 4, 30, 34}, Case{1 << 20, 1, 10, 11}}) {
    // Once all have begun, and until the last is there.
    const double least = kOneWay + 10 * static_cast<double>(block) / kStarRate + waits * kRoundTrip + kOneWay;
    EXPECT_NEAR(seconds(played, block) / least, 1, 0.02) << block;
    EXPECT_NEAR(seconds(at_once, block) / least, 1, 0.02) << block;
  }
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
