// RoundTrip: how long an answer takes, and how long to wait for one. RFC 6298's estimate; only datagrams that
// are known to have been sent once give samples (Karn's rule), which here all do: what is sent again has
// another number.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>

namespace talweg::protocol {

class RoundTrip {
 public:
  // Below it the machine's own scheduling decides, not the network.
  static constexpr std::int64_t kLeastTimeoutNs = 2'000'000;
  static constexpr std::int64_t kMostTimeoutNs = 1'000'000'000;
  static constexpr std::int64_t kFirstTimeoutNs = 50'000'000;  // before anything has been measured
  // A route may change: what was the shortest round trip counts for two epochs, this one and the last.
  static constexpr std::int64_t kEpochNs = 5'000'000'000;

  // `wall_ns`: what makes the time a wall clock's, by which epochs begin at the same time on all hosts.
  explicit RoundTrip(std::int64_t wall_ns = 0) : wall_ns_(wall_ns) {}

  // `held_ns`: for which the other side says it kept the answer. It counts for how long to wait for an
  // answer, but not for the delay of the way: a host that is busy is no queue in the network.
  void sample(std::int64_t rtt_ns, std::int64_t held_ns, std::int64_t now_ns) {
    rtt_ns = std::max<std::int64_t>(rtt_ns, 1);
    const bool first = latest_ns_ == 0;
    if (first) {
      smoothed_ns_ = rtt_ns;
      variation_ns_ = rtt_ns / 2;
    } else {
      const std::int64_t error = smoothed_ns_ > rtt_ns ? smoothed_ns_ - rtt_ns : rtt_ns - smoothed_ns_;
      variation_ns_ += (error - variation_ns_) / 4;
      smoothed_ns_ += (rtt_ns - smoothed_ns_) / 8;
    }
    latest_ns_ = rtt_ns;
    delay_ns_ = std::max<std::int64_t>(rtt_ns - std::max<std::int64_t>(held_ns, 0), 1);
    smooth_delay_ns_ = first ? delay_ns_ : smooth_delay_ns_ + (delay_ns_ - smooth_delay_ns_) / 8;
    if (const std::int64_t epoch = (now_ns + wall_ns_) / kEpochNs; first || epoch != epoch_) {
      base_ns_ = {delay_ns_, first ? delay_ns_ : base_ns_[0]};
      epoch_ = epoch;
    }
    base_ns_[0] = std::min(base_ns_[0], delay_ns_);
    if (const std::int64_t age = now_ns - standing_since_ns_; first || age >= smoothed_ns_) {
      standing_ns_ = {delay_ns_, first || age >= 2 * smoothed_ns_ ? delay_ns_ : standing_ns_[0]};
      standing_since_ns_ = now_ns;
    }
    standing_ns_[0] = std::min(standing_ns_[0], delay_ns_);
  }

  bool known() const { return latest_ns_ > 0; }
  std::int64_t latest_ns() const { return latest_ns_; }
  std::int64_t smoothed_ns() const { return smoothed_ns_; }
  std::int64_t variation_ns() const { return variation_ns_; }
  // There and back, without what the other side kept it.
  std::int64_t delay_ns() const { return delay_ns_; }
  std::int64_t smooth_delay_ns() const { return smooth_delay_ns_; }
  // The shortest of the last round trip or two: for a queue that stands all of them wait, for a busy host
  // only some (Copa's standing round trip: Arun and Balakrishnan, NSDI 2018, section 2).
  std::int64_t standing_ns() const { return std::min(standing_ns_[0], standing_ns_[1]); }
  // The shortest of late: the way without queues, if none stood all the time (RateControl sees to it).
  std::int64_t base_ns() const { return std::min(base_ns_[0], base_ns_[1]); }
  // How long all wait of late: the queue that stands.
  std::int64_t queue_ns() const { return standing_ns() - base_ns(); }
  // And the newest one longer than that.
  std::int64_t more_ns() const { return delay_ns_ - standing_ns(); }
  std::int64_t epoch() const { return epoch_; }

  // Until an answer counts as missing that the other side may hold for `held_ns`; twice as long after each
  // that has been missed, `missed` of them in a row. No less than two round trips.
  std::int64_t timeout_ns(unsigned missed, std::int64_t held_ns) const {
    const std::int64_t once =
        known() ? std::max(smoothed_ns_ + 4 * variation_ns_, 2 * smoothed_ns_) + held_ns : kFirstTimeoutNs;
    const std::int64_t least = std::clamp(once, kLeastTimeoutNs, kMostTimeoutNs);
    return std::min(least << std::min(missed, 20U), std::max(kMostTimeoutNs, 2 * smoothed_ns_));
  }

 private:
  std::int64_t latest_ns_ = 0;  // 0: nothing has been measured
  std::int64_t smoothed_ns_ = 0;
  std::int64_t variation_ns_ = 0;
  std::int64_t delay_ns_ = 0;
  std::int64_t smooth_delay_ns_ = 0;
  std::int64_t wall_ns_;
  std::array<std::int64_t, 2> base_ns_{};  // of this epoch, and of the one before
  std::int64_t epoch_ = 0;
  std::array<std::int64_t, 2> standing_ns_{};  // of this round trip, and of the one before
  std::int64_t standing_since_ns_ = 0;
};

}  // namespace talweg::protocol
