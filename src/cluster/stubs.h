// Stubs: workers with one neighbour, a switch. All ways to and from a stub pass its switch, so that what is
// worked out from the switch holds for all stubs on it: in a fat tree that is one search for each leaf, not
// one for each host.
#pragma once

#include <vector>

#include "cluster/cluster.h"

namespace talweg::cluster {

struct Stub {
  int at = -1;    // the inner node that it hangs on; -1: this node is no stub
  int up = -1;    // the link to there
  int down = -1;  // and back
};

// Of each node.
std::vector<Stub> find_stubs(const Cluster& cluster);

}  // namespace talweg::cluster
