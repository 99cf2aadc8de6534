#include "study/perf_bounded.h"

#include <gmock/gmock.h>

#include <cstring>

#include "protocol/bounded/adaptive_deadline.h"
#include "study/lonely_group.h"
#include "talweg/error.h"

namespace talweg::study {
namespace {

// Of one rank, which copies, and loses the first bytes of its vector.
class LosingSums : public BoundedSums {
 public:
  int calls = 0;
  std::size_t loses = 0;           // bytes
  bool keeps = true;               // these in the residual
  std::uint64_t says_missing = 0;  // of a sender's data
  bool by_switch = false;
  bool has_grown = false;  // the input was more than a pattern has

  LossReport all_reduce(const BoundedCall& call) override {
    ++calls;
    const std::size_t bytes = call.count * size_of(call.type);
    for (std::size_t i = 0; i < call.count; ++i)
      has_grown = has_grown || static_cast<const float*>(call.in)[i] > 1000;
    if (call.residual != nullptr && keeps) std::memcpy(call.residual, call.in, loses);
    if (call.in != call.out) std::memcpy(call.out, call.in, bytes);
    std::memset(call.out, 0, loses);
    if (call.residual == nullptr) static_cast<float*>(call.out)[call.count - 1] = 5000;
    LossReport report;
    report.sent_bytes = bytes;
    report.lost_bytes = loses;
    report.lost_important_bytes = loses / 2;
    report.lost_of_sender = {says_missing};
    report.by_switch = by_switch;
    return report;
  }
  LossReport push(const BoundedCall&) override { return {}; }
  void pull(const PullCall&) override {}
  BoundedPart part_of(int, std::size_t count) const override { return {0, count}; }
  std::string explain(std::size_t, DataType) const override { return {}; }
  std::string flight_record() const override { return {}; }
};

PerfOptions losing_options() {
  PerfOptions options;
  options.sizes = {4096};
  options.types = {DataType::f32};
  options.reductions = {ReduceOp::sum};
  options.iterations = 10;
  options.may_lose = 0.1;
  return options;
}

Timing measured_with(LosingSums& sums, bool in_place, LostBytes& lost) {
  LonelyGroup group;
  const PerfOptions options = losing_options();
  const PerfCase c{Collective::all_reduce, DataType::f32, ReduceOp::sum, 0, 1, 1024};
  return measure_bounded(group, sums, c, options, PerfBuffers(options, 1), in_place, lost);
}

TEST(PerfBounded, WhatIsLostAndKeptIsNotWrong) {
  for (const bool in_place : {false, true}) {
    LosingSums sums;
    sums.loses = sums.says_missing = 400;
    LostBytes lost;
    EXPECT_EQ(measured_with(sums, in_place, lost).wrong, 0U);
    EXPECT_EQ(lost.sent, 40'960U);
    EXPECT_DOUBLE_EQ(lost.part().part, 400.0 / 4096);
    EXPECT_DOUBLE_EQ(lost.part().important, 0.5);
    // One before, ten that are timed, one that is checked; the first side learns how long transfers take.
    EXPECT_EQ(sums.calls, 12 + (in_place ? 0 : static_cast<int>(protocol::AdaptiveDeadline::kWarmUp)));
    EXPECT_FALSE(sums.has_grown);
  }
}

TEST(PerfBounded, WhatIsLostAndGoneIsWrong) {
  for (const bool in_place : {false, true}) {
    LosingSums sums;
    sums.loses = 400;
    sums.keeps = false;
    LostBytes lost;
    const auto wrong = measured_with(sums, in_place, lost).wrong;
    EXPECT_GT(wrong.value_or(0), 50U);  // a pattern has some zeros
    EXPECT_LE(wrong.value_or(0), 100U);
  }
}

TEST(PerfBounded, WhatIsMissingBeyondTheBoundIsWrongInTimedCallsToo) {
  LosingSums sums;
  sums.says_missing = 409 + 6;  // a tenth, and two elements more
  LostBytes lost;
  EXPECT_EQ(measured_with(sums, true, lost).wrong, 2U * 12);
}

// As the sums count it: rounding of 0.1 takes no byte away.
TEST(PerfBounded, TheBoundIsOfTheRanksOwnPart) {
  LossReport report;
  report.lost_of_sender = {0, 40, 44, 39};
  const PerfCase c{Collective::all_reduce, DataType::f32, ReduceOp::sum, 0, 4, 403};
  EXPECT_EQ(lost_beyond(report, c, 100, 0.1), 1U);
  EXPECT_EQ(lost_beyond(report, c, 100, 0.11), 0U);
  EXPECT_EQ(lost_beyond(report, c, 101, 0), 10U + 11 + 10);
}

// A rank that has lost nothing for long may lose p in one call, and not in every one.
TEST(PerfBounded, TheLimitsBesideTheBoundAreOfAllCallsAndOfAllSenders) {
  PerfOptions options = losing_options();
  options.may_lose_sender = 0.01;
  options.may_lose_call = 0.05;
  LostBeyondLimits limits(options, 1000, 3000);
  LossReport report;
  report.lost_of_sender = {0, 100, 0};  // of 2000 bytes, a twentieth
  limits.add(report);
  EXPECT_EQ(limits.bytes(), 0U);
  limits.add(report);
  EXPECT_EQ(limits.bytes(), 200U - 17 * 10);
  report.lost_of_sender = {0, 0, 103};
  limits.add(report);
  EXPECT_EQ(limits.bytes(), 200U - 17 * 10 + 3) << "what was too much after two calls stays so";
}

// What a switch has left out is of the whole vector.
TEST(PerfBounded, TheLimitsAreOfTheWholeVectorWhereASwitchHasMadeTheSum) {
  PerfOptions options = losing_options();
  options.may_lose_call = 0.05;
  LostBeyondLimits limits(options, 1000, 3000);
  LossReport report;
  report.by_switch = true;
  report.lost_of_sender = {0, 200, 100};  // of 6000 bytes, a twentieth
  limits.add(report);
  EXPECT_EQ(limits.bytes(), 0U);
  report.lost_of_sender = {0, 200, 104};
  limits.add(report);
  EXPECT_EQ(limits.bytes(), 4U);
  LosingSums sums;
  sums.says_missing = 1024;
  sums.by_switch = true;
  LostBytes lost;
  EXPECT_EQ(measured_with(sums, true, lost).wrong, (1024U - 409 + 3) / 4 * 12);
  EXPECT_EQ(lost.part().calls_by_switch, 10U);
  EXPECT_EQ(lost.part().calls, 10U);
}

TEST(PerfBounded, LimitsThatAreNotGivenHoldNothingHoweverMuchIsSummed) {
  LostBeyondLimits limits(losing_options(), std::size_t{1} << 40, std::size_t{1} << 42);
  LossReport report;
  report.lost_of_sender = {0, 1 << 30, 1 << 30};
  for (int call = 0; call < 100; ++call) limits.add(report);
  EXPECT_EQ(limits.bytes(), 0U);
}

TEST(PerfBounded, WhatSuchSumsDoNotDoIsRefused) {
  const auto complaint = [](auto&& change) -> std::string {
    PerfOptions options = losing_options();
    change(options);
    try {
      check_bounded_perf(options);
    } catch (const Error& error) {
      return error.what();
    }
    return "none";
  };
  EXPECT_EQ(complaint([](PerfOptions&) {}), "none");
  EXPECT_EQ(complaint([](PerfOptions& o) { o.op = Collective::broadcast; }),
            "--may-lose: a part may be lost of all_reduce, not of broadcast");
  EXPECT_THAT(complaint([](PerfOptions& o) { o.reductions = {ReduceOp::max}; }),
              testing::HasSubstr("-o must be sum"));
  EXPECT_THAT(complaint([](PerfOptions& o) {
                o.types = {DataType::f32, DataType::i32};
              }),
              testing::HasSubstr("not of int32"));
  EXPECT_THAT(complaint([](PerfOptions& o) { o.aggregate = 2; }), testing::HasSubstr("-m must be 1"));
  EXPECT_THAT(complaint([](PerfOptions& o) { o.blocking = Blocking::enqueue; }),
              testing::HasSubstr("-z must not be 0"));
}

}  // namespace
}  // namespace talweg::study
