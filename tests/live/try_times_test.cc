// How often datagrams are tried where none pass, by a clock that stands still but for what is said here.
#include "live/udp/try_times.h"

#include <gmock/gmock.h>

#include <cstdint>
#include <vector>

namespace talweg::live {
namespace {

using ::testing::ElementsAre;

constexpr std::int64_t kS = 1'000'000'000;

// The seconds after `begin` in which one is tried, looked at each hundredth of a second.
std::vector<double> tries(TryTimes& times, std::int64_t begin, std::int64_t end) {
  std::vector<double> at;
  for (std::int64_t now = begin; now < end; now += kS / 100) {
    if (!times.due(now)) continue;
    times.tried(now);
    at.push_back(static_cast<double>(now - begin) / kS);
  }
  return at;
}

TEST(TryTimes, EachWaitIsTwiceTheOneBeforeItAndThirtySecondsAtMost) {
  TryTimes times;
  for (const std::int64_t begin : {0 * kS, 1000 * kS}) {  // and all again, once they have passed meanwhile
    times.begin(begin);
    EXPECT_EQ(times.next_ns(), begin + kS);
    EXPECT_THAT(tries(times, begin, begin + 200 * kS), ElementsAre(1, 3, 7, 15, 31, 61, 91, 121, 151, 181));
    EXPECT_EQ(times.next_ns(), begin + 211 * kS);
  }
}

// A look that comes late moves all that is behind it, and nothing is made up for.
TEST(TryTimes, WhoLooksLateTriesOnce) {
  TryTimes times;
  times.begin(0);
  EXPECT_TRUE(times.due(100 * kS));
  times.tried(100 * kS);
  EXPECT_FALSE(times.due(102 * kS - 1));
  EXPECT_TRUE(times.due(102 * kS));
}

TEST(TryTimes, WhatHasComeIsWorthATryWithinASecond) {
  TryTimes times;
  times.begin(0);
  tries(times, 0, 100 * kS);  // the next one at 121
  times.came(100 * kS);
  EXPECT_THAT(tries(times, 100 * kS, 140 * kS), ElementsAre(1, 3, 7, 15, 31));
  // It puts nothing off, however often something comes.
  times.begin(200 * kS);
  for (std::int64_t now = 200 * kS; now < 201 * kS; now += kS / 10) times.came(now);
  EXPECT_EQ(times.next_ns(), 201 * kS);
}

}  // namespace
}  // namespace talweg::live
