// BoundedInflow: one stream at its receiver: the transfers of one tensor from one sender, an iteration after
// the other. BoundedReceiver (receiver.h) has all of a node's and is what others use.
//
//   inflow.expect(iteration, out, deadline_ns, now_ns);
//   inflow.on_data(iteration, data, bytes, now_ns);  inflow.on_probe(iteration, probe, now_ns);
//   inflow.settle(budget, now_ns);                   // after each of these, and at next_time_ns()
//   while (inflow.next_report(now_ns, iteration, report)) send it;
//   if (!inflow.open()) ...                          // inflow.failure(), or delivered: inflow.missing()
//
// The receiver decides. A transfer is delivered when no more is missing than the budget allows, every packet
// that must arrive has, and nothing more is on its way: the linger is over, or behind a hint that hardly
// anything follows came a gap. Otherwise the holes are named, and named again in a time that doubles.
//
// A late packet of an iteration that is over changes nothing, and is answered with the stop that its sender
// seems to have missed. So are probes, from what is kept of the last two iterations: a sender begins the next
// one when it knows how the last one ended, hence no more than two are ever asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>

#include "protocol/aggregation/round_timer.h"
#include "protocol/bounded/loss_budget.h"
#include "protocol/bounded/packet_set.h"
#include "protocol/bounded/shape.h"
#include "wire/bounded.h"

namespace talweg::protocol {

// What becomes of the place of a packet that is missing at the end.
enum class LossFill : std::uint8_t {
  zero,  // it is nothing: of gradients
  keep,  // what was there before: of parameters, and of what others add up themselves with the mask
};

// What has happened so far; each a path that tests must have taken.
struct InflowCounters {
  std::uint64_t packets = 0;            // accepted
  std::uint64_t repeated = 0;           // came again
  std::uint64_t stale = 0;              // of an iteration that is over
  std::uint64_t early = 0;              // of one that is not expected yet
  std::uint64_t malformed = 0;          // contradicts others
  std::uint64_t probes = 0;             // that were new
  std::uint64_t rounds = 0;             // holes were named
  std::uint64_t in_vain = 0;            // and nothing came of it
  std::uint64_t complete = 0;           // delivered without a loss
  std::uint64_t at_gap = 0;             // delivered with one: nothing more was on its way
  std::uint64_t at_linger = 0;          // the linger was over
  std::uint64_t at_probe = 0;           // its sender said that it had sent all
  std::uint64_t held_by_sender = 0;     // looked at in vain: only the bound of its sender was in the way
  std::uint64_t held_by_iteration = 0;  // that of the iteration was
  std::uint64_t stops_again = 0;        // a stop seems to have been lost
  std::uint64_t stops_unasked = 0;      // it may have been
  std::uint64_t lost_bytes = 0;
  std::uint64_t failed = 0;
  bool operator==(const InflowCounters&) const = default;
};

class BoundedInflow {
 public:
  BoundedInflow(const BoundedShape& shape, std::uint16_t sender, const BoundedTimes& times, LossFill fill)
      : shape_(shape), sender_(sender), times_(times), fill_(fill), timer_(times.round) {}

  // `out` has shape.bytes and stays until the transfer has ended. Iterations ascend; the last one has ended.
  void expect(std::uint32_t iteration, std::byte* out, std::int64_t deadline_ns, std::int64_t now_ns);

  void set_linger(std::int64_t linger_ns) { times_.linger_ns = linger_ns; }
  // So much later than newer ones data may come: what has is not missing yet.
  void bear_lateness(std::int64_t lateness_ns) { lateness_ns_ = lateness_ns; }
  // Asking and hearing take about so long, until it has been measured.
  void assume_round(std::int64_t round_ns) { timer_.assume(round_ns); }

  // Messages that decode() has let through, from this sender and about this tensor.
  void on_data(std::uint32_t iteration, const wire::BoundedData& data, std::span<const std::byte> bytes,
               std::int64_t now_ns);
  void on_probe(std::uint32_t iteration, const wire::BoundedProbe& probe, std::int64_t now_ns);
  // Ends the transfer, or names its holes, where it is time.
  void settle(LossBudget& budget, std::int64_t now_ns);
  std::int64_t next_time_ns() const { return next_ns_; }

  bool report_due() const { return now_.told < kNothing || past_.told < kNothing || forgotten_due_; }
  // The bits point into this object, until the next call of anything else.
  bool next_report(std::int64_t now_ns, std::uint32_t& iteration, wire::BoundedReport& report);

  bool open() const { return open_; }
  // `iteration` is the last one that was expected.
  bool began(std::uint32_t iteration) const { return now_.exists && now_.iteration == iteration; }
  std::uint32_t iteration() const { return now_.iteration; }
  // Of the last one, or the one that is open.
  const PacketSet& missing() const { return now_.missing; }
  std::uint64_t missing_bytes() const { return shape_.bytes - got_bytes_; }
  const std::optional<BoundedFailure>& failure() const { return failure_; }
  const BoundedShape& shape() const { return shape_; }
  std::uint16_t sender() const { return sender_; }
  const InflowCounters& counters() const { return counters_; }

 private:
  static constexpr std::uint32_t kNothing = std::numeric_limits<std::uint32_t>::max();
  // What is known of an iteration, and the window that is to be told next; kNothing: none.
  struct Record {
    bool exists = false;
    std::uint32_t iteration = 0;
    PacketSet missing;
    std::uint32_t round = 0;
    std::uint32_t probe = 0;
    wire::BoundedEnd end = wire::BoundedEnd::delivered;
    std::uint32_t told = kNothing;
  };

  bool is_of_now(std::uint32_t iteration, bool probe, std::uint32_t number, std::int64_t now_ns);
  bool fits(const wire::BoundedData& data);
  bool learn_must(std::uint32_t must);
  void heard(std::int64_t now_ns);
  std::int64_t quiet_at() const;
  void name_holes(std::int64_t now_ns);
  void deliver(LossBudget& budget, std::int64_t now_ns);
  void fail(ErrorCode code, std::string text, std::int64_t now_ns);
  void end(wire::BoundedEnd how, std::int64_t now_ns);
  std::string what_is_missing(std::uint64_t allowance) const;
  bool tell(Record& record, std::uint32_t& iteration, wire::BoundedReport& report) const;

  const BoundedShape shape_;
  const std::uint16_t sender_;
  BoundedTimes times_;
  const LossFill fill_;
  RoundTimer timer_;

  Record now_, past_;
  bool open_ = false;
  std::byte* out_ = nullptr;
  std::int64_t deadline_ns_ = 0;
  std::uint64_t got_bytes_ = 0;
  std::optional<std::uint32_t> must_;  // packets that may not be missing, once that has been said
  std::uint32_t got_must_ = 0;
  bool contact_ = false;      // anything of this iteration has come
  bool hint_ = false;         // hardly anything follows
  bool asked_ = false;        // a new probe waits for its answer
  std::uint8_t in_vain_ = 0;  // rounds since anything has come
  std::int64_t last_ns_ = 0;  // something has come, or was asked for
  std::int64_t lateness_ns_ = 0;
  std::int64_t round_ns_ = 0;
  std::int64_t first_round_ns_ = 0;  // of those in vain
  bool measuring_ = false;
  std::int64_t met_ns_ = kNeverNs;  // since when no more is missing than may be
  std::int64_t next_ns_ = kNeverNs;
  std::int64_t stop_ns_ = 0;  // the stop was told last
  bool early_ = false;        // something of `early_iteration_` has come before it was expected
  std::uint32_t early_iteration_ = 0;
  bool forgotten_due_ = false;
  std::uint32_t forgotten_ = 0;  // an iteration before the past one, that somebody still asks for
  std::uint32_t forgotten_probe_ = 0;
  std::optional<BoundedFailure> failure_;
  InflowCounters counters_;
};

}  // namespace talweg::protocol
