// LossCause: whether a flow's losses come of full queues, or whatever it does.
//
// A queue drops what finds it full, so what arrives just after such a loss has waited as long as anything
// does. Other losses (a bad cable, a radio, somebody's burst) come at any time. So a loss is held against two
// hypotheses: that losses come beside short delays, of less than half of the longest, as often as anything
// arrives with such, or kSeldom times less often. The sum of the logarithms of how much likelier the first
// one makes them decides (Wald's sequential test, Annals of Mathematical Statistics 16(2), 1945), between two
// limits, so that what changes is noticed. Where delays are always the same nothing can be told, and a loss
// is taken for a full queue: less is sent, and delays differ.
//
// Pure.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace talweg::protocol {

class LossCause {
 public:
  static constexpr double kSeldom = 5;
  static constexpr double kAtFirst = -2, kLeast = -4, kMost = 6;  // of the sum; above 0: not the queues
  static constexpr double kHeavy = 0.05;           // of all packets: whatever the cause, less is sent
  static constexpr double kOnePacket = 1.0 / 512;  // its weight in the averages

  // So many packets have arrived, the newest of them with `queue_ns` more than the shortest round trip.
  void arrived(double packets, std::int64_t queue_ns) {
    const double weight = std::min(1.0, packets * kOnePacket);
    lost_ -= lost_ * weight;
    // A quantile: nineteen of twenty are no longer.
    const auto queue = static_cast<double>(queue_ns);
    const double step = std::max(longest_ns_ / 128, 100.0);
    longest_ns_ = std::max(0.0, longest_ns_ + (queue > longest_ns_ ? 19 * step : -step));
    short_ += ((is_short(queue_ns) ? 1.0 : 0.0) - short_) * weight;
  }
  // So many are lost, and what came just after them took so long. What is noticed within a round trip of the
  // first is of the same cause, and comes to light when the queue is short again.
  void lost(double packets, std::int64_t queue_ns, std::int64_t trip_ns, std::int64_t now_ns) {
    lost_ += (1 - lost_) * std::min(1.0, packets * kOnePacket);
    if (now_ns < next_ns_) return;
    next_ns_ = now_ns + trip_ns;
    const double any = is_short(queue_ns) ? short_ : 1 - short_;
    const double full = is_short(queue_ns) ? short_ / kSeldom : 1 - short_ / kSeldom;
    if (any <= 0) return;
    sum_ = std::clamp(sum_ + std::log(any / full), kLeast, kMost);
  }
  // Less should be sent.
  bool full() const { return sum_ <= 0 || lost_ > kHeavy; }

 private:
  bool is_short(std::int64_t queue_ns) const { return static_cast<double>(queue_ns) < longest_ns_ / 2; }

  double sum_ = kAtFirst;
  double lost_ = 0, short_ = 0;  // moving averages: parts of the packets
  double longest_ns_ = 0;
  std::int64_t next_ns_ = std::numeric_limits<std::int64_t>::min();
};

}  // namespace talweg::protocol
