// AdaptiveDeadline: how long to wait for the rest of a transfer, from how long transfers take: so that nobody
// has to find out a number for each model and network.
//
//   AdaptiveDeadline times;
//   times.on_ended(measured);          // each transfer of a tensor: by rank, what all have told of theirs
//   if (times.is_warm()) linger_ns = times.linger_ns();
//
// As OptiReduce does it (NSDI 2025): the first transfers lose nothing and say how long is long, which is
// their 95th percentile; from then on a moving average says how long a transfer takes, and a part of it is
// waited for more once no more is missing than may be. That part doubles while losses are high, and becomes
// smaller while there are hardly any.
//
// A transfer takes as long as the median of those ranks that received any of it says, and has lost the mean
// of what these have. So all ranks that hear the same come to the same, and one that is always slow, or
// whose times make no sense, does not decide for the others.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace talweg::protocol {

// What a rank tells the others of its last transfer of a tensor.
struct MeasuredTransfer {
  std::uint64_t took_ns = 0;   // 0: it received nothing
  std::uint64_t lost_ppm = 0;  // millionths of what it was sent
  bool operator==(const MeasuredTransfer&) const = default;
};

class AdaptiveDeadline {
 public:
  static constexpr std::size_t kWarmUp = 20;  // transfers
  static constexpr double kPercentile = 0.95;
  static constexpr double kOlder = 0.95;  // the weight of what was, in the average
  static constexpr double kLeastPart = 0.1, kMostPart = 0.5;
  static constexpr double kLessPart = 0.9;  // times so much
  static constexpr double kHighLoss = 1e-3, kLowLoss = 1e-4;

  // Believed of one transfer: more than any network takes, and no sum of these overflows.
  static constexpr std::uint64_t kMostTookNs = 3'600'000'000'000, kMostLostPpm = 1'000'000;

  void on_ended(std::span<const MeasuredTransfer> all) {
    std::vector<std::uint64_t> took;
    double lost_ppm = 0;
    for (const MeasuredTransfer& its : all) {
      if (its.took_ns == 0) continue;
      took.push_back(std::min(its.took_ns, kMostTookNs));
      lost_ppm += static_cast<double>(std::min(its.lost_ppm, kMostLostPpm));
    }
    if (took.empty()) return;
    // Of two in the middle the shorter one: of two ranks the slow one does not decide.
    const auto middle = took.begin() + static_cast<std::ptrdiff_t>((took.size() - 1) / 2);
    std::nth_element(took.begin(), middle, took.end());
    const auto took_ns = static_cast<std::int64_t>(*middle);
    if (seen_ < kWarmUp) {
      first_[seen_++] = took_ns;
      if (is_warm()) learn();
      return;
    }
    mean_ns_ = kOlder * mean_ns_ + (1 - kOlder) * static_cast<double>(took_ns);
    const double loss = lost_ppm / static_cast<double>(kMostLostPpm) / static_cast<double>(took.size());
    if (loss > kHighLoss) part_ = std::min(kMostPart, 2 * part_);
    if (loss < kLowLoss) part_ = std::max(kLeastPart, kLessPart * part_);
  }

  // Until then wait for everything: what is measured would be what was given up.
  bool is_warm() const { return seen_ == kWarmUp; }
  double part() const { return part_; }
  // Once it is warm. Never more than the warm-up's slow ones took.
  std::int64_t linger_ns() const { return std::min(slow_ns_, static_cast<std::int64_t>(part_ * mean_ns_)); }

 private:
  void learn() {
    const auto nth = first_.begin() + static_cast<std::ptrdiff_t>(kPercentile * (kWarmUp - 1));
    double sum = 0;
    for (const std::int64_t took : first_) sum += static_cast<double>(took);
    mean_ns_ = sum / kWarmUp;
    std::nth_element(first_.begin(), nth, first_.end());
    slow_ns_ = *nth;
  }

  std::array<std::int64_t, kWarmUp> first_{};
  std::size_t seen_ = 0;
  std::int64_t slow_ns_ = 0;
  double mean_ns_ = 0;
  double part_ = kLeastPart;
};

}  // namespace talweg::protocol
