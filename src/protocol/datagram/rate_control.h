// RateControl: how many bytes may be on their way. From the delay: queues show in round trips before anything
// is lost.
//
// After Swift (Kumar et al., SIGCOMM 2020, section 3): below the target delay the window grows by a datagram
// per round trip, above it shrinks in proportion to the excess, at most once per round trip; so does it by
// half for a loss and by less for a mark of the network (ECN). The target is a time or, where a flow's share
// of the way is so slow that they take longer, a number of its bytes in the queue (as in Vegas: Brakmo et
// al., SIGCOMM 1994), which losses lower: n flows may have n times as many there. It begins small
// and doubles per round trip until the first sign of a queue. Switched off, the window is as large as it may
// be, and what the other side has room for decides.
//
// Who sends all the time never sees the way without a queue, and would take its own for the way. So every few
// seconds the flows of all hosts send less for some round trips, at the same time by their clocks, and the
// queue runs dry (as in BBR: Cardwell et al., Queue 14(5), 2016).
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "protocol/datagram/round_trip.h"

namespace talweg::protocol {

struct RateOptions {
  bool enabled = true;
  // How long a queue is put up with: as long as this, or as so many bytes take at the rate at which they
  // leave, less where losses say that queues have no room for them. On slow links a datagram alone takes
  // longer than the first, and where hosts take longer to answer than the queue lasts, the way stands idle.
  std::int64_t queue_ns = 100'000;
  double queue_bytes = 128 << 10;
  double least_window = 2 * 1500;
  double first_window = 32 << 10;
  double most_window = 64 << 20;
  // What makes the time given a wall clock's: flows that share a link have their queues run dry together.
  // Where clocks differ by more than some 10 ms they do so apart, and several times as much stands in the
  // queue.
  std::int64_t wall_ns = 0;
};

class RateControl {
 public:
  static constexpr double kDelayFactor = 0.8;   // of the excess
  static constexpr double kMostDecrease = 0.5;  // at once
  static constexpr double kMarkDecrease = 0.2;
  static constexpr double kRegain = 8;   // round trips without loss for a datagram more in the queue
  static constexpr double kDrain = 0.5;  // of what the way takes without a queue
  static constexpr std::int64_t kLeastDrainNs = 10'000'000;  // as clocks are not the same
  static constexpr std::int64_t kMostDrainNs = 1'000'000'000;

  explicit RateControl(const RateOptions& options, double datagram)
      : options_(at_least_two(options, datagram)),
        datagram_(datagram),
        window_(options.enabled ? options.first_window : options.most_window),
        room_(options.queue_bytes) {}

  // `bytes` have arrived. `trip_ns`: of the newest of them, with what both hosts took. `limited`: all of the
  // window was in use.
  void on_acknowledged(double bytes, const RoundTrip& rtt, std::int64_t trip_ns, bool limited,
                       std::int64_t now_ns) {
    // Who has just begun, or had a pause, has seen the way.
    const bool all_the_time =
        !starting_ && now_ns - std::exchange(heard_ns_, now_ns) < std::max(2 * trip_ns, kLeastDrainNs);
    if (const std::int64_t last = std::exchange(epoch_, rtt.epoch()); last < epoch_ && all_the_time)
      drain(rtt, trip_ns, now_ns);
    if (now_ns < drain_until_ns_) return;
    drained_ = kNoLimit;
    // While the window doubles the first sign counts, though it may only be a busy host.
    on_acknowledged(bytes, starting_ ? rtt.delay_ns() : rtt.standing_ns(), trip_ns, rtt.base_ns(), limited,
                    now_ns);
  }
  // `delay_ns` and `base_ns`: of the way there and back alone, now and at best.
  void on_acknowledged(double bytes, std::int64_t delay_ns, std::int64_t trip_ns, std::int64_t base_ns,
                       bool limited, std::int64_t now_ns) {
    if (!options_.enabled) return;
    const auto trip = static_cast<double>(std::max(trip_ns, delay_ns));
    const std::int64_t target = base_ns + queue_ns(trip);
    if (delay_ns > target) {
      starting_ = false;
      const double excess = static_cast<double>(delay_ns - target) / trip;
      decrease(std::min(kDelayFactor * excess, kMostDecrease), trip_ns, now_ns);
    } else if (limited) {
      const double part = std::min(1.0, bytes / window_);
      window_ += starting_ ? bytes : datagram_ * part;
      room_ = std::min(options_.queue_bytes, room_ + datagram_ * part / kRegain);
      clamp();
    }
  }
  // At most once in a round trip; what a mark has taken in it counts. `part`: of all that is on its way,
  // what takes the way on which that was lost; 0: it was a trial of one that nothing else takes.
  void on_lost(std::int64_t rtt_ns, std::int64_t now_ns, double part = 1) {
    if (!options_.enabled || part <= 0 || now_ns - lost_at_ns_ < rtt_ns) return;
    const bool marked = now_ns - marked_at_ns_ < rtt_ns;
    sign(part * (marked ? 1 - (1 - kMostDecrease) / (1 - kMarkDecrease) : kMostDecrease), lost_at_ns_,
         now_ns);
    room_ =
        std::min(std::max(room_ * (1 - part * kMostDecrease), options_.least_window), options_.queue_bytes);
  }
  // options.queue_bytes are so many from now on.
  void set_queue(double bytes) {
    room_ *= options_.queue_bytes > 0 ? bytes / options_.queue_bytes : 0;
    options_.queue_bytes = bytes;
  }
  // It would have been lost whatever is sent: what has been thought of queues for such losses was wrong.
  void on_lost_alike() { room_ += (options_.queue_bytes - room_) / kRegain; }
  // The queue is long, but it has room.
  void on_marked(std::int64_t rtt_ns, std::int64_t now_ns) {
    if (!options_.enabled || now_ns - std::max(lost_at_ns_, marked_at_ns_) < rtt_ns) return;
    sign(kMarkDecrease, marked_at_ns_, now_ns);
  }
  // Nothing has been heard for long.
  void on_silence() {
    if (!options_.enabled) return;
    window_ = options_.least_window;
    starting_ = true;
    drained_ = kNoLimit;
    drain_until_ns_ = kNever;
  }

  double window() const { return std::min(window_, drained_); }
  // Bytes per second at which a window leaves in somewhat less time than the way there and back takes; 0: no
  // limit. The window follows long queues, but what one datagram waited in its own host is no reason to
  // dawdle.
  double pace(std::int64_t delay_ns, std::int64_t base_ns) const {
    constexpr double kFaster = 1.25;
    if (!options_.enabled || delay_ns <= 0) return 0;
    const std::int64_t way_ns = std::min(delay_ns, base_ns + 2 * options_.queue_ns);
    return (starting_ ? 2 : kFaster) * window_ * 1e9 / static_cast<double>(way_ns);
  }

 private:
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::min() / 2;
  static constexpr double kNoLimit = std::numeric_limits<double>::infinity();

  // A window's bytes leave in a trip: that is how fast the way takes them.
  std::int64_t queue_ns(double trip_ns) const {
    return std::max(options_.queue_ns, static_cast<std::int64_t>(room_ * trip_ns / window_));
  }
  // A loss or a mark. That the delay has just taken a little of the window does not hide it.
  void sign(double part, std::int64_t& signed_at_ns, std::int64_t now_ns) {
    starting_ = false;
    signed_at_ns = decreased_at_ns_ = now_ns;
    window_ *= 1 - part;
    clamp();
  }
  void decrease(double part, std::int64_t rtt_ns, std::int64_t now_ns) {
    if (now_ns - decreased_at_ns_ < rtt_ns) return;
    decreased_at_ns_ = now_ns;
    window_ *= 1 - part;
    clamp();
  }
  // Until the queue has gone and the way has been seen without it.
  void drain(const RoundTrip& rtt, std::int64_t trip_ns, std::int64_t now_ns) {
    if (!options_.enabled) return;
    const std::int64_t all_ns = std::max(trip_ns, rtt.delay_ns());
    const auto queue_ns = static_cast<double>(std::min(rtt.standing_ns() - rtt.base_ns(), all_ns));
    drained_ =
        std::max(options_.least_window, kDrain * window_ * (1 - queue_ns / static_cast<double>(all_ns)));
    drain_until_ns_ = now_ns + std::clamp(2 * all_ns, kLeastDrainNs, kMostDrainNs);
  }
  static RateOptions at_least_two(RateOptions options, double datagram) {
    options.least_window = std::max(options.least_window, 2 * datagram);
    return options;
  }
  void clamp() { window_ = std::clamp(window_, options_.least_window, options_.most_window); }

  RateOptions options_;
  double datagram_;
  double window_;
  double room_;  // bytes for which queues have room, as far as is known
  bool starting_ = true;
  double drained_ = kNoLimit;  // the window until drain_until_ns_
  std::int64_t decreased_at_ns_ = kNever, lost_at_ns_ = kNever, marked_at_ns_ = kNever,
               drain_until_ns_ = kNever, heard_ns_ = kNever;
  std::int64_t epoch_ = kNever;
};

}  // namespace talweg::protocol
