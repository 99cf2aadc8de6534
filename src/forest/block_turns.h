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
// Blocks whose way is narrowest at the same place, a link or a capacity group, are a lane; behind it, it has
// room in queues of its own. What several lanes pass is shared, among it the source's own links: together
// they could carry more than it does, and what is too much would fill its queue. A block may go while
//
//   - fewer than kLeastAhead are on their way, or all of these and itself are kAheadBytes at most; or
//   - that holds of its own lane, or what is on its way there fills no more than the wire and such a queue
//     (may_go_beside() in flow_control.h), and either
//       no shared place of the lane is filled by what other lanes with blocks on their way can carry, or
//       the lane needs at least half of the time of all that has still to pass where it finds no room, and no
//       other lane goes for that reason.
//
// So where the source's own link is the narrowest of all ways, which is one lane, only the first matters. The
// half: what does not fit beside the first ones would begin when these have ended, and take as long again.
//
// Lanes go in the order of the time that they need beyond what a shared place gives to them alone, the
// longest first: one that fills the source's link uses what others leave whenever they do, and comes last.
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
  struct Share {
    std::int32_t place = 0;
    std::int64_t part = 0;  // of what the place carries, in parts of kWholeLane: what the lane can send there
    bool operator==(const Share&) const = default;
  };
  struct Lane {
    double rate = 0;              // bytes per second
    std::int64_t wire = 0;        // bytes: what it carries in the longest round trip of its ways
    std::vector<Share> shares{};  // of the places that others could fill
    bool operator==(const Lane&) const = default;
  };
  std::vector<std::int32_t> of_rank;  // its block's lane
  std::vector<Lane> lanes;
  std::int32_t places = 0;
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
    double rate = 1;                 // bytes per second
    std::int64_t wire = 0;           // bytes
    std::size_t begin = 0, end = 0;  // in shares_
    std::size_t first = kNoBlock, last = kNoBlock;
    std::int64_t left = 0;  // bytes that have not arrived
    OnWay on_way{};

    double seconds() const { return static_cast<double>(left) / rate; }
  };
  struct Place {
    std::int64_t filled = 0;  // the parts of lanes with blocks on their way
    double seconds = 0;       // for what has not arrived, at the rates of lanes
  };
  bool few(const OnWay& on_way, std::int64_t bytes, std::int64_t wire) const;
  enum class Room { none, late, enough };
  Room room_for(std::size_t number) const;
  double beyond(const Lane& lane) const;
  void pass(Lane& lane, std::int64_t bytes);
  void fill(const Lane& lane, std::int64_t sign);

  std::vector<std::int32_t> lane_of_rank_;
  std::vector<Entry> blocks_;
  std::vector<Lane> lanes_;
  std::vector<std::size_t> order_;  // of lanes
  std::vector<BlockLanes::Share> shares_;
  std::vector<Place> places_;
  std::size_t late_ = kNoBlock;  // the lane that goes though it finds no room
  OnWay on_way_;
  std::int64_t ahead_bytes_ = 0;
  std::size_t unsent_ = 0;
};

}  // namespace talweg::forest
