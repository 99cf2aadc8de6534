// Packets of others in virtual time: what commodity switches do with priorities, marks and losses, seen by
// who brings packets and takes them.
#include "sim/carried_packets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>

#include "sim/shapes.h"

namespace talweg::sim {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::uint16_t kFull = 1500;
constexpr Picoseconds kTook = 12 * kMicrosecond;  // a full packet on a link of kGigabit

// Carried packets whose numbers and times are remembered.
struct Carrier {
  struct Got {
    std::uint64_t number;
    Picoseconds time;
    Picoseconds put;
    bool marked;
    bool damaged;
  };
  Carrier(const cluster::Cluster& cluster, const NetworkOptions& options, std::uint32_t most = 1 << 14)
      : numbers(most), times(most), carried(cluster, options, most, [this](const CarriedPackets::Arrival& a) {
          got.push_back({numbers[a.slot], a.time, times[a.slot], a.marked, a.damaged});
        }) {}
  bool put(std::uint64_t number, CarriedPackets::Packet packet, Picoseconds now) {
    const auto slot = carried.put(packet, now);
    if (!slot) return false;
    numbers[*slot] = number;
    times[*slot] = now;
    return true;
  }
  std::vector<std::uint64_t> order() const {
    std::vector<std::uint64_t> all;
    for (const Got& g : got) all.push_back(g.number);
    return all;
  }
  std::vector<std::uint64_t> numbers;
  std::vector<Picoseconds> times;
  std::vector<Got> got;
  CarriedPackets carried;
};

LossModel every_link(double LossModel::*what, double probability) {
  LossModel loss;
  loss.*what = probability;
  return loss;
}

TEST(CarriedPackets, ArriveAfterTheirLinksWithTheTimeAtWhichTheyDid) {
  Carrier c(star(2, kGigabit), {});
  ASSERT_TRUE(c.put(7, {.from = 0, .to = 1, .bytes = kFull}, kMicrosecond));
  EXPECT_EQ(c.carried.inside(), 1U);
  c.carried.advance(2 * kTook + 3 * kMicrosecond - 1);
  EXPECT_THAT(c.got, IsEmpty());
  EXPECT_EQ(c.carried.next(), 2 * kTook + 3 * kMicrosecond);
  c.carried.advance(kPicosecondsPerSecond);
  ASSERT_EQ(c.got.size(), 1U);
  EXPECT_EQ(c.got[0].time, 2 * kTook + 3 * kMicrosecond);
  EXPECT_EQ(c.got[0].number, 7U);
  EXPECT_EQ(c.carried.inside(), 0U);
  EXPECT_EQ(c.carried.next(), kNever);
}

TEST(CarriedPackets, TakeNoMoreThanThereAreSlotsUntilSomeArrive) {
  Carrier c(star(2, kGigabit), {}, 2);
  EXPECT_TRUE(c.put(0, {.from = 0, .to = 1, .bytes = kFull}, 0));
  EXPECT_TRUE(c.put(1, {.from = 0, .to = 1, .bytes = kFull}, 0));
  EXPECT_TRUE(c.carried.full());
  EXPECT_FALSE(c.put(2, {.from = 0, .to = 1, .bytes = kFull}, 0));
  c.carried.advance(2 * kTook + 2 * kMicrosecond);
  EXPECT_TRUE(c.put(3, {.from = 0, .to = 1, .bytes = kFull}, 0));  // a time that has passed counts as now
  c.carried.advance(kPicosecondsPerSecond);
  EXPECT_THAT(c.order(), ElementsAre(0, 1, 3));
  EXPECT_EQ(c.got[2].time, 4 * kTook + 4 * kMicrosecond);
}

TEST(CarriedPackets, KeepNoSlotOfWhatIsLostWhereverThatIs) {
  NetworkOptions options;
  options.switch_queue.limit_bytes = 2 * kFull;
  options.loss = every_link(&LossModel::loss, 0.1);
  options.loss.duplicate = 0.1;
  options.loss.burst_begins = 0.01;
  options.loss.burst_ends = 0.2;
  auto network = star(3, kGigabit);
  network.nodes.push_back({"alone", cluster::NodeKind::worker});
  std::swap(network.nodes[3], network.nodes[4]);  // workers come first
  for (cluster::Link& link : network.links) (link.from == 3 ? link.from : link.to) = 4;
  Carrier c(network, options);
  c.carried.schedule({{Nanoseconds{6'000'000}, {}, 2, true}, {Nanoseconds{3'000'000}, {}, 2, false}});
  for (std::uint64_t i = 0; i < 2000; ++i) {
    const Picoseconds now = static_cast<Picoseconds>(i) * 5 * kMicrosecond;
    ASSERT_TRUE(c.put(i, {.from = static_cast<int>(i % 2), .to = 2, .bytes = kFull}, now));
    ASSERT_TRUE(c.put(i, {.from = 2, .to = static_cast<int>(i % 2), .bytes = kFull}, now));
    ASSERT_TRUE(c.put(i, {.from = 0, .to = 3, .bytes = kFull}, now));  // there is no way
  }
  c.carried.advance(kPicosecondsPerSecond);
  EXPECT_EQ(c.carried.inside(), 0U);
  EXPECT_GT(c.carried.network().counters().unroutable, 1500U);
  EXPECT_GT(c.got.size(), 500U);
}

// Two hosts send to a third at its link's rate each: every tenth packet is urgent.
struct Urgent {
  std::size_t lost = 0;
  Picoseconds p99 = 0;
};
Urgent urgent_under_overload(int priorities) {
  NetworkOptions options;
  options.switch_queue.priorities = priorities;
  options.switch_queue.limit_bytes = 100 * kFull;
  Carrier c(star(3, kGigabit), options);
  for (std::uint64_t i = 0; i < 20'000; ++i) {
    const auto priority = static_cast<std::uint8_t>(i / 2 % 10 == 0 ? 1 : 4);
    c.put(i, {.from = static_cast<int>(i % 2), .to = 2, .bytes = kFull, .priority = priority},
          static_cast<Picoseconds>(i / 2) * kTook);
  }
  c.carried.advance(kPicosecondsPerSecond);
  std::vector<Picoseconds> took;
  for (const Carrier::Got& g : c.got)
    if (g.number / 2 % 10 == 0) took.push_back(g.time - g.put);
  std::ranges::sort(took);
  return {2000 - took.size(), took.at(took.size() * 99 / 100)};
}

TEST(CarriedPackets, OfAnUrgentClassLoseNothingUnderTwiceWhatALinkHoldsAndWaitLittle) {
  const Urgent fifo = urgent_under_overload(1);
  const Urgent first = urgent_under_overload(8);
  EXPECT_GT(fifo.lost, 500U);
  EXPECT_EQ(first.lost, 0U);
  EXPECT_LE(first.p99, fifo.p99 / 4);
}

TEST(CarriedPackets, ThatCannotBeMarkedAreDroppedFirst) {
  NetworkOptions options;
  options.switch_queue.limit_bytes = 200 * kFull;
  options.switch_queue.red = {
      .least_bytes = 10 * kFull, .most_bytes = 40 * kFull, .probability = 1, .marks = true};
  Carrier c(star(3, kGigabit), options);
  // 1.5 times what the link holds, of which two thirds may be dropped.
  std::array<std::size_t, 2> put{}, lost{};
  for (std::uint64_t i = 0; i < 30'000; ++i) {
    const bool markable = i % 3 == 0;
    c.put(i, {.from = static_cast<int>(i % 2), .to = 2, .bytes = kFull, .markable = markable},
          static_cast<Picoseconds>(i) * kTook * 2 / 3);
    ++put[markable ? 1 : 0];
  }
  c.carried.advance(kPicosecondsPerSecond);
  lost = put;
  std::size_t marked = 0;
  for (const Carrier::Got& g : c.got) {
    --lost[g.number % 3 == 0 ? 1 : 0];
    marked += g.marked ? 1 : 0;
    EXPECT_TRUE(!g.marked || g.number % 3 == 0) << g.number;
  }
  EXPECT_GT(lost[0], put[0] / 4);
  EXPECT_LT(lost[1] * put[0] * 20, lost[0] * put[1]);
  EXPECT_GT(marked, put[1] / 10);
}

TEST(CarriedPackets, AreMarkedWhereTheyFindMoreThanTheThreshold) {
  NetworkOptions options;
  options.switch_queue.mark_bytes = 2 * kFull;
  Carrier c(star(3, kGigabit), options);
  for (std::uint64_t i = 0; i < 12; ++i)
    c.put(i, {.from = static_cast<int>(i % 2), .to = 2, .bytes = kFull}, 0);
  c.carried.advance(kPicosecondsPerSecond);
  ASSERT_EQ(c.got.size(), 12U);
  EXPECT_FALSE(c.got.front().marked);
  EXPECT_TRUE(c.got.back().marked);
}

TEST(CarriedPackets, ArriveTwiceWhereTheyAreDoubled) {
  NetworkOptions options;
  options.loss = every_link(&LossModel::duplicate, 1);
  auto two = star(2, kGigabit);
  std::erase_if(two.links, [](const cluster::Link&) { return true; });
  two.links.push_back({0, 1, Bandwidth{1e9}, Nanoseconds{1000}});
  Carrier c(two, options, 4);
  for (std::uint64_t i = 0; i < 100; ++i)
    ASSERT_TRUE(c.put(i, {.from = 0, .to = 1, .bytes = kFull}, static_cast<Picoseconds>(i) * kTook));
  c.carried.advance(kPicosecondsPerSecond);
  ASSERT_EQ(c.got.size(), 200U);
  for (std::size_t i = 0; i < 200; ++i) EXPECT_EQ(c.got[i].number, i / 2);
}

TEST(CarriedPackets, AreDamagedAsOftenAsIsAsked) {
  NetworkOptions options;
  options.loss = every_link(&LossModel::damage, 0.1);
  Carrier c(star(2, kGigabit), options);
  for (std::uint64_t i = 0; i < 4000; ++i)
    c.put(i, {.from = 0, .to = 1, .bytes = kFull}, static_cast<Picoseconds>(i) * kTook);
  c.carried.advance(kPicosecondsPerSecond);
  ASSERT_EQ(c.got.size(), 4000U);
  EXPECT_NEAR(static_cast<double>(std::ranges::count_if(c.got, &Carrier::Got::damaged)), 760,
              80);  // 1 - 0.9^2
}

// With bursts, packets that are lost stand in fewer and longer runs than where each is lost by itself.
TEST(CarriedPackets, AreLostInBursts) {
  const auto runs_of = [](const LossModel& loss) {
    NetworkOptions options;
    options.loss = loss;
    Carrier c(star(2, kGigabit), options);
    for (std::uint64_t i = 0; i < 20'000; ++i)
      c.put(i, {.from = 0, .to = 1, .bytes = kFull}, static_cast<Picoseconds>(i) * kTook);
    c.carried.advance(kPicosecondsPerSecond);
    std::size_t runs = 0;
    for (std::size_t i = 1; i < c.got.size(); ++i) runs += c.got[i].number > c.got[i - 1].number + 1 ? 1 : 0;
    return static_cast<double>(20'000 - c.got.size()) / static_cast<double>(runs);
  };
  LossModel bursts;
  bursts.burst_begins = 0.005;
  bursts.burst_ends = 0.1;
  EXPECT_NEAR(runs_of(bursts), 10, 2.5);
  EXPECT_NEAR(runs_of(every_link(&LossModel::loss, 0.05)), 1.1, 0.1);
}

TEST(CarriedPackets, OfOneFlowKeepTheirOrderAndToOneOfEqualPaths) {
  const auto network = leaf_spine(2, 2, 4, kGigabit, kGigabit);
  Carrier c(network, {});
  std::set<int> spines;
  for (std::uint64_t i = 0; i < 6400; ++i) {
    const auto flow = static_cast<std::uint32_t>(i % 64);
    c.put(i, {.from = 0, .to = 3, .bytes = kFull, .spread = flow * 2'654'435'761U},
          static_cast<Picoseconds>(i) * kMicrosecond);
  }
  c.carried.advance(kPicosecondsPerSecond);
  ASSERT_EQ(c.got.size(), 6400U);
  std::array<std::uint64_t, 64> next{};
  for (const Carrier::Got& g : c.got) {
    EXPECT_GE(g.number, next[g.number % 64]);
    next[g.number % 64] = g.number;
  }
  for (std::size_t l = 0; l < network.links.size(); ++l)
    if (network.links[l].to >= network.workers() &&
        c.carried.network().counters(static_cast<int>(l)).packets > 0)
      spines.insert(network.links[l].to);
  EXPECT_EQ(spines.size(), 6U);  // two leaves and all spines
  // A single flow: one of them.
  Carrier one(network, {});
  for (std::uint64_t i = 0; i < 100; ++i) one.put(i, {.from = 0, .to = 3, .bytes = kFull, .spread = 99}, 0);
  one.carried.advance(kPicosecondsPerSecond);
  std::size_t links = 0;
  for (std::size_t l = 0; l < network.links.size(); ++l)
    links += one.carried.network().counters(static_cast<int>(l)).packets > 0 ? 1 : 0;
  EXPECT_EQ(links, 4U);
}

TEST(CarriedPackets, ComeToTheSameForASeed) {
  const auto numbers_of = [](std::uint64_t seed) {
    NetworkOptions options;
    options.seed = seed;
    options.loss = every_link(&LossModel::loss, 0.2);
    Carrier c(star(2, kGigabit), options);
    for (std::uint64_t i = 0; i < 100; ++i) c.put(i, {.from = 0, .to = 1, .bytes = kFull}, 0);
    c.carried.advance(kPicosecondsPerSecond);
    return c.order();
  };
  EXPECT_EQ(numbers_of(1), numbers_of(1));
  EXPECT_NE(numbers_of(1), numbers_of(2));
}

}  // namespace
}  // namespace talweg::sim
