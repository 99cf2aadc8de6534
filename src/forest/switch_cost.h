// What an all-reduce is predicted to take that switches of streaming aggregation sum (protocol/aggregation),
// by the cost model's rates, latencies and processors.
//
// A vector goes up once from each worker, in datagrams, and its sum comes down once to each, of sparse ones
// what each and what any of them has; every switch has an equal share of it; one whose node can multicast
// sends the sum once, where whoever has to copy on the way can. A link or a group works for the bytes of
// datagrams that pass it, a processor for those that it sends, receives and adds. A slot has one datagram
// under way: a switch sums no more than its slots hold in the round trip of the worker that is farthest away.
// The prediction is that round trip, and what is slowest of the rest for all datagrams but the first.
//
// With a switch for each rack and one above them, each of the racks' passes one vector up and gets one back,
// and the round trip is that of both levels.
//
// It knows nothing of losses, of sockets that overflow and of votes that a group takes around a sum.
#pragma once

#include <cstdint>
#include <span>

#include "forest/cost.h"

namespace talweg::forest {

// How vectors travel.
struct SwitchedShape {
  std::int64_t vector_bytes = 0;  // of a vector, in a full datagram
  std::int64_t wire_bytes = 0;    // that it has in all
  int slots = 1;                  // of each switch
  // Of what comes down, as much as each worker sends: of dense vectors all. A rack's switch sends as much as
  // if none of its workers had what another one has.
  double up = 1;
};

// `bytes` of the sum, which are those of each worker's vector where it is dense. `switches` are nodes that
// all workers reach, at least one. Throws Error{invalid_argument} for no switch, or one that some worker does
// not reach. `racks`: by worker, the node of its rack's switch, below the only one of `switches`; empty:
// there are none.
Breakdown switched_breakdown(const CostModel& model, std::span<const NodeId> switches, std::int64_t bytes,
                             const SwitchedShape& shape, std::span<const NodeId> racks = {});

}  // namespace talweg::forest
