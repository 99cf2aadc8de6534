// TryTimes: when datagrams are tried again on a way that brings no answer (udp_link.h). Pure: no clock.
//
//   times.begin(now);                       // they go another way from now on
//   if (times.due(now)) try some, and times.tried(now);
//   times.came(now);                        // something came, but no answer yet: it is worth a try soon
//   for a look at that at next_ns(), if nothing else wakes whoever waits
#pragma once

#include <algorithm>
#include <cstdint>

namespace talweg::live {

class TryTimes {
 public:
  // The first after kLeastNs, and each after twice as long as the one before it, up to kMostNs.
  static constexpr std::int64_t kLeastNs = 1'000'000'000, kMostNs = 30'000'000'000;

  void begin(std::int64_t now_ns) {
    wait_ns_ = kLeastNs;
    next_ns_ = now_ns + wait_ns_;
  }
  bool due(std::int64_t now_ns) const { return now_ns >= next_ns_; }
  void tried(std::int64_t now_ns) {
    wait_ns_ = std::min(2 * wait_ns_, kMostNs);
    next_ns_ = now_ns + wait_ns_;
  }
  void came(std::int64_t now_ns) {
    wait_ns_ = kLeastNs;
    next_ns_ = std::min(next_ns_, now_ns + wait_ns_);
  }
  std::int64_t next_ns() const { return next_ns_; }

 private:
  std::int64_t next_ns_ = 0;
  std::int64_t wait_ns_ = kLeastNs;  // before the next one
};

}  // namespace talweg::live
