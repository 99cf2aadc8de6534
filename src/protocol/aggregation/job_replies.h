// What one datagram brings about at a switch, while its entries are gone through; for the job's own sources.
#pragma once

#include <optional>

#include "protocol/aggregation/job.h"

namespace talweg::protocol {

struct AggregationJob::Replies {
  wire::AggregationWriter on;       // to all, or above
  wire::AggregationWriter one;      // results that the sender has missed
  wire::AggregationWriter missing;  // what the switch has missed, of rounds that the sender asks about
  wire::AggregationWriter gap;      // and by the numbers of datagrams
  std::int64_t now_ns = 0;
  bool to_above = false;
  std::optional<JobSlots::Cell> waiting;  // of a round that somebody is missing in: who is to be named
  bool waiting_begun = false;
  std::optional<wire::AggregationReason> refusal;
  bool waits = false;  // a result that is spoken of has not been sent yet

  // `number`: of the result, if there is to be one for all.
  Replies(JobSlots& slots, wire::AggregationFormat format, std::uint64_t number, std::int64_t now)
      : on(slots.packet(0)),
        one(slots.packet(1)),
        missing(slots.packet(2)),
        gap(slots.packet(3)),
        now_ns(now) {
    on.begin(format, static_cast<std::uint16_t>(number));
    one.begin(format);
    missing.begin(format);
    gap.begin(format);
  }
};

}  // namespace talweg::protocol
