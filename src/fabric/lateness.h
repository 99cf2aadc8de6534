// Lateness: how much later than meant things were done, in a table of fixed size: eight steps to each
// doubling, so a percentile is right to an eighth.
//
//   Lateness late;
//   late.add(ns);
//   const std::int64_t p99 = late.at_most(0.99);
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace talweg::fabric {

class Lateness {
 public:
  void add(std::int64_t ns) {
    ns = std::max<std::int64_t>(ns, 0);
    ++counts_[step_of(static_cast<std::uint64_t>(ns))];
    ++count_;
    worst_ = std::max(worst_, ns);
  }
  std::uint64_t count() const { return count_; }
  std::int64_t worst() const { return worst_; }
  // What this share of all did not exceed, rounded up to the next step; 0 where there is nothing.
  std::int64_t at_most(double share) const {
    const double wanted = share * static_cast<double>(count_);
    std::uint64_t seen = 0;
    for (std::size_t step = 0; step < counts_.size() && count_ > 0; ++step) {
      seen += counts_[step];
      if (static_cast<double>(seen) >= wanted) return std::min(end_of(step), worst_);
    }
    return worst_;
  }

 private:
  static constexpr std::uint64_t kSteps = 8;  // of a doubling; below that each number is a step
  static constexpr std::size_t step_of(std::uint64_t ns) {
    if (ns < kSteps) return ns;
    const int shift = static_cast<int>(std::bit_width(ns)) - 4;
    return static_cast<std::size_t>(shift) * kSteps + (ns >> shift);
  }
  static constexpr std::int64_t end_of(std::size_t step) {
    if (step < 2 * kSteps) return static_cast<std::int64_t>(step);
    const std::size_t shift = step / kSteps - 1;
    return static_cast<std::int64_t>(((step % kSteps + kSteps + 1) << shift) - 1);
  }
  std::array<std::uint64_t, 62 * kSteps> counts_{};
  std::uint64_t count_ = 0;
  std::int64_t worst_ = 0;
};

}  // namespace talweg::fabric
