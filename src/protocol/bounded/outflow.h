// BoundedOutflow: one stream at its sender: the transfers of one tensor to one receiver, an iteration after
// the other. BoundedSender (sender.h) has all streams to a receiver and is what others use.
//
//   outflow.begin(iteration, data, classes, deadline_ns, now_ns);
//   while (outflow.has_data()) { outflow.next_data(now_ns, header, payload); seal and send it; }
//   if (outflow.probe_due()) outflow.next_probe(now_ns, header, payload);
//   outflow.on_report(iteration, report, now_ns);    // that decode() has let through, from its receiver
//   outflow.on_time(now_ns);                         // once next_time_ns() has come
//   if (!outflow.open()) ...                         // outflow.failure(), or settled: outflow.lost()
//
// Every packet leaves once, from a place on that differs from iteration to iteration (shape.h); then those
// that the receiver has named as holes, and no others. A stop ends that at once. When there is nothing left
// to send, and nothing is heard, the receiver is probed, in a time that doubles.
//
// It is settled when it knows what was lost: the same set that the receiver has, for error feedback.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "protocol/aggregation/round_timer.h"
#include "protocol/bounded/packet_set.h"
#include "protocol/bounded/shape.h"
#include "wire/bounded.h"

namespace talweg::protocol {

// What the network may do with a transfer's packets. packet_class.h makes these out of gradients.
struct TransferClasses {
  std::uint8_t priority = wire::kOrdinary;  // 1 .. 7
  // Others may be dropped in front of these; null: none of them.
  const PacketSet* important = nullptr;
  bool must = false;  // the important ones may not be missing
};

struct OutflowCounters {
  std::uint64_t packets = 0;  // for the first time
  std::uint64_t again = 0;    // that were named as holes
  std::uint64_t must_again = 0;
  std::uint64_t droppable = 0;
  std::uint64_t probes = 0;
  std::uint64_t in_vain = 0;      // and the one before was not answered
  std::uint64_t spared = 0;       // packets that a stop has left unsent
  std::uint64_t old_reports = 0;  // of an iteration, round or end that is known
  std::uint64_t early_holes = 0;  // that had not been sent for the first time
  std::uint64_t malformed = 0;
  std::uint64_t settled = 0;
  std::uint64_t parts_of_stops = 0;  // a part of what was lost came before the rest
  std::uint64_t failed = 0;
  bool operator==(const OutflowCounters&) const = default;
};

class BoundedOutflow {
 public:
  BoundedOutflow(const BoundedShape& shape, std::uint16_t self, std::uint16_t to, const BoundedTimes& times)
      : shape_(shape), self_(self), to_(to), timer_(times.round) {}

  // `data` have shape.bytes; they and the classes stay as they are until the transfer has ended. Iterations
  // ascend, and the last one has ended.
  void begin(std::uint32_t iteration, const std::byte* data, const TransferClasses& classes,
             std::int64_t deadline_ns, std::int64_t now_ns);

  // Asking and hearing take about so long, until it has been measured.
  void assume_round(std::int64_t round_ns) { timer_.assume(round_ns); }

  bool has_data() const { return open_ && !stopped_ && (passed_ < shape_.packets() || !holes_.empty()); }
  // Fills in the header but for what the sealer does, and writes header.length bytes. has_data().
  void next_data(std::int64_t now_ns, wire::DatagramHeader& header, std::byte* payload);
  bool probe_due() const { return probe_due_; }
  void next_probe(std::int64_t now_ns, wire::DatagramHeader& header, std::byte* payload);

  void on_report(std::uint32_t iteration, const wire::BoundedReport& report, std::int64_t now_ns);
  void on_time(std::int64_t now_ns);
  std::int64_t next_time_ns() const { return next_ns_; }

  bool open() const { return open_; }
  std::uint32_t iteration() const { return iteration_; }
  // Packets that the receiver has ended without. Of a transfer that is settled.
  const PacketSet& lost() const { return lost_; }
  const std::optional<BoundedFailure>& failure() const { return failure_; }
  const BoundedShape& shape() const { return shape_; }
  std::uint8_t priority() const { return classes_.priority; }
  const OutflowCounters& counters() const { return counters_; }

 private:
  std::uint32_t in_order(std::uint32_t i) const {
    const std::uint64_t packet = std::uint64_t{first_} + i;
    return static_cast<std::uint32_t>(packet < shape_.packets() ? packet : packet - shape_.packets());
  }
  bool is_sent(std::uint32_t packet) const;
  bool is_important(std::uint32_t packet) const {
    return classes_.important == nullptr || classes_.important->has(packet);
  }
  bool is_must(std::uint32_t packet) const { return classes_.must && is_important(packet); }
  std::uint32_t must() const;
  std::uint32_t take_hole();
  void on_holes(const wire::BoundedReport& report);
  void on_stop(const wire::BoundedReport& report);
  void wait(std::int64_t now_ns);
  void fail(ErrorCode code, std::string text);
  void end();
  std::string what_is_known() const;

  const BoundedShape shape_;
  const std::uint16_t self_;
  const std::uint16_t to_;
  RoundTimer timer_;

  bool open_ = false;
  std::uint32_t iteration_ = 0;
  const std::byte* data_ = nullptr;
  TransferClasses classes_;
  std::int64_t deadline_ns_ = 0;
  std::uint32_t first_ = 0;            // the packet that leaves first
  std::uint32_t passed_ = 0;           // packets that have left once
  PacketSet holes_;                    // to be sent again
  PacketSet must_holes_;               // those of them that must arrive, which go first
  std::uint32_t cursor_ = 0;           // among holes
  std::vector<std::uint32_t> rounds_;  // by window: the newest one that has been heard
  bool stopped_ = false;
  PacketSet lost_;
  std::uint32_t missing_ = 0;  // as the receiver has said last
  bool heard_ = false;
  std::uint32_t probe_ = 0;
  bool probe_due_ = false;
  std::uint8_t in_vain_ = 0;  // probes since anything was heard
  std::int64_t probe_ns_ = 0;
  std::int64_t first_probe_ns_ = 0;  // of those in vain
  std::int64_t ask_ns_ = kNeverNs;   // nothing has been heard until then
  std::int64_t next_ns_ = kNeverNs;
  std::optional<BoundedFailure> failure_;
  OutflowCounters counters_;
};

}  // namespace talweg::protocol
