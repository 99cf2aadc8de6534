// BurstPacer: whether a datagram may leave now, so that they leave at a rate, in bursts as large as the
// kernel takes at once.
//
//   while (something waits && pacer.allowed(now)) { send a datagram; pacer.spent(its bytes); }
//   look again at pacer.next(now);
//
// Whole datagrams only: the last one of a burst may be more than was allowed, and the next burst waits for
// it. A burst begins when all of it may leave, so that single datagrams do not trickle out between two ticks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace talweg::protocol {

class BurstPacer {
 public:
  // What is sent in so much time is a burst: often enough for a smooth flow, seldom enough to be worth a
  // wake.
  static constexpr double kBurstSeconds = 100e-6;
  static constexpr double kLeastBurst = 4 << 10;
  static constexpr double kMostBurst = 64 << 10;  // what one segmentation offload takes

  // Bytes per second; 0: no limit.
  void set_rate(double rate, std::int64_t now_ns) {
    refill(now_ns);
    rate_ = rate;
    burst_ = std::clamp(rate * kBurstSeconds, kLeastBurst, kMostBurst);
  }
  double rate() const { return rate_; }

  bool allowed(std::int64_t now_ns) {
    if (rate_ <= 0) return true;
    refill(now_ns);
    if (tokens_ >= burst_) bursting_ = true;
    if (tokens_ <= 0) bursting_ = false;
    return bursting_;
  }
  void spent(std::size_t bytes) {
    if (rate_ > 0) tokens_ -= static_cast<double>(bytes);
  }
  // When allowed() says so again, of one that said no.
  std::int64_t next(std::int64_t now_ns) const {
    if (rate_ <= 0 || bursting_) return now_ns;
    const double seconds = std::max(0.0, burst_ - tokens_) / rate_;
    return at_ns_ + static_cast<std::int64_t>(seconds * 1e9) + 1;
  }

 private:
  void refill(std::int64_t now_ns) {
    if (now_ns <= at_ns_) return;
    // Who comes late to a tick has lost nothing; who had nothing to send for long does not flood the way.
    tokens_ = std::min(2 * burst_, tokens_ + rate_ * static_cast<double>(now_ns - at_ns_) * 1e-9);
    at_ns_ = now_ns;
  }

  double rate_ = 0;
  double burst_ = kLeastBurst;
  double tokens_ = 0;
  bool bursting_ = false;
  std::int64_t at_ns_ = 0;
};

}  // namespace talweg::protocol
