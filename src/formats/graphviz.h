// Pictures for GraphViz: `dot -Tsvg network.dot`.
#pragma once

#include <string>

#include "cluster/cluster.h"
#include "forest/forest.h"

namespace talweg::formats {

using forest::Forest;

// Workers are boxes, switches ellipses, aggregators hexagons; an edge for each link, one for both ways where
// they are alike, with capacity and latency; dashed, with the name of the group, for links that share a
// capacity.
std::string to_dot(const cluster::Cluster& cluster);

// One cluster of nodes for each tree: `up` drawn solid, `down` dashed, the root with a double line.
std::string to_dot(const Forest& forest);

}  // namespace talweg::formats
