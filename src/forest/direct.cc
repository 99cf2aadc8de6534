// Direct: each slice goes straight from those who contribute to those who receive. For all-to-all, gather and
// scatter there is a tree for every pair or rank even when its count is 0, in an order that does not depend
// on counts: a rank that does not know the counts of others still numbers its own trees as they do.
#include "forest/algorithms.h"
#include "forest/trees.h"

namespace talweg::forest {
namespace {

Tree one_to_one(const Slice& slice, NodeId source, NodeId destination) {
  Tree tree{.slice = slice,
            .root = source,
            .contributors = {source},
            .receivers = {destination},
            .up = {},
            .down = {}};
  if (source != destination) tree.down.push_back({destination, source});
  return tree;
}

std::vector<Tree> stars(const Request& request, const std::vector<Slice>& slices, NodeId first_root) {
  std::vector<Tree> trees;
  for (const Slice& slice : slices) {
    const NodeId root = first_root + static_cast<NodeId>(trees.size());
    trees.push_back(collective_tree(request, slice, root, star_shape(request.ranks, root)));
  }
  return trees;
}

std::vector<Tree> pairs(const Request& request) {
  std::vector<Tree> trees;
  for (const Slice& slice : split_by_count(request)) {
    const auto index = static_cast<NodeId>(trees.size());
    switch (request.op) {
      case Collective::all_to_all:
        trees.push_back(one_to_one(slice, index / request.ranks, index % request.ranks));
        break;
      case Collective::gather:
        trees.push_back(one_to_one(slice, index, request.root));
        break;
      case Collective::scatter:
        trees.push_back(one_to_one(slice, request.root, index));
        break;
      default:  // send_recv
        trees.push_back(one_to_one(slice, request.root, request.peer));
    }
  }
  return trees;
}

}  // namespace

Forest plan_direct(const Request& request, const CostModel&) {
  if (!goes_up(request.op) && !goes_down(request.op))
    return {.planner = "direct", .request = request, .nodes = request.ranks, .trees = pairs(request)};
  if (has_parts(request.op))
    return useful_forest("direct", request, stars(request, split_by_count(request), 0));
  return useful_forest("direct", request, stars(request, split_evenly(request, 1), request.root));
}

}  // namespace talweg::forest
