// Paces: how fast each node is to send to each other one, so that trees keep their shares of the links on
// which they meet.
//
//   const std::vector<Pace> paces = paces_of(forest, model);
//   for (const Pace& pace : paces_from(paces, rank)) send to pace.to at pace.bytes_per_second;
//
// A flow is what one node sends to another one in all trees together: one connection. Where flows of several
// hosts meet behind a switch, TCP gives each an equal part of the link, whatever the plan gives their trees;
// and what a host sends as fast as its own link can fills the switch's queue. Derivation of the paces:
//
//   share     Of a link of capacity C that carries B bytes, b of them of this flow, the flow is due C b / B.
//             Were all flows to have their shares, links would be done after B / C each, the busiest one
//             after T.
//   pipeline  A tree that moves m chunks over H hops, one behind the other, is done after m + H - 1 chunk
//             times. To be done in T as well, it needs (m + H - 1) / m times its share.
//   head-room Rates are not known exactly, and who was late must be able to catch up: kPaceHeadRoom.
//
//   pace = kPaceHeadRoom * (sum over the flow's trees of (m + H - 1) / m * bytes) * min over links of C / B
//
// So no pace keeps a tree from being done within T, and the flows on a link together come to no more than its
// capacity, times the head-room and the greatest (m + H - 1) / m. Groups count as links do. A link whose
// bursts hold all that it carries holds nothing back.
//
// That holds where all trees move all the time. So there are no paces for the blocks of all_to_all, gather
// and scatter, which go one after the other, nor for short vectors, whose chunks are few.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "forest/cost.h"
#include "forest/forest.h"

namespace talweg::forest {

// Rates are measured within a few percent. And an edge that only its pace holds back is busy for 1 / 1.25 of
// the time: no re-planner takes that for a full link (steer/replanner.h).
inline constexpr double kPaceHeadRoom = 1.25;
// Of the logical vector: below, calls are not paced.
inline constexpr std::int64_t kLeastPacedBytes = 256 << 10;

struct Pace {
  NodeId from = 0;
  NodeId to = 0;
  double bytes_per_second = 0;  // of the stream that TCP carries; 0: as fast as it can
  bool operator==(const Pace&) const = default;
};

// Of all flows, by `from`, then `to`; none where the forest is not paced. A flow that could not be faster
// alone has no pace. The forest must be one that verify() accepts on the model's network, with chunks chosen.
std::vector<Pace> paces_of(const Forest& forest, const CostModel& model);
// Those of one node.
std::span<const Pace> paces_from(std::span<const Pace> paces, NodeId node);

// For how long some link or group must have worked before `node` has all that the forest brings it, and all
// that it is to pass on: no call of it can end sooner there, if the network is what the model says.
double seconds_needed(const Forest& forest, const CostModel& model, NodeId node);

}  // namespace talweg::forest
