// Chain: one path through all ranks, pipelined in chunks. Every link carries the vector once each way, the
// best there is for broadcast and reduce of long vectors; a short one pays N-1 latencies.
#include "forest/algorithms.h"
#include "forest/trees.h"

namespace talweg::forest {

Forest plan_chain(const Request& request, const CostModel&) {
  const NodeId root = facts(request.op).rooted ? request.root : 0;
  std::vector<NodeId> order;
  for (int step = 0; step < request.ranks; ++step) order.push_back((root + step) % request.ranks);
  return useful_forest("chain", request,
                       {collective_tree(request, split_evenly(request, 1).front(), root, path_shape(order))});
}

}  // namespace talweg::forest
