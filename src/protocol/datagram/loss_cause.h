// LossCause: whether a flow's losses come of full queues, or whatever it does.
//
// A queue drops what finds it full, so what arrives just before and after a loss has waited longer than most.
// Other losses (a bad cable, a radio, somebody's burst) come at any time: half of them while the delay is
// below its median. So each loss is held against two hypotheses, that kShortIfFull of them come beside a
// short delay, and that half of them do; the sum of the logarithms of how much likelier the second one makes
// them decides (Wald's sequential test, Annals of Mathematical Statistics 16(2), 1945), between two limits,
// so that what changes is noticed.
//
// Pure.
#pragma once

#include <algorithm>
#include <cstdint>

namespace talweg::protocol {

class LossCause {
 public:
  static constexpr double kShortIfFull = 0.1;
  static constexpr double kAtFirst = -2, kLeast = -4, kMost = 6;  // of the sum; above 0: not the queues
  static constexpr double kHeavy = 0.1;            // of all packets: whatever the cause, less is sent
  static constexpr double kOnePacket = 1.0 / 512;  // its weight in the average of losses

  // So many packets have arrived, the newest of them with `queue_ns` more than the shortest round trip.
  void arrived(double packets, std::int64_t queue_ns) {
    lost_ -= lost_ * std::min(1.0, packets * kOnePacket);
    const std::int64_t step = std::max<std::int64_t>(median_ns_ / 16, 500);
    median_ns_ = std::max<std::int64_t>(0, median_ns_ + (queue_ns > median_ns_ ? step : -step));
  }
  // So many are lost that left one after the other, and what left beside them took so long.
  void lost(double packets, std::int64_t queue_ns) {
    lost_ += (1 - lost_) * std::min(1.0, packets * kOnePacket);
    constexpr double kShort = 1.609, kLong = -0.588;  // ln(0.5 / 0.1), ln(0.5 / 0.9)
    sum_ = std::clamp(sum_ + (queue_ns > median_ns_ ? kLong : kShort), kLeast, kMost);
  }
  // Less should be sent.
  bool full() const { return sum_ <= 0 || lost_ > kHeavy; }

 private:
  double sum_ = kAtFirst;
  double lost_ = 0;  // moving average of how large a part is
  std::int64_t median_ns_ = 0;
};

}  // namespace talweg::protocol
