// How far this process's monotonic clock is from that of rank 0, as far as is known: from questions on the
// connection between them, each answered with the time there. The answer is taken to have been given half way
// between question and arrival, so the error is at most half the round trip: the fastest one counts.
#pragma once

#include <cstdint>

namespace talweg::observe {

struct ClockOffset {
  bool known = false;
  std::int64_t offset_ns = 0;      // rank 0's clock = ours + offset
  std::int64_t round_trip_ns = 0;  // of the question that told; 0: both ranks read the same clock

  static constexpr std::int64_t kFresh = 30'000'000'000;  // two clocks drift apart by some 10 us a second

  // True when the answer is better than what was known.
  bool learn(std::int64_t asked_ns, std::int64_t theirs_ns, std::int64_t now_ns) {
    const std::int64_t trip = now_ns - asked_ns;
    if (trip < 0 || (known && trip > round_trip_ns && now_ns - learned_ns < kFresh)) return false;
    *this = {true, theirs_ns - (asked_ns + trip / 2), trip, now_ns};
    return true;
  }

  std::int64_t learned_ns = 0;
};

}  // namespace talweg::observe
