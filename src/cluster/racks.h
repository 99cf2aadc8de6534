// Which workers sum at which rack's switch, where a cluster's switches say who is above them.
#pragma once

#include <vector>

#include "cluster/cluster.h"

namespace talweg::cluster {

// By worker: the node of its rack's switch, which is the one with another above it that the fewest links lead
// to it from, and of several the first. Empty: no switch is above another one.
std::vector<int> racks_of(const Cluster& cluster);

}  // namespace talweg::cluster
