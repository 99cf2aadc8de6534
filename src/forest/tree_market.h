// TreeMarket: links and groups have prices, edges between sites cost what the links on their way cost, and
// the cheapest trees are bought. Behind the bounds and the packing.
//
//   TreeMarket market(cluster, Collective::all_reduce, 0, TreeMarket::Paths::routes);
//   market.set_prices(prices);                  // of each resource
//   const TreePair pair = market.cheapest(root);      // to the root, and from it
//
// A site is where an edge of a tree may end: every worker, and every aggregator that could help with the
// operation. Sites 0 .. workers-1 are the workers. Trees join all workers, and those aggregators that make
// them cheaper.
//
// Besides what it carries, an edge may cost what is acknowledged on the route back: little where routes are
// as quick both ways, but a quick way on which every second packet is acknowledged fills a slow way back.
//
// A resource is a link or a capacity group. Where an all-reduce runs on links that are alike both ways, and
// without groups, a link and its reverse are one resource: a tree then sums and sends over the same edges,
// loads both alike, and costs the same whatever its root. Over routes, links that are always loaded alike are
// one resource as well, with the capacity of one of them. A worker's processor, which everything passes that
// its links carry, is one where these are quicker than it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/collectives.h"
#include "cluster/arborescence.h"
#include "cluster/cluster.h"
#include "cluster/routing.h"
#include "cluster/stubs.h"
#include "forest/forest.h"
#include "forest/packing_lp.h"

namespace talweg::forest {

// The parent of each site, the root being its own, on the way up and on the way down; -1 for an aggregator
// that is not on the tree. Empty where the operation has no such way.
struct TreePair {
  NodeId root = 0;
  std::vector<NodeId> up;
  std::vector<NodeId> down;
  bool operator==(const TreePair&) const = default;
};

class TreeMarket {
 public:
  // Edges run over the routes that a forest's messages take, or over the cheapest paths of all.
  enum class Paths { routes, all };

  // Of what one node sends to another, the part that its acknowledgements take on the way back.
  using Acknowledged = std::function<double(NodeId from, NodeId to)>;

  // The operation is one of all_reduce, reduce, broadcast, reduce_scatter, all_gather. `acknowledged`: empty
  // where only data count; it is looked at over routes, where some are quicker one way than the other.
  // `processors`: bit/s that each worker can send and receive together; empty where only links count. Throws
  // Error{invalid_argument} unless all workers reach each other without passing through third ones that are
  // cut off.
  TreeMarket(const cluster::Cluster& cluster, Collective op, NodeId root, Paths paths,
             const Acknowledged& acknowledged = {}, const std::vector<double>& processors = {});

  int workers() const { return static_cast<int>(workers_); }
  int sites() const { return static_cast<int>(nodes_.size()); }
  bool aggregates() const { return sites() > workers(); }
  // The same trees, in nodes of the cluster instead of sites.
  TreePair in_nodes(const TreePair& trees) const;
  bool symmetric() const { return symmetric_; }
  // Whether edges are charged for what acknowledgements take.
  bool acknowledges() const { return !acknowledged_.empty(); }
  // By how much; 0 where they are not.
  double acknowledged(NodeId from, NodeId to) const {
    return acknowledges()
               ? acknowledged_[static_cast<std::size_t>(from) * nodes_.size() + static_cast<std::size_t>(to)]
               : 0;
  }
  Collective operation() const { return op_; }
  Paths paths() const { return paths_; }
  // Of each resource, in bit/s; and the resources that a link uses.
  const std::vector<double>& capacities() const { return capacities_; }
  const std::vector<int>& resources_of(int link) const { return resources_[static_cast<std::size_t>(link)]; }
  // How a worker is joined to the network, if by one switch alone.
  const cluster::Stub& stub(NodeId worker) const { return stubs_[static_cast<std::size_t>(worker)]; }
  // The roots that trees may have: all workers, for all_reduce all sites, but one for broadcast, reduce, and
  // where all roots cost the same.
  const std::vector<NodeId>& roots() const { return roots_; }

  void set_prices(const std::vector<double>& prices);
  // The cheapest trees with this root at the prices set; the cheapest that are known where there are more
  // than kMostChosenFreely aggregators.
  TreePair cheapest(NodeId root) const;
  // Trees that trade price for depth (Prim's order, where an edge from depth d costs `per_hop` d more).
  TreePair shallow(NodeId root, double per_hop) const;
  static constexpr std::size_t kMostChosenFreely = 3;
  // What it costs and what it uses of each resource per unit of rate.
  double cost(const TreePair& trees) const;
  std::vector<PackingLp::Term> use(const TreePair& trees) const;
  // The links that an edge runs over, each with the part of the traffic that takes it: over routes, of links
  // that are always loaded alike the one that leads them; over any paths, the cheapest at the prices set.
  // Empty where there is none.
  struct Share {
    int link = 0;
    double part = 1;
  };
  std::vector<Share> links_between(NodeId from, NodeId to) const;
  // The same of the acknowledgements for what an edge carries; empty where they are not counted.
  std::vector<Share> answers_between(NodeId from, NodeId to) const;
  // What the edge so uses of each resource, with its acknowledgements; one may be named several times.
  std::vector<PackingLp::Term> resources_between(NodeId from, NodeId to) const;
  // How many links are always loaded as this one is, itself included.
  int alike(int link) const { return routes_ ? routes_->followers(link) : 1; }
  // What edges straight to all others would cost.
  double cost_of_star(NodeId root) const;
  // The mean of the costs of all edges that there are.
  double mean_cost() const { return mean_cost_; }
  // Prices that often show what no trees can pass: 1 for what lies between nodes that are equally far from
  // workers and those a link farther away, for each such distance; and 1 for the narrowest way that some
  // worker needs.
  std::vector<std::vector<double>> tiers() const;
  // How much work it is to set prices and to buy trees, in steps as PackingLp::effort() counts them.
  std::int64_t effort() const;

 private:
  using Shape = std::vector<NodeId>;
  using Trees = std::vector<std::unique_ptr<cluster::Arborescences<double>>>;  // by choice_
  double edge(NodeId from, NodeId to) const {
    return costs_[static_cast<std::size_t>(from) * nodes_.size() + static_cast<std::size_t>(to)];
  }
  double edge(NodeId child, NodeId parent, bool upward) const {
    return upward ? edge(child, parent) : edge(parent, child);
  }
  void choose_helpers();
  void add_processor(NodeId worker, double rate);
  Shape buy(NodeId root, Trees& known, bool upward) const;
  void drop_idle(Shape& parents, NodeId root, bool upward) const;
  bool find_symmetry();
  bool alike_both_ways(NodeId from, NodeId to) const;
  bool passes_worker(NodeId from, NodeId to) const;
  void price_routes(const std::vector<double>& link_prices);
  void price_all_paths(const std::vector<double>& link_prices);
  // The cheapest paths from one node, as cost and hops, and the link by which each node is entered.
  struct Reach {
    std::vector<std::pair<double, int>> best;
    std::vector<int> entering;
  };
  Reach search(int from, const std::vector<double>& link_prices) const;
  void find_acknowledged(const Acknowledged& acknowledged);
  void for_each_share(NodeId from, NodeId to, const std::function<void(int, double)>& visit) const;
  // Data and acknowledgements.
  void for_each_use(NodeId from, NodeId to, const std::function<void(int, double)>& visit) const;
  Shape grow(NodeId root, double per_hop, bool upward) const;

  const cluster::Cluster& cluster_;
  std::size_t workers_;
  Collective op_;
  Paths paths_;
  std::vector<NodeId> nodes_;                 // of each site
  std::vector<std::vector<NodeId>> choices_;  // sites that trees are searched among: workers, some helpers
  std::optional<cluster::Routes> routes_;     // where edges run over them
  bool symmetric_ = false;
  std::vector<int> reverse_;          // of each link, where symmetric
  std::vector<double> acknowledged_;  // of edges, from by to, in sites; empty: not counted
  std::vector<double> capacities_;
  std::vector<std::vector<int>> resources_;  // of each link
  std::vector<NodeId> roots_;
  std::vector<std::vector<int>> leaving_;  // links of each node
  std::vector<cluster::Stub> stubs_;
  std::vector<double> costs_;  // edges, from by to, in sites
  std::vector<int> entering_;  // all paths: the last link of the cheapest path, from by node
  double mean_cost_ = 0;
  // Worked out when the first is bought at the prices set.
  mutable Trees down_, up_;
};

// How many edges lie between the root and the farthest site on the tree.
int depth(const std::vector<NodeId>& parents, NodeId root);
// The same tree with its root in the middle of a longest path: the least depth that it can have.
NodeId centre(std::vector<NodeId>& parents, NodeId root);

}  // namespace talweg::forest
