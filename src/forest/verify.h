// The proof that a forest computes its collective.
#pragma once

#include <vector>

#include "base/units.h"
#include "cluster/cluster.h"
#include "forest/forest.h"

namespace talweg::forest {

// What a forest sends over a cluster by shortest routes, payload only. Empty when no cluster was given.
struct Verification {
  std::vector<Bytes> link_bytes;   // by Cluster::links
  std::vector<Bytes> group_bytes;  // by Cluster::groups: the sum over the group's links
};

// Throws Error{invalid_argument} with one sentence that names the tree and what is wrong with it, unless
//   - in every tree the up edges lead from each contributor to the root and the down edges from the root to
//     each receiver: every other node has one way on, nothing is on a cycle, and nothing ends anywhere else;
//   - nodes that are not ranks sum or multiply only where the cluster says that they can (without a cluster:
//     always), and every edge has a route;
//   - what a tree delivers to a receiver is what the operation wants there: everyone's contribution once for
//     all_reduce, reduce, reduce_scatter and barrier, else that of the one rank whose data it is;
//   - the slices that a rank receives cover its output exactly once. In broadcast the root may receive
//     nothing; in a barrier everyone is reached by exactly one tree.
// A forest with sums_once is held to what SharedSums asks as well, and its load counts a shared sum once.
// Chunks must be above 0. Trees of empty slices are held to the same structure, and may be absent.
Verification verify(const Forest& forest, const cluster::Cluster* cluster = nullptr);

}  // namespace talweg::forest
