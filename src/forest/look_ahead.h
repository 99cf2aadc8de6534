// LookAhead: how far what ranks send may be ahead of what has arrived, by what the network's wires hold.
//
//   const LookAhead ahead = look_ahead(request, network, routes);  // of all ranks
//
// Of a scatter its source's lanes (block_turns.h). Of an all-to-all, for each rank, the most that one of its
// ways carries in a round trip, if all ranks' ways are about as quick as each other, or else nothing: a rank
// that has sent as much and kAheadBytes more sends on when it has received what others sent at the same time.
// Where each pair has a link of its own nobody waits: turns would have links idle, and no two blocks meet in
// a queue.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "cluster/cluster.h"
#include "cluster/routing.h"
#include "forest/block_turns.h"
#include "forest/forest.h"

namespace talweg::forest {

inline constexpr std::int64_t kNobodyWaits = std::numeric_limits<std::int64_t>::max();

struct LookAhead {
  BlockLanes lanes{};                 // none but of a scatter
  std::vector<std::int64_t> wires{};  // by rank; none but of an all-to-all
  bool alike = false;                 // of an all-to-all: all ways are about as quick
  bool operator==(const LookAhead&) const = default;
};

// The network has the request's ranks as its workers.
LookAhead look_ahead(const Request& request, const cluster::Cluster& network, const cluster::Routes& routes);
LookAhead look_ahead(const Request& request, const cluster::Cluster& network);

// Of one rank's part in an all-to-all: bytes, or kNobodyWaits.
std::int64_t exchange_wire(NodeId rank, int ranks, const cluster::Cluster& network,
                           const cluster::Routes& routes);
// Whether a rank of an all-to-all that has so much on its way, the block included that goes last, waits
// before it sends more; with at least one block besides that.
constexpr bool fills_exchange(std::int64_t on_way_bytes, std::int64_t last_bytes, std::int64_t wire_bytes,
                              std::int64_t ahead_bytes) {
  return on_way_bytes >= ahead_bytes + wire_bytes && on_way_bytes - last_bytes >= wire_bytes;
}

}  // namespace talweg::forest
