// Recursive halving and doubling (Rabenseifner 2004; Thakur et al. 2005, section 4.5) as N binomial trees.
//
// In halving, rank r exchanges with r ^ d for d = N/2, N/4, .. 1, giving away the half that holds slices of
// the partner's side. So slice i leaves r when (r ^ i) & d is the highest bit in which they differ: in tree
// i, rank v ^ i hangs on (v without its highest bit) ^ i. Doubling runs the same edges backwards. All trees
// together send (N-1)/N of the vector from every rank in each half, in log2 N rounds.
//
// When N is not a power of two, v ^ i is replaced by (v + i) mod N (as in Bruck's all-gather, 1997). Each
// rank is each v in exactly one tree, so all ranks send the same again, in ceil(log2 N) rounds.
#include <bit>

#include "forest/algorithms.h"
#include "forest/trees.h"

namespace talweg::forest {

Forest plan_halving_doubling(const Request& request, const CostModel&) {
  const int ranks = request.ranks;
  const bool power_of_two = std::has_single_bit(static_cast<unsigned>(ranks));
  const auto slices = has_parts(request.op) ? split_by_count(request) : split_evenly(request, ranks);
  std::vector<Tree> trees;
  for (NodeId root = 0; root < ranks; ++root) {
    const auto rank_of = [&](int v) { return power_of_two ? v ^ root : (v + root) % ranks; };
    Shape shape(static_cast<std::size_t>(ranks), root);
    for (int v = 1; v < ranks; ++v) {
      const int parent = v - static_cast<int>(std::bit_floor(static_cast<unsigned>(v)));
      shape[static_cast<std::size_t>(rank_of(v))] = rank_of(parent);
    }
    trees.push_back(collective_tree(request, slices[static_cast<std::size_t>(root)], root, shape));
  }
  return useful_forest("halving_doubling", request, std::move(trees));
}

}  // namespace talweg::forest
