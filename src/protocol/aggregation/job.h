// One job at a switch: what becomes of its datagrams. AggregationSwitch (switch.h) finds it.
#pragma once

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
  // When a round has lingered for long enough; the time that never comes: none does. on_time() is to be
  // called until that lies ahead: it appends one action at most.
  std::int64_t next_time_ns() const;
  void on_time(std::int64_t now_ns, std::vector<SwitchAction>& actions);

 private:
  struct Replies;
  bool in_range(std::uint16_t slot, const wire::AggregationMessage& message) const;
  void contribute(const wire::DatagramHeader& header, const wire::AggregationMessage& message,
                  const wire::AggregationEntry& entry, std::span<const std::byte> data, Replies& replies);
  void repeat(std::uint16_t result, const Peer& from, std::int64_t now_ns,
              std::vector<SwitchAction>& actions);
  void query(const wire::DatagramHeader& header, const wire::AggregationMessage& message,
             const wire::AggregationEntry& asked, Replies& replies);
  void answer_from_above(const wire::DatagramHeader& header, const wire::AggregationMessage& message,
                         const wire::AggregationEntry& entry, std::span<const std::byte> data,
                         Replies& replies);
  void disagree(Replies& replies);
  void complete(JobSlots::Cell& cell, const wire::AggregationEntry& entry, Replies& replies);
  void again(JobSlots::Cell& cell, const wire::AggregationEntry& entry, Replies& replies);
  // Of a job that is tolerant, in job_tolerance.cc.
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
  std::uint64_t results_ = 0;  // sent to all
  LingeringRounds lingering_;
  LingerTime linger_time_;
  std::optional<wire::AggregationRefusal> refused_above_;
  Peer asker_;  // of the datagram at hand
  std::byte refusal_[wire::kRefusalBytes] = {};
};

}  // namespace talweg::protocol
