#include "protocol/datagram/arrivals.h"

#include <gmock/gmock.h>

#include <set>
#include <vector>

namespace talweg::protocol {
namespace {

using testing::ElementsAre;
using Range = wire::Acknowledgement::Range;

std::vector<Range> told(Arrivals& arrivals) {
  wire::Acknowledgement ack;
  arrivals.tell(0, ack);
  return {ack.ranges.begin(), ack.ranges.begin() + static_cast<std::ptrdiff_t>(ack.n_ranges)};
}

TEST(Arrivals, SeveralAreAcknowledgedAtOnceUnlessOneAsks) {
  Arrivals arrivals;
  for (std::uint64_t n = 0; n < 3; ++n) arrivals.came(n, false, 1000, 1000);
  arrivals.end_of_batch();
  EXPECT_FALSE(arrivals.due(1000));
  EXPECT_TRUE(arrivals.due(1000 + Arrivals::kHoldNs));
  arrivals.came(3, false, 1000, 1000);
  EXPECT_FALSE(arrivals.due(1000)) << "more may be there";
  arrivals.end_of_batch();
  EXPECT_TRUE(arrivals.due(1000));
  EXPECT_THAT(told(arrivals), ElementsAre(Range{0, 4}));
  arrivals.came(4, true, 1000, 1000);
  EXPECT_FALSE(arrivals.due(1000));
  arrivals.end_of_batch();
  EXPECT_TRUE(arrivals.due(1000));
  told(arrivals);
  arrivals.came(5, false, 1000, 1000);
  arrivals.end_of_batch();
  EXPECT_FALSE(arrivals.due(1000)) << "that one has been answered";
}

TEST(Arrivals, ManyAreAcknowledgedThoughMoreAreThere) {
  Arrivals arrivals;
  for (std::uint64_t n = 0; n < Arrivals::kMostHeld; ++n) {
    EXPECT_FALSE(arrivals.due(1000)) << n;
    arrivals.came(n, false, 1000, 1000);
  }
  EXPECT_TRUE(arrivals.due(1000));
}

TEST(Arrivals, WhatIsOlderThanOneThatAskedIsWaitedFor) {
  Arrivals arrivals;
  arrivals.came(5, true, 1000, 1000);
  told(arrivals);
  arrivals.came(3, false, 1000, 1000);
  arrivals.end_of_batch();
  EXPECT_TRUE(arrivals.due(1000));
}

TEST(Arrivals, ForHowLongTheNewestWasHeldIsTold) {
  Arrivals arrivals;
  arrivals.came(0, false, 0, 0);
  arrivals.came(1, false, 300'000, 400'000);
  wire::Acknowledgement ack;
  arrivals.tell(1'000'000, ack);
  EXPECT_EQ(ack.held_us, 700U);
}

TEST(Arrivals, ALatenessIsForgottenInTime) {
  Arrivals arrivals;
  std::uint64_t next = 0;
  const auto in_time = [&](int count) {
    for (int i = 0; i < count; ++i) arrivals.came(next++, false, 0, 0);
  };
  in_time(10);
  const std::uint64_t late = next++;
  in_time(100);
  arrivals.came(late, false, 1'000'000, 1'000'000);
  EXPECT_EQ(arrivals.lateness_ns(), 1'000'000);
  in_time(40'000);
  EXPECT_LT(arrivals.lateness_ns(), 10'000);
}

TEST(Arrivals, WhereThereAreTooManyGapsAcknowledgementsLeaveOutOthersEachTime) {
  Arrivals arrivals;
  constexpr std::size_t kPieces = wire::kAckRanges * 5 / 4;
  for (std::uint64_t n = 0; n < kPieces; ++n) arrivals.came(2 * n, false, 0, 0);
  std::set<std::uint64_t> all;
  for (int i = 0; i < 4; ++i) {
    const auto ranges = told(arrivals);
    EXPECT_EQ(ranges.size(), wire::kAckRanges);
    for (const Range& range : ranges) all.insert(range.begin);
  }
  EXPECT_EQ(all.size(), kPieces);
}

// What a lost datagram leaves is a gap for ever, as it is sent again with another number.
TEST(Arrivals, AGapIsToldAFewTimesAndThenNoMore) {
  Arrivals arrivals;
  std::uint64_t next = 0;
  std::size_t most = 0;
  for (int i = 0; i < 1000; ++i) {
    if (i % 10 == 5) ++next;  // it was lost
    arrivals.came(next++, true, 0, 0);
    const auto ranges = told(arrivals);
    most = std::max(most, ranges.size());
    EXPECT_EQ(ranges.front().end, next);
    // Fifteen acknowledgements may be lost: what has come since is told by each one.
    if (i >= 15) {
      EXPECT_LE(ranges.back().begin, next - 16);
    }
  }
  EXPECT_LE(most, 3U);
}

TEST(Arrivals, WhatComesLateIsToldAsOften) {
  Arrivals arrivals;
  for (std::uint64_t n = 0; n < 100; ++n)
    if (n != 20 && n != 40) {
      arrivals.came(n, true, 0, 0);
      told(arrivals);
    }
  EXPECT_THAT(told(arrivals), ElementsAre(Range{41, 100}));
  arrivals.came(20, true, 0, 0);  // in front of a gap that had been forgotten
  for (int i = 0; i < 16; ++i) EXPECT_THAT(told(arrivals), ElementsAre(Range{41, 100}, Range{0, 40})) << i;
  EXPECT_THAT(told(arrivals), ElementsAre(Range{41, 100}));
}

}  // namespace
}  // namespace talweg::protocol
