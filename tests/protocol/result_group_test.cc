// Results by multicast: who must have said what before they go that way, when they no longer do, and that
// sums stay right under whatever happens to them.
#include "protocol/aggregation/result_group.h"

#include <gmock/gmock.h>

#include <limits>

#include "protocol/aggregation/result_tally.h"
#include "protocol/aggregation_loss_world.h"

namespace talweg::protocol {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using wire::GroupWord;
using State = ResultGroup::State;
constexpr std::int64_t kNoProbe = std::numeric_limits<std::int64_t>::max();

TEST(ResultGroup, IsUsedOnceAllWorkersHaveHeardAProbe) {
  ResultGroup group(3);
  EXPECT_EQ(group.next_time_ns(), kNoProbe);
  group.says(0, GroupWord::heard, 5);  // of what has not been sent
  for (const std::size_t worker : {2U, 0U, 0U}) group.says(worker, GroupWord::joined, 7);
  EXPECT_EQ(group.state(), State::joining);
  EXPECT_FALSE(group.probe(8));
  group.says(1, GroupWord::joined, 9);
  EXPECT_EQ(group.state(), State::probing);
  EXPECT_EQ(group.next_time_ns(), 9);
  EXPECT_TRUE(group.probe(9));
  EXPECT_EQ(group.next_time_ns(), 9 + ResultGroup::kFirstNs);
  for (const std::size_t worker : {0U, 1U, 1U}) group.says(worker, GroupWord::heard, 10);
  EXPECT_FALSE(group.by_group());
  group.says(7, GroupWord::heard, 10);  // there is none
  EXPECT_FALSE(group.by_group());
  group.says(2, GroupWord::heard, 11);
  EXPECT_TRUE(group.by_group());
  EXPECT_EQ(group.next_time_ns(), kNoProbe);
  EXPECT_FALSE(group.probe(12));
}

TEST(ResultGroup, IsNotUsedWhereOneNeverHearsAnything) {
  ResultGroup group(4);
  for (std::size_t w = 0; w < 4; ++w) group.says(w, GroupWord::joined, 0);
  group.says(2, GroupWord::heard, 0);
  int probes = 0;
  std::int64_t now = 0, longest = 0;
  while (group.state() == State::probing) {
    longest = std::max(longest, group.next_time_ns() - now);
    now = group.next_time_ns();
    probes += group.probe(now) ? 1 : 0;
  }
  EXPECT_EQ(probes, ResultGroup::kProbes);
  EXPECT_EQ(longest, ResultGroup::kLongestNs);
  EXPECT_EQ(group.state(), State::off);
  EXPECT_FALSE(group.was_used());
  EXPECT_THAT(group.deaf(), ElementsAre(0, 1, 3));
  EXPECT_EQ(group.next_time_ns(), kNoProbe);
  for (std::size_t w = 0; w < 4; ++w) group.says(w, GroupWord::heard, now);
  EXPECT_FALSE(group.by_group()) << "it stays off";
}

TEST(ResultGroup, IsLeftForGoodWhenOneHasLostIt) {
  ResultGroup cannot_join(2);
  cannot_join.says(1, GroupWord::lost, 0);
  EXPECT_EQ(cannot_join.state(), State::off);
  EXPECT_FALSE(cannot_join.was_used());

  ResultGroup group(2);
  for (const GroupWord word : {GroupWord::joined, GroupWord::heard}) {
    for (std::size_t w = 0; w < 2; ++w) group.says(w, word, 0);
    group.probe(0);
  }
  ASSERT_TRUE(group.by_group());
  group.says(1, GroupWord::lost, 1);
  group.says(0, GroupWord::lost, 2);
  EXPECT_EQ(group.state(), State::off);
  EXPECT_TRUE(group.was_used());
  EXPECT_THAT(group.deaf(), ElementsAre(1)) << "who was the first";
}

TEST(ResultTally, CountsWhatWasSentToAllAndCameToUsAloneByNumbers) {
  ResultTally all_came, none_came, some_came, at_once;
  std::uint16_t number = 65'000;  // round and round
  for (std::uint32_t i = 0; i < 5000; ++i, ++number) {
    all_came.came(number, true);
    none_came.came(number, false);
    EXPECT_EQ(none_came.too_few(), i >= ResultTally::kMost) << i;
    some_came.came(number, i % 10 != 0);
  }
  EXPECT_FALSE(all_came.too_few());
  EXPECT_FALSE(some_came.too_few()) << "one in ten";
  // What is sent to one may overtake what was sent to all before: it comes yet.
  at_once.came(1, true);
  at_once.came(50, false);
  for (std::uint16_t n = 2; n < 60; ++n) at_once.came(n, true);
  at_once.came(40, false);
  at_once.came(110, false);
  EXPECT_FALSE(at_once.too_few());
  at_once.came(130, false);
  EXPECT_TRUE(at_once.too_few());
}

AggregationLossOptions by_multicast(std::uint64_t seed) {
  AggregationLossOptions o = AggregationLossWorld::drawn(seed);
  o.multicast = true;
  o.workers = static_cast<std::uint16_t>(2 + seed % 6);
  o.operations += 20;
  return o;
}

// Lost, repeated, late and overtaken, for all workers at once and for each.
TEST(ResultGroup, EverySumIsRightWhateverHappensToWhatIsSentByIt) {
  int used = 0, left = 0;
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    AggregationLossWorld world(by_multicast(seed));
    world.run();
    EXPECT_THAT(world.problems(), IsEmpty());
    used += world.counters().multicast > 0 ? 1 : 0;
    left += world.group().was_used() ? 1 : 0;
  }
  EXPECT_GT(used, 100);
  EXPECT_GT(left, 5) << "where three in ten are lost on each of two ways it does not pay";
}

// Of each format: that it is the same datagram for all workers shows in their bits.
TEST(ResultGroup, ServesEachFormatAlike) {
  using enum wire::AggregationFormat;
  for (const wire::AggregationFormat format : {f32, block8, block4})
    for (const bool tolerant : {false, true}) {
      AggregationLossOptions o = by_multicast(3);
      o.format = format;
      o.tolerant = tolerant;
      o.ppm = tolerant ? 100'000 : 0;
      o.loss = 0.01;
      o.burst = 0;
      AggregationLossWorld world(o);
      world.run();
      EXPECT_THAT(world.problems(), IsEmpty()) << wire::name(format);
      EXPECT_GT(world.counters().multicast, 0U);
    }
}

AggregationLossOptions quiet_sums() {
  AggregationLossOptions o;
  o.multicast = true;
  o.block = 32;
  o.count = 20'000;
  o.operations = 6;
  o.ppm = 0;
  o.residual = o.tolerant = false;
  return o;
}

TEST(ResultGroup, TakesOneCopyOfEachResultFromTheSwitchAndNothingElse) {
  AggregationLossOptions o = quiet_sums();
  o.multicast = false;
  AggregationLossWorld each(o);
  each.run();
  o.multicast = true;
  AggregationLossWorld once(o);
  once.run();
  EXPECT_THAT(once.problems(), IsEmpty());
  EXPECT_EQ(each.counters().rounds, once.counters().rounds);
  EXPECT_EQ(once.counters().repeated, 0U);
  EXPECT_GT(once.counters().multicast, each.counters().multicast);
  EXPECT_LT(once.result_bytes(), 1.2 * each.result_bytes() / o.workers);
}

TEST(ResultGroup, IsNotUsedWhereOneNeverJoins) {
  AggregationLossOptions o = quiet_sums();
  o.deaf_from = 0;
  AggregationLossWorld world(o);
  world.run();
  EXPECT_THAT(world.problems(), IsEmpty());
  EXPECT_EQ(world.group().state(), State::joining);
  EXPECT_EQ(world.counters().multicast, 0U);
}

// Worker 1 is cut off from the group in the third sum: it gets its results one by one until it has said so.
TEST(ResultGroup, IsLeftWhereOneHearsNothingAnyMore) {
  AggregationLossOptions o = quiet_sums();
  o.deaf_from = 3;
  AggregationLossWorld world(o);
  world.run();
  EXPECT_THAT(world.problems(), IsEmpty());
  EXPECT_EQ(world.group().state(), State::off);
  EXPECT_TRUE(world.group().was_used());
  EXPECT_THAT(world.group().deaf(), ElementsAre(1));
  EXPECT_GT(world.counters().multicast, 0U);
  EXPECT_LT(world.counters().repeated, world.counters().rounds / 4) << "the rest came to it unasked";
}

// Of a rate of results, what is sent once takes one part, and what is sent to each as many as there are.
TEST(ResultGroup, CountsOneCopyOfTheRateOfResults) {
  for (const bool multicast : {false, true}) {
    SCOPED_TRACE(multicast ? "once" : "to each");
    AggregationLossOptions o = quiet_sums();
    o.multicast = multicast;
    o.result_rate = 4e6;
    AggregationLossWorld world(o);
    world.run();
    EXPECT_THAT(world.problems(), IsEmpty());
    EXPECT_GT(world.counters().delayed, 0U);
    const double seconds = static_cast<double>(world.last_result_ns()) / 1e9;
    EXPECT_NEAR(world.result_bytes() / seconds, o.result_rate, 0.15 * o.result_rate);
    const double all = 80'000.0 * o.operations;  // bytes of its vectors
    EXPECT_GT(seconds, (multicast ? 0.9 : 3.6) * all / o.result_rate);
    EXPECT_LT(seconds, (multicast ? 1.7 : 6.8) * all / o.result_rate);
  }
}

}  // namespace
}  // namespace talweg::protocol
