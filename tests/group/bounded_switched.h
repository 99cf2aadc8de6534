// Bounded sums of a group that a switch makes.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "live/served_switch.h"
#include "switched.h"
#include "talweg/bounded_loss.h"

namespace talweg::group {

inline constexpr int kSwitched = talweg::kRanks;
inline constexpr std::size_t kTolerated = 200'000;  // floats: several rounds of each slot

// By which way the last call went that has ended, as the sums' flight record has it.
inline std::string last_bounded_way(const BoundedSums& sums) {
  const std::string record = sums.flight_record();
  const std::size_t call = record.rfind("\n{\"operation\":\"bounded_all_reduce\"");
  const std::string line = record.substr(call, record.find('\n', call + 1) - call);
  const std::size_t way = line.find("\"way\":\"");
  return way == std::string::npos ? "" : line.substr(way + 7, line.find('"', way + 7) - way - 7);
}

// testing::Each takes long.
inline bool are_all(const std::vector<float>& values, float expected) {
  return std::ranges::all_of(values, [=](float x) { return std::abs(x - expected) <= 1e-5F * expected; });
}

inline bool nothing_is_missing(const LossReport& report) {
  return report.lost_bytes == 0 &&
         std::ranges::count(report.lost_of_sender, 0U) == std::ssize(report.lost_of_sender);
}

// A sum of ones, in place.
inline LossReport sum_ones(const Group& group, BoundedSums& sums, std::size_t count,
                           ReduceOp reduction = ReduceOp::sum) {
  std::vector<float> ones(count, 1.F);
  LossReport report =
      sums.all_reduce({.in = ones.data(), .out = ones.data(), .count = count, .reduction = reduction});
  EXPECT_EQ(std::ssize(report.lost_of_sender), group.size());
  EXPECT_TRUE(!report.exact || nothing_is_missing(report));
  if (nothing_is_missing(report)) {
    EXPECT_TRUE(are_all(ones, reduction == ReduceOp::avg ? 1.F : static_cast<float>(group.size())));
  }
  return report;
}

// Until one goes by the switch; all ranks find the same.
inline void sum_until_by_switch(const Group& group, BoundedSums& sums, std::size_t count = 1000,
                                ReduceOp reduction = ReduceOp::sum) {
  const std::int64_t deadline_ns = live::soon();
  while (!sum_ones(group, sums, count, reduction).by_switch) {
    ASSERT_LT(live::now_ns(), deadline_ns) << sums.explain(count);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

}  // namespace talweg::group
