// SharedSums: which partial sums of a forest with `sums_once` are the same, so that each travels once.
//
// In recursive doubling every rank is the root of a tree over the same slice, and what rank x sends to rank y
// is the same sum in all the trees that have this edge. Drawn as trees that is N (N-1) messages; sent once
// each, it is N log2 N. For that to be well defined, and for all roots to end with the same bits, this class
// holds the trees of each slice to the following, and says which one is broken:
//   - they move in one chunk, all nodes contribute, and only roots have both children above and results to
//     pass down;
//   - a node that sums is the root of one of them; it adds its children to its own in one fixed order, and
//     what it sends in another tree is a prefix of that order (children of more trees come first);
//   - all roots compute one expression, up to the commutativity of each addition. The operand with the lowest
//     contributor is then put on the left, so that not even that can make a difference.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "forest/forest.h"

namespace talweg::forest {

class SharedSums {
 public:
  // Throws Error{invalid_argument} with one sentence when the above does not hold. Structure (edges that hang
  // on their roots, ids in range) is taken for granted: TreeVerifier proves it.
  explicit SharedSums(const Forest& forest);

  struct Step {
    NodeId child = 0;
    bool left = false;  // the child's sum is the left operand
    bool operator==(const Step&) const = default;
  };
  // What the root adds to its own contribution, in this order.
  const std::vector<Step>& steps(std::size_t tree) const { return steps_[tree]; }
  // The tree whose root `node` is, among those with the slice of `tree`; -1 if there is none.
  std::ptrdiff_t rooted_at(NodeId node, std::size_t tree) const;
  // The first tree in which `child` sends the sum that it sends in `tree` over the same edge.
  std::size_t first(std::size_t tree, NodeId child) const {
    return first_[tree * nodes_ + static_cast<std::size_t>(child)];
  }

 private:
  struct Sum {
    int expression = 0;
    NodeId lowest = 0;
  };
  int intern(int left, int right);
  void join_trees(const Forest& forest, const std::vector<std::size_t>& trees);

  std::size_t nodes_;
  std::vector<std::vector<Step>> steps_;
  std::vector<std::size_t> first_;
  std::map<std::pair<std::int64_t, NodeId>, std::size_t> rooted_;  // (offset of the slice, root)
  std::vector<std::int64_t> offsets_;
  std::map<std::pair<int, int>, int> expressions_;
};

}  // namespace talweg::forest
