// AggregationSwitch: sums in the network what workers send, for many jobs that know nothing of each other.
//
//   AggregationSwitch box(limits);
//   if (const auto refused = box.open(terms, now_ns)) ...         // memory, rate or number of jobs is not there
//   for (const SwitchAction& action : box.on(header, payload, from, now_ns)) send(action);
//   box.close(job);                                               // nothing of it is left to read
//
// Each datagram is dropped, answered to one or answered to all (or passed to the switch above, in a tree).
// The protocol is SwitchML's and OmniReduce's in one: two versions of each slot (job_slots.h says why that is
// safe), a set of contributors instead of a count alone, and in every part of a round the sender's next block
// that is not zero. The result says the least of these: the block that all go on with. Dense data are those
// whose next block is always the following one.
//
// A job whose operation has failed must be opened again with a higher epoch, or closed: rounds that were left
// half full are not emptied otherwise. Datagrams were authenticated by whoever hands them over; here their
// lengths, numbers and turns are checked, and nothing that they say is trusted beyond the job's own rounds.
//
// Pure: no socket, no clock, no thread. No allocation but in open().
#pragma once

#include <map>
#include <memory>
#include <memory_resource>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "protocol/aggregation/job.h"
#include "protocol/aggregation/switchml_slots.h"

namespace talweg::protocol {

struct OpenRefusal {
  bool busy = false;  // it would be taken if others left; else the terms can never be
  std::string text;
};

class AggregationSwitch {
 public:
  explicit AggregationSwitch(const SwitchLimits& limits,
                             std::pmr::memory_resource* memory = std::pmr::get_default_resource());

  // Empty: the job is open. An open job is replaced by one of a higher epoch.
  std::optional<OpenRefusal> open(const JobTerms& terms);
  std::optional<OpenRefusal> open(const SwitchmlTerms& terms);
  void close(std::uint32_t job);
  // Results of a job that is open have this rate from now on (JobTerms::result_bytes_per_second). What waits
  // is next looked at when next_time_ns() says so.
  void pace_results(std::uint32_t job, double bytes_per_second);
  // What goes to all workers of a job that is open leaves once, by multicast (AggregationJob::send_once).
  void send_once(std::uint32_t job, bool once);

  // What is to be sent for this datagram, which is valid until the switch is called again.
  std::span<const SwitchAction> on(const wire::DatagramHeader& header, std::span<const std::byte> payload,
                                   Peer from, std::int64_t now_ns);
  // From the switch above.
  std::span<const SwitchAction> on_above(const wire::DatagramHeader& header,
                                         std::span<const std::byte> payload, std::int64_t now_ns);
  // On one of SwitchML's ports. Who the packet is of is known by its host alone: nothing in it says so.
  std::span<const SwitchAction> on_switchml(std::span<const std::byte> packet, Peer from,
                                            std::int64_t now_ns);

  // When rounds of jobs that are tolerant have lingered for long enough, or the switch above takes what it
  // was too busy for; and what is to be sent then, for one of them at a time: until the next time lies ahead.
  std::int64_t next_time_ns() const;
  std::span<const SwitchAction> on_time(std::int64_t now_ns);

  std::size_t jobs() const { return jobs_.size() + switchml_.size(); }
  std::size_t memory_bytes() const { return memory_bytes_; }  // of all jobs, as memory_of() says
  double bytes_per_second() const { return bytes_per_second_; }
  // Of a job that is open; null for others.
  const SwitchCounters* counters(std::uint32_t job) const;
  // Of datagrams that belong to no job.
  const SwitchCounters& strays() const { return strays_; }

 private:
  struct Member {
    SwitchmlSlots* job = nullptr;
    std::size_t worker = 0;
  };
  std::optional<OpenRefusal> admit(std::uint32_t job, std::size_t memory, double rate, bool replaces);

  const SwitchLimits limits_;
  std::pmr::memory_resource& memory_;
  std::unordered_map<std::uint32_t, std::unique_ptr<AggregationJob>> jobs_;
  std::unordered_map<std::uint32_t, std::unique_ptr<SwitchmlSlots>> switchml_;
  std::unordered_map<std::uint64_t, Member> members_;  // of SwitchML's jobs, by host
  std::size_t memory_bytes_ = 0;
  double bytes_per_second_ = 0;
  SwitchCounters strays_;
  std::vector<SwitchAction> actions_;
  Peer stray_;
  std::byte refusal_[wire::kRefusalBytes] = {};
};

}  // namespace talweg::protocol
