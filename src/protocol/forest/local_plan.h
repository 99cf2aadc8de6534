// LocalPlan: one node's part of a forest, worked out once and shared by every run of that forest.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "forest/block_turns.h"
#include "forest/flow_control.h"
#include "protocol/plans.h"

namespace talweg::protocol {

inline constexpr int kSelf = -1;  // in LocalTree::operands

// Chunks of one tree that a parent buffers per child before it has summed them (forest/flow_control.h).
inline constexpr auto kLeastWindow = static_cast<std::uint32_t>(forest::kLeastWindow);
inline constexpr auto kMostWindow = static_cast<std::uint32_t>(forest::kMostWindow);

// A root that keeps no result (an aggregator) sums no further than this many windows ahead of the slowest of
// those that it sends results to: so it never holds much more than what is on its way to it, and others need
// not wait for every hiccup of one of them.
inline constexpr std::uint32_t kResultWindows = 4;

struct LocalTree {
  std::uint32_t index = 0;  // in the forest
  std::int64_t bytes = 0;   // of the slice
  std::uint32_t chunk_bytes = 0;
  std::uint32_t chunks = 0;
  std::uint32_t window = kLeastWindow;  // chunks, of which no more than there are
  std::int64_t in_offset = -1;          // bytes into the caller's input; -1: this node contributes nothing
  std::int64_t out_offset = -1;         // bytes into the caller's output; -1: this node receives nothing
  bool root = false;
  NodeId up_parent = kNone;
  NodeId down_parent = kNone;
  std::vector<NodeId> up_children;    // ascending
  std::vector<NodeId> down_children;  // from the next higher node on, then from 0
  // What is summed here, always in this order so that every run gives the same bits: an index into
  // up_children, or kSelf. Self comes first (an in-place sum then never overwrites it), but where several
  // roots sum the same elements (one-hop) all of them go by ascending node number, or their bits would
  // differ.
  std::vector<int> operands;
  std::vector<bool> is_left;  // by operand: it is the left one of its addition; empty: none is
  // In a forest with sums_once: who else gets the sum of the first `operands` operands, in ascending order of
  // these. Such a tree has one chunk.
  struct Tap {
    std::uint32_t operands = 0;
    NodeId parent = kNone;
    std::uint32_t tree = 0;
    bool operator==(const Tap&) const = default;
  };
  std::vector<Tap> taps;
  // A position in LocalPlan::trees: the tree that waits to begin until this one has been received; -1: none.
  std::int32_t then = -1;
  bool waits = false;  // is `then` of another
  // Of a scatter, a block that goes straight from the source: who gets it tells the source that it is there.
  bool acknowledged = false;
  bool operator==(const LocalTree&) const = default;

  std::uint32_t bytes_of(std::uint32_t chunk) const {
    const std::int64_t begin = static_cast<std::int64_t>(chunk) * chunk_bytes;
    const std::int64_t left = bytes - begin;
    return static_cast<std::uint32_t>(left < chunk_bytes ? left : chunk_bytes);
  }
};

struct LocalPlan : Plan {
  std::unique_ptr<Transfer> make_transfer(BufferPool& pool) const override;

  std::vector<LocalTree> trees;        // only those in which this node takes part, in the order to start them
  std::vector<std::int32_t> position;  // forest index -> position in `trees`, -1 if not ours
  bool slices_overlap = false;         // trees share elements (one-hop): in-place results need a scratch copy
  std::int64_t ahead_bytes = 0;        // PlanLimits::ahead_bytes: of blocks that are acknowledged
  forest::BlockLanes lanes{};          // of these, at their source: PlanLimits::lanes
};

// As make_plan and make_plans (protocol/plans.h).
std::shared_ptr<const LocalPlan> make_local_plan(std::shared_ptr<const forest::Forest> forest, NodeId self,
                                                 const PlanLimits& limits = {});
std::vector<std::shared_ptr<const LocalPlan>> make_local_plans(
    const std::shared_ptr<const forest::Forest>& forest, std::uint32_t digest = 0,
    const forest::LookAhead& ahead = {});

}  // namespace talweg::protocol
