// RateControl: how many bytes may be on their way. From the delay: queues show in round trips before anything
// is lost.
//
// After Swift (Kumar et al., SIGCOMM 2020, section 3): below the target delay the window grows by a datagram
// per round trip, above it shrinks in proportion to the excess, at most once per round trip; so does it by
// half for a loss and by less for a mark of the network (ECN). It begins small and doubles per round trip
// until the first sign of a queue. Switched off, the window is as large as it may be, and what the other side
// has room for decides.
#pragma once

#include <algorithm>
#include <cstdint>

namespace talweg::protocol {

struct RateOptions {
  bool enabled = true;
  std::int64_t queue_ns = 100'000;  // the delay above the shortest round trip that is aimed at
  double least_window = 2 * 1500;
  double first_window = 32 << 10;
  double most_window = 64 << 20;
};

class RateControl {
 public:
  static constexpr double kDelayFactor = 0.8;   // of the excess
  static constexpr double kMostDecrease = 0.5;  // at once
  static constexpr double kMarkDecrease = 0.2;

  explicit RateControl(const RateOptions& options, double datagram)
      : options_(options),
        datagram_(datagram),
        window_(options.enabled ? options.first_window : options.most_window) {}

  // `rtt_ns` of the newest of the `bytes` that have arrived; `limited`: all of the window was in use.
  void on_acknowledged(double bytes, std::int64_t rtt_ns, std::int64_t base_ns, bool limited,
                       std::int64_t now_ns) {
    if (!options_.enabled) return;
    const std::int64_t target = base_ns + options_.queue_ns;
    if (rtt_ns > target) {
      starting_ = false;
      const double excess = static_cast<double>(rtt_ns - target) / static_cast<double>(rtt_ns);
      decrease(std::min(kDelayFactor * excess, kMostDecrease), rtt_ns, now_ns);
    } else if (limited) {
      window_ += starting_ ? bytes : datagram_ * bytes / window_;
      clamp();
    }
  }
  void on_lost(std::int64_t rtt_ns, std::int64_t now_ns) { sign(kMostDecrease, rtt_ns, now_ns); }
  void on_marked(std::int64_t rtt_ns, std::int64_t now_ns) { sign(kMarkDecrease, rtt_ns, now_ns); }
  // Nothing has been heard for long.
  void on_silence() {
    if (!options_.enabled) return;
    window_ = options_.least_window;
    starting_ = true;
  }

  double window() const { return window_; }
  // Bytes per second at which a window leaves in somewhat less than a round trip; 0: no limit.
  double pace(std::int64_t smoothed_ns) const {
    constexpr double kFaster = 1.25;
    if (!options_.enabled || smoothed_ns <= 0) return 0;
    return (starting_ ? 2 : kFaster) * window_ * 1e9 / static_cast<double>(smoothed_ns);
  }

 private:
  void sign(double part, std::int64_t rtt_ns, std::int64_t now_ns) {
    if (!options_.enabled) return;
    starting_ = false;
    decrease(part, rtt_ns, now_ns);
  }
  void decrease(double part, std::int64_t rtt_ns, std::int64_t now_ns) {
    if (decreased_ && now_ns - decreased_at_ns_ < rtt_ns) return;
    decreased_ = true;
    decreased_at_ns_ = now_ns;
    window_ *= 1 - part;
    clamp();
  }
  void clamp() { window_ = std::clamp(window_, options_.least_window, options_.most_window); }

  RateOptions options_;
  double datagram_;
  double window_;
  bool starting_ = true;
  bool decreased_ = false;
  std::int64_t decreased_at_ns_ = 0;
};

}  // namespace talweg::protocol
