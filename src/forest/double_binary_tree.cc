// Double binary tree (Sanders, Speck, Traff 2009): half of the vector on each of two binary trees, where a
// rank that works inside one tree is a leaf of the other. Each rank then sends and receives at most the
// vector once each way, as in a chain, but in 2 log2 N steps.
//
// Members are labelled 1 .. M. In tree one every inner node has an even label: the root of a range of labels
// is an even one near its middle, with the halves left and right of it as subtrees. Tree two shifts the
// labels by one, so that its inner nodes have odd ones (label M becomes 1, always a leaf). With a given root
// (reduce, broadcast) the root stands outside, above both trees; its only child is the trees' own root.
#include "forest/algorithms.h"
#include "forest/trees.h"

namespace talweg::forest {
namespace {

// Labels in [low, high] below `parent`; label l hangs on parents[l].
void hang(int low, int high, int parent, std::vector<int>& parents) {
  if (low > high) return;
  int middle = (low + high) / 2;
  if (middle % 2 != 0 && low < high) middle += middle < high ? 1 : -1;
  parents[static_cast<std::size_t>(middle)] = parent;
  hang(low, middle - 1, middle, parents);
  hang(middle + 1, high, middle, parents);
}

}  // namespace

Forest plan_double_binary_tree(const Request& request, const CostModel&) {
  const int ranks = request.ranks;
  const bool rooted = facts(request.op).rooted;
  const int members = rooted ? ranks - 1 : ranks;
  constexpr int kTop = 0;  // the label above the tree
  std::vector<int> parents(static_cast<std::size_t>(members) + 1, kTop);
  hang(1, members, kTop, parents);

  const auto slices = split_evenly(request, 2);
  std::vector<Tree> trees;
  for (int shift = 0; shift < 2; ++shift) {
    // Member m = 0 .. members-1 has label (m + shift) mod members + 1.
    const auto rank_of = [&](int label) {
      const int member = (label - 1 + members - shift) % members;
      return rooted ? (request.root + 1 + member) % ranks : member;
    };
    NodeId root = request.root;
    Shape shape(static_cast<std::size_t>(ranks), root);
    for (int label = 1; label <= members && !rooted; ++label) {
      if (parents[static_cast<std::size_t>(label)] == kTop) root = rank_of(label);
    }
    for (int label = 1; label <= members; ++label) {
      const int parent = parents[static_cast<std::size_t>(label)];
      shape[static_cast<std::size_t>(rank_of(label))] = parent == kTop ? root : rank_of(parent);
    }
    trees.push_back(collective_tree(request, slices[static_cast<std::size_t>(shift)], root, shape));
  }
  return useful_forest("double_binary_tree", request, std::move(trees));
}

}  // namespace talweg::forest
