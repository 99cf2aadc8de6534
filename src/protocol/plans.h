// The plans of nodes: each node's part of a forest, made for the transfer that is to run it. Groups, the
// simulator and the chaos runs ask here, and none of them knows which transfer it gets.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "forest/block_turns.h"
#include "forest/flow_control.h"
#include "forest/look_ahead.h"
#include "protocol/transfer.h"

namespace talweg::protocol {

struct PlanLimits {
  std::int64_t window_bytes = forest::kWindowBytes;
  // In an all-to-all, how far a rank's sends may be ahead of what it has received, in a scatter, of what has
  // been received of it in one lane (but always by two peers): about what a link's queues hold of it without
  // loss.
  std::int64_t ahead_bytes = forest::kAheadBytes;
  // How many nodes there are to run a forest: its ranks, and who else (0: nobody).
  NodeId nodes = 0;
  std::uint32_t digest = 0;  // Plan::digest
  // Of a scatter's source, as forest::lanes_of(): without them it takes all ways to be as wide as its own
  // link.
  forest::BlockLanes lanes{};
  // Of a rank in an all-to-all, as forest::exchange_wire().
  std::int64_t wire_bytes = 0;
};

// Throws Error{invalid_argument} for a chunk that does not fit a frame, and for a tree through a node that
// nobody is. `self` may be a node that is no rank: it holds no data. The forest should have been verified.
std::shared_ptr<const Plan> make_plan(std::shared_ptr<const forest::Forest> forest, NodeId self,
                                      const PlanLimits& limits = {});
// Of every rank, and of every other node of the forest. Each tree is looked at once for all of them, which
// for many ranks takes far less than one by one. `ahead` as PlanLimits::lanes and
// PlanLimits::wire_bytes.
std::vector<std::shared_ptr<const Plan>> make_plans(const std::shared_ptr<const forest::Forest>& forest,
                                                    std::uint32_t digest = 0,
                                                    const forest::LookAhead& ahead = {});

}  // namespace talweg::protocol
