// Maximum flows and least cuts of directed graphs with integer capacities, exact.
//
//   MaxFlow flow(3);
//   flow.add_arc(0, 1, 10);
//   flow.add_arc(1, 2, 4);
//   flow.solve(0, 2);           // 4
//   flow.source_side();         // {true, true, false}: the cut
//
// One graph may be solved for many pairs of nodes; each time it starts from no flow.
#pragma once

#include <cstdint>
#include <vector>

namespace talweg::cluster {

class MaxFlow {
 public:
  explicit MaxFlow(int nodes) : arcs_of_(static_cast<std::size_t>(nodes)) {}

  // Capacities are at least 0; what leaves the source must add up to less than 2^63. Returns the arc's
  // number.
  int add_arc(int from, int to, std::int64_t capacity);
  void set_capacity(int arc, std::int64_t capacity);
  // The greatest flow from one node to another one.
  std::int64_t solve(int source, int sink);
  // After solve(): the nodes that the source still reaches. The arcs that leave them are a least cut, and of
  // all least cuts the one nearest to the source.
  std::vector<bool> source_side() const;

 private:
  struct Arc {
    int to = 0;
    std::int64_t capacity = 0;
    std::int64_t left = 0;
  };
  bool find_levels(int source, int sink);
  std::int64_t push(int node, int sink, std::int64_t most);

  std::vector<Arc> arcs_;  // each followed by its reverse
  std::vector<std::vector<int>> arcs_of_;
  std::vector<int> level_;
  std::vector<std::size_t> next_;
  int source_ = 0;
};

}  // namespace talweg::cluster
