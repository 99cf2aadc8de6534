// Where the nodes of a network stand in a picture: workers on a circle, those of one switch next to each
// other; switches inside, tier by tier, each between what hangs on it; a single one at the top in the centre.
#pragma once

#include <vector>

#include "cluster/cluster.h"

namespace talweg::study {

struct Place {
  double x = 0, y = 0;  // the circle of the workers has radius 1; y points down
  double angle = 0;     // radians, seen from the centre
  int tier = 0;         // 0: worker; else hops to the nearest worker
};

// By node. Depends on nothing but the network.
std::vector<Place> lay_out(const cluster::Cluster& network);

}  // namespace talweg::study
