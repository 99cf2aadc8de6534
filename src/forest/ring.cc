// Ring (Patarasuk and Yuan 2009): the vector in N slices, tree i a path around the ring that ends at its root
// i. Up, slice i travels i+1 -> i+2 -> ... -> i and is summed on the way; down, i -> i+1 -> ... -> i-1. Both
// use the same N directed ring links, and each link is in all up paths but one and all down paths but one: it
// carries 2(N-1)/N of the vector, the least that any algorithm can do when all links are equal.
// Reduce-scatter is the up half, all-gather the down half, with the slices that the caller wants.
#include "forest/algorithms.h"
#include "forest/trees.h"

namespace talweg::forest {

Forest plan_ring(const Request& request, const CostModel&) {
  const int ranks = request.ranks;
  const auto slices = has_parts(request.op) ? split_by_count(request) : split_evenly(request, ranks);
  std::vector<Tree> trees;
  for (NodeId root = 0; root < ranks; ++root) {
    // The paths differ: the last before the root on the way up is the last of all on the way down.
    std::vector<NodeId> down_order, up_order{root};
    for (int step = 0; step < ranks; ++step) down_order.push_back((root + step) % ranks);
    for (int step = 1; step < ranks; ++step) up_order.push_back((root + ranks - step) % ranks);
    const Slice& slice = slices[static_cast<std::size_t>(root)];
    Tree tree = collective_tree(request, slice, root, path_shape(down_order));
    tree.up = collective_tree(request, slice, root, path_shape(up_order)).up;
    trees.push_back(std::move(tree));
  }
  return useful_forest("ring", request, std::move(trees));
}

}  // namespace talweg::forest
