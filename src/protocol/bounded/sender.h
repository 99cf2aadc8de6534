// BoundedSender: everything that one node sends to another one in transfers that may lose a bounded part.
//
//   BoundedSender sender(self, to, times);
//   const std::size_t s = sender.add(shape);                  // each tensor, once
//   sender.begin(s, iteration, data, classes, deadline_ns, now_ns);
//   while (sender.next(now_ns, header, payload)) seal and send it;     // as fast as the way permits, no faster
//   sender.on(header, payload, now_ns);                       // each datagram of these types that was opened
//   sender.on_time(now_ns);                                   // once next_time_ns() has come
//   while (auto s = sender.take_ended()) ...                  // sender.stream(*s): failure(), or lost()
//
// How fast data may leave is for whoever calls next(): a window, a pacer. Probes come first out of it, then
// data by priority, of streams of the same priority in turn. next() may be asked for control alone, for when
// the way permits no data: control does not wait for what it is about.
//
// Pure: no clock, no socket. No allocation once each stream has had a transfer.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/ring_queue.h"
#include "protocol/bounded/outflow.h"

namespace talweg::protocol {

class BoundedSender {
 public:
  BoundedSender(std::uint16_t self, std::uint16_t to, const BoundedTimes& times)
      : self_(self), to_(to), times_(times) {}

  // Throws Error{invalid_argument} for a tensor that is known, or packets that no datagram can carry.
  std::size_t add(const BoundedShape& shape);
  // Throws Error{invalid_argument} where the stream's last transfer has not ended, or iterations do not
  // ascend, or a class is none that data may have.
  void begin(std::size_t stream, std::uint32_t iteration, const std::byte* data,
             const TransferClasses& classes, std::int64_t deadline_ns, std::int64_t now_ns);

  void assume_round(std::size_t stream, std::int64_t round_ns) { streams_[stream].assume_round(round_ns); }

  enum class What : std::uint8_t { all, control };
  // Fills in type, class, own16, own32 and length, and writes at most kBoundedHeadBytes + stride bytes.
  // False: there is nothing to be sent now.
  bool next(std::int64_t now_ns, wire::DatagramHeader& header, std::byte* payload, What what = What::all);
  // Data wait to be sent.
  bool has_data() const { return with_data_ > 0; }

  // False: it is none that a sender understands, which is counted.
  bool on(const wire::DatagramHeader& header, std::span<const std::byte> payload, std::int64_t now_ns);
  void on_time(std::int64_t now_ns);
  // 0 while control waits to be sent.
  std::int64_t next_time_ns() const;

  std::optional<std::size_t> take_ended();
  const BoundedOutflow& stream(std::size_t i) const { return streams_[i]; }
  std::size_t streams() const { return streams_.size(); }
  std::uint64_t refused() const { return refused_; }

 private:
  void look(std::size_t i);

  const std::uint16_t self_;
  const std::uint16_t to_;
  const BoundedTimes times_;
  std::vector<BoundedOutflow> streams_;
  struct Queued {
    bool data = false, probe = false;  // it stands in a queue
    bool counted = false;              // among those with data
    bool running = false, begun = false;
  };
  std::vector<Queued> queued_;                  // where each stream stands
  std::array<RingQueue<std::size_t>, 8> data_;  // by priority: streams with data
  std::size_t with_data_ = 0;
  RingQueue<std::size_t> probes_;
  RingQueue<std::size_t> ended_;
  std::uint64_t refused_ = 0;
};

}  // namespace talweg::protocol
