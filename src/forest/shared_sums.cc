#include "forest/shared_sums.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/at.h"
#include "forest/walk.h"
#include "talweg/error.h"

namespace talweg::forest {
namespace {

[[noreturn]] void refuse_sums(const std::string& text) {
  throw Error(ErrorCode::invalid_argument, "sums_once: " + text);
}

}  // namespace

SharedSums::SharedSums(const Forest& forest)
    : nodes_(at(forest.nodes)),
      steps_(forest.trees.size()),
      first_(forest.trees.size() * nodes_),
      offsets_(forest.trees.size()) {
  std::map<std::int64_t, std::vector<std::size_t>> by_offset;
  for (std::size_t t = 0; t < forest.trees.size(); ++t) {
    const Tree& tree = forest.trees[t];
    offsets_[t] = tree.slice.offset;
    by_offset[tree.slice.offset].push_back(t);
    if (!rooted_.insert({{tree.slice.offset, tree.root}, t}).second)
      refuse_sums(fmt::format("two trees over slice {}+{} have root {}", tree.slice.offset, tree.slice.count,
                              tree.root));
    if (chunk_count(tree) != 1)
      refuse_sums(fmt::format("tree {} has {} chunks, expected one", t, chunk_count(tree)));
    if (std::ssize(tree.contributors) != forest.nodes)
      refuse_sums(fmt::format("tree {} has {} contributors, expected all {} nodes", t,
                              tree.contributors.size(), forest.nodes));
  }
  std::int64_t end = 0;
  for (const auto& [offset, trees] : by_offset) {
    const Slice& slice = forest.trees[trees.front()].slice;
    for (const std::size_t t : trees)
      if (forest.trees[t].slice != slice || offset < end)
        refuse_sums(fmt::format("tree {}: expected slices that are equal or apart", t));
    end = offset + slice.count;
    join_trees(forest, trees);
  }
}

std::ptrdiff_t SharedSums::rooted_at(NodeId node, std::size_t tree) const {
  const auto it = rooted_.find({offsets_[tree], node});
  return it == rooted_.end() ? -1 : static_cast<std::ptrdiff_t>(it->second);
}

// Expressions below nodes_ are a node's own contribution.
int SharedSums::intern(int left, int right) {
  const int next = static_cast<int>(nodes_ + expressions_.size());
  return expressions_.try_emplace({left, right}, next).first->second;
}

// Trees over one slice.
void SharedSums::join_trees(const Forest& forest, const std::vector<std::size_t>& trees) {
  std::map<std::pair<NodeId, NodeId>, int> uses;  // of an edge (parent, child)
  for (const std::size_t t : trees)
    for (const Edge& edge : forest.trees[t].up) ++uses[{edge.parent, edge.child}];

  std::vector<std::vector<int>> prefixes(nodes_);  // what the root of a tree has after each operand
  std::vector<std::vector<std::tuple<std::size_t, NodeId, std::vector<int>>>> partial(nodes_);
  std::map<std::tuple<NodeId, NodeId, int>, std::size_t> sent;  // (child, parent, expression) -> tree
  int result = -1;
  std::vector<Sum> sums(nodes_);
  std::vector<std::vector<NodeId>> children(nodes_);
  for (const std::size_t t : trees) {
    const Tree& tree = forest.trees[t];
    for (auto& list : children) list.clear();
    for (const Edge& edge : tree.up) children[at(edge.parent)].push_back(edge.child);
    for (const Edge& edge : tree.down)
      if (edge.child != tree.root && !children[at(edge.child)].empty())
        refuse_sums(fmt::format("tree {}: node {} sums, but is not the root, and receives the result", t,
                                edge.child));
    const auto add = [&](NodeId node) {
      auto& list = children[at(node)];
      std::ranges::sort(list, [&](NodeId a, NodeId b) {
        const int more = uses[{node, a}] - uses[{node, b}];
        return more != 0 ? more > 0 : a < b;
      });
      Sum sum{node, node};
      std::vector<int> prefix{node};
      for (const NodeId child : list) {
        const Sum& other = sums[at(child)];
        const bool left = other.lowest < sum.lowest;
        if (node == tree.root) steps_[t].push_back({child, left});
        sum.expression =
            left ? intern(other.expression, sum.expression) : intern(sum.expression, other.expression);
        sum.lowest = std::min(sum.lowest, other.lowest);
        prefix.push_back(sum.expression);
      }
      if (node == tree.root) {
        prefixes[at(node)] = std::move(prefix);
      } else if (!list.empty()) {
        partial[at(node)].emplace_back(t, node, std::move(prefix));
      }
      sums[at(node)] = sum;
    };
    const auto edges = outward(tree.up, tree.root, forest.nodes);
    for (auto edge = edges.rbegin(); edge != edges.rend(); ++edge) {
      add(edge->child);
      first_[t * nodes_ + at(edge->child)] =
          sent.try_emplace({edge->child, edge->parent, sums[at(edge->child)].expression}, t).first->second;
    }
    add(tree.root);
    if (result >= 0 && sums[at(tree.root)].expression != result)
      refuse_sums(fmt::format("tree {} adds in another order than tree {}", t, trees.front()));
    result = sums[at(tree.root)].expression;
  }
  for (const auto& list : partial)
    for (const auto& [t, node, prefix] : list) {
      const auto& whole = prefixes[at(node)];
      if (prefix.size() > whole.size() || !std::equal(prefix.begin(), prefix.end(), whole.begin()))
        refuse_sums(fmt::format("tree {}: what node {} sums is not the beginning of what it sums as a root",
                                t, node));
    }
}

}  // namespace talweg::forest
