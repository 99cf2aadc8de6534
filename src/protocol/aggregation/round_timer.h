// How long to wait for the end of a round before something is done about it: Jacobson's estimator (RFC
// 6298) of how long rounds take, and doubled for each time that it has already been in vain. Where an answer
// may be to either of two that were sent, it is not to be measured (Karn).
//
// A round takes as long as its slowest worker, not only as long as the network: the wait is never less than
// two mean rounds.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

namespace talweg::protocol {

struct RoundTimes {
  std::int64_t first_ns = 20'000'000;  // while nothing has been measured
  std::int64_t least_ns = 200'000;
  std::int64_t most_ns = 500'000'000;
};

class RoundTimer {
 public:
  explicit RoundTimer(const RoundTimes& times) : times_(times) {}

  void measured(std::int64_t round_ns) {
    if (mean_ns_ == 0 || assumed_) {
      first(round_ns);
      assumed_ = false;
      return;
    }
    deviation_ns_ += (std::abs(round_ns - mean_ns_) - deviation_ns_) / 4;
    mean_ns_ += (round_ns - mean_ns_) / 8;
  }
  // A round takes about so long, until one has been measured.
  void assume(std::int64_t round_ns) {
    if (mean_ns_ > 0 && !assumed_) return;
    first(round_ns);
    assumed_ = true;
  }
  // No longer than that, of an answer to any of several questions. Better than what was assumed: who waits
  // for less than answers take repeats each question, and would never measure one.
  void measured_at_most(std::int64_t round_ns) {
    if (assumed_) measured(round_ns);
  }
  std::int64_t wait_ns(std::uint32_t times_in_vain) const {
    std::int64_t wait = times_.first_ns;
    if (mean_ns_ > 0) wait = std::max({times_.least_ns, mean_ns_ + 4 * deviation_ns_, 2 * mean_ns_});
    for (std::uint32_t i = 0; i < times_in_vain && wait < times_.most_ns; ++i) wait *= 2;
    return std::min(wait, times_.most_ns);
  }
  std::int64_t mean_ns() const { return mean_ns_; }  // 0: not known

 private:
  void first(std::int64_t round_ns) {
    mean_ns_ = std::max<std::int64_t>(1, round_ns);
    deviation_ns_ = round_ns / 2;
  }

  RoundTimes times_;
  bool assumed_ = false;
  std::int64_t mean_ns_ = 0;
  std::int64_t deviation_ns_ = 0;
};

}  // namespace talweg::protocol
