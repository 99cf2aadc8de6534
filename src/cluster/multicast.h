// How one datagram comes to several nodes, copied on the way by nodes that can.
#pragma once

#include <span>
#include <vector>

#include "cluster/cluster.h"
#include "cluster/routing.h"

namespace talweg::cluster {

// The links of a tree from `from` to all of `to`, none of which passes anything on, on paths as good as those
// of `routes`, the links of a path in the order of travel. `from` copies to as many links as need be. Empty:
// there is no way, it leads through a worker, or a switch that cannot multicast would have to copy.
std::vector<int> multicast_tree(const Cluster& cluster, const Routes& routes, int from,
                                std::span<const int> to);

}  // namespace talweg::cluster
