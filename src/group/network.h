// What the planner is told of the network.
#pragma once

#include <string>
#include <vector>

#include "cluster/cluster.h"

namespace talweg::group {

// `host_of[r]` numbers the host of rank r, 0 .. hosts-1. The same on all ranks. Ranks of one host talk
// through memory; hosts hang on one switch. The rates are assumptions, good enough to choose between planners
// by size; whoever knows better gives a cluster file.
cluster::Cluster assumed_network(const std::vector<int>& host_of);

}  // namespace talweg::group
