// The order in which data meets the edges of a tree.
#pragma once

#include <vector>

#include "forest/forest.h"

namespace talweg::forest {

// The edges that hang together with `root`, every parent's own edge before those of its children; siblings in
// the order given. Read backwards it is the order of a reduction. Fewer edges than given come back exactly
// when some do not hang on the root, or lie on a cycle. Nodes must be in [0, nodes).
std::vector<Edge> outward(const std::vector<Edge>& edges, NodeId root, int nodes);

}  // namespace talweg::forest
