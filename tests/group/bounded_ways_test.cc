// Bounded sums where datagrams do not pass, or only small ones: losses are made where datagrams leave.
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <numeric>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "group/bounded.h"
#include "live/served_switch.h"
#include "lossy.h"
#include "ranks.h"
#include "switched.h"
#include "talweg/bounded_loss.h"

namespace talweg::group {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

std::ptrdiff_t lines_with(const std::string& text, const std::string& pattern) {
  const std::regex line(pattern);
  return std::distance(std::sregex_iterator(text.begin(), text.end(), line), std::sregex_iterator());
}

TEST(BoundedWays, OfWhichOneIsBlockedHaveSumsGoOverTheGroup) {
  constexpr std::size_t kCount = 10'001;
  testing::internal::CaptureStderr();
  run_ranks(3, [](Group& group) {
    const auto sums = make_bounded(group, {.p = 0.05}, lossy(group.rank() == 1 ? 1 : 0, 1));
    const std::vector<std::size_t> layers{1, kCount - 1};
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg})
      for (const bool in_place : {false, true})
        for (const bool keep : {false, true}) {
          std::vector<float> in(kCount), residual(keep ? kCount : 0, 2.F), expected(kCount);
          std::iota(in.begin(), in.end(), static_cast<float>(group.rank()));
          for (float& x : in) x *= 3;
          std::vector<float> fed = in, out = in_place ? in : std::vector<float>(kCount, -7.F);
          if (keep)
            for (float& x : fed) x += 2;
          group.all_reduce(fed.data(), expected.data(), kCount, DataType::f32, op);
          const LossReport report = sums->all_reduce({.in = in_place ? out.data() : in.data(),
                                                      .out = out.data(),
                                                      .count = kCount,
                                                      .reduction = op,
                                                      .residual = keep ? residual.data() : nullptr,
                                                      .layers = layers});
          EXPECT_EQ(out, expected);
          EXPECT_THAT(residual, Each(0.F));
          EXPECT_TRUE(report.exact);
          EXPECT_EQ(report.sent_bytes, (kCount - kCount / 3 - (group.rank() < 2 ? 1 : 0)) * sizeof(float));
          EXPECT_EQ(report.lost_bytes, 0U);
          EXPECT_EQ(report.lost_of_layer, std::vector<std::uint64_t>(2));
          EXPECT_EQ(report.lost_of_sender, std::vector<std::uint64_t>(3));
          EXPECT_EQ(report.packets_again, 0U);
          EXPECT_GT(report.seconds, 0);
        }
    EXPECT_EQ(group.statistics().bounded_calls, 8U);
  });
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(lines_with(said,
                       "WARN bounded: no datagram of rank 1 \\([^\n]*\\) comes to rank 0 \\([^\n]*: is UDP "
                       "blocked between the two hosts\\?"),
            3)
      << said;
  EXPECT_EQ(lines_with(said, "WARN"), 3) << said;
}

// They end as sums in datagrams do.
TEST(BoundedWays, OfWhichOneIsBlockedEndCallsAsEver) {
  run_ranks(3, [](Group& group) {
    const auto sums = make_bounded(group, {.p = 0.05}, lossy(group.rank() == 2 ? 1 : 0, 2));
    std::vector<float> values(100, 1.F), residual(100, 1.F);
    const auto call = [&](std::size_t count) {
      return error_of([&] {
        sums->all_reduce({.in = values.data(),
                          .out = values.data(),
                          .count = count,
                          .residual = residual.data(),
                          .timeout = std::chrono::seconds(20)});
      });
    };
    EXPECT_THAT(call(group.rank() == 2 ? 99 : 100), HasSubstr("mismatch"));
    EXPECT_THAT(residual, Each(1.F));
    EXPECT_EQ(call(100), "nothing was thrown");
    EXPECT_THAT(values, Each(6.F));
    if (group.rank() == 2) return;
    const std::string gone = call(100);
    EXPECT_THAT(gone, AllOf(HasSubstr("bounded all_reduce #3 of 100 f32"), HasSubstr("rank 2 (")));
    EXPECT_EQ(call(100), gone);
  });
}

// Datagrams do not pass, and the switch rounds: what is small beside other elements of its block would be
// lost, and nobody would hear of that.
TEST(BoundedWays, OfWhichAllAreBlockedHaveSumsThatNoSwitchRounds) {
  const Variable setting("TALWEG_SWITCH_EXACT", "1");
  live::SwitchServiceOptions options;
  std::atomic<std::size_t> most_jobs{0};
  options.describe = [&](const live::SwitchStatus& status) {
    most_jobs = std::max<std::size_t>(most_jobs, status.jobs.size());
    return std::string();
  };
  options.publish = [](const std::string&) {};
  options.publish_every_ns = 1'000'000;
  const live::Served served(options);
  testing::internal::CaptureStderr();
  run_ranks(
      talweg::kRanks,
      [&](Group& group) {
        constexpr float kLarge = 1 << 30;
        const auto sums = make_bounded(group, {.p = 0.1}, lossy(1, 1));
        live::wait_until([&] { return sums_of_each(group).size() == 1 && most_jobs > 0; });
        for (int call = 0; call < 100; ++call) {
          std::vector<float> values(1000, 1.F), residual(values.size());
          values[0] = kLarge;
          const LossReport report = sums->all_reduce({.in = values.data(),
                                                      .out = values.data(),
                                                      .count = values.size(),
                                                      .residual = residual.data()});
          EXPECT_TRUE(report.exact);
          values[0] -= talweg::kRanks * kLarge;
          ASSERT_EQ(values[0], 0.F);
          ASSERT_EQ(values[1], static_cast<float>(talweg::kRanks)) << "call " << call;
          std::this_thread::sleep_for(std::chrono::milliseconds(5));  // a switch may be joined meanwhile
        }
        group.barrier();
      },
      through(at(served)));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("is UDP blocked between the two hosts?"));
  EXPECT_EQ(most_jobs, 1U) << "that of the group";
}

TEST(BoundedWays, ThatTakeSmallDatagramsGetSmallPacketsOfWhichAPartMayBeLost) {
  constexpr std::size_t kCount = 60'000, kTakes = 1000;
  std::atomic<std::size_t> largest{0};
  std::atomic<std::uint64_t> lost{0};
  testing::internal::CaptureStderr();
  run_ranks(3, [&](Group& group) {
    BoundedSeams seams = lossy(0.03, 3 + static_cast<unsigned>(group.rank()));
    if (group.rank() == 2) seams = no_larger_than(kTakes, seams);
    std::atomic<bool> made{false};
    seams.send = [&, forward = seams.send](int fd, mmsghdr* messages, unsigned n) {
      for (unsigned i = 0; i < n && made; ++i)
        largest = std::max<std::size_t>(largest, messages[i].msg_hdr.msg_iov->iov_len);
      return forward(fd, messages, n);
    };
    const auto sums = make_bounded(group, {.p = 0.1}, seams);
    made = true;
    std::vector<float> residual(kCount), given(kCount);
    for (int call = 0; call < 5; ++call) {
      std::vector<float> values(kCount, 1.F);
      const LossReport report = sums->all_reduce(
          {.in = values.data(), .out = values.data(), .count = kCount, .residual = residual.data()});
      EXPECT_FALSE(report.exact);
      lost += report.lost_bytes;
      for (std::size_t i = 0; i < kCount; ++i) given[i] += values[i];
    }
    std::vector<float> left(kCount);
    group.all_reduce(residual.data(), left.data(), kCount, DataType::f32, ReduceOp::sum);
    for (std::size_t i = 0; i < kCount; ++i) given[i] += left[i];
    EXPECT_THAT(given, Each(15.F));
  });
  EXPECT_GT(lost, 0U);
  EXPECT_GT(largest, 500U);
  EXPECT_LE(largest, kTakes);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(
      lines_with(said,
                 "WARN bounded: from rank 2 \\([^\n]*\\) to rank 0 \\([^\n]*\\) 740 bytes pass; 8292 are "
                 "lost"),
      1)
      << said;
  EXPECT_EQ(lines_with(said, "WARN"), 1) << said;
}

TEST(BoundedWays, ThatLoseAPartOfAllSizesAreLeftAsTheyAre) {
  testing::internal::CaptureStderr();
  run_ranks(3, [](Group& group) {
    make_bounded(group, {}, lossy(0.1, 6 + static_cast<unsigned>(group.rank())));
    // Nothing as large as what the way does not take would leave.
    const auto sums = make_bounded(group, {.packet_bytes = 512}, no_larger_than(1000, lossy(0, 9)));
    std::vector<float> values(10'000, 1.F);
    EXPECT_FALSE(sums->all_reduce({.in = values.data(), .out = values.data(), .count = values.size()}).exact);
    EXPECT_THAT(values, Each(3.F));
  });
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace talweg::group
