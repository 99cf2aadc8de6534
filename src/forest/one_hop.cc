// One-hop exchange: everyone sends everything to everyone, who all sum for themselves: N inward stars over
// the same slice. One latency, N-1 vectors on every link: for tiny messages and barriers.
#include "forest/algorithms.h"
#include "forest/trees.h"

namespace talweg::forest {

Forest plan_one_hop(const Request& request, const CostModel&) {
  const Slice slice = split_evenly(request, 1).front();
  Forest forest{.planner = "one_hop", .request = request, .nodes = request.ranks, .trees = {}};
  for (NodeId root = 0; root < request.ranks; ++root) {
    Tree tree = collective_tree(request, slice, root, star_shape(request.ranks, root));
    tree.receivers = {root};
    tree.down.clear();
    forest.trees.push_back(std::move(tree));
  }
  return forest;
}

}  // namespace talweg::forest
