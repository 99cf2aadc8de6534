// A rate that may be exceeded for a moment: `burst` bytes at once, `bytes_per_second` in the long run.
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
    if (now_ns > filled_ns_) {
      tokens_ =
          std::min(burst_, tokens_ + static_cast<double>(now_ns - filled_ns_) * bytes_per_second_ / 1e9);
      filled_ns_ = now_ns;
    }
    if (tokens_ >= bytes) {
      tokens_ -= bytes;
      return 0;
    }
    return std::max<std::int64_t>(
        1, static_cast<std::int64_t>(std::ceil((bytes - tokens_) / bytes_per_second_ * 1e9)));
  }

 private:
  double bytes_per_second_;
  double burst_;
  double tokens_;
  std::int64_t filled_ns_ = 0;
};

}  // namespace talweg::protocol
