// What the planner is told of the network.
#pragma once

#include <vector>

#include "cluster/cluster.h"

namespace talweg::steer {

// Ranks of one host. A core copies and adds at some 10 GB/s once it shares its memory with others. A cache
// line crosses in a tenth of a microsecond, but where ranks share cores it is the switch from one to the next
// that counts.
inline constexpr Bandwidth kMemory{80e9};
inline constexpr Nanoseconds kMemoryLatency{2500};

// `host_of[r]` numbers the host of rank r, 0 .. hosts-1. The same on all ranks. Ranks of one host talk
// through memory; hosts hang on one switch: 50 us from rank to rank where each host has one, else 27.5 us.
// Assumptions, good enough to choose between planners by size; whoever knows better gives a cluster file.
cluster::Cluster assumed_network(const std::vector<int>& host_of);

}  // namespace talweg::steer
