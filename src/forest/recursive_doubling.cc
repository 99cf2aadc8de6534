// Recursive doubling (Thakur et al. 2005, section 4.5): in round k rank r exchanges its sum with r ^ 2^k, so
// that after log2 N rounds all have everything: as few rounds as there can be, at log2 N vectors per link.
//
// As a forest: every rank is the root of a binomial tree over the whole slice. In tree r, rank v ^ r hangs on
// (v without its lowest bit) ^ r and brings the sum of the 2^k ranks that differ from it below that bit k.
// That sum is the same in all trees that have the edge and travels once (Forest::sums_once).
//
// When N is not a power of two, each rank above the greatest power P hands its vector to rank - P first, and
// gets the result back from there last.
#include <algorithm>
#include <bit>

#include "forest/algorithms.h"
#include "forest/trees.h"

namespace talweg::forest {
namespace {

// A sum that is shared moves in one piece; longer vectors move in several.
constexpr std::int64_t kMostSliceBytes = 64 << 10;

}  // namespace

Forest plan_recursive_doubling(const Request& request, const CostModel&) {
  const int ranks = request.ranks;
  const int power = static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks)));
  const std::int64_t bytes = request.counts[0] * request.element_size;
  const int pieces =
      static_cast<int>(std::max<std::int64_t>(1, (bytes + kMostSliceBytes - 1) / kMostSliceBytes));
  Forest forest{
      .planner = "recursive_doubling", .request = request, .nodes = ranks, .trees = {}, .sums_once = true};
  for (const Slice& slice : split_evenly(request, pieces)) {
    for (NodeId root = 0; root < power; ++root) {
      Shape shape(static_cast<std::size_t>(ranks), root);
      for (int v = 1; v < power; ++v) shape[static_cast<std::size_t>(v ^ root)] = (v & (v - 1)) ^ root;
      for (NodeId extra = power; extra < ranks; ++extra)
        shape[static_cast<std::size_t>(extra)] = extra - power;
      Tree tree = collective_tree(request, slice, root, shape);
      tree.receivers = {root};
      tree.down.clear();
      if (root + power < ranks) {
        tree.receivers.push_back(root + power);
        tree.down.push_back({root + power, root});
      }
      forest.trees.push_back(std::move(tree));
    }
  }
  return forest;
}

}  // namespace talweg::forest
