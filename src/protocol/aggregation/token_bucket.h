// A rate that may be exceeded for a moment: `burst` bytes at once, `bytes_per_second` in the long run.
//
// Whatever comes while anything is left is taken whole, and what it takes too much is owed: else small
// datagrams would always find room and large ones never. Who is refused is told a time of its own to come
// back, one after the other as the rate allows: nothing is kept free for it then, but those who were refused
// do not come all at once.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace talweg::protocol {

class TokenBucket {
 public:
  TokenBucket(double bytes_per_second, double burst)
      : bytes_per_second_(bytes_per_second), burst_(burst), tokens_(burst) {}

  // 0: taken. Otherwise nothing was, and may be in so many nanoseconds.
  std::int64_t take(double bytes, std::int64_t now_ns) {
    fill(now_ns);
    if (tokens_ > 0) {
      tokens_ -= bytes;
      return 0;
    }
    const std::int64_t earliest_ns = now_ns + nanoseconds(-tokens_) + 1;
    if (turn_ns_ < earliest_ns || turn_ns_ > earliest_ns + kMostTurnsNs) turn_ns_ = earliest_ns;
    const std::int64_t wait_ns = turn_ns_ - now_ns;
    turn_ns_ += nanoseconds(bytes);
    return wait_ns;
  }
  // Takes what nobody asked to be taken: it is owed.
  void charge(double bytes) { tokens_ -= bytes; }
  void fill(std::int64_t now_ns) {
    if (now_ns <= filled_ns_) return;
    tokens_ = std::min(burst_, tokens_ + static_cast<double>(now_ns - filled_ns_) * bytes_per_second_ / 1e9);
    filled_ns_ = now_ns;
  }
  // From when on something is left, if nothing more is taken; and in how long a rate of bytes is through.
  std::int64_t ready_ns() const { return tokens_ > 0 ? filled_ns_ : filled_ns_ + nanoseconds(-tokens_) + 1; }
  std::int64_t duration_ns(double bytes) const { return nanoseconds(bytes); }

 private:
  // Turns are given so far ahead, and then from the beginning: some who had one will not come.
  static constexpr std::int64_t kMostTurnsNs = 50'000'000;
  static constexpr double kLongestNs = 3.6e12;  // an hour: as good as never, and far from overflowing
  std::int64_t nanoseconds(double bytes) const {
    return static_cast<std::int64_t>(std::min(std::ceil(bytes / bytes_per_second_ * 1e9), kLongestNs));
  }

  double bytes_per_second_;
  double burst_;
  double tokens_;
  std::int64_t filled_ns_ = 0;
  std::int64_t turn_ns_ = 0;  // of who is refused next
};

}  // namespace talweg::protocol
