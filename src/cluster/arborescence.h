// Least-cost spanning arborescences of a complete directed graph, for every root at once.
//
//   Arborescences<double> trees(costs, n);      // costs[from * n + to]
//   trees.cost(root);
//   trees.parents(root);                        // of each node; the root is its own parent
//
// For in-arborescences (everyone toward the root) pass the transposed costs. Costs are finite and at least 0;
// an arc that does not exist has a cost far above all others.
#pragma once

#include <cstdint>
#include <vector>

namespace talweg::cluster {

template <class Cost>
class Arborescences {
 public:
  Arborescences(std::vector<Cost> costs, int nodes);

  std::vector<int> parents(int root) const;
  Cost cost(int root) const;

 private:
  // A node, or a cycle that was contracted to one.
  struct Part {
    int parent = -1;  // the cycle that it went into
    std::vector<int> children;
    int from = -1;  // the cheapest arc into it: its ends are nodes
    int to = -1;
  };
  void contract();

  std::vector<Cost> costs_;
  int nodes_;
  std::vector<Part> parts_;
};

extern template class Arborescences<double>;
extern template class Arborescences<std::int64_t>;

}  // namespace talweg::cluster
