// Ranks that send each other shards in virtual time: what leaves when and how, and by several paths, of which
// some are slower, lossy or dead.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "base/random.h"
#include "protocol/bounded/path_world.h"
#include "sanitized.h"
#include "talweg/error.h"

namespace talweg::protocol {
namespace {

std::vector<PathWay> even_ways(std::size_t n) {
  return std::vector<PathWay>(n);
}

TEST(ExchangePaths, EqualOnesGetEqualSharesAndCarryMore) {
  PathWorld one(3, even_ways(1), 0.01, 1), four(3, even_ways(4), 0.01, 1);
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(one.call(1'000'000));
    ASSERT_TRUE(four.call(1'000'000));
  }
  EXPECT_LT(2 * four.took_ns, one.took_ns);
  std::uint64_t least = UINT64_MAX, most = 0;
  for (const auto& [path, bytes] : four.by_path) {
    least = std::min(least, bytes);
    most = std::max(most, bytes);
  }
  EXPECT_LE(static_cast<double>(most), 1.1 * static_cast<double>(least));
}

TEST(ExchangePaths, WhatIsOnlyLateIsNotAskedFor) {
  for (const std::int64_t longer_ns : {100'000, 400'000, 1'500'000}) {
    PathWorld world(3, even_ways(4), 0, 3);
    for (std::size_t w = 0; w < 4; ++w)
      world.ways[w].delay_ns += longer_ns * static_cast<std::int64_t>(w) / 3;
    ASSERT_TRUE(world.call(500'000));  // in which ranks see how late packets come
    const std::uint64_t before = world.rounds();
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(world.call(500'000));
    EXPECT_EQ(world.rounds(), before) << longer_ns;
    EXPECT_EQ(world.sum(&FlightCounters::lost), 0U) << longer_ns;
    EXPECT_EQ(world.sum(&FlightCounters::arrived_after_all), 0U) << longer_ns;
    EXPECT_EQ(world.sum(&FlightCounters::timeouts), 0U) << longer_ns;
  }
}

TEST(ExchangePaths, ADeadOneIsLeft) {
  PathWorld world(3, even_ways(4), 0.001, 5);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(world.call(1'000'000));
  const std::int64_t took = world.took_ns;
  world.ways[1].dead = true;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(world.call(1'000'000));
  EXPECT_EQ(world.left(), 6U) << "each rank has left it to each other one";
  const std::uint64_t by_it = world.by_path[1], by_other = world.by_path[2];
  const std::uint64_t trials = world.sum(&FlightCounters::trials);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(world.call(1'000'000));
  EXPECT_LT(2 * world.took_ns, 4 * took);
  EXPECT_LT((world.by_path[1] - by_it) * 50, world.by_path[2] - by_other);
  EXPECT_GT(world.sum(&FlightCounters::trials), trials);
  world.ways[1].dead = false;
  for (int i = 0; i < 30; ++i) ASSERT_TRUE(world.call(1'000'000));
  EXPECT_EQ(world.left(), 0U);
}

// With pauses between the calls: what others answer in one tells of what was tried in the call before.
TEST(ExchangePaths, ADeadOneIsLeftByCallsOfOnePacketToo) {
  for (const std::size_t dead : {0U, 1U}) {
    PathWorld world(2, even_ways(4), 0, 5);
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(world.call(1000, i > 0));
    const std::uint64_t timeouts = world.sum(&FlightCounters::timeouts);
    world.ways[dead].dead = true;
    for (int i = 0; i < 30; ++i) {
      ASSERT_TRUE(world.call(1000, true));
      world.now += 50'000'000;
    }
    EXPECT_EQ(world.left(), 2U) << dead;
    EXPECT_LT(world.sum(&FlightCounters::timeouts), timeouts + 5)
        << "a trial without an answer is no timeout";
  }
}

// All paths answer nothing then: that says nothing of one of them.
TEST(ExchangePaths, NoneIsLeftBecauseARankPauses) {
  for (const std::int64_t pause_ns : {8'000'000L, 100'000'000L, 3'000'000'000L}) {
    PathWorld world(3, even_ways(4), 0.001, 5);
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(world.call(1'000'000));
    const std::int64_t took_ns = world.took_ns;
    const std::uint64_t before = world.times_left();
    world.sleeper = 1;
    for (int i = 0; i < 3; ++i) {
      world.sleeps_ns = world.now + took_ns / 3;
      world.wakes_ns = world.sleeps_ns + pause_ns;
      ASSERT_TRUE(world.call(1'000'000));
    }
    EXPECT_GT(world.sum(&FlightCounters::timeouts), 0U) << pause_ns;
    EXPECT_EQ(world.times_left(), before) << pause_ns;
  }
}

TEST(ExchangePaths, OneThatWasDeadFromTheBeginningStopsNobody) {
  for (const std::size_t dead : {0U, 2U}) {
    PathWorld world(2, even_ways(3), 0.01, 5);
    world.ways[dead].dead = true;
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(world.call(300'000)) << dead;
    EXPECT_LT(world.by_path[dead] * 20, world.by_path[1]) << dead;
  }
}

bool is_data(const wire::DatagramHeader& header) {
  return header.type == static_cast<std::uint8_t>(wire::BoundedType::data);
}

TEST(Exchange, PacketsAreDroppableOnlyWhereSomeMayBeMissing) {
  std::uint64_t droppable = 0;
  const auto droppable_in = [&](PathWorld& world, bool same = false) {
    droppable = 0;
    world.classes.droppable = 0.5;
    world.on_sent = [&](int, int, const wire::DatagramHeader& header) {
      if (is_data(header) && (header.service & wire::kDroppable) != 0) ++droppable;
    };
    EXPECT_TRUE(world.call(40'000, same));
    EXPECT_EQ(world.ranks[0]->important(1) != nullptr, droppable > 0);
    return droppable;
  };
  PathWorld may_lose(2, even_ways(1), 0.1, 1), nothing(2, even_ways(1), 0, 1);
  EXPECT_GT(droppable_in(may_lose), 0U);
  EXPECT_EQ(droppable_in(nothing), 0U);
  PathWorld later(2, even_ways(1), 0.1, 1, true);
  for (std::size_t i = 0; i < AdaptiveDeadline::kWarmUp; ++i) {
    EXPECT_EQ(droppable_in(later, i > 0), 0U) << i;
    EXPECT_TRUE(later.ranks[0]->exact());
  }
  EXPECT_GT(droppable_in(later, true), 0U);
}

TEST(Exchange, WaitsForTheRestAPartOfACallThatDoublesWhileMuchIsLost) {
  ExchangeOptions options;
  options.times.gap_ns = 1'000'000'000;  // what ends a call with losses is the linger
  PathWorld world(2, {{.delay_ns = 10'000'000}}, 0.2, 1, true, options);
  constexpr std::size_t kPacket = 1368;
  for (std::size_t i = 0; i < AdaptiveDeadline::kWarmUp; ++i) ASSERT_TRUE(world.call(10 * kPacket, i > 0));
  const std::int64_t exact_ns = world.took_ns;
  world.loses = [](const wire::DatagramHeader& header) { return is_data(header) && header.number % 10 == 0; };
  ASSERT_TRUE(world.call(10 * kPacket, true));
  for (int i = 0; i < 2; ++i) {
    const std::int64_t before_ns = world.took_ns;
    ASSERT_TRUE(world.call(10 * kPacket, true));
    EXPECT_GT(world.took_ns - before_ns, exact_ns / 20);
    EXPECT_LT(world.took_ns - before_ns, exact_ns / 5);
  }
  EXPECT_EQ(world.ranks[0]->from(1).at_linger, 3U);
}

// Rank 2 measures nonsense: all wait as they would without it. Where most ranks take longer, all wait longer,
// the quick one too.
TEST(Exchange, WaitsAsLongAsTheMedianOfAllRanksSays) {
  constexpr std::size_t kPacket = 1368;
  const auto waited_ns = [](const std::function<void(std::vector<MeasuredTransfer>&)>& change) {
    ExchangeOptions options;
    options.times.gap_ns = 1'000'000'000;  // what ends a call with losses is the linger
    PathWorld world(3, {{.delay_ns = 10'000'000}}, 0.2, 1, true, options);
    world.on_told = change;
    for (std::size_t i = 0; i < AdaptiveDeadline::kWarmUp; ++i) EXPECT_TRUE(world.call(10 * kPacket, i > 0));
    const std::int64_t exact_ns = world.took_ns;
    world.loses = [](const wire::DatagramHeader& header) {
      return is_data(header) && header.number % 10 == 0;
    };
    EXPECT_TRUE(world.call(10 * kPacket, true));
    EXPECT_EQ(world.ranks[0]->from(1).at_linger, 1U);
    return world.took_ns - exact_ns;
  };
  const std::int64_t alike_ns = waited_ns({});
  for (const std::uint64_t wild : {std::uint64_t{0}, std::uint64_t{1}, ~std::uint64_t{0}})
    EXPECT_EQ(waited_ns([wild](auto& told) { told[2].took_ns = wild; }), alike_ns) << wild;
  const std::int64_t longer_ns = waited_ns([](auto& told) {
    for (MeasuredTransfer& its : std::span(told).last(2)) its.took_ns *= 4;
  });
  EXPECT_GT(longer_ns, 2 * alike_ns);
}

TEST(Exchange, TellsOfATransferUntilTheNextOneOfItsTensorBegins) {
  PathWorld world(3, even_ways(1), 0.1, 1, true);
  std::vector<MeasuredTransfer> told;
  world.on_told = [&told](std::vector<MeasuredTransfer>& all) { told = all; };
  ASSERT_TRUE(world.call_shards({4'000, 0, 8'000}));
  EXPECT_EQ(told, std::vector<MeasuredTransfer>(3)) << "nothing before the first one";
  ASSERT_TRUE(world.call_shards({4'000, 0, 8'000}, true));
  EXPECT_GT(told[0].took_ns, 0U);
  EXPECT_EQ(told[1].took_ns, 0U) << "it is sent nothing";
  EXPECT_GT(told[2].took_ns, 0U);
  const MeasuredTransfer last = world.ranks[0]->last_transfer(0);
  ASSERT_TRUE(world.call(9'000));
  EXPECT_EQ(world.ranks[0]->last_transfer(0), last) << "of another tensor";
}

TEST(Exchange, WhatIsForgottenLeavesTheOthersAsTheyAre) {
  PathWorld world(3, even_ways(1), 0.01, 1);
  for (const std::size_t bytes : {4'000U, 8'000U, 12'000U}) ASSERT_TRUE(world.call(bytes));
  for (const auto& rank : world.ranks) {
    EXPECT_THROW(rank->forget(2), Error);
    rank->forget(0);
  }
  ASSERT_TRUE(world.call(12'000, true));
  ASSERT_TRUE(world.call(4'000));
}

TEST(Exchange, RoomInQueuesIsSharedByAllThatAreSentTo) {
  ExchangeOptions options;
  options.queue_bytes = 90e3;
  options.most_queue_bytes = 1e6;
  options.rate.queue_ns = 1;  // so that bytes decide
  PathWorld world(4, even_ways(1), 0, 1, false, options);
  ASSERT_TRUE(world.call(600'000));
  world.most_waiting_ns = 0;
  ASSERT_TRUE(world.call(600'000));
  const double most_bytes = static_cast<double>(world.most_waiting_ns) * 1e-9 * world.ways[0].rate;
  EXPECT_GT(most_bytes, 20e3);
  EXPECT_LT(most_bytes, 60e3) << "30 kB, and what leaves at once";
}

// However few ranks sum, all others send to each of them: it is among all others that its queue is shared.
TEST(Exchange, RoomInAServersQueueIsSharedByAllThatSendToIt) {
  ExchangeOptions options;
  options.queue_bytes = 90e3;
  options.most_queue_bytes = 1e6;
  options.rate.queue_ns = 1;
  PathWorld world(4, even_ways(1), 0, 1, false, options);
  const std::vector<std::uint64_t> shards{0, 0, 600'000, 0};
  ASSERT_TRUE(world.call_shards(shards));
  world.most_waiting_ns = 0;
  std::uint64_t data = 0;
  world.on_sent = [&](int, int to, const wire::DatagramHeader& header) {
    if (!is_data(header)) return;
    ++data;
    EXPECT_EQ(to, 2);
  };
  ASSERT_TRUE(world.call_shards(shards));
  EXPECT_GE(data, 3U * 600'000 / 1368);
  const double most_bytes = static_cast<double>(world.most_waiting_ns) * 1e-9 * world.ways[0].rate;
  EXPECT_LT(most_bytes, 60e3) << "30 kB, and what leaves at once";
}

TEST(Exchange, EachRankBeginsWithTheOneBehindIt) {
  PathWorld world(5, even_ways(1), 0, 1);
  for (int call = 0; call < 2; ++call) {
    std::map<int, int> first;
    world.on_sent = [&](int from, int to, const wire::DatagramHeader& header) {
      if (is_data(header)) first.emplace(from, to);
    };
    ASSERT_TRUE(world.call(100'000));
    for (int r = 0; r < 5; ++r) EXPECT_EQ(first.at(r), (r + 1) % 5);
  }
}

// Whatever the ways are like: what is not missing is right, and no more is missing than may be.
TEST(ExchangePaths, EveryCallEndsAsItMayForManySeeds) {
  std::uint64_t lost = 0, trials = 0, rounds = 0;
  std::size_t left = 0;
  for (std::uint64_t seed = 1; seed <= (kSanitized ? 20 : 120); ++seed) {
    Random random(seed, 4);
    std::vector<PathWay> ways(1 + random.below(6));
    for (PathWay& way : ways) {
      way.delay_ns = static_cast<std::int64_t>(1000U << random.below(11));
      if (random.below(3) == 0) way.loss = random.uniform() * 0.3;
      if (random.below(3) == 0) way.rate = 1e6 * static_cast<double>(4U << random.below(6));
    }
    const double p = random.below(3) == 0 ? 0 : random.uniform() * 0.05;
    const int ranks = 2 + static_cast<int>(random.below(3));
    // Of four seeds two have all ranks sum, one some, and one some that add nothing.
    std::vector<int> servers;
    for (int r = 0; r < ranks - 1 && seed % 4 > 1; ++r)
      if (r == 0 || random.below(2) == 0) servers.push_back(r);
    ExchangeOptions options;
    if (seed % 4 == 2) options.silent = servers;
    PathWorld world(ranks, ways, p, seed, false, options);
    for (int call = 0; call < 4; ++call) {
      // Who sums and sends nothing does not hear which of its paths are dead: its answers would take any.
      if (ways.size() > 1 && servers.empty())
        world.ways[random.below(ways.size())].dead = random.below(2) == 0;
      if (std::ranges::all_of(world.ways, &PathWay::dead)) world.ways[0].dead = false;
      std::vector<std::uint64_t> shards;
      for (const std::size_t elements :
           bounded_parts(1 + random.below(200'000), static_cast<std::size_t>(ranks), servers))
        shards.push_back(4 * elements);
      ASSERT_TRUE(world.call_shards(shards)) << "seed " << seed;
      for (int to = 0; to < static_cast<int>(world.ranks.size()); ++to)
        for (int from = 0; from < static_cast<int>(world.ranks.size()); ++from) {
          if (from == to) continue;
          EXPECT_LE(static_cast<double>(world.ranks[static_cast<std::size_t>(to)]->missing_bytes(from)),
                    p * static_cast<double>(shards[static_cast<std::size_t>(to)]) + 1)
              << "seed " << seed;
        }
    }
    lost += world.sum(&FlightCounters::lost);
    trials += world.sum(&FlightCounters::trials);
    rounds += world.rounds();
    left += world.left();
  }
  EXPECT_GT(lost, 0U);
  EXPECT_GT(trials, 0U);
  EXPECT_GT(rounds, 0U);
  EXPECT_GT(left, 0U);
}

}  // namespace
}  // namespace talweg::protocol
