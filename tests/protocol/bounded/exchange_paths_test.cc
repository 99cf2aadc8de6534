// Ranks that send each other shards in virtual time: what leaves when and how, and by several paths, of which
// some are slower, lossy or dead.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <vector>

#include "base/random.h"
#include "protocol/bounded/exchange.h"
#include "sanitized.h"
#include "talweg/error.h"

namespace talweg::protocol {
namespace {

constexpr std::size_t kAround = 76;

// One of several ways between any two ranks, each with a queue of its own for each two.
struct PathWay {
  std::int64_t delay_ns = 30'000;
  double rate = 1.25e8;
  double loss = 0;
  bool dead = false;
};

class PathWorld {
 public:
  PathWorld(int ranks, std::vector<PathWay> ways, double p, std::uint64_t seed, bool warm_up = false,
            ExchangeOptions options = {})
      : ways(std::move(ways)), random_(seed), bytes_(seed, 1), silent_(options.silent) {
    const auto ppm = static_cast<std::uint32_t>(p * kMillion);
    options.bounds = {ppm, ppm, ppm, 1};
    options.paths = this->ways.size();
    options.warm_up = warm_up;
    const std::vector<std::uint32_t> credits(static_cast<std::size_t>(ranks), 512U << 10);
    for (int r = 0; r < ranks; ++r) {
      outboxes_.push_back(std::make_unique<Outbox>(*this, r, ranks));
      this->ranks.push_back(std::make_unique<Exchange>(r, options, kAround, credits, *outboxes_.back()));
    }
  }

  // A call of shards of so many bytes each, of a new tensor or the `same` as before. False: what arrived is
  // not what was sent, but for what is missing.
  bool call(std::size_t bytes, bool same = false) {
    return call_shards(std::vector<std::uint64_t>(ranks.size(), bytes), same);
  }
  bool call_shards(const std::vector<std::uint64_t>& bytes, bool same = false) {
    const std::size_t n = ranks.size();
    const std::uint64_t all = std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0});
    std::vector<std::vector<std::byte>> data(n);
    const std::int64_t deadline = now + 60'000'000'000;
    const std::int64_t begun = now;
    for (std::size_t r = 0; r < n; ++r) {
      if (is_silent(r)) continue;
      data[r].resize(all);
      for (std::size_t i = 0; i < data[r].size(); i += 8) {
        const std::uint64_t word = bytes_.next();
        std::memcpy(&data[r][i], &word, std::min<std::size_t>(8, data[r].size() - i));
      }
    }
    if (!same)
      for (const auto& x : ranks) tensor_ = x->add(bytes, DataType::f32);
    for (std::size_t r = 0; r < n; ++r)
      ranks[r]->begin(tensor_, is_silent(r) ? nullptr : data[r].data(), classes, deadline, now);
    while (!done())
      if (!step()) return false;
    took_ns = now - begun;
    std::uint64_t at = 0;
    for (std::size_t to = 0; to < n; at += bytes[to++])
      for (std::size_t from = 0; from < n; ++from)
        if (from != to && !is_silent(from) && !is_sent(data[from].data() + at, from, to)) return false;
    return true;
  }
  std::uint64_t sum(std::uint64_t FlightCounters::*count) const {
    std::uint64_t all = 0;
    each_pair([&](const Exchange& x, int r) { all += x.flight(r).*count; });
    return all;
  }
  std::uint64_t rounds() const {  // of asking for what is missing
    std::uint64_t all = 0;
    each_pair([&](const Exchange& x, int r) { all += x.from(r).rounds; });
    return all;
  }
  std::size_t left() const {
    std::size_t all = 0;
    each_pair([&](const Exchange& x, int r) { all += x.paths(r).left(); });
    return all;
  }

  std::uint64_t times_left() const {
    std::uint64_t all = 0;
    each_pair([&](const Exchange& x, int r) { all += x.paths(r).times_left(); });
    return all;
  }

  std::vector<PathWay> ways;
  std::vector<std::unique_ptr<Exchange>> ranks;
  // A rank that does nothing for a while: what comes to it waits.
  int sleeper = -1;
  std::int64_t sleeps_ns = 0, wakes_ns = 0;
  std::int64_t now = 1'000'000, took_ns = 0;
  std::map<std::size_t, std::uint64_t> by_path;
  ExchangeClasses classes;                                 // of the next call
  std::function<bool(const wire::DatagramHeader&)> loses;  // one more reason
  std::function<void(int from, int to, const wire::DatagramHeader&)> on_sent;
  std::int64_t most_waiting_ns = 0;  // for its turn, of all since this was 0

 private:
  struct Carried {
    int from = 0, to = 0;
    wire::DatagramHeader header;
    std::vector<std::byte> payload;
  };
  struct Outbox : ExchangeOutbox {
    Outbox(PathWorld& in, int rank, int ranks)
        : world(in), self(rank), numbers(static_cast<std::size_t>(ranks)) {}
    bool has_room(int) override { return true; }
    std::uint64_t put(int rank, std::size_t path, wire::DatagramHeader& header,
                      const std::byte* payload) override {
      header.sender = static_cast<std::uint16_t>(self);
      header.number = numbers[static_cast<std::size_t>(rank)]++;
      world.carry({self, rank, header, {payload, payload + header.length}}, path);
      return header.number;
    }
    bool flush() override { return true; }
    PathWorld& world;
    const int self;
    std::vector<std::uint64_t> numbers;
  };

  bool is_silent(std::size_t rank) const { return std::ranges::count(silent_, static_cast<int>(rank)) > 0; }

  template <class Use>
  void each_pair(Use use) const {
    for (std::size_t r = 0; r < ranks.size(); ++r)
      for (int other = 0; other < static_cast<int>(ranks.size()); ++other)
        if (other != static_cast<int>(r)) use(*ranks[r], other);
  }
  void carry(Carried c, std::size_t path) {
    by_path[path] += c.payload.size() + kAround;
    if (on_sent) on_sent(c.from, c.to, c.header);
    const PathWay& way = ways.at(path);
    if (way.dead || random_.uniform() < way.loss || (loses && loses(c.header))) return;
    auto& busy_until = busy_until_[{c.from, c.to, path}];
    busy_until = std::max(busy_until, now) +
                 static_cast<std::int64_t>(static_cast<double>(c.payload.size() + kAround) / way.rate * 1e9);
    most_waiting_ns = std::max(most_waiting_ns, busy_until - now);
    on_the_way_.emplace(busy_until + way.delay_ns, std::move(c));
  }
  bool done() const {
    return std::ranges::all_of(ranks, [](const auto& x) { return x->received() && x->settled(); });
  }
  Exchange* awake(std::size_t r) const {
    return static_cast<int>(r) == sleeper && now >= sleeps_ns && now < wakes_ns ? nullptr : ranks[r].get();
  }
  bool step() {
    std::int64_t at = kNeverNs;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      Exchange* const x = awake(r);
      if (x) x->send(now);
      at = std::min(at, x ? x->next_time_ns(now) : wakes_ns);
    }
    if (!on_the_way_.empty()) at = std::min(at, on_the_way_.begin()->first);
    if (at == kNeverNs) return done();
    now = std::max(now + 1, at);
    for (; !on_the_way_.empty() && on_the_way_.begin()->first <= now;
         on_the_way_.erase(on_the_way_.begin())) {
      Carried& c = on_the_way_.begin()->second;
      if (Exchange* const x = awake(static_cast<std::size_t>(c.to)))
        x->on(c.from, c.header, c.payload, false, now, now);
      else
        on_the_way_.emplace(wakes_ns, std::move(c));
    }
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      Exchange* const x = awake(r);
      if (!x) continue;
      x->end_of_batch();
      x->on_time(now);
      if (x->failure()) {
        ADD_FAILURE() << x->failure()->text;
        return false;
      }
    }
    return true;
  }
  bool is_sent(const std::byte* shard, std::size_t from, std::size_t to) const {
    const Exchange& x = *ranks[to];
    const BoundedShape& shape = x.shape(static_cast<int>(to));
    const PacketSet& missing = x.missing(static_cast<int>(from));
    for (std::uint32_t i = 0; i < shape.packets(); ++i) {
      const std::size_t at = std::size_t{i} * shape.stride;
      if (!missing.has(i) &&
          std::memcmp(x.arrived(static_cast<int>(from)) + at, shard + at, shape.length(i)) != 0)
        return false;
    }
    return true;
  }

  Random random_, bytes_;
  const std::vector<int> silent_;
  std::vector<std::unique_ptr<Outbox>> outboxes_;
  std::map<std::tuple<int, int, std::size_t>, std::int64_t> busy_until_;
  std::multimap<std::int64_t, Carried> on_the_way_;
  std::size_t tensor_ = 0;
};

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
