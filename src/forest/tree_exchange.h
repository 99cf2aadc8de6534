// TreeExchange: trees that are to carry given rates exchange edges until no resource is much busier than
// others.
//
//   TreeExchange exchange(market, trees);
//   exchange.even_out(trees, 20000, 1.0);    // the rates stay, the trees change
//
// It finds what linear programs do not look for: few trees whose loads fit together.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "base/random.h"
#include "forest/tree_market.h"
#include "forest/work_limit.h"

namespace talweg::forest {

struct PackedTree {
  TreePair trees;
  double rate = 0;  // bit/s
  bool operator==(const PackedTree&) const = default;
};

class TreeExchange {
 public:
  // `trees` are as deep as trees may become. The market is used while the exchange lives; its edges run over
  // routes. Work is spent from `limit`, if there is one.
  TreeExchange(const TreeMarket& market, const std::vector<PackedTree>& trees, WorkLimit* limit = nullptr);

  // Tries so many exchanges. `warmth`: by how much one may worsen the balance at first, 1 being what a
  // resource weighs that is as busy as it can be. Roots stay, but where the market is symmetric: they mean
  // nothing there.
  void even_out(std::vector<PackedTree>& trees, int tries, double warmth);

 private:
  using Shape = std::vector<NodeId>;
  using Terms = std::vector<PackingLp::Term>;
  const Terms& edge(NodeId from, NodeId to) const {
    return edges_[static_cast<std::size_t>(from) * workers_ + static_cast<std::size_t>(to)];
  }
  NodeId any_worker() { return static_cast<NodeId>(random_.below(workers_)); }
  // Both try one exchange: it is taken if it worsens the balance by less than `allowed`.
  void exchange_any(PackedTree& tree, double allowed);
  void exchange_parent(PackedTree& tree, double allowed);
  // What it changes in the balance to move `rate` between resources; made by apply().
  double change(const Terms& from, const Terms& to, double rate);
  void apply();

  const TreeMarket& market_;
  std::size_t workers_;
  std::vector<Terms> edges_;  // the resources that each uses; empty where there is none
  std::vector<double> load_;  // of each resource, as a part of its capacity
  std::vector<std::pair<int, double>> changes_;
  int deepest_ = 0;
  Random random_{4};
  WorkLimit* limit_;
};

}  // namespace talweg::forest
