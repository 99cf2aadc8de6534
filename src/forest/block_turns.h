// In which turns the blocks of a scatter go: few on their way at a time, but no slow link idle while others
// are served, nor the source's own link while slow ones are. The source and the cost model keep this rule.
//
//   BlockTurns turns;
//   turns.reset(lanes_of(request, network, routes), kAheadBytes);
//   for (each block, in the order of ranks from the source on) turns.add(rank, bytes);
//   turns.begin();
//   while (const auto block = turns.next()) send(*block);  // the block-th that was added
//   turns.arrived(block);                                  // and next() may have others
//
// Blocks whose way is narrowest at the same place are a lane. Lanes go in the order of the time that they
// need, the longest first: what the lane has still to bring over its rate. A block may go while
//
//   - fewer than kLeastAhead are on their way, or all of these and itself are kAheadBytes at most; or
//   - that holds of its own lane, and either
//       what the other lanes with blocks on their way can carry does not fill what the source can send, or
//       its lane needs at least half of the time that all that is left takes the source.
//
// So where the source's own link is the narrowest of all ways, which is one lane, only the first matters. The
// half: a lane that shares the source's link with others does not get all that it could carry.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "cluster/cluster.h"
#include "cluster/routing.h"
#include "forest/forest.h"

namespace talweg::forest {

inline constexpr std::int64_t kWholeLane = 1024;

struct BlockLanes {
  std::vector<std::int32_t> of_rank;  // its block's lane
  std::vector<std::int64_t> parts;    // by lane: of what the source can send, in parts of kWholeLane; above 0
  bool operator==(const BlockLanes&) const = default;
};

// The lanes of a scatter; none of other requests. The network has the request's ranks as its workers.
BlockLanes lanes_of(const Request& request, const cluster::Cluster& network, const cluster::Routes& routes);
BlockLanes lanes_of(const Request& request, const cluster::Cluster& network);

class BlockTurns {
 public:
  // Nothing is added yet. Without lanes all blocks are of one that fills the source's link.
  void reset(const BlockLanes& lanes, std::int64_t ahead_bytes);
  void add(NodeId to, std::int64_t bytes);
  // All have been added.
  void begin();
  // Which goes now, by the order of adding; it is then on its way. None: nothing may, or nothing is left.
  std::optional<std::size_t> next();
  void arrived(std::size_t block);
  // Whether blocks are left that have not gone.
  bool held_up() const { return unsent_ > 0; }

 private:
  static constexpr std::size_t kNoBlock = static_cast<std::size_t>(-1);
  struct Entry {
    std::int64_t bytes = 0;
    std::size_t lane = 0;
    std::size_t behind = kNoBlock;  // the lane's next one
  };
  struct OnWay {
    std::int64_t blocks = 0, bytes = 0;
  };
  struct Lane {
    std::int64_t part = kWholeLane;
    std::int64_t left = 0;  // bytes that have not arrived
    std::size_t first = kNoBlock, last = kNoBlock;
    OnWay on_way{};

    // As long as the source would take for so many.
    std::int64_t stretched() const { return left / part * kWholeLane + left % part * kWholeLane / part; }
  };
  bool few(const OnWay& on_way, std::int64_t bytes) const;
  bool may_go(const Lane& lane) const;

  std::vector<std::int32_t> lane_of_rank_;
  std::vector<Entry> blocks_;
  std::vector<Lane> lanes_;
  std::vector<std::size_t> order_;  // of lanes
  OnWay on_way_;
  std::int64_t left_ = 0;    // bytes that have not arrived
  std::int64_t filled_ = 0;  // the parts of lanes with blocks on their way
  std::int64_t ahead_bytes_ = 0;
  std::size_t unsent_ = 0;
};

}  // namespace talweg::forest
