// What the planners are built from: ways to cut the logical vector, shapes of trees, and the tree that a
// collective makes of a slice and a shape.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/collectives.h"
#include "forest/forest.h"

namespace talweg::forest {

inline constexpr std::int64_t kCacheLineBytes = 64;

// A tree: parent[i] is the parent of node i; the root is its own parent, and -1 is that of a node that is not
// on the tree. All ranks are.
using Shape = std::vector<NodeId>;

Shape path_shape(
    std::span<const NodeId> order);        // order[0] is the root, each next one hangs on the one before
Shape star_shape(int ranks, NodeId root);  // the root may be an aggregator

// Elements [0, sum of counts) in `pieces` slices of equal length, the first ones an element longer. Where
// slices are long their boundaries fall on multiples of 64 bytes, so that no cache line is shared.
std::vector<Slice> split_evenly(const Request& request, int pieces);
// As above, in proportion to `weights` (> 0).
std::vector<Slice> split_by_weight(const Request& request, std::span<const double> weights);
// One slice for each entry of `counts`.
std::vector<Slice> split_by_count(const Request& request);

// The tree that carries `slice` for request.op along `shape`, whose root is `root`:
//   all_reduce, barrier        from everyone up to the root, and down to everyone
//   reduce, reduce_scatter     from everyone up to the root
//   broadcast, all_gather      from the root down to everyone (broadcast: the root has it already)
// Chunk sizes are left 0. Throws Error{unsupported} for other operations.
Tree collective_tree(const Request& request, const Slice& slice, NodeId root, const Shape& shape);

// The forest of `trees`, without the trees of empty slices, whose messages would be for nothing. If all are
// empty the first one stays, so that the collective still synchronises.
Forest useful_forest(const std::string& planner, const Request& request, std::vector<Tree> trees);

std::vector<NodeId> everyone(const Request& request);

}  // namespace talweg::forest
