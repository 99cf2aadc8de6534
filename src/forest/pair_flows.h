// PairFlows: how fast blocks can travel between ranks, each pair's as fast as every other's and over any
// paths, relayed by other workers too: the concurrent flow problem. Behind the bounds of all_to_all, gather
// and scatter.
//
//   PairFlows flows(cluster, Collective::all_to_all, 0);
//   flows.add_shortest();                    // over the paths with the fewest links
//   flows.busy();                            // of each link: what it then carries, over its capacity
//   flows.solve(enough, most_effort);        // better ones, until no prices can be
//   flows.rate();                            // bit/s of each pair
//   flows.link_prices(), flows.group_prices();
//
// Prices are as in bound.h: at any prices of links and groups the pairs' rate is at most (sum of capacity
// times price) / (sum over the pairs of their cheapest path's price), by the duality of linear programs
// (Shahrokhi and Matula 1990).
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/collectives.h"
#include "cluster/cluster.h"
#include "forest/forest.h"
#include "forest/packing_lp.h"

namespace talweg::forest {

class PairFlows {
 public:
  // The operation is all_to_all, gather or scatter; there are two workers or more, and the cluster is valid.
  // It is used while this lives.
  PairFlows(const cluster::Cluster& cluster, Collective op, NodeId root);

  // From every source to all its receivers over paths with the fewest links. Where several links lead on,
  // each takes a part in proportion to its capacity.
  void add_shortest();
  // What those load each link with, over its capacity; only to be compared.
  const std::vector<double>& busy() const { return busy_; }
  // Whether solve() may be asked: not where it would need gigabytes.
  bool few() const { return rows() <= kMostRows; }
  // Until the rate is the greatest possible, or reaches `enough` (bit/s); or until so much was worked
  // (PackingLp::effort()): what the prices prove is then above the rate.
  void solve(double enough = std::numeric_limits<double>::infinity(),
             std::int64_t most_effort = std::numeric_limits<std::int64_t>::max());

  // Of the best flows that were found: what each pair gets, in bit/s, over the best paths.
  double rate() const { return rate_; }
  // That prove the least bound found; all 0 before solve().
  const std::vector<double>& link_prices() const { return link_prices_; }
  const std::vector<double>& group_prices() const { return group_prices_; }

 private:
  static constexpr std::size_t kMostRows = 3000;

  // How one source's blocks travel, at a rate of 1 to each receiver.
  struct Flow {
    std::size_t source = 0;  // into sources_
    std::vector<PackingLp::Term> loads;
    double cost = 0;  // at the prices it was found at
  };
  std::size_t resources() const { return capacities_.size(); }
  std::size_t rows() const { return resources() + sources_.size(); }
  bool receives(NodeId from, NodeId worker) const;
  Flow cheapest(std::size_t source, const std::vector<double>& prices) const;
  void sharpen(const std::vector<Flow>& flows, const std::vector<double>& prices);
  double rate_of(const std::vector<double>& amounts) const;
  std::int64_t effort() const;

  const cluster::Cluster& cluster_;
  Collective op_;
  NodeId root_;
  std::vector<NodeId> sources_;
  double scale_ = 1;                // bit/s for a 1 in the program
  std::vector<double> capacities_;  // links, then groups, scaled
  std::vector<std::vector<int>> leaving_, entering_;
  std::vector<std::vector<int>> groups_of_;  // of each link
  std::vector<Flow> flows_;
  std::vector<double> busy_;
  double rate_ = 0;
  double least_ = std::numeric_limits<double>::infinity();  // the bound at the prices below, scaled
  std::vector<double> link_prices_, group_prices_;
};

}  // namespace talweg::forest
