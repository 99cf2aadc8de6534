// How long a link of two ways waits, by a clock that stands still but for what is said here.
#include "live/either/turn_times.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

namespace talweg::live {
namespace {

constexpr std::int64_t kMs = 1'000'000;

TEST(TurnTimes, ABetterWayIsLookedForTwentyTimesASecond) {
  TurnTimes times;
  int looks = 0;
  for (std::int64_t now = 1000 * kMs; now < 2000 * kMs; now += kMs) {
    if (!times.looks_for_better(now)) continue;
    times.looked(now);
    ++looks;
  }
  EXPECT_EQ(looks, 20);
}

TEST(TurnTimes, ATurnThatTakesHalfASecondIsPutOffForOneMore) {
  TurnTimes times;
  EXPECT_TRUE(times.may_turn(0));
  times.begin(7000 * kMs);
  EXPECT_FALSE(times.out_of_patience(7500 * kMs));
  EXPECT_TRUE(times.out_of_patience(7501 * kMs));
  times.put_off(7501 * kMs);
  EXPECT_FALSE(times.may_turn(8500 * kMs));
  EXPECT_TRUE(times.may_turn(8501 * kMs));
  times.begin(8501 * kMs);
  EXPECT_FALSE(times.out_of_patience(9000 * kMs)) << "from when it began anew";
}

// What has come is noticed late by an eighth of the time it took, and who is stopped costs little.
TEST(TurnTimes, WhetherAllWasTakenIsLookedAtEverMoreRarely) {
  TurnTimes times;
  for (const std::int64_t begin : {0 * kMs, 5000 * kMs}) {
    times.begin(begin);
    int looks = 0;
    for (std::int64_t now = begin; now < begin + 1000 * kMs; ++looks) {
      const std::int64_t in = times.next_look_ns(now);
      EXPECT_LE(in, std::max(kMs, (now - begin) / 8));
      now += in;
    }
    EXPECT_LE(looks, 60);
    EXPECT_EQ(times.next_look_ns(begin + 60'000 * kMs), 50 * kMs);
  }
}

TEST(TurnTimes, WhatGoesTheOtherWayHasASecondSinceTheTurn) {
  TurnTimes times;
  EXPECT_TRUE(times.goes_long_this_way(100'000 * kMs)) << "it never turned";
  times.turned(100'000 * kMs);
  EXPECT_FALSE(times.goes_long_this_way(101'000 * kMs));
  EXPECT_TRUE(times.goes_long_this_way(101'001 * kMs));
}

TEST(TurnTimes, WithoutAnAnswerForASecondDatagramsDoNotPass) {
  TurnTimes times;
  EXPECT_FALSE(times.no_answer(5000 * kMs)) << "nothing was asked";
  EXPECT_TRUE(times.asks(0));
  EXPECT_FALSE(times.asks(500 * kMs)) << "once";
  EXPECT_FALSE(times.no_answer(1000 * kMs));
  EXPECT_TRUE(times.no_answer(1001 * kMs));
  EXPECT_TRUE(times.asks(2000 * kMs)) << "the next time";
  times.answered();
  EXPECT_FALSE(times.no_answer(9000 * kMs));
  EXPECT_TRUE(times.asks(9000 * kMs));
  EXPECT_FALSE(times.no_answer(10'000 * kMs));
}

}  // namespace
}  // namespace talweg::live
