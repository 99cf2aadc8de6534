// A worker of streaming aggregation, its datagrams caught one by one. Comments have the numbers of SwitchML's
// conformance cases.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "protocol/worker_bench.h"

namespace talweg::protocol {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(AggregationWorker, SendsOneBlockToEachSlotAndTheNextOnItsResult) {
  Bench bench;
  bench.start({1, 2, 3, 4, 5, 6, 7});
  auto sent = bench.sink.take();
  ASSERT_THAT(sent, SizeIs(2));
  EXPECT_EQ(sent[0].entries[0].block, 0U);
  EXPECT_EQ(sent[0].entries[0].next, 2U) << "dense: the next block of the column is the following one";
  EXPECT_THAT(sent[1].values<float>(), ElementsAre(3, 4));
  bench.result(0, 0, 2, {10, 20});
  sent = bench.sink.take();
  ASSERT_THAT(sent, SizeIs(1));
  EXPECT_EQ(sent[0].entries[0].block, 2U);
  EXPECT_TRUE(sent[0].entries[0].version);
  EXPECT_EQ(sent[0].entries[0].next, kNeverNext);
  bench.result(1, 1, 3, {30, 40});
  EXPECT_THAT(bench.sink.take().at(0).values<float>(), ElementsAre(7)) << "the last block is short";
  bench.result(1, 3, kNeverNext, {70}, true);
  EXPECT_FALSE(bench.worker.done());
  bench.result(0, 2, kNeverNext, {50, 60}, true);
  EXPECT_TRUE(bench.worker.done());
  EXPECT_THAT(bench.output, ElementsAre(10, 20, 30, 40, 50, 60, 70));
  EXPECT_EQ(bench.worker.next_time_ns(), kNever);
}

TEST(AggregationWorker, OfASparseTensorSendsOnlyWhatIsThereAndWritesWhatIsZeroEverywhere) {
  Bench bench(1);
  bench.start({0, 0, 0, 0, 5, 6, 0, 0, -0.0F, 0}, true);
  auto sent = bench.sink.take();
  ASSERT_THAT(sent, SizeIs(1));
  EXPECT_FALSE(sent[0].entries[0].data) << "the first block is zero: an advert";
  EXPECT_EQ(sent[0].entries[0].next, 2U);
  bench.result(0, 0, 1, {});  // another worker goes on with block 1
  sent = bench.sink.take();
  EXPECT_FALSE(sent.at(0).entries[0].data);
  EXPECT_EQ(sent.at(0).entries[0].next, 2U);
  bench.result(0, 1, 2, {3, 3}, true);
  EXPECT_THAT(bench.sink.take().at(0).values<float>(), ElementsAre(5, 6));
  bench.result(0, 2, kNeverNext, {9, 9});
  EXPECT_TRUE(bench.worker.done());
  EXPECT_THAT(bench.output, ElementsAre(0, 0, 3, 3, 9, 9, 0, 0, 0, 0));
  for (const float v : bench.output) EXPECT_FALSE(std::signbit(v));
}

TEST(AggregationWorker, PutsAllColumnsOfASlotIntoOneDatagramAndGoesOnWithEachByItself) {
  Bench bench(1, 3);
  bench.start({1, 1, 2, 2, 3, 3, 4, 4});
  auto sent = bench.sink.take();
  ASSERT_THAT(sent, SizeIs(1));
  EXPECT_THAT(sent[0].entries, SizeIs(3));
  bench.result(0, 1, kNeverNext, {7, 7}, false, wire::kZeroExponent, 1);
  EXPECT_THAT(bench.sink.take(), IsEmpty());
  bench.result(0, 0, 3, {7, 7}, false, wire::kZeroExponent, 0);
  sent = bench.sink.take();
  ASSERT_THAT(sent, SizeIs(1));
  ASSERT_THAT(sent[0].entries, SizeIs(1));
  EXPECT_EQ(sent[0].entries[0].block, 3U);
}

// C7
TEST(AggregationWorker, VersionsOfAColumnTakeTurnsFromOneSumToTheNext) {
  Bench bench(2);
  bench.start({1, 1, 2, 2, 3, 3});  // column 0 has two rounds, column 1 has one
  bench.result(0, 0, 2, {0, 0});
  bench.result(0, 2, kNeverNext, {0, 0}, true);
  bench.result(1, 1, kNeverNext, {0, 0});
  ASSERT_TRUE(bench.worker.done());
  bench.sink.take();
  bench.start({1, 1, 2, 2}, false, AggregationFormat::f32, 2);
  const auto sent = bench.sink.take();
  ASSERT_THAT(sent, SizeIs(2));
  EXPECT_FALSE(sent[0].entries[0].version);
  EXPECT_TRUE(sent[1].entries[0].version);
}

// C8, C9
TEST(AggregationWorker, IsNotMovedByResultsOfAnEarlierRoundOperationJobOrEpoch) {
  Bench bench(1);
  bench.start({1, 1, 2, 2, 3, 3});
  bench.result(0, 0, 1, {10, 10});
  bench.result(0, 1, 2, {20, 20}, true);
  bench.sink.take();
  bench.result(0, 0, 1, {999, 999});
  bench.operation_ = 0;
  bench.result(0, 2, kNeverNext, {999, 999});
  bench.operation_ = 1;
  for (int field = 0; field < 2; ++field) {
    std::vector<std::byte> buffer(200);
    wire::AggregationWriter writer(buffer);
    writer.begin(AggregationFormat::f32);
    writer.add({2, kNeverNext, wire::kZeroExponent, 0, 0, false});
    auto h = bench.header(AggregationType::result, 0);
    ++(field == 0 ? h.job : h.epoch);
    bench.worker.on(h, writer.payload(), 0);
  }
  EXPECT_THAT(bench.sink.take(), IsEmpty());
  EXPECT_FALSE(bench.worker.done());
  EXPECT_THAT(bench.output, ElementsAre(10, 10, 20, 20, -99, -99));
  EXPECT_EQ(bench.worker.counters().ignored, 4U);
}

// C6
TEST(AggregationWorker, AnEmptyTensorIsSummedAtOnceAndAShortOneUsesAsManySlotsAsItHasBlocks) {
  Bench bench(4);
  bench.start({});
  EXPECT_TRUE(bench.worker.done());
  EXPECT_THAT(bench.sink.take(), IsEmpty());
  EXPECT_EQ(bench.worker.next_time_ns(), kNever);
  bench.start({1}, false, AggregationFormat::f32, 2);
  const auto sent = bench.sink.take();
  ASSERT_THAT(sent, SizeIs(1));
  EXPECT_EQ(sent[0].entries[0].count, 1);
}

// C5, C19: the switch may have what it was sent; so it is asked, and says.
TEST(AggregationWorker, AsksAboutWhatTakesLongLessAndLessOften) {
  Bench bench(1);
  bench.start({1, 2, 3, 4});
  const auto first = bench.sink.take().at(0);
  std::vector<std::int64_t> times;
  while (bench.now_ns < 900 * kOneMs) {
    bench.now_ns = bench.worker.next_time_ns();
    bench.worker.on_time(bench.now_ns);
    for (const Caught& caught : bench.sink.take()) {
      ASSERT_EQ(caught.type(), AggregationType::query);
      ASSERT_THAT(caught.entries, SizeIs(1));
      EXPECT_EQ(caught.entries[0].block, 0U);
      times.push_back(bench.now_ns / kOneMs);
    }
  }
  ASSERT_GE(times.size(), 6U);
  times.resize(6);
  EXPECT_THAT(times, ElementsAre(10, 30, 70, 150, 250, 350));

  // What has not come is sent again, as it was.
  AggregationEntry missing;
  missing.block = 0;
  missing.yours = true;
  bench.say(AggregationType::missing, 0, missing, nullptr, {0});
  const auto again = bench.sink.take();
  ASSERT_THAT(again, SizeIs(1));
  EXPECT_EQ(again[0].entries, first.entries);
  EXPECT_EQ(again[0].data, first.data);
  EXPECT_NE(again[0].number, first.number) << "this datagram can be missed, too";
}

TEST(AggregationWorker, AsksAboutFewSlotsAtATimeTheOldestFirst) {
  Bench bench(40);
  bench.start(std::vector<float>(80, 1));
  bench.sink.take();
  std::vector<std::uint16_t> asked;
  while (asked.size() < 40) {
    bench.now_ns = bench.worker.next_time_ns();
    ASSERT_LT(bench.now_ns, 900 * kOneMs);
    bench.worker.on_time(bench.now_ns);
    const auto sent = bench.sink.take();
    EXPECT_LE(sent.size(), 4U);
    for (const Caught& caught : sent) asked.push_back(caught.header.own16);
  }
  asked.resize(40);
  for (std::uint16_t i = 0; i < 40; ++i) EXPECT_EQ(asked[i], i);
}

TEST(AggregationWorker, WaitsNoLongerThanItMustOnceItKnowsHowLongRoundsTake) {
  Bench bench(1);
  bench.start(std::vector<float>(100, 1));
  bool version = false;
  for (std::uint64_t block = 0; block < 40; ++block, version = !version) {
    bench.now_ns += 2 * kOneMs;
    bench.result(0, block, block + 1, {1, 1}, version);
  }
  bench.sink.take();
  bench.worker.on_time(bench.now_ns);  // the alarm may still be that of the first estimate
  EXPECT_THAT(bench.sink.take(), IsEmpty());
  EXPECT_GT(bench.worker.next_time_ns(), bench.now_ns);
  EXPECT_LE(bench.worker.next_time_ns(), bench.now_ns + 9 * kOneMs);
}

TEST(AggregationWorker, NamesTheResultsThatHaveNotComeWhenLaterOnesHave) {
  Bench bench(6);
  bench.start(std::vector<float>(24, 1));
  bench.sink.take();
  const auto result = [&](std::uint16_t slot, unsigned number) {
    bench.number = static_cast<std::uint16_t>(number);
    bench.result(slot, slot, slot + 6U, {1, 1});
    return bench.sink.take();
  };
  EXPECT_THAT(result(0, 1), SizeIs(1));
  EXPECT_THAT(result(3, 4), SizeIs(1)) << "2 and 3 may have been overtaken";
  const auto sent = result(5, 6);
  ASSERT_THAT(sent, SizeIs(3));
  EXPECT_EQ(sent[0].type(), AggregationType::contribution);
  for (std::size_t i = 1; i < 3; ++i) {
    EXPECT_EQ(sent[i].type(), AggregationType::gap);
    EXPECT_THAT(sent[i].names, ElementsAre(1 + i)) << "one each: every one is answered by itself";
  }
  EXPECT_THAT(result(4, 5), SizeIs(1));
  EXPECT_EQ(bench.worker.counters().gaps, 2U);
  EXPECT_THAT(result(1, 2), SizeIs(1)) << "it comes, and its round goes on";
  EXPECT_THAT(result(2, 3), SizeIs(1));
}

TEST(AggregationWorker, AResultForItAloneSaysNothingOfThoseForAllThatItIsAheadOf) {
  Bench bench(6);
  bench.start(std::vector<float>(24, 1));
  bench.sink.take();
  const auto result = [&](std::uint16_t slot, unsigned number, bool to_all) {
    bench.number = static_cast<std::uint16_t>(number);
    bench.to_all = to_all;
    bench.result(slot, slot, slot + 6U, {1, 1});
    return bench.sink.take().size();
  };
  EXPECT_EQ(result(0, 1, true), 1U);
  EXPECT_EQ(result(5, 60, false), 1U) << "the others wait at the switch";
  EXPECT_EQ(result(2, 3, true), 1U);
  EXPECT_EQ(result(1, 2, false), 1U) << "it was sent again before it was missed";
  for (std::uint16_t slot = 3; slot < 5; ++slot) EXPECT_EQ(result(slot, slot + 1U, true), 1U);
  EXPECT_EQ(bench.worker.counters().gaps, 0U);
}

TEST(AggregationWorker, SendsAgainWhatTheSwitchNamesAndNothingElse) {
  Bench bench(4, 2);
  bench.start(std::vector<float>(40, 1));
  const auto first = bench.sink.take();
  ASSERT_THAT(first, SizeIs(4));
  for (std::uint16_t i = 0; i < 4; ++i) EXPECT_EQ(first[i].number, i + 1);
  const auto gap = [&](std::vector<std::uint16_t> names, std::uint16_t slot = 3) {
    bench.gap(slot, names);
    return bench.sink.take();
  };
  auto sent = gap({2});
  ASSERT_THAT(sent, SizeIs(1));
  EXPECT_EQ(sent[0].header.own16, 1);
  EXPECT_EQ(sent[0].entries, first[1].entries);
  EXPECT_EQ(sent[0].number, 5);
  EXPECT_THAT(gap({2}), IsEmpty()) << "that is another datagram by now";
  sent = gap({1, 5, 999});
  ASSERT_THAT(sent, SizeIs(2));
  EXPECT_EQ(sent[0].header.own16, 0);
  EXPECT_EQ(sent[1].header.own16, 1);
  // One column's round has ended: of the datagram that was lost only the other is needed.
  bench.result(2, 4, 12, {1, 1});
  bench.sink.take();
  sent = gap({3});
  ASSERT_THAT(sent, SizeIs(1));
  ASSERT_THAT(sent[0].entries, SizeIs(1));
  EXPECT_EQ(sent[0].entries[0].column, 1);
  // What the switch was too busy for is sent when it has said.
  bench.refusal({wire::AggregationReason::busy, 700, AggregationType::contribution}, 3);
  EXPECT_THAT(gap({4}), IsEmpty());
  EXPECT_EQ(bench.worker.counters().named, 7U);
}

TEST(AggregationWorker, AQuestionThatTheSwitchIsTooBusyForIsAskedAgainWhenItSays) {
  Bench bench(1);
  bench.start({1, 1});
  bench.sink.take();
  const auto only_asks = [&] {
    bench.worker.on_time(bench.now_ns);
    const auto sent = bench.sink.take();
    return sent.size() == 1 && sent[0].type() == AggregationType::query;
  };
  bench.now_ns = bench.worker.next_time_ns();
  ASSERT_TRUE(only_asks());
  for (const std::uint32_t wait_us : {700U, 90'000U}) {
    bench.refusal({wire::AggregationReason::busy, wait_us, AggregationType::query});
    bench.worker.on_time(bench.now_ns + wait_us * 1000 - 1);
    EXPECT_THAT(bench.sink.take(), IsEmpty()) << wait_us;
    bench.now_ns += wait_us * 1000;
    EXPECT_TRUE(only_asks()) << wait_us;
  }
}

TEST(AggregationWorker, AsksSoonWhenNothingEndsAnyMore) {
  Bench bench(64);
  bench.start(std::vector<float>(64 * 2 * 20, 1));
  for (std::uint64_t round = 0; round + 1 < 20; ++round)
    for (std::uint16_t slot = 0; slot < 64; ++slot) {
      bench.now_ns += kOneMs / 4;
      bench.result(slot, 64 * round + slot, 64 * (round + 1) + slot, {1, 1}, round % 2 == 1);
    }
  bench.sink.take();
  const std::int64_t since_ns = bench.now_ns;
  std::size_t asked = 0;
  while (asked == 0) {
    bench.now_ns = bench.worker.next_time_ns();
    ASSERT_LE(bench.now_ns, since_ns + 2 * kOneMs) << "an eighth of a round";
    bench.worker.on_time(bench.now_ns);
    asked = bench.sink.take().size();
  }
  EXPECT_EQ(bench.now_ns, since_ns + 2 * kOneMs);
  EXPECT_EQ(asked, 4U);
  // Until something ends, less and less often.
  while (asked < 12) {
    bench.now_ns = bench.worker.next_time_ns();
    bench.worker.on_time(bench.now_ns);
    asked += bench.sink.take().size();
  }
  EXPECT_EQ(bench.now_ns, since_ns + (2 + 4 + 8) * kOneMs);
}

// Sixteen results at a time, as a kernel passes them on that has got them in one piece: four times in a
// round.
TEST(AggregationWorker, WhereResultsComeManyAtATimeAsksForNothingBetweenThem) {
  Bench bench(64);
  bench.longest_ns = 100'000 * kOneMs;
  bench.start(std::vector<float>(64 * 2 * 100, 1));
  std::uint64_t asked_before = 0;
  const auto wait = [&](std::int64_t until_ns) {
    while (bench.worker.next_time_ns() <= until_ns) {
      bench.now_ns = bench.worker.next_time_ns();
      bench.worker.on_time(bench.now_ns);
    }
    bench.now_ns = until_ns;
  };
  for (std::uint64_t round = 0; round + 1 < 100; ++round) {
    if (round == 10) asked_before = bench.worker.counters().timeouts;
    for (std::uint16_t slot = 0; slot < 64; ++slot) {
      if (slot % 16 == 0) wait(bench.now_ns + 4 * kOneMs);
      bench.result(slot, 64 * round + slot, 64 * (round + 1) + slot, {1, 1}, round % 2 == 1);
    }
  }
  EXPECT_EQ(bench.worker.counters().timeouts, asked_before)
      << "an eighth of a round is less than there is between them";
  const std::int64_t since_ns = bench.now_ns;
  bench.sink.take();
  wait(since_ns + 8 * kOneMs);
  EXPECT_THAT(bench.sink.take(), SizeIs(4)) << "twice as long is more";
}

// One slot of sixteen workers: a round in which any of them loses anything ends by the timer alone.
TEST(AggregationWorker, RoundsThatTheTimerHadToMendDoNotMakeItWaitLongerAndLonger) {
  for (const std::uint16_t slots : std::vector<std::uint16_t>{1, 4, 8}) {
    Bench bench(slots);
    bench.longest_ns = 100'000 * kOneMs;
    bench.start(std::vector<float>(slots * 2000U, 1));
    bool version = false;
    for (std::uint64_t round = 0; round < 900; ++round, version = !version) {
      const std::int64_t sent_ns = bench.now_ns;
      const std::uint64_t before = bench.worker.counters().timeouts;
      while (round >= 10 && round % 4 != 3 && bench.worker.counters().timeouts < before + slots) {
        bench.now_ns = bench.worker.next_time_ns();
        bench.worker.on_time(bench.now_ns);
      }
      bench.now_ns += 2 * kOneMs;
      ASSERT_LE(bench.now_ns - sent_ns, 40 * kOneMs) << slots << " slots, round " << round;
      for (std::uint16_t slot = 0; slot < slots; ++slot)
        bench.result(slot, slots * round + slot, slots * (round + 1) + slot, {1, 1}, version);
    }
    EXPECT_GE(bench.worker.counters().timeouts, 600U * slots);
  }
}

TEST(AggregationWorker, WhenTheAbsentIsBackWhatWasAskedAboutInVainNeedNotWaitLong) {
  Bench bench(64);
  bench.longest_ns = 10'000 * kOneMs;
  bench.start(std::vector<float>(64 * 2 * 20, 1));
  const auto results = [&](std::uint64_t round, std::uint16_t slots) {
    for (std::uint16_t slot = 0; slot < slots; ++slot)
      bench.result(slot, 64 * round + slot, 64 * (round + 1) + slot, {1, 1}, round % 2 == 1);
  };
  for (std::uint64_t round = 0; round < 9; ++round) {
    bench.now_ns += 2 * kOneMs;
    results(round, 64);
  }
  bench.sink.take();
  const auto asks_about_the_last = [&] {
    bench.worker.on_time(bench.now_ns);
    const std::vector<Caught> sent = bench.sink.take();
    return std::ranges::any_of(sent, [](const Caught& caught) {
      return caught.type() == AggregationType::query && caught.header.own16 == 63;
    });
  };
  for (int in_vain = 0; in_vain < 5;) {
    bench.now_ns = bench.worker.next_time_ns();
    ASSERT_LT(bench.now_ns, bench.longest_ns);
    in_vain += asks_about_the_last() ? 1 : 0;
  }
  bench.now_ns += kOneMs;
  const std::int64_t back_ns = bench.now_ns;
  results(9, 63);  // the last slot's is lost, and nothing is quiet any more
  for (std::uint64_t round = 10; !asks_about_the_last(); ++round) {
    ASSERT_LT(bench.now_ns, back_ns + 8 * kOneMs) << "it would have waited for a hundred";
    bench.now_ns += kOneMs;
    results(round, 63);
  }
}

TEST(AggregationWorker, ARoundThatAWorkerWasAwayInDoesNotMakeItWaitMuchLongerForOthers) {
  for (const std::uint16_t slots : std::vector<std::uint16_t>{1, 16, 64, 256}) {
    Bench bench(slots);
    bench.start(std::vector<float>(slots * 100U, 1));
    bool version = false;
    for (std::uint64_t round = 0; round < 40; ++round, version = !version) {
      bench.now_ns += (round == 39 ? 900 : 2) * kOneMs;
      for (std::uint16_t slot = 0; slot < slots; ++slot)
        bench.result(slot, slots * round + slot, slots * (round + 1) + slot, {1, 1}, version);
    }
    bench.sink.take();
    bench.worker.on_time(bench.now_ns);
    // One round is lost.
    const std::int64_t since_ns = bench.now_ns;
    while (bench.sink.take().empty()) {
      ASSERT_LT(bench.now_ns, since_ns + 50 * kOneMs) << slots << " slots";
      bench.now_ns = bench.worker.next_time_ns();
      bench.worker.on_time(bench.now_ns);
    }
    EXPECT_LE(bench.now_ns, since_ns + 10 * kOneMs) << slots << " slots";
  }
}

// C13
TEST(AggregationWorker, AtItsDeadlineNamesWhoIsMissing) {
  const auto fails = [](auto before) {
    Bench bench(1, 1, 9);
    bench.start({1, 1, 2, 2});
    before(bench);
    bench.now_ns = 1000 * kOneMs;
    bench.worker.on_time(bench.now_ns);
    EXPECT_FALSE(bench.worker.done());
    EXPECT_EQ(bench.worker.failure()->code, ErrorCode::timeout);
    EXPECT_EQ(bench.worker.next_time_ns(), kNever);
    EXPECT_THROW(bench.start({1}, false, AggregationFormat::f32, 2), Error) << "the epoch is over";
    return bench.worker.failure()->text;
  };
  const std::string begin = "sum 1 of job 1, epoch 1: 1 of 1 columns have not ended by the deadline: ";
  AggregationEntry missing;
  missing.block = 0;
  EXPECT_EQ(fails([](Bench&) {}), begin + "the switch has not answered");
  EXPECT_EQ(fails([&](Bench& b) {
              b.say(AggregationType::missing, 0, missing, nullptr, {3, 7});
            }),
            begin + "the switch waits for workers 3, 7");
  EXPECT_EQ(fails([&](Bench& b) {
              missing.above = true;
              b.say(AggregationType::missing, 0, missing, nullptr, {});
            }),
            begin + "the switch waits for the one above it");
}

TEST(AggregationWorker, IsRefusedForGoodOrHeldBackForAWhile) {
  Bench bench(1);
  bench.start({1, 1});
  bench.sink.take();
  bench.refusal({wire::AggregationReason::busy, 700, AggregationType::contribution});
  EXPECT_EQ(bench.worker.next_time_ns(), 700'000);
  bench.now_ns = 700'000;
  bench.worker.on_time(bench.now_ns);
  EXPECT_THAT(bench.sink.take(), SizeIs(1));
  EXPECT_EQ(bench.worker.counters().timeouts, 0U);
  bench.refusal({wire::AggregationReason::stranger, 0, AggregationType::contribution});
  ASSERT_TRUE(bench.worker.failure());
  EXPECT_EQ(bench.worker.failure()->text,
            "sum 1 of job 1, epoch 1: worker 0 is refused: the job was announced with fewer workers");
}

TEST(AggregationWorker, WhatIsHeldBackIsSentWhenTheSwitchHasSaidWhateverItSaysMeanwhile) {
  for (const std::uint32_t wait_us : {200U, 5000U}) {
    Bench bench(1);
    bench.start({1, 1});
    bench.sink.take();
    bench.refusal({wire::AggregationReason::busy, 700, AggregationType::contribution});
    AggregationEntry missing;
    missing.block = 0;
    missing.yours = true;
    bench.say(AggregationType::missing, 0, missing, nullptr, {0});
    EXPECT_THAT(bench.sink.take(), IsEmpty());
    bench.refusal({wire::AggregationReason::busy, wait_us, AggregationType::query});
    for (const std::int64_t now_ns : {200'000, 699'999}) {
      bench.worker.on_time(now_ns);
      EXPECT_THAT(bench.sink.take(), IsEmpty()) << wait_us;
    }
    bench.worker.on_time(700'000);
    const auto sent = bench.sink.take();
    ASSERT_THAT(sent, SizeIs(1)) << wait_us;
    EXPECT_EQ(sent[0].type(), AggregationType::contribution);
    EXPECT_EQ(bench.worker.counters().asked_for, 0U);
  }
}

TEST(AggregationWorker, DoesNotFollowASwitchOutOfItsTensorOrPastWhatItHas) {
  const struct {
    const char* what;
    std::uint64_t next;
    std::vector<float> values;
  } results[] = {{"past our next block", kNeverNext, {1, 1}},
                 {"of another column", 1, {1, 1}},
                 {"another number of elements", 2, {1}}};
  for (const auto& result : results) {
    Bench bench(2);
    bench.start({1, 1, 2, 2, 3, 3, 4, 4});
    bench.result(0, 0, result.next, result.values);
    ASSERT_TRUE(bench.worker.failure()) << result.what;
    EXPECT_EQ(bench.worker.failure()->code, ErrorCode::corrupted);
    EXPECT_THAT(bench.output, testing::Each(-99.0F));
  }
  Bench bench(2);
  bench.start({1, 1, 2, 2, 0, 0}, true);
  bench.result(0, 0, 4, {1, 1});
  EXPECT_TRUE(bench.worker.failure()) << "beyond the last block";
}

// C11
TEST(AggregationWorker, FloatsTravelAsIntegersOfTheExponentThatAllAgreeOn) {
  Bench bench(1);
  bench.format_ = AggregationFormat::scaled;
  bench.start({0.75F, -0.5F, 3, 0}, false, AggregationFormat::scaled);
  auto sent = bench.sink.take();
  ASSERT_THAT(sent, SizeIs(1));
  EXPECT_EQ(sent[0].entries[0].block, kNoBlock);
  EXPECT_EQ(sent[0].entries[0].next, 0U);
  EXPECT_EQ(sent[0].entries[0].exponent, 0);
  bench.result(0, kNoBlock, 0, {}, false, 1);  // the other worker has up to 2
  sent = bench.sink.take();
  ASSERT_THAT(sent, SizeIs(1));
  EXPECT_EQ(sent[0].entries[0].exponent, 2) << "of block 1";
  EXPECT_THAT(sent[0].values<std::int32_t>(), ElementsAre(3 << 27, -(1 << 28)));  // units of 2^(1 + 1 - 31)
}

TEST(AggregationWorker, BlocksWithoutNumbersOrTooSmallForIntegersBringNoData) {
  Bench bench(1);
  bench.format_ = AggregationFormat::scaled;
  bench.start({1e-40F, 0, INFINITY, 0, 1, 1}, false, AggregationFormat::scaled);
  EXPECT_EQ(bench.sink.take().at(0).entries[0].exponent, wire::kLeastExponent);
  bench.result(0, kNoBlock, 0, {}, false, wire::kLeastExponent);
  auto sent = bench.sink.take().at(0);
  EXPECT_FALSE(sent.entries[0].data);
  EXPECT_EQ(sent.entries[0].exponent, wire::kNotFiniteExponent);
  bench.result(0, 0, 1, {}, true, wire::kNotFiniteExponent);
  sent = bench.sink.take().at(0);
  EXPECT_FALSE(sent.entries[0].data);
  bench.result(0, 1, 2, {}, false, 1);
  EXPECT_EQ(bench.output[0], 0);
  EXPECT_TRUE(std::isnan(bench.output[2]) && std::isnan(bench.output[3]));
}

TEST(AggregationWorker, TermsAndSumsThatCannotBeAreRefused) {
  Catcher sink;
  const auto make = [&](WorkerTerms terms) { AggregationWorker worker(terms, sink); };
  EXPECT_THROW(make({1, 1, 0, 0, 0, 1, 1, 2, {}}), Error);
  EXPECT_THROW(make({1, 1, 0, 2, 0, 0, 1, 2, {}}), Error);
  EXPECT_THROW(make({1, 1, 0, 2, 0, 1, 65, 2, {}}), Error);
  EXPECT_THROW(make({1, 1, 0, 2, 0xffff, 2, 1, 2, {}}), Error);
  EXPECT_THROW(make({1, 1, 0, 2, 0, 1, 64, 1024, {}}), Error);
  Bench bench(1);
  EXPECT_THROW(bench.worker.start({nullptr, nullptr, 9, AggregationFormat::f32, 3, false}, 1, 1, 0), Error);
  bench.start({1, 1});
  EXPECT_THROW(bench.start({1, 1}, false, AggregationFormat::f32, 2), Error) << "one at a time";
}

}  // namespace
}  // namespace talweg::protocol
