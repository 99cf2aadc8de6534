#include "forest/cost.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "forest/planner.h"
#include "forest/random_networks.h"
#include "forest/requests.h"

namespace talweg::forest {
namespace {

constexpr double kRate = 1e9 / 8;  // bytes per second of the stars used here
constexpr std::int64_t kLong = 64 << 20;

// Without what textbooks leave out: frame headers on the wire, and acknowledgements.
constexpr CostParameters kTextbook{.tcp_payload = 1, .tcp_acknowledgements = 0};

double predict(const char* planner, Collective op, int ranks, std::int64_t bytes) {
  const auto cluster = gigabit_star(ranks);
  Request request = make_request(op, ranks, bytes, false, 0, 1);
  return predict_seconds(find_planner(planner).plan(request, cluster), cluster, kTextbook);
}

void expect_within_percent(double seconds, double expected, double percent) {
  EXPECT_NEAR(seconds, expected, expected * percent / 100);
}

TEST(Cost, LongVectorsTakeWhatTheTextbookSays) {
  for (const int ranks : {2, 4, 8, 16}) {
    SCOPED_TRACE(ranks);
    const double vector = static_cast<double>(kLong) / kRate;
    const double n = ranks;
    const CostParameters parameters;
    const int senders = std::min(ranks - 1, parameters.incast_most);
    const double incast = 1 + parameters.incast_loss * std::max(0, senders - parameters.incast_free);
    const auto all_reduce = Collective::all_reduce;
    expect_within_percent(predict("ring", all_reduce, ranks, kLong), 2 * (n - 1) / n * vector, 3);
    expect_within_percent(predict("halving_doubling", all_reduce, ranks, kLong), 2 * (n - 1) / n * vector, 3);
    expect_within_percent(predict("sharded_star", all_reduce, ranks, kLong),
                          incast * 2 * (n - 1) / n * vector, 3);
    expect_within_percent(predict("star", all_reduce, ranks, kLong), incast * (n - 1) * vector, 3);
    expect_within_percent(predict("one_hop", all_reduce, ranks, kLong), incast * (n - 1) * vector, 3);
    expect_within_percent(predict("chain", all_reduce, ranks, kLong), (ranks == 2 ? 1 : 2) * vector, 5);
    expect_within_percent(predict("binomial", all_reduce, ranks, kLong), std::log2(n) * vector, 3);
    expect_within_percent(predict("chain", Collective::broadcast, ranks, kLong), vector, 5);
    expect_within_percent(predict("binomial", Collective::broadcast, ranks, kLong), std::log2(n) * vector, 3);
    expect_within_percent(predict("direct", Collective::broadcast, ranks, kLong), (n - 1) * vector, 3);
    const std::int64_t part = kLong / ranks;
    expect_within_percent(predict("ring", Collective::all_gather, ranks, part), (n - 1) / n * vector, 3);
    expect_within_percent(predict("ring", Collective::reduce_scatter, ranks, part), (n - 1) / n * vector, 3);
    // In turns: few send to one at once.
    expect_within_percent(predict("direct", Collective::all_to_all, ranks, part), (n - 1) / n * vector, 3);
    expect_within_percent(predict("direct", Collective::gather, ranks, part), incast * (n - 1) / n * vector,
                          3);
    expect_within_percent(predict("direct", Collective::scatter, ranks, part), (n - 1) / n * vector, 3);
  }
}

TEST(Cost, OfAnExchangeAsManySendToOneAtOnceAsEachIsAhead) {
  CostParameters lossy{.tcp_payload = 1, .tcp_acknowledgements = 0};
  lossy.incast_loss = 1;
  lossy.tcp.per_batch = lossy.tcp.per_byte = 0;
  const auto longer = [&](const cluster::Cluster& cluster, std::int64_t block) {
    const Request request = make_request(Collective::all_to_all, cluster.workers(), block, false, 0, 1);
    const Forest forest = find_planner("direct").plan(request, cluster);
    CostParameters lossless = lossy;
    lossless.incast_loss = 0;
    return CostModel(cluster, lossy).busiest(forest) / CostModel(cluster, lossless).busiest(forest);
  };
  const auto near = gigabit_star(16);
  EXPECT_NEAR(longer(near, 1 << 20), 1, 0.01) << "two at once, and three cost nothing";
  EXPECT_NEAR(longer(near, 36 << 10), 2, 0.05) << "four, of which a queue and the wire hold 143 KiB";
  EXPECT_NEAR(longer(near, 1 << 10), 10, 0.3) << "all, which cost as much as twelve";
  const auto far = cluster::uniform_star(16, {1e9}, {15'000'000});  // 7.5 MB in a round trip
  EXPECT_NEAR(longer(far, 1 << 20), 7, 0.2) << "nine: eight, and the one that arrives";
  EXPECT_NEAR(longer(cluster::uniform_mesh(16, {1e9}, {30'000}), 1 << 20), 1, 0.01);
}

TEST(Cost, ADoubleBinaryTreeMovesTheVectorTwiceThroughItsBusiestLink) {
  expect_within_percent(predict("double_binary_tree", Collective::all_reduce, 8, kLong),
                        2 * static_cast<double>(kLong) / kRate, 5);
  expect_within_percent(predict("double_binary_tree", Collective::broadcast, 8, kLong),
                        static_cast<double>(kLong) / kRate, 5);
}

TEST(Cost, TheBusiestLinkHasNothingToDoWithHowFarItIsFromTheRootToALeaf) {
  const auto star = gigabit_star(8);
  const CostModel model(star, kTextbook);
  const auto busiest = [&](const char* planner, std::int64_t bytes) {
    const Request request = make_request(Collective::all_reduce, 8, bytes, false, 0, 1);
    const Forest forest = find_planner(planner).plan(request, star);
    EXPECT_LT(model.busiest(forest), model.seconds(forest)) << planner;
    return model.busiest(forest);
  };
  const double vector = 65536 / kRate;
  expect_within_percent(busiest("ring", 65536), 2 * 7 / 8.0 * vector, 3);
  expect_within_percent(busiest("double_binary_tree", 65536), 2 * vector, 3);
  expect_within_percent(busiest("chain", 65536), 2 * vector, 3);
  EXPECT_LT(busiest("chain", 256), 100e-6) << "of 14 hops of 20 us";
  EXPECT_EQ(model.busiest(find_planner("ring").plan(make_request(Collective::all_reduce, 1, 64, false, 0, 1),
                                                    gigabit_star(1))),
            0);
}

// Who only receives over a shared uplink sends acknowledgements over it, which hold up nothing.
TEST(Cost, ACapacityGroupThatCarriesOnlyAnswersBoundsNothing) {
  auto cluster = gigabit_star(3);
  const int uplink = static_cast<int>(
      std::ranges::find_if(cluster.links, [](const cluster::Link& link) { return link.from == 0; }) -
      cluster.links.begin());
  cluster.groups.push_back({.name = "uplink", .capacity = {1e9}, .links = {uplink}});
  const Request request = make_request(Collective::reduce, 3, 1 << 20, false, 0, 1);
  EXPECT_LT(predict_seconds(find_planner("star").plan(request, cluster), cluster), 1);
}

TEST(Cost, AMessageTakesTwoBatchesTheLatencyAndItsBytes) {
  const CostParameters parameters;
  const double fixed = 2 * parameters.tcp.per_batch + 60e-6;
  const double frame = 1000 + static_cast<double>(parameters.header_bytes);
  const double work = frame * 2 * parameters.tcp.per_byte;
  // The switch has all of the packet before it passes it on.
  EXPECT_NEAR(predict("direct", Collective::send_recv, 2, 1000), fixed + 2 * frame / kRate + work, 1e-9);
}

TEST(Cost, AcknowledgementsAreCarriedByTheLinksThatLeadBack) {
  CostParameters acknowledged = kTextbook;
  acknowledged.tcp_acknowledgements = 0.1;
  const auto slower = [&](const char* planner, Collective op) {
    const auto cluster = gigabit_star(4);
    const Forest forest = find_planner(planner).plan(make_request(op, 4, kLong, false, 0, 1), cluster);
    return predict_seconds(forest, cluster, acknowledged) / predict_seconds(forest, cluster, kTextbook);
  };
  EXPECT_NEAR(slower("ring", Collective::all_reduce), 1.1, 0.005) << "links are full both ways";
  EXPECT_NEAR(slower("direct", Collective::broadcast), 1, 0.005) << "all data go one way";
  // Links that carry nothing else limit nothing, however slow they are.
  auto one_way = cluster::uniform_star(2, {1e9}, {30000});
  for (cluster::Link& link : one_way.links)
    if (link.from == 1 || link.to == 0) link.capacity = {1e6};
  const Forest forest =
      find_planner("direct").plan(make_request(Collective::broadcast, 2, kLong, false, 0, 1), one_way);
  EXPECT_NEAR(predict_seconds(forest, one_way, kTextbook), static_cast<double>(kLong) / kRate, 0.05);
}

TEST(Cost, ASumWaitsForTheLastOfItsParts) {
  // One chunk each: eight come in over one link one after the other, then eight go out.
  constexpr double kChunk = 8000;
  const double seconds = predict("star", Collective::all_reduce, 9, static_cast<std::int64_t>(kChunk));
  EXPECT_GT(seconds, 2 * 8 * kChunk / kRate);
  expect_within_percent(seconds, 2 * (8 * kChunk / kRate + 60e-6 + 9 * 5e-6), 10);
}

TEST(Cost, ChunksOnTheirWayUpWaitForGrants) {
  const auto far = cluster::uniform_star(2, {1e9}, {5'000'000});  // a round trip takes 20 ms
  Forest forest = find_planner("chain").plan(make_request(Collective::reduce, 2, 1 << 20, false, 0, 1), far);
  forest.trees[0].chunk = 16 << 10;  // 64 chunks, of which eight may be ahead
  constexpr double kAnnounced = 10e-3;
  EXPECT_NEAR(predict_seconds(forest, far, kTextbook), kAnnounced + 63.0 / 8 * 20e-3 + 10e-3, 15e-3);
  Forest down = find_planner("chain").plan(make_request(Collective::broadcast, 2, 1 << 20, false, 0, 1), far);
  down.trees[0].chunk = 16 << 10;
  EXPECT_LT(predict_seconds(down, far, kTextbook), kAnnounced + 22e-3)
      << "these go into the output, and need none";
}

TEST(Cost, AShortRingPaysALatencyForEveryStep) {
  const CostParameters parameters;
  const double step = 2 * parameters.tcp.per_batch + 60e-6;
  expect_within_percent(predict("ring", Collective::all_reduce, 8, 8), 14 * step, 5);
}

TEST(Cost, TinyMessagesPreferFewSteps) {
  EXPECT_LT(predict("one_hop", Collective::all_reduce, 4, 4),
            predict("binomial", Collective::all_reduce, 4, 4));
  EXPECT_LT(predict("binomial", Collective::all_reduce, 8, 4), predict("ring", Collective::all_reduce, 8, 4));
  EXPECT_LT(predict("binomial", Collective::broadcast, 8, 4), predict("chain", Collective::broadcast, 8, 4));
}

TEST(Cost, NothingIsFreeButALoneRank) {
  for (const Planner& planner : planners()) {
    for (const Collective op : all_operations()) {
      for (const int ranks : {1, 4}) {
        const Request request = make_request(op, ranks, 100);
        if (!planner.serves(request)) continue;
        const auto cluster = gigabit_star(ranks);
        const double seconds = predict_seconds(planner.plan(request, cluster), cluster);
        if (ranks == 1) {
          EXPECT_EQ(seconds, 0) << describe(planner.name, request);
        } else {
          EXPECT_GT(seconds, 0) << describe(planner.name, request);
        }
      }
    }
  }
}

TEST(Cost, MoreBytesNeverTakeLess) {
  for (const Planner& planner : planners()) {
    if (!planner.serves(make_request(Collective::all_reduce, 6, 1))) continue;
    double before = 0;
    for (std::int64_t bytes = 64; bytes <= kLong; bytes *= 4) {
      const double seconds = predict(planner.name.c_str(), Collective::all_reduce, 6, bytes);
      // Packed trees are chosen anew for every size, each time within a percent of the best.
      EXPECT_GT(seconds, 0.99 * before) << planner.name << " " << bytes;
      before = seconds;
    }
  }
}

TEST(Cost, ServersOnFastHostsBeatTheRingByHalfWhereTwoOfFourAreSlow) {
  const auto cluster =
      cluster::load_cluster(std::string(TALWEG_SOURCE_DIR) + "/examples/clusters/uneven4.yaml");
  const Request request = make_request(Collective::all_reduce, 4, kLong, false, 0, 1);
  const auto seconds = [&](const char* planner) {
    return predict_seconds(find_planner(planner).plan(request, cluster), cluster);
  };
  EXPECT_NEAR(seconds("ring") / seconds("sharded_star"), 1.5, 0.05);
}

TEST(Cost, ACapacityGroupIsSharedByItsLinks) {
  cluster::Cluster cluster = gigabit_star(2);
  const Request request = make_request(Collective::all_reduce, 2, kLong, false, 0, 1);
  const double apart = predict_seconds(find_planner("ring").plan(request, cluster), cluster);
  cluster.groups.push_back({"half duplex", {1e9}, {0, 1}});
  const double shared = predict_seconds(find_planner("ring").plan(request, cluster), cluster);
  EXPECT_NEAR(shared / apart, 2, 0.05);
}

TEST(Cost, RanksThatShareMemoryAreCheaperThanTheNetworkAtTheSameRate) {
  const Request request = make_request(Collective::all_reduce, 4, 1);
  const auto memory = cluster::uniform_mesh(4, {1e11}, {500}),
             network = cluster::uniform_mesh(4, {1e11}, {5000});
  EXPECT_LT(rank_planners(request, memory).front().seconds,
            rank_planners(request, network).front().seconds / 2);
}

TEST(Cost, SharedCoresBoundTheWorkOfAllRanks) {
  auto cluster = gigabit_star(8);
  const Forest forest = find_planner("one_hop").plan(make_request(Collective::all_reduce, 8, 1), cluster);
  const double before = predict_seconds(forest, cluster);
  cluster.shared_cores = 2;
  // 56 messages, a batch at either end of each.
  const double work = 56 * 2 * CostParameters{}.tcp.per_batch;
  const double seconds = predict_seconds(forest, cluster);
  EXPECT_GE(seconds, work / 2);
  EXPECT_GT(seconds, before);
}

// Of more ranks than cores each hop waits for its receiver's turn: what takes the fewest hops is the
// quickest, though its root has the most to do. Where each has a core nothing is waited for.
TEST(Cost, WhereRanksTakeTurnsFewHopsAreQuick) {
  auto cluster = cluster::uniform_mesh(8, {160e9}, {1000});
  const Request request = make_request(Collective::all_reduce, 8, 1 << 10);
  const auto cost = [&](const char* planner) {
    return predict_seconds(find_planner(planner).plan(request, cluster), cluster);
  };
  CostParameters at_once;
  at_once.turn = 0;
  for (const int cores : {2, 4, 8, 16}) {
    cluster.shared_cores = cores;
    const double waited = cores < 8 ? CostParameters{}.turn * 8 / cores : 0;
    for (const auto& [planner, hops] : {std::pair{"star", 2}, {"halving_doubling", 6}, {"ring", 14}}) {
      const Forest forest = find_planner(planner).plan(request, cluster);
      const double before = predict_seconds(forest, cluster, at_once);
      EXPECT_LE(predict_seconds(forest, cluster), before + hops * waited + 1e-12) << planner << ", " << cores;
      EXPECT_GE(predict_seconds(forest, cluster), hops * waited) << planner << ", " << cores;
    }
  }
  cluster.shared_cores = 2;
  EXPECT_GT(cost("star"), 15e-6) << "18 us are measured";
  EXPECT_LT(cost("star"), 22e-6) << "18 us are measured";
  EXPECT_LT(cost("star"), cost("halving_doubling") / 2);
  EXPECT_LT(cost("halving_doubling"), cost("ring") / 1.5);
}

// A broadcast along two links of 100 Gbit/s, in chunks of so many bytes: processors are what limits it.
double relayed(std::int64_t chunk, const cluster::Cluster& cluster, CostParameters parameters = {}) {
  Forest forest =
      find_planner("chain").plan(make_request(Collective::broadcast, 3, 16 << 20, false, 0, 1), cluster);
  forest.trees[0].chunk = chunk;
  parameters.header_bytes = 0;
  return predict_seconds(forest, cluster, parameters);
}

TEST(Cost, ManySmallChunksAreNoMoreWorkThanTheBatchesThatHoldThem) {
  const auto network = cluster::uniform_star(3, {1e11}, {5000});
  CostParameters parameters;
  parameters.tcp.per_batch = 50e-6;
  // Whoever relays receives and sends 64 batches of 256 KiB.
  const double work = 128 * 50e-6 + 2 * (16 << 20) * parameters.tcp.per_byte;
  EXPECT_GT(relayed(256 << 10, network, parameters), work);
  EXPECT_NEAR(relayed(1 << 10, network, parameters), work, 0.05 * work);
  // As many batches as chunks, where these are larger than what leaves at once.
  parameters.tcp.most_batch_bytes = 1 << 10;
  EXPECT_GT(relayed(1 << 10, network, parameters), 100 * work);
}

TEST(Cost, InSharedMemoryEachFrameIsABatch) {
  const auto network = cluster::uniform_mesh(3, {1e12}, {500});
  CostParameters parameters;
  parameters.memory.per_batch = 50e-6;
  EXPECT_GT(relayed(1 << 10, network, parameters), 2 * (16 << 10) * 50e-6);
}

TEST(Cost, WithoutProcessorsOnlyLinksAndLatencyAreLeft) {
  CostParameters ideal;
  ideal.tcp.per_batch = ideal.tcp.per_byte = ideal.reduce_per_byte = 0;
  const auto cluster = gigabit_star(4);
  for (const Planner& planner : planners()) {
    const Request request = make_request(Collective::all_reduce, 4, 1 << 18);
    if (!planner.serves(request) || !planner.suits(request)) continue;
    const Breakdown found = CostModel(cluster, ideal).breakdown(planner.plan(request, cluster));
    EXPECT_EQ(found.processors, 0) << planner.name;
    EXPECT_GT(found.links, 0) << planner.name;
    EXPECT_GT(found.latency, 59e-6) << planner.name;
  }
}

TEST(Breakdown, AddsUpToThePrediction) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const auto cluster = random_network(seed, 2 + static_cast<int>(seed % 5));
    const CostModel model(cluster);
    for (const Planner& planner : planners()) {
      for (const Collective op : all_operations()) {
        for (const std::int64_t count : {1, 30'000}) {
          const Request request = make_request(op, cluster.workers(), count);
          if (!planner.serves(request)) continue;
          const Forest forest = planner.plan(request, cluster);
          const Breakdown found = model.breakdown(forest);
          EXPECT_NEAR(found.seconds() / model.seconds(forest), 1, 1e-12) << describe(planner.name, request);
          EXPECT_GE(std::min({found.links, found.processors, found.latency}), 0);
          const double part = found.limit == Breakdown::Limit::links        ? found.links
                              : found.limit == Breakdown::Limit::processors ? found.processors
                                                                            : found.latency;
          EXPECT_GE(found.without, (1 - 1e-12) * (found.seconds() - part)) << "the rest stays";
          EXPECT_LE(found.without, found.seconds());
        }
      }
    }
  }
}

// One host is so far away that a message to it takes a little longer than each processor's work for all of
// its messages: without latency that work stays, without processors the way is hardly shorter. Both come
// after the announcements, which take the latency once more, and four batches.
TEST(Breakdown, NamesWhatThePredictionWouldGainMostFromBeingWithout) {
  auto cluster = cluster::uniform_star(4, {1e11}, {1000});
  const Forest forest = find_planner("direct").plan(make_request(Collective::all_to_all, 4, 1), cluster);
  const double batch = CostParameters{}.tcp.per_batch, work = 6 * batch;
  for (cluster::Link& link : cluster.links)
    if (link.from == 0 || link.to == 0)
      link.latency = Nanoseconds{std::llround(1e9 * (1.02 * work - 2 * batch - 1e-6))};
  const Breakdown found = CostModel(cluster).breakdown(forest);
  EXPECT_GT(found.latency, found.processors) << "most of the time goes to it";
  EXPECT_EQ(found.limit, Breakdown::Limit::processors);
  CostParameters ideal;
  ideal.tcp.per_batch = ideal.tcp.per_byte = ideal.reduce_per_byte = 0;
  EXPECT_NEAR(found.without, predict_seconds(forest, cluster, ideal), 1e-9);
  EXPECT_THAT(found.reason, testing::MatchesRegex("processors limit: without, it would be 4. % less"));
}

Breakdown of_ring(const cluster::Cluster& cluster, std::int64_t bytes) {
  const Request request = make_request(Collective::all_reduce, cluster.workers(), bytes, false, 0, 1);
  return CostModel(cluster).breakdown(find_planner("ring").plan(request, cluster));
}

TEST(Breakdown, SaysWhichLinkLimitsAndWhatItCarries) {
  auto cluster = gigabit_star(4);
  cluster.links[5].capacity.bits_per_second = 2e8;  // to host2
  const Breakdown found = of_ring(cluster, kLong);
  EXPECT_EQ(found.limit, Breakdown::Limit::links);
  // 1.5 times the vector, and headers and acknowledgements.
  EXPECT_EQ(found.reason,
            "links limit: host2's downlink carries 108 MB of the 108 MB that it can in this time");
  EXPECT_GT(found.links, 0.99 * found.seconds());
}

TEST(Breakdown, SaysThatALinkTakesLongerForHowManySendThere) {
  const auto reason = [](int ranks) {
    const auto cluster = gigabit_star(ranks);
    const Request request = make_request(Collective::all_reduce, ranks, kLong, false, 0, 1);
    return CostModel(cluster).breakdown(find_planner("star").plan(request, cluster)).reason;
  };
  EXPECT_THAT(reason(4), testing::EndsWith("in this time"));
  EXPECT_THAT(reason(8), testing::EndsWith(", and takes 8 % longer for it, as so many send there at once"));
}

TEST(Breakdown, SaysWhichSharedCapacityLimits) {
  auto cluster = gigabit_star(4);
  cluster.groups.push_back({"card1", {2e8}, {2, 3}});
  EXPECT_THAT(of_ring(cluster, kLong).reason,
              testing::StartsWith("links limit: card1 carries 216 MB of the 21"));
}

TEST(Breakdown, SaysThatEqualLinksLimitTogether) {
  cluster::Cluster cluster;
  for (int i = 0; i < 4; ++i) cluster.nodes.push_back({.name = "h" + std::to_string(i)});
  for (const char* name : {"leaf0", "leaf1", "spine0", "spine1"})
    cluster.nodes.push_back({.name = name, .kind = cluster::NodeKind::switch_});
  const auto join = [&](int a, int b, double rate) {
    cluster.links.push_back({a, b, {rate}, {5000}});
    cluster.links.push_back({b, a, {rate}, {5000}});
  };
  for (int host = 0; host < 4; ++host) join(host, 4 + host / 2, 1e10);
  for (int leaf = 4; leaf < 6; ++leaf)
    for (int spine = 6; spine < 8; ++spine) join(leaf, spine, 1e8);
  EXPECT_THAT(of_ring(cluster, kLong).reason,
              testing::StartsWith("links limit: each of 4 links such as leaf"));
}

TEST(Breakdown, SaysWhenLatencyLimits) {
  const Breakdown found = of_ring(gigabit_star(8), 8);
  EXPECT_EQ(found.limit, Breakdown::Limit::latency);
  EXPECT_EQ(found.reason, "latency limits: 84 % of a chunk's longest way");
  EXPECT_NEAR(found.latency, 14 * 60e-6, 1e-9);
  EXPECT_NEAR(found.processors, 14 * 10e-6, 1e-6);
}

TEST(Breakdown, SaysWhoseProcessorLimits) {
  auto cluster = cluster::uniform_star(8, {1e11}, {1000});
  const Request request = make_request(Collective::all_reduce, 8, 16, false, 0, 1);
  const Forest forest = find_planner("star").plan(request, cluster);
  const Breakdown found = CostModel(cluster).breakdown(forest);
  EXPECT_EQ(found.limit, Breakdown::Limit::processors);
  // The root hears from seven one after the other, and answers them: no way of a chunk is longer.
  EXPECT_EQ(found.reason, "processors limit: 95 % of a chunk's longest way");
  // With chunks that follow each other, it is the root's work and not their way.
  const Forest longer =
      find_planner("star").plan(make_request(Collective::all_reduce, 8, 1 << 20, false, 0, 1), cluster);
  EXPECT_THAT(CostModel(cluster).breakdown(longer).reason,
              testing::MatchesRegex(
                  "processors limit: host0 is busy for 9. % of the time, with 60 batches, 14.7 MB in all"));
  cluster.shared_cores = 1;
  EXPECT_EQ(CostModel(cluster).breakdown(forest).reason,
            "processors limit: the shared core is busy for 100 % of the time, with 28 batches, 2.24 kB in "
            "all");
}

TEST(Breakdown, OfNothingIsNothing) {
  const auto cluster = gigabit_star(1);
  const Breakdown found = of_ring(cluster, 8);
  EXPECT_EQ(found.seconds(), 0);
  EXPECT_EQ(found.reason, "nothing moves");
}

TEST(Cost, WhatTheClusterSaysOfItsProcessorsGoesBeforeTheDefaults) {
  auto cluster = gigabit_star(8);
  const auto seconds = [&](const char* planner, std::int64_t count) {
    return predict_seconds(
        find_planner(planner).plan(make_request(Collective::all_reduce, 8, count), cluster), cluster);
  };
  const double small = seconds("one_hop", 1), large = seconds("ring", 16 << 20);
  cluster.processor.message = Nanoseconds{50'000};  // ten times the default
  EXPECT_GT(seconds("one_hop", 1), 5 * small);
  EXPECT_NEAR(seconds("ring", 16 << 20), large, 0.1 * large);
  cluster.processor = {};
  cluster.processor.copy = Bandwidth{0.5e9};  // half of what the links carry, one way alone
  // Seven messages' headers are copied, too.
  EXPECT_GT(seconds("one_hop", 1), small);
  EXPECT_LT(seconds("one_hop", 1), 1.2 * small);
  EXPECT_GT(seconds("ring", 16 << 20), 2 * large);
  EXPECT_EQ(parameters_for(cluster).reduce_per_byte, CostParameters{}.reduce_per_byte);
}

TEST(Cost, ABurstLetsShortMessagesHopFasterButLinksCarryNoMore) {
  auto cluster = gigabit_star(4);
  const auto seconds = [&](const char* planner, std::int64_t count) {
    return predict_seconds(
        find_planner(planner).plan(make_request(Collective::all_reduce, 4, count), cluster), cluster);
  };
  const double chain_before = seconds("chain", 1 << 10), long_before = seconds("star", 16 << 20);
  for (auto& link : cluster.links) link.burst = Bytes{256 << 10};
  EXPECT_LT(seconds("chain", 1 << 10), 0.8 * chain_before);
  EXPECT_NEAR(seconds("star", 16 << 20), long_before, 1e-3);
}

TEST(ChunkSizes, AreCacheLinesWithinBoundsOrTheWholeSlice) {
  const CostParameters bounds;
  for (const Planner& planner : planners()) {
    for (const Collective op : all_operations()) {
      for (const std::int64_t count : {0, 1, 1000, 1024, 1025, 100000, 10000000}) {
        const Request request = make_request(op, 4, count);
        if (!planner.serves(request)) continue;
        for (const Tree& tree : planner.plan(request, gigabit_star(4)).trees) {
          const std::int64_t bytes = tree.chunk * 4, slice = tree.slice.count * 4;
          EXPECT_LE(bytes, bounds.tcp.most_chunk_bytes);
          EXPECT_LE(tree.chunk, std::max<std::int64_t>(1, tree.slice.count));
          if (bytes >= slice) continue;
          // Equal chunks can be half the size that was aimed at.
          EXPECT_GE(bytes, bounds.least_chunk_bytes / 2) << describe(planner.name, request);
          EXPECT_EQ(bytes % 64, 0);
        }
      }
    }
  }
}

TEST(ChunkSizes, LongPathsTakeSmallerChunks) {
  const auto chunk = [](int ranks) {
    const Request request = make_request(Collective::broadcast, ranks, 1 << 20);
    return find_planner("chain").plan(request, gigabit_star(ranks)).trees[0].chunk;
  };
  EXPECT_LT(chunk(16), chunk(3));
}

TEST(ChunkSizes, AreNearTheBestOfAllForAPipeline) {
  const auto cluster = gigabit_star(8);
  const CostModel model(cluster);
  Forest forest = find_planner("chain").plan(make_request(Collective::broadcast, 8, 4 << 20), cluster);
  const double chosen = model.seconds(forest);
  for (std::int64_t bytes = 4 << 10; bytes <= 256 << 10; bytes *= 2) {
    forest.trees[0].chunk = bytes / 4;
    EXPECT_LT(chosen, model.seconds(forest) * 1.02) << bytes;
  }
}

}  // namespace
}  // namespace talweg::forest
