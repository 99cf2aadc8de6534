// TreePacker: how much of which trees, so that their rates add up to as much as the network carries. The
// linear program has a row for every resource and a column for every tree; trees are found as they are
// needed, by their price.
//
//   TreePacker packer(market);
//   packer.run(0.003);                       // until within 0.3 % of what is possible
//   packer.rate(); packer.upper();           // of the trees found; of all trees, by duality
//
// all_gather and reduce_scatter want trees of every root in amounts that are given: their rate has a column,
// and every root a row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "forest/packing_lp.h"
#include "forest/tree_exchange.h"
#include "forest/tree_market.h"

namespace talweg::forest {

class TreePacker {
 public:
  // Among more workers trees are grown first, and few of them often suffice: a path through all, which even
  // links are full with, then has 99.2 % of the rate of a ring.
  static constexpr int kFewWorkers = 125;
  static constexpr std::size_t kMostSeeds = 256;

  // `depth_penalty`: the part of a tree's rate that a depth of all workers would cost; 0 packs for rate
  // alone. `parts`: what part of the vector each worker's trees carry in all_gather and reduce_scatter,
  // adding up to 1; empty for equal ones. `seeds`: of how many roots trees are tried before any are searched
  // for, where not all roots must have one; among many workers only if trees that were grown do not suffice.
  // Work is spent from `limit`, if there is one. The market is used while the packer lives.
  TreePacker(TreeMarket& market, Collective op, double depth_penalty = 0, std::vector<double> parts = {},
             std::size_t seeds = kMostSeeds, WorkLimit* limit = nullptr);

  // Once: until the rate is within `gap` of the most possible, or reaches `enough` (bit/s); or until so much
  // was worked (PackingLp::effort(), TreeMarket::effort()), which leaves the gap that there is.
  void run(double gap, double enough = std::numeric_limits<double>::infinity(),
           std::int64_t most_effort = std::numeric_limits<std::int64_t>::max());
  // Keeps few trees that together have at least `floor` (bit/s), at most rate().
  void prune(double floor);
  // Where there are more than `most` trees: looks for that many that have `floor` together, or leaves it all
  // as it is. Not for all_gather and reduce_scatter, nor where there are aggregators.
  void reshape(std::size_t most, double floor);

  double rate() const { return rate_; }
  double upper() const { return upper_; }
  // Per bit/s and resource, the prices that prove upper().
  const std::vector<double>& prices() const { return prices_; }
  std::vector<PackedTree> trees() const;

 private:
  struct Column {
    TreePair trees;
    std::vector<PackingLp::Term> terms;
    double gain = 0;
    double amount = 0;
  };
  // Whether trees that were grown one after the other are as many as run() wants.
  bool grow(double gap, double enough);
  void seed();
  // Adds trees that level the loads that the trees before them leave.
  void level();
  void spend(std::int64_t steps) const;
  Column make_column(TreePair trees) const;
  // Takes the trees as a column if they gain more than they cost.
  bool offer(TreePair trees, const std::vector<double>& prices);
  // Both change the amounts of the columns, `lp` being solved for them, and keep at least `floor`.
  void concentrate(PackingLp& lp, double floor);
  void drop_least(PackingLp& lp, double floor);
  bool buy(const std::vector<double>& prices);
  std::vector<double> steady(const std::vector<double>& prices) const;
  bool buy_at(const std::vector<double>& market_prices, const std::vector<double>& prices);
  void sharpen_upper(const std::vector<double>& prices);
  PackingLp make_lp() const;
  // In the program, of a column.
  int number(std::size_t column) const { return static_cast<int>(column) + (per_root_ ? 1 : 0); }
  // Reads the amounts from the solved program into its columns, scaled to what the capacities truly allow,
  // and returns the rate.
  double read(const PackingLp& lp, std::vector<Column>& columns) const;

  TreeMarket& market_;
  Collective op_;
  bool per_root_;
  double depth_penalty_;
  std::vector<double> parts_;
  std::size_t seeds_;
  WorkLimit* limit_;
  double scale_;                    // bit/s for a 1 in the program
  std::vector<double> capacities_;  // scaled
  std::vector<Column> columns_;
  double rate_ = 0;
  double upper_ = std::numeric_limits<double>::infinity();
  std::vector<double> prices_;
};

}  // namespace talweg::forest
