// Binomial tree: in round k every rank that has the data passes it on, so ceil(log2 N) rounds reach all. Rank
// v (counted from the root) hangs on v with its highest bit cleared.
#include <bit>

#include "forest/algorithms.h"
#include "forest/trees.h"

namespace talweg::forest {

Forest plan_binomial(const Request& request, const CostModel&) {
  const bool rooted = facts(request.op).rooted;
  const NodeId root = rooted ? request.root : 0;
  Shape shape(static_cast<std::size_t>(request.ranks), root);
  for (int v = 1; v < request.ranks; ++v) {
    const int parent = v - static_cast<int>(std::bit_floor(static_cast<unsigned>(v)));
    shape[static_cast<std::size_t>((root + v) % request.ranks)] = (root + parent) % request.ranks;
  }
  return useful_forest("binomial", request,
                       {collective_tree(request, split_evenly(request, 1).front(), root, shape)});
}

}  // namespace talweg::forest
