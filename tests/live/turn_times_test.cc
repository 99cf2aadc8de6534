// How long a link of two ways waits, by a clock that stands still but for what is said here.
#include "live/either/turn_times.h"

#include <gtest/gtest.h>

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

// A process that is stopped for a second costs some twenty looks; one that answers at once is not waited for.
TEST(TurnTimes, WhetherAllWasTakenIsLookedAtEverMoreRarely) {
  TurnTimes times;
  for (int again = 0; again < 2; ++again) {
    times.begin(0);
    for (const std::int64_t ms : {1, 2, 4, 8, 16, 32, 50, 50, 50}) EXPECT_EQ(times.next_look_ns(), ms * kMs);
  }
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
