#include "forest/walk.h"

#include <cstddef>

namespace talweg::forest {

std::vector<Edge> outward(const std::vector<Edge>& edges, NodeId root, int nodes) {
  // Edges sorted by parent (a counting sort keeps siblings in order): children of p are at [first[p],
  // first[p+1]).
  std::vector<std::size_t> first(static_cast<std::size_t>(nodes) + 2);
  for (const Edge& edge : edges) ++first[static_cast<std::size_t>(edge.parent) + 2];
  for (std::size_t i = 2; i < first.size(); ++i) first[i] += first[i - 1];
  std::vector<Edge> by_parent(edges.size());
  for (const Edge& edge : edges) by_parent[first[static_cast<std::size_t>(edge.parent) + 1]++] = edge;

  std::vector<Edge> result;
  result.reserve(edges.size());
  const auto append_children = [&](NodeId parent) {
    const auto at = static_cast<std::size_t>(parent);
    for (std::size_t i = first[at]; i < first[at + 1] && result.size() < edges.size(); ++i) {
      result.push_back(by_parent[i]);
    }
  };
  append_children(root);
  for (std::size_t done = 0; done < result.size(); ++done) {
    if (result[done].child == root) break;  // back at the root: a cycle, which the caller sees by the size
    append_children(result[done].child);
  }
  return result;
}

}  // namespace talweg::forest
