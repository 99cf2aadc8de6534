// A job of SwitchML's workers at this switch: the published switch's logic, slot by slot, in memory that was
// lent once. Packets, and what they mean: wire/switchml.h.
//
// A slot has two versions, which a worker uses in turn. Its contribution to one takes it out of the other: so
// a version is empty again exactly when all workers have gone on, and the first contribution after that
// overwrites what the version held. Nothing tells a packet of an earlier round from one of this round but
// these sets. One thing more can be told than the published switch does: a worker that has contributed to a
// version that still fills has no business in the other one. Its packet there is an old one, come late.
//
// Integers are summed in this machine's order of bytes. Answers go to where each worker spoke from last to
// the slot: threads of one worker have slots and ports of their own.
#pragma once

#include <memory_resource>
#include <vector>

#include "protocol/aggregation/lent_memory.h"
#include "protocol/aggregation/switch_action.h"
#include "protocol/aggregation/switch_counters.h"
#include "protocol/aggregation/switch_terms.h"
#include "protocol/aggregation/token_bucket.h"
#include "wire/switchml.h"

namespace talweg::protocol {

// One version of a slot. All zero: empty.
struct SwitchmlCell {
  std::uint32_t seen = 0;      // bit w: worker w has contributed, and not gone on
  std::uint8_t remaining = 0;  // workers that have not; of a version that is empty or finished: 0
  std::int8_t exponents[2] = {0, 0};
};

class SwitchmlSlots {
 public:
  SwitchmlSlots(SwitchmlTerms terms, std::pmr::memory_resource& memory);

  const SwitchmlTerms& terms() const { return terms_; }
  const SwitchCounters& counters() const { return counters_; }

  // A packet of the job's worker of this number. Appends to `actions`; payloads are whole packets, point into
  // this object and are valid until it is called again.
  void on(std::size_t worker, std::span<const std::byte> packet, Peer from, std::int64_t now_ns,
          std::vector<SwitchAction>& actions);

 private:
  struct Place {
    SwitchmlCell& cell;
    std::byte* sums;
  };
  Place place(std::size_t slot, bool version);
  void take(const Place& place, const wire::SwitchmlHeader& header, std::span<const std::byte> integers);
  std::span<const std::byte> result(const Place& place, wire::SwitchmlHeader header);

  const SwitchmlTerms terms_;
  const JobMemory layout_;
  LentMemory memory_;
  TokenBucket bucket_;
  SwitchCounters counters_;
};

}  // namespace talweg::protocol
