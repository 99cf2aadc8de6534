// BoundedReceiver: everything that one node receives in transfers that may lose a bounded part: from many
// senders, many tensors of each, in iterations. It decides what may be missing.
//
//   BoundedReceiver receiver(bounds, times);
//   const std::size_t s = receiver.add(sender, shape);        // each stream, before the first iteration
//   receiver.begin(iteration);
//   receiver.expect(s, out, deadline_ns, now_ns);             // each stream that takes part
//   receiver.on(header, payload, now_ns);                     // each datagram of these types that was opened
//   receiver.on_time(now_ns);                                 // once next_time_ns() has come
//   while (receiver.next(now_ns, to, header, payload)) seal and send it to `to`;        // control only
//   while (auto s = receiver.take_ended()) ...                // receiver.stream(*s): failure(), or missing()
//
// With bounds of 0 everything arrives or the transfer fails: what is written is what was sent.
//
// Control waits behind nothing here, is of the most urgent class on the way, is said again until it is
// heard, and streams have it in turn.
//
// Pure: no clock, no socket. No allocation once each stream has had two transfers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/ring_queue.h"
#include "protocol/bounded/inflow.h"
#include "protocol/bounded/loss_budget.h"

namespace talweg::protocol {

class BoundedReceiver {
 public:
  // Throws Error{invalid_argument} for bounds that are none.
  BoundedReceiver(const LossBounds& bounds, const BoundedTimes& times, LossFill fill = LossFill::zero)
      : times_(times), fill_(fill), budget_(bounds) {}

  // Throws Error{invalid_argument} for a tensor that the sender has already, or a shape that cannot be.
  std::size_t add(std::uint16_t sender, const BoundedShape& shape);
  // Throws Error{invalid_argument} where a transfer has not ended, or iterations do not ascend.
  // `exact`: of this iteration everything must arrive, whatever the bounds are.
  void begin(std::uint32_t iteration, bool exact = false);
  // Instead of BoundedTimes::linger_ns, from now on.
  void set_linger(std::int64_t linger_ns) {
    for (BoundedInflow& s : streams_) s.set_linger(linger_ns);
  }
  void assume_round(std::size_t stream, std::int64_t round_ns) { streams_[stream].assume_round(round_ns); }
  void bear_lateness(std::size_t stream, std::int64_t lateness_ns) {
    streams_[stream].bear_lateness(lateness_ns);
  }
  // `out` has shape.bytes. Throws Error{invalid_argument} for a stream that has begun this iteration.
  void expect(std::size_t stream, std::byte* out, std::int64_t deadline_ns, std::int64_t now_ns);

  // False: it is none that a receiver understands, or from nobody that is known; that is counted.
  bool on(const wire::DatagramHeader& header, std::span<const std::byte> payload, std::int64_t now_ns);
  void on_time(std::int64_t now_ns);
  std::int64_t next_time_ns() const;  // 0 while control waits to be sent
  // At most kMostReportBytes of payload.
  bool next(std::int64_t now_ns, std::uint16_t& to, wire::DatagramHeader& header, std::byte* payload);

  std::optional<std::size_t> take_ended();
  const BoundedInflow& stream(std::size_t i) const { return streams_[i]; }
  std::size_t streams() const { return streams_.size(); }
  std::uint64_t refused() const { return refused_; }

 private:
  void look(std::size_t i, std::int64_t now_ns);

  const BoundedTimes times_;
  const LossFill fill_;
  LossBudget budget_;
  std::vector<BoundedInflow> streams_;
  struct Queued {
    bool report = false, running = false;
  };
  std::vector<Queued> queued_;
  std::vector<std::pair<std::uint64_t, std::size_t>> by_key_;  // (sender, tensor), ascending
  RingQueue<std::size_t> reports_;
  RingQueue<std::size_t> ended_;
  bool begun_ = false;
  std::uint32_t iteration_ = 0;
  std::uint64_t refused_ = 0;
};

}  // namespace talweg::protocol
