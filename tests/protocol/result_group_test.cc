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

constexpr ResultGroupTimes kUsual;

wire::SwitchHears heard(std::uint32_t attempt) {
  return {GroupWord::heard, attempt};
}
wire::SwitchHears lost(std::uint32_t attempt) {
  return {GroupWord::lost, attempt, 300, 1024};
}

TEST(ResultGroup, IsUsedOnceAllWorkersHaveHeardAProbe) {
  ResultGroup group(3, 2);
  EXPECT_EQ(group.next_time_ns(), 2 + kUsual.join_ns);
  group.says(0, heard(0), 5);  // of what has not been sent
  for (const std::size_t worker : {2U, 0U, 0U}) group.says(worker, {GroupWord::joined}, 7);
  EXPECT_EQ(group.state(), State::joining);
  EXPECT_FALSE(group.probe(8));
  group.says(1, {GroupWord::joined}, 9);
  EXPECT_EQ(group.state(), State::probing);
  EXPECT_EQ(group.next_time_ns(), 9);
  EXPECT_TRUE(group.probe(9));
  EXPECT_EQ(group.attempt(), 1U);
  EXPECT_EQ(group.next_time_ns(), 9 + kUsual.probe_ns);
  for (const std::size_t worker : {0U, 1U, 1U}) group.says(worker, heard(1), 10);
  EXPECT_FALSE(group.by_group());
  group.says(7, heard(1), 10);  // there is none
  group.says(2, heard(2), 10);  // nor a probe of that attempt
  EXPECT_FALSE(group.by_group());
  group.says(2, heard(1), 11);
  EXPECT_TRUE(group.by_group());
  EXPECT_EQ(group.next_time_ns(), kNoProbe);
  EXPECT_FALSE(group.probe(12));
}

// All probes of this attempt; when it is over.
std::int64_t probe_in_vain(ResultGroup& group) {
  int probes = 0;
  std::int64_t now = group.next_time_ns(), longest = 0;
  for (const std::uint32_t attempt = group.attempt() + (group.state() == State::probing ? 0 : 1);;) {
    const bool sent = group.probe(now);
    EXPECT_EQ(group.attempt(), attempt);
    if (!sent) break;
    ++probes;
    longest = std::max(longest, group.next_time_ns() - now);
    now = group.next_time_ns();
  }
  EXPECT_EQ(probes, ResultGroup::kProbes);
  EXPECT_EQ(longest, kUsual.longest_probe_ns);
  EXPECT_EQ(group.state(), State::off);
  return now;
}

TEST(ResultGroup, RestsWhereOneNeverHearsAnythingAndIsTriedAgain) {
  ResultGroup group(4, 0);
  for (std::size_t w = 0; w < 4; ++w) group.says(w, {GroupWord::joined}, 0);
  group.says(2, heard(1), 0);
  std::int64_t now = probe_in_vain(group);
  EXPECT_FALSE(group.was_used());
  EXPECT_EQ(group.why(), ResultGroup::Why::not_heard);
  EXPECT_THAT(group.deaf(), ElementsAre(0, 1, 3));
  // Twice as long each time, up to the longest.
  for (std::int64_t rest = kUsual.rest_ns, i = 0; i < 8;
       ++i, rest = std::min(2 * rest, kUsual.longest_rest_ns)) {
    EXPECT_EQ(group.next_time_ns(), now + rest) << i;
    EXPECT_FALSE(group.probe(now + rest - 1));
    now = probe_in_vain(group);
    EXPECT_THAT(group.deaf(), ElementsAre(0, 1, 2, 3)) << "what was heard before says nothing";
  }
  EXPECT_TRUE(group.probe(group.next_time_ns()));
  for (std::size_t w = 0; w < 4; ++w) group.says(w, heard(group.attempt()), now);
  EXPECT_TRUE(group.by_group());
}

TEST(ResultGroup, WhoSaysLateThatAProbeHasComeIsHeard) {
  ResultGroup group(3, 0);
  for (std::size_t w = 0; w < 3; ++w) group.says(w, {GroupWord::joined}, 0);
  group.says(2, heard(1), 0);
  const std::int64_t now = probe_in_vain(group);
  group.says(1, heard(1), now);
  EXPECT_EQ(group.state(), State::off);
  EXPECT_THAT(group.deaf(), ElementsAre(0));
  EXPECT_EQ(group.next_time_ns(), now + kUsual.rest_ns) << "it rests";
  group.says(0, heard(0), now);
  EXPECT_FALSE(group.by_group()) << "that was no probe of this attempt";
  group.says(0, heard(1), now);
  EXPECT_TRUE(group.by_group());
  EXPECT_EQ(group.next_time_ns(), kNoProbe);
  // Of what was lost all had heard before.
  group.says(1, lost(1), now);
  for (std::size_t w = 0; w < 3; ++w) group.says(w, heard(1), now);
  EXPECT_EQ(group.state(), State::off);
  EXPECT_THAT(group.deaf(), ElementsAre(1));
}

TEST(ResultGroup, IsOffForGoodWhereAHostDoesNotJoinIt) {
  for (const bool at_first : {true, false}) {
    ResultGroup group(3, 0);
    for (const std::size_t w : {0U, 1U}) group.says(w, {GroupWord::joined}, 0);
    if (!at_first) {
      group.says(2, {GroupWord::joined}, 0);
      group.probe(0);
    }
    group.says(2, {GroupWord::cannot, 0, 0, 0, "no such device"}, 1);
    EXPECT_EQ(group.state(), State::off);
    EXPECT_EQ(group.why(), ResultGroup::Why::cannot);
    EXPECT_THAT(group.deaf(), ElementsAre(2));
    EXPECT_EQ(group.word().why, "no such device");
    EXPECT_FALSE(group.was_used());
    EXPECT_EQ(group.next_time_ns(), kNoProbe) << "nobody waits for it";
    for (std::size_t w = 0; w < 3; ++w) group.says(w, {GroupWord::joined}, 2);
    for (std::size_t w = 0; w < 3; ++w) group.says(w, heard(1), 2);
    EXPECT_EQ(group.state(), State::off);
  }
}

TEST(ResultGroup, DoesNotWaitForEverForWhoNeverSaysThatItHasJoined) {
  ResultGroup group(4, 5);
  group.says(0, {GroupWord::joined}, 6);
  group.says(2, {GroupWord::joined}, 6);
  EXPECT_FALSE(group.probe(5 + kUsual.join_ns - 1));
  EXPECT_EQ(group.state(), State::joining);
  EXPECT_FALSE(group.probe(5 + kUsual.join_ns));
  EXPECT_EQ(group.state(), State::off);
  EXPECT_EQ(group.why(), ResultGroup::Why::not_joined);
  EXPECT_THAT(group.deaf(), ElementsAre(1, 3));
  EXPECT_EQ(group.next_time_ns(), kNoProbe);
  // It may have had no sum so far.
  group.says(3, {GroupWord::joined}, 7 + kUsual.join_ns);
  EXPECT_EQ(group.state(), State::off);
  group.says(1, {GroupWord::joined}, 8 + kUsual.join_ns);
  EXPECT_EQ(group.state(), State::probing);
  EXPECT_TRUE(group.probe(8 + kUsual.join_ns));
}

TEST(ResultGroup, IsLeftWhenOneHasLostItAndTriedAgain) {
  ResultGroup group(2, 0);
  for (std::size_t w = 0; w < 2; ++w) group.says(w, {GroupWord::joined}, 0);
  std::int64_t now = 0;
  const auto use = [&] {
    ASSERT_TRUE(group.probe(now));
    for (std::size_t w = 0; w < 2; ++w) group.says(w, heard(group.attempt()), now);
    ASSERT_TRUE(group.by_group());
  };
  // Of rests, the second one is longer, and the third one of a group that has served for long is not.
  for (const std::int64_t served : {std::int64_t{1}, std::int64_t{1}, kUsual.longest_rest_ns + 1}) {
    use();
    const std::uint32_t attempt = group.attempt();
    group.says(0, lost(attempt - 1), now);
    EXPECT_TRUE(group.by_group()) << "that was the one before";
    now += served;
    group.says(1, lost(attempt), now);
    group.says(0, lost(attempt), now);
    EXPECT_EQ(group.state(), State::off);
    EXPECT_EQ(group.why(), ResultGroup::Why::lost);
    EXPECT_THAT(group.deaf(), ElementsAre(1)) << "who was the first";
    EXPECT_EQ(group.word().missing, 300U);
    EXPECT_EQ(group.word().of, 1024U);
    EXPECT_TRUE(group.was_used());
    EXPECT_EQ(group.next_time_ns(), now + kUsual.rest_ns * (attempt == 2 ? 2 : 1));
    now = group.next_time_ns();
  }
  use();
}

TEST(ResultTally, CountsWhatWasSentToAllAndCameToUsAloneByNumbers) {
  ResultTally all_came, none_came, some_came, at_once;
  std::uint16_t number = 65'000;  // round and round
  for (std::uint32_t i = 0; i < 5000; ++i, ++number) {
    all_came.came(number, true);
    none_came.came(number, false);
    EXPECT_EQ(none_came.too_few(), i + 1 >= 2 * ResultTally::kOf) << i;
    some_came.came(number, i % 10 != 0);
  }
  EXPECT_EQ(none_came.missing(), none_came.of());
  EXPECT_FALSE(all_came.too_few());
  EXPECT_FALSE(some_came.too_few()) << "one in ten";
  EXPECT_EQ(some_came.of(), 0U);
  // What is sent to one may overtake what was sent to all before: it comes yet.
  for (std::uint16_t n = 1; n <= 2000; n = static_cast<std::uint16_t>(n + 50)) {
    at_once.came(n, true);
    at_once.came(static_cast<std::uint16_t>(n + 49), false);
    for (std::uint16_t i = 1; i < 49; ++i) at_once.came(static_cast<std::uint16_t>(n + i), true);
  }
  EXPECT_FALSE(at_once.too_few());
}

// A host that stops for a moment gets none of a window, once. What is lost for long shows in the next one.
TEST(ResultTally, OneStallIsNotTooFew) {
  for (const std::uint32_t stall : {ResultTally::kMost + 1, ResultTally::kOf}) {
    ResultTally tally;
    std::uint16_t number = 1;
    const auto window = [&](std::uint32_t missing) {
      for (std::uint32_t i = 0; i < ResultTally::kOf; ++i, ++number) tally.came(number, i >= missing);
    };
    for (int times = 0; times < 5; ++times) {
      window(stall);
      EXPECT_FALSE(tally.too_few());
      window(ResultTally::kMost);
    }
    window(stall);
    window(stall);
    EXPECT_TRUE(tally.too_few());
    EXPECT_EQ(tally.missing(), 2 * stall);
    EXPECT_EQ(tally.of(), 2 * ResultTally::kOf);
  }
}

// Sent to all, and come by another way: as long as nothing goes to the group, or somebody brings some.
TEST(ResultTally, WhatComesOtherwiseHasNeitherComeNorIsItMissing) {
  ResultTally not_sent, brought, all_brought, lost_otherwise;
  std::uint16_t number = 65'000;
  for (std::uint32_t i = 0; i < 5000; ++i, ++number) {
    // One in fifty is lost, and sent again to us alone.
    if (i % 50 != 7) not_sent.came_otherwise(number);
    if (i % 50 == 9) not_sent.came(static_cast<std::uint16_t>(number - 2), false);
    EXPECT_FALSE(not_sent.too_few()) << i;
    all_brought.came_otherwise(number);
    // Of every ten one is brought, and nine are lost.
    if (i % 10 == 0)
      brought.came_otherwise(number);
    else
      brought.came(number, false);
    EXPECT_EQ(brought.too_few(), brought.of() >= 2 * ResultTally::kOf) << i;
    if (i % 10 == 0) lost_otherwise.came_otherwise(number);
  }
  EXPECT_FALSE(all_brought.too_few());
  EXPECT_TRUE(brought.too_few());
  EXPECT_TRUE(lost_otherwise.too_few());
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
  o.times.join_ns = 300'000;
  AggregationLossWorld world(o);
  world.run();
  EXPECT_THAT(world.problems(), IsEmpty());
  EXPECT_EQ(world.group().state(), State::off);
  EXPECT_EQ(world.group().why(), ResultGroup::Why::not_joined);
  EXPECT_THAT(world.group().deaf(), ElementsAre(1));
  EXPECT_EQ(world.counters().multicast, 0U);
}

// Worker 1 is cut off from the group in the third sum: it gets its results one by one until it has said so.
TEST(ResultGroup, IsLeftWhereOneHearsNothingAnyMore) {
  AggregationLossOptions o = quiet_sums();
  o.operations = 60;
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

// Whoever brings worker 1 some of what was sent to the group does not bring the rest.
TEST(ResultGroup, IsLeftWhereOneHearsNothingAndIsBroughtSomeByItsOwnAddress) {
  AggregationLossOptions o = quiet_sums();
  o.operations = 60;
  o.deaf_from = 3;
  o.brought = 0.1;
  AggregationLossWorld world(o);
  world.run();
  EXPECT_THAT(world.problems(), IsEmpty());
  EXPECT_EQ(world.group().state(), State::off);
  EXPECT_EQ(world.group().why(), ResultGroup::Why::lost);
  EXPECT_THAT(world.group().deaf(), ElementsAre(1));
  EXPECT_LT(world.counters().repeated, world.counters().rounds / 4) << "the rest came to it unasked";
}

// Worker 1 is cut off from it in two sums. It is tried again while it does not hear it, and once it does.
TEST(ResultGroup, IsUsedAgainOnceAllHearItAgain) {
  AggregationLossOptions o = quiet_sums();
  o.operations = 30;
  o.deaf_from = 3;
  o.hears_from = 12;
  o.times.rest_ns = 100'000;
  o.times.probe_ns = 10'000;
  AggregationLossWorld world(o);
  world.run();
  EXPECT_THAT(world.problems(), IsEmpty());
  EXPECT_TRUE(world.group().by_group());
  EXPECT_GT(world.group().attempt(), 1U);
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
