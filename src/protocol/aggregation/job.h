// One job at a switch: what becomes of its datagrams. AggregationSwitch (switch.h) finds it.
#pragma once

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "protocol/aggregation/job_slots.h"
#include "protocol/aggregation/switch_action.h"
#include "protocol/aggregation/switch_counters.h"
#include "protocol/aggregation/token_bucket.h"
#include "protocol/aggregation/tolerance.h"

namespace talweg::protocol {

class AggregationJob {
 public:
  AggregationJob(const JobTerms& terms, std::pmr::memory_resource& memory);

  const JobTerms& terms() const { return terms_; }
  const SwitchCounters& counters() const { return counters_; }

  // From a worker, and from the switch above. Both append to `actions`; payloads point into the job and are
  // valid until it is called again.
  void on(const wire::DatagramHeader& header, std::span<const std::byte> payload, Peer from,
          std::int64_t now_ns, std::vector<SwitchAction>& actions);
  void on_above(const wire::DatagramHeader& header, std::span<const std::byte> payload, std::int64_t now_ns,
                std::vector<SwitchAction>& actions);
  // When a result that waits is to be sent, a round has lingered for long enough, or is to be sent to the
  // switch above once more; the time that never comes: none does. on_time() is to be called until that lies
  // ahead: it appends one action at most.
  std::int64_t next_time_ns() const { return std::min(results_due_ns(), round_due_ns()); }
  void on_time(std::int64_t now_ns, std::vector<SwitchAction>& actions) {
    if (now_ns >= results_due_ns()) return send_waiting(now_ns, actions);
    if (now_ns < round_due_ns()) return;
    terms_.above ? end_holding_back(now_ns, actions) : end_lingering(now_ns, actions);
  }
  // Results have this rate from now on; 0: none. With the rate that they have already nothing changes.
  void pace_results(double bytes_per_second);
  // From now on what is sent to all leaves once, by multicast, and not once for each worker: it takes that
  // much less of their rate.
  void send_once(bool once);

 private:
  struct Replies;
  static constexpr std::int64_t kNeverTime = std::numeric_limits<std::int64_t>::max();
  std::int64_t round_due_ns() const { return terms_.above ? held_back_ns_ : lingers_until_ns(); }
  bool in_range(std::uint16_t slot, const wire::AggregationMessage& message) const;
  void contribute(const wire::DatagramHeader& header, const wire::AggregationMessage& message,
                  const wire::AggregationEntry& entry, std::span<const std::byte> data, Replies& replies);
  void repeat(std::uint16_t result, const Peer& from, std::int64_t now_ns,
              std::vector<SwitchAction>& actions);
  void query(const wire::DatagramHeader& header, const wire::AggregationMessage& message,
             const wire::AggregationEntry& asked, Replies& replies);
  // The rounds that still have the result of this number, in what is sent to all or to one.
  std::optional<Replies> result_of(std::uint64_t number, bool to_all, std::int64_t now_ns,
                                   wire::DatagramHeader& header);
  // Results that wait, in job_results.cc.
  bool waits(const Round& round) const { return round.number > sent_; }
  bool paced() const { return result_rate_ > 0; }
  std::int64_t results_due_ns() const;
  void end_with_result(Replies& replies, const wire::DatagramHeader& header,
                       std::vector<SwitchAction>& actions);
  void send_waiting(std::int64_t now_ns, std::vector<SwitchAction>& actions);
  std::int64_t wait_for_results(std::int64_t now_ns) const;
  static wire::AggregationRefusal busy_for(std::int64_t wait_ns);
  std::int64_t take_repeat(double bytes, std::int64_t now_ns);
  double bytes_to_all(std::size_t payload) const;
  void disagree(Replies& replies);
  void complete(JobSlots::Cell& cell, const wire::AggregationEntry& entry, Replies& replies);
  void again(JobSlots::Cell& cell, const wire::AggregationEntry& entry, Replies& replies);
  // Of a job with a switch above, in job_above.cc.
  void answer_from_above(const wire::DatagramHeader& header, const wire::AggregationMessage& message,
                         const wire::AggregationEntry& entry, std::span<const std::byte> data,
                         Replies& replies);
  void pass_again(JobSlots::Cell& cell, std::uint8_t column, Replies& replies);
  void hold_back(std::uint16_t slot, std::int64_t until_ns);
  void end_holding_back(std::int64_t now_ns, std::vector<SwitchAction>& actions);
  // Of a job that is tolerant, in job_tolerance.cc.
  std::int64_t lingers_until_ns() const;
  void end_lingering(std::int64_t now_ns, std::vector<SwitchAction>& actions);
  std::uint32_t column_of(std::size_t slot, std::size_t column) const {
    return static_cast<std::uint32_t>(slot * terms_.columns + column);
  }
  void attend(const wire::DatagramHeader& header);
  void linger(JobSlots::Cell& cell, std::size_t slot, const wire::AggregationEntry& entry, Replies& replies);
  void measure_linger(const JobSlots::Cell& cell, std::size_t slot, std::size_t column, std::int64_t now_ns);
  void late(JobSlots::Cell& cell, const wire::DatagramHeader& header, const wire::AggregationEntry& entry,
            Replies& replies);
  bool may_end(const JobSlots::Cell& cell, std::size_t slot, std::size_t column);
  void end_without(JobSlots::Cell& cell);
  void name_missing(Replies& replies) const;
  void refuse(const wire::DatagramHeader& header, wire::AggregationRefusal refusal, const Peer& to,
              std::vector<SwitchAction>& actions);
  void collect(Replies& replies, const wire::DatagramHeader& header, const Peer* from,
               std::vector<SwitchAction>& actions);
  SwitchAction answer(SwitchAction::To to, wire::AggregationType type, const wire::DatagramHeader& header,
                      std::span<const std::byte> payload);

  const JobTerms terms_;
  JobSlots slots_;
  TokenBucket bucket_;
  SwitchCounters counters_;
  std::uint64_t results_ = 0;   // to all
  std::uint64_t sent_ = 0;      // of these; the others wait
  bool once_ = false;           // they leave once for all workers
  double result_rate_ = 0;      // bytes per second; 0: none
  TokenBucket results_bucket_;  // while results are paced: of all of them
  TokenBucket repeats_bucket_;  // and of those that are sent again
  double waiting_bytes_ = 0;    // of results
  LingeringRounds lingering_;
  LingerTime linger_time_;
  std::optional<wire::AggregationRefusal> refused_above_;
  std::int64_t held_back_ns_ = kNeverTime;  // the first of the slots that the switch above is too busy for
  Peer asker_;                              // of the datagram at hand
  std::byte refusal_[wire::kRefusalBytes] = {};
};

}  // namespace talweg::protocol
