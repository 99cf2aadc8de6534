// Who is attached where in a lab, and which way packets go.
#pragma once

#include <vector>

#include "cluster/cluster.h"

namespace talweg::fabric {

struct LabPaths {
  // By node: the switch that a host hangs on; -1: none (and for switches, but for those that aggregate:
  // these are hosts as well, which hang on themselves).
  std::vector<int> switch_of;
  // Links between switches, one direction of each; without those that are on none of the cluster's first
  // paths, such as those of a second spine: bridges allow no loops.
  std::vector<int> trunks;
  std::vector<int> left_out;  // these, in both directions
  // [from][to], by node: the next node that is not a switch on the cluster's route; -1: no path.
  std::vector<std::vector<int>> next_hop;
};

// Throws Error{unsupported} for a host on two switches, or on a switch and with links straight to other
// hosts.
LabPaths find_paths(const cluster::Cluster& cluster);

// The same network without these links, in its groups as well: what they share with others stays as it is.
cluster::Cluster without_links(const cluster::Cluster& cluster, const std::vector<int>& links);

}  // namespace talweg::fabric
