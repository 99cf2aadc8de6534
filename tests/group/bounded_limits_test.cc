// Limits of bounded sums beside p: of one rank's data on average over calls, and of all ranks' in one call.
#include <gmock/gmock.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "group/bounded.h"
#include "group/kept_sizes.h"
#include "lossy.h"
#include "ranks.h"
#include "talweg/bounded_loss.h"

namespace talweg::group {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr std::size_t kRanks = 4, kPacket = 64, kPackets = 100;
constexpr std::size_t kCount = kRanks * kPackets * kPacket / sizeof(float);
constexpr int kCalls = 40;

// A call that ranks disagree about is told before it is of one size on all of them: what that size has
// measured is looked at, and the order in which sizes go stays the same on all ranks.
TEST(KeptSizes, AreInTheOrderOfTheirUseWhateverIsLookedAt) {
  KeptSizes sizes(2);
  sizes.add(100, DataType::f32, 7);
  sizes.add(100, DataType::f64, 8);
  EXPECT_EQ(sizes.look(100, DataType::f32), 7U);
  EXPECT_EQ(sizes.look(200, DataType::f32), std::nullopt);
  EXPECT_EQ(sizes.make_room(), 7U);
  sizes.add(200, DataType::f32, 9);
  EXPECT_EQ(sizes.use(100, DataType::f64), 8U);
  EXPECT_EQ(sizes.make_room(), 9U);
}

// Of 100 packets from each of three others the network loses a tenth. `look` gets what is missing of each
// rank's data in each call, of which there were so many.
template <class Look>
void lose_a_tenth(Group& group, const BoundedLossOptions& options, Look look) {
  const auto sums = make_bounded(group, options, lossy(0.1, 70 + static_cast<unsigned>(group.rank())));
  std::vector<float> values(kCount);
  for (std::uint64_t calls = 1; calls <= kCalls; ++calls) {
    values.assign(kCount, 1.F);
    look(calls,
         sums->all_reduce({.in = values.data(), .out = values.data(), .count = kCount}).lost_of_sender);
  }
}

TEST(BoundedSums, LoseMoreOfARankInOneCallThanTheyDoOnAverage) {
  std::atomic<int> above_average{0};
  run_ranks(kRanks, [&](Group& group) {
    std::vector<std::uint64_t> sum(kRanks);
    lose_a_tenth(group, {.p = 0.2, .p_sender = 0.02, .packet_bytes = kPacket},
                 [&](std::uint64_t calls, const std::vector<std::uint64_t>& missing) {
                   for (std::size_t r = 0; r < kRanks; ++r) {
                     sum[r] += missing[r];
                     EXPECT_LE(sum[r], 2 * kPacket * (calls + 15)) << "of rank " << r;
                     if (missing[r] > 2 * kPacket) ++above_average;
                   }
                 });
  });
  EXPECT_GT(above_average.load(), 0);
}

TEST(BoundedSums, LoseNoMoreOfAllRanksTogetherThanOfACallMayBeMissing) {
  std::atomic<std::uint64_t> lost{0};
  run_ranks(kRanks, [&](Group& group) {
    lose_a_tenth(group, {.p = 0.2, .p_call = 0.02, .packet_bytes = kPacket},
                 [&](std::uint64_t, const std::vector<std::uint64_t>& missing) {
                   std::uint64_t together = 0;
                   for (const std::uint64_t bytes : missing) together += bytes;
                   EXPECT_LE(together, 3 * 2 * kPacket);
                   lost += together;
                 });
  });
  EXPECT_GT(lost.load(), 0U);
}

TEST(BoundedSums, AreExactWhereALimitIsZero) {
  run_ranks(2, [](Group& group) {
    std::vector<float> values(kCount, 1.F);
    float sum = 1.F;
    for (const BoundedLossOptions& options :
         {BoundedLossOptions{.p = 0.2, .p_sender = 0.0}, BoundedLossOptions{.p = 0.2, .p_call = 0.0}}) {
      const auto sums = make_bounded(group, options, lossy(0.1, 90 + static_cast<unsigned>(group.rank())));
      const LossReport report =
          sums->all_reduce({.in = values.data(), .out = values.data(), .count = kCount});
      EXPECT_TRUE(report.exact);
      EXPECT_EQ(report.lost_bytes, 0U);
      EXPECT_THAT(values, Each(sum *= 2));
    }
  });
}

TEST(BoundedSums, RefuseLimitsThatAreNone) {
  run_ranks(2, [](Group& group) {
    EXPECT_THAT(error_of([&] { BoundedSums::make(group, {.p = 0.1, .p_sender = 0.2}); }),
                AllOf(HasSubstr("invalid_argument"), HasSubstr("p_sender = 0.2: expected 0 to 0.1")));
    EXPECT_THAT(error_of([&] { BoundedSums::make(group, {.p = 0.1, .p_call = -1}); }),
                AllOf(HasSubstr("invalid_argument"), HasSubstr("p_call = -1: expected 0 to 0.1")));
  });
}

TEST(BoundedSums, NeedTheSameLimitsOnAllRanks) {
  run_ranks(2, [](Group& group) {
    const std::optional<double> half = group.rank() == 1 ? std::optional(0.05) : std::nullopt;
    EXPECT_THAT(error_of([&] { BoundedSums::make(group, {.p = 0.1, .p_sender = half}); }),
                AllOf(HasSubstr("mismatch"), HasSubstr("p_sender = 0.1, p_call = 0.1, rank 1 has p = 0.1"),
                      HasSubstr("p_sender = 0.05, p_call = 0.1")));
    EXPECT_THAT(error_of([&] { BoundedSums::make(group, {.p = 0.1, .p_call = half}); }),
                AllOf(HasSubstr("mismatch"), HasSubstr("p_sender = 0.1, p_call = 0.05")));
  });
}

}  // namespace
}  // namespace talweg::group
