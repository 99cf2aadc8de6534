// TreeGrowth: trees grown one after the other, each edge where the trees so far leave most room. For networks
// of hundreds of workers: what takes a linear program many rounds of prices, a few of these trees often reach
// at once, since the load of an edge counts for the very next one.
//
//   TreeGrowth growth(market, aim);
//   while (growth.rate() < enough) trees.push_back(growth.next());
//   growth.rate();                    // bit/s, of all of them together, at equal rates
//
// For all_reduce, broadcast and reduce. A tree has the same edges on the way up as on the way down.
#pragma once

#include <cstdint>
#include <vector>

#include "forest/tree_market.h"

namespace talweg::forest {

class TreeGrowth {
 public:
  // `aim`: the rate (bit/s) that is hoped for; resources that it leaves room on are taken for equal. The
  // market has prices, and is used while this lives. Where edges run over any paths, next() sets prices so
  // that trees take different ones; what a tree uses is to be asked for before the next tree.
  TreeGrowth(TreeMarket& market, double aim);

  // Whether the edges that there are both ways join all workers: else there is no next tree.
  bool spans() const;
  TreePair next();
  double rate() const;
  // The resource that holds rate() down.
  int busiest() const;
  // How much work a tree is, in steps that take about a nanosecond.
  std::int64_t effort() const;

 private:
  using Resources = std::vector<PackingLp::Term>;
  // Workers that hang on one switch, and only there; or one that does not. Nearest: of its workers the one
  // that costs least as a parent, being on the tree, and as a child, not being on it; -1: there is none.
  struct Place {
    std::vector<NodeId> workers;
    NodeId parent = -1, child = -1;
    double parent_cost = 0, child_cost = 0;
  };
  // From a parent's place to a child's, without what belongs to the workers.
  struct Way {
    int from = 0, to = 0;
    Resources resources;
    int length = 0;  // how many resources it would use, if all went one way
  };
  void find_places();
  void find_ways();
  bool append_way(NodeId from, NodeId to, Way& way) const;
  void look_around(Place& place);
  const Way* cheapest_way() const;
  int parent_depth(const Way& way) const;
  void load(const Resources& resources);
  void measure(std::size_t resource);
  double cost(const Resources& resources) const;

  TreeMarket& market_;
  Collective op_;
  std::size_t workers_;
  std::vector<Place> places_;
  std::vector<int> place_of_;
  std::vector<Resources> as_parent_, as_child_;  // of each worker, the links that are its own
  std::vector<Way> ways_;
  double aim_;
  std::vector<double> loads_;  // of each resource, by all trees at rate 1
  std::vector<double> added_;  // what one more unit of load would add to the sum
  int trees_ = 0;
  // Of the tree at hand.
  std::vector<bool> grown_;
  std::vector<int> depths_;
};

// Where links are alike both ways and the tree is a path: the rate (bit/s) of the ring that it closes, shared
// by the paths that leave out one edge of it each; else 0. At the prices that the tree was made for.
double ring_rate(const TreeMarket& market, const TreePair& tree);

}  // namespace talweg::forest
