// LossCause: whether a flow's losses come of full queues, or whatever it does.
//
// A queue drops what finds it full, so a loss comes while the queue is as long as it ever is. Other losses (a
// bad cable, a radio, somebody's burst) come at any time. So a loss is held against two hypotheses: that
// losses come while the queue is shorter than half of the longest as often as anything arrives then, or
// kSeldom times less often. The sum of the logarithms of how much likelier the first one makes them decides
// (Wald's sequential test, Annals of Mathematical Statistics 16(2), 1945), between two limits, so that what
// changes is noticed.
//
// Where queues are always the same nothing can be told. Where none is kOverHosts times as long as what the
// times differ by that hosts take to answer, it would be told of the hosts. There, and where much is lost, a
// loss is taken for a full queue: less is sent.
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
  static constexpr double kHeavy = 0.03;                          // of all packets
  static constexpr double kOverHosts = 3;
  // Weights of one packet in the averages of what arrives, and of what is lost.
  static constexpr double kOneArrived = 1.0 / 512, kOneLost = 1.0 / 2048;

  // So many packets have arrived. `queue_ns`: for how long all waited of late (RoundTrip::queue_ns).
  // `more_ns`: and the newest one longer than that.
  void arrived(double packets, std::int64_t queue_ns, std::int64_t more_ns) {
    lost_ -= lost_ * std::min(1.0, packets * kOneLost);
    // A quantile: nineteen of twenty are no longer.
    const auto queue = static_cast<double>(queue_ns);
    const double step = std::max(longest_ns_ / 128, 100.0);
    longest_ns_ = std::max(0.0, longest_ns_ + (queue > longest_ns_ ? 19 * step : -step));
    const double weight = std::min(1.0, packets * kOneArrived);
    hosts_ns_ += (static_cast<double>(more_ns) - hosts_ns_) * weight;
    short_ += ((is_short(queue_ns) ? 1.0 : 0.0) - short_) * weight;
  }
  // So many are lost. True: the first ones in a round trip. What is noticed within it afterwards is of the
  // same cause, and comes to light when the queue is short again.
  bool lost(double packets, std::int64_t queue_ns, std::int64_t trip_ns, std::int64_t now_ns) {
    lost_ += (1 - lost_) * std::min(1.0, packets * kOneLost);
    if (now_ns < next_ns_) return false;
    next_ns_ = now_ns + trip_ns;
    const double any = is_short(queue_ns) ? short_ : 1 - short_;
    const double full = is_short(queue_ns) ? short_ / kSeldom : 1 - short_ / kSeldom;
    if (any > 0) sum_ = std::clamp(sum_ + std::log(any / full), kLeast, kMost);
    return true;
  }
  // Less should be sent.
  bool full() const { return sum_ <= 0 || lost_ > kHeavy || longest_ns_ < kOverHosts * hosts_ns_; }

 private:
  bool is_short(std::int64_t queue_ns) const { return static_cast<double>(queue_ns) < longest_ns_ / 2; }

  double sum_ = kAtFirst;
  double lost_ = 0, short_ = 0;  // moving averages: parts of the packets
  double longest_ns_ = 0, hosts_ns_ = 0;
  std::int64_t next_ns_ = std::numeric_limits<std::int64_t>::min();
};

}  // namespace talweg::protocol
