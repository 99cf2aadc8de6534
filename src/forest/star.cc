// Star: one parameter server. Two latencies, but all N-1 copies of the vector pass the root's link.
#include "forest/algorithms.h"
#include "forest/trees.h"

namespace talweg::forest {

Forest plan_star(const Request& request, const CostModel& model) {
  const NodeId root = facts(request.op).rooted ? request.root : model.best_connected().front();
  return useful_forest(
      "star", request,
      {collective_tree(request, split_evenly(request, 1).front(), root, star_shape(request.ranks, root))});
}

}  // namespace talweg::forest
