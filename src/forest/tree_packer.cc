// Column generation (Gilmore and Gomory 1961; for forests Barahona 1995). At prices y of the resources, no
// packing has more rate than (sum of capacity y) / (cost of the cheapest tree): load times price, summed over
// resources, is at most the numerator and at least rate times the denominator. The prices of the program over
// the trees known so far bring this bound down while the trees they find bring the rate up.
#include "forest/tree_packer.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace talweg::forest {
namespace {

constexpr double kRounding = 1e-9;              // of reduced gains
constexpr int kMostRounds = 20000;              // never met; keeps rounding from turning in circles
constexpr int kRootsPerRound = 4;               // whose trees are offered
constexpr double kPerHop[] = {1.0, 0.2, 0.02};  // of the mean cost of an edge, from shallow to cheap

std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

}  // namespace

TreePacker::TreePacker(TreeMarket& market, Collective op, double depth_penalty)
    : market_(market),
      op_(op),
      per_root_(op == Collective::all_gather || op == Collective::reduce_scatter),
      depth_penalty_(depth_penalty),
      scale_(*std::max_element(market.capacities().begin(), market.capacities().end())) {
  for (const double capacity : market.capacities()) capacities_.push_back(capacity / scale_);
  seed();
}

// Trees that are good on even networks: straight to everybody, and following the wide links.
void TreePacker::seed() {
  std::vector<double> prices;
  for (const double capacity : capacities_) prices.push_back(1 / capacity);
  market_.set_prices(prices);
  std::vector<NodeId> roots = market_.roots();
  if (market_.symmetric()) {
    roots.resize(at(market_.workers()));
    std::iota(roots.begin(), roots.end(), 0);
  }
  for (const NodeId root : roots) {
    for (const double per_hop : kPerHop)
      columns_.push_back(make_column(market_.shallow(root, per_hop * market_.mean_cost())));
    if (root == roots.front() || !market_.symmetric())
      columns_.push_back(make_column(market_.cheapest(root)));
  }
}

TreePacker::Column TreePacker::make_column(TreePair trees) const {
  if (market_.symmetric()) {
    trees.root = centre(trees.down, trees.root);
    trees.up = trees.down;
  }
  const int hops = std::max(depth(trees.up, trees.root), depth(trees.down, trees.root));
  Column column{std::move(trees), {}, per_root_ ? 0.0 : 1.0, 0};
  column.gain -= depth_penalty_ * hops / market_.workers();
  column.terms = market_.use(column.trees);
  if (per_root_) column.terms.push_back({static_cast<int>(capacities_.size()) + column.trees.root, -1});
  return column;
}

bool TreePacker::offer(TreePair trees, const std::vector<double>& prices) {
  Column column = make_column(std::move(trees));
  double gain = column.gain;
  for (const auto& term : column.terms) gain -= prices[at(term.row)] * term.amount;
  if (gain <= kRounding) return false;
  columns_.push_back(std::move(column));
  return true;
}

PackingLp TreePacker::make_lp() const {
  std::vector<double> rows = capacities_;
  if (per_root_) rows.resize(rows.size() + at(market_.workers()));
  PackingLp lp(std::move(rows));
  if (per_root_) {
    std::vector<PackingLp::Term> rate;
    for (int root = 0; root < market_.workers(); ++root)
      rate.push_back({static_cast<int>(capacities_.size()) + root, 1.0 / market_.workers()});
    lp.add_column(std::move(rate), 1);
  }
  return lp;
}

double TreePacker::read(const PackingLp& lp, std::vector<Column>& columns) const {
  const auto amounts = lp.amounts();
  const std::size_t first = per_root_ ? 1 : 0;
  std::vector<double> used(capacities_.size()), of_root(at(market_.workers()));
  double sum = 0;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    columns[i].amount = amounts[first + i];
    sum += columns[i].amount;
    of_root[at(columns[i].trees.root)] += columns[i].amount;
    for (const auto& term : columns[i].terms)
      if (at(term.row) < used.size()) used[at(term.row)] += term.amount * columns[i].amount;
  }
  double most = 0;
  for (std::size_t i = 0; i < used.size(); ++i) most = std::max(most, used[i] / capacities_[i]);
  if (most == 0) return 0;
  for (Column& column : columns) column.amount /= most;
  const double rate = per_root_ ? *std::min_element(of_root.begin(), of_root.end()) * market_.workers() : sum;
  return rate / most * scale_;
}

double TreePacker::solve_alone(std::vector<Column>& columns) const {
  PackingLp lp = make_lp();
  for (const Column& column : columns) lp.add_column(column.terms, column.gain);
  lp.solve();
  return read(lp, columns);
}

void TreePacker::run(double gap, double enough) {
  if (market_.workers() == 1) return;
  PackingLp lp = make_lp();
  std::size_t loaded = 0;
  for (int round = 0; round < kMostRounds; ++round) {
    for (; loaded < columns_.size(); ++loaded) lp.add_column(columns_[loaded].terms, columns_[loaded].gain);
    lp.solve();
    const bool found = buy(lp.prices());
    rate_ = lp.value() * scale_;
    if (!found || rate_ >= upper_ * (1 - gap) || rate_ >= enough) break;
  }
  columns_.resize(loaded);
  rate_ = read(lp, columns_);
  std::erase_if(columns_, [](const Column& column) { return column.amount <= 0; });
}

// Buys trees that gain more than they cost.
bool TreePacker::buy(const std::vector<double>& prices) {
  market_.set_prices({prices.begin(), prices.begin() + static_cast<std::ptrdiff_t>(capacities_.size())});
  sharpen_upper(prices);
  std::vector<std::pair<double, NodeId>> by_cost;
  for (const NodeId root : market_.roots()) {
    const double root_price = per_root_ ? prices[capacities_.size() + at(root)] : 0;
    by_cost.emplace_back(market_.cost(market_.cheapest(root)) - root_price, root);
  }
  std::stable_sort(by_cost.begin(), by_cost.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  if (!per_root_ && std::ssize(by_cost) > kRootsPerRound) by_cost.resize(kRootsPerRound);
  bool found = false;
  for (const auto& [cost, root] : by_cost) {
    found = offer(market_.cheapest(root), prices) || found;
    for (const double per_hop : kPerHop)
      found = offer(market_.shallow(root, per_hop * market_.mean_cost()), prices) || found;
  }
  return found;
}

// At the prices that the market has.
void TreePacker::sharpen_upper(const std::vector<double>& prices) {
  double worth = 0;
  for (std::size_t i = 0; i < capacities_.size(); ++i) worth += capacities_[i] * prices[i];
  double least = std::numeric_limits<double>::infinity(), sum = 0;
  for (const NodeId root : market_.roots()) {
    const double cost = market_.cost(market_.cheapest(root));
    least = std::min(least, cost);
    sum += cost;
  }
  const double cost = per_root_ ? sum / market_.workers() : least;
  if (cost <= 0 || worth / cost * scale_ >= upper_) return;
  upper_ = worth / cost * scale_;
  prices_.assign(prices.begin(), prices.begin() + static_cast<std::ptrdiff_t>(capacities_.size()));
}

void TreePacker::prune(double floor) {
  std::vector<Column> kept;  // those that cannot be missed come last
  std::size_t needed = 0, batch = std::max<std::size_t>(1, columns_.size() / 4);
  const auto by_amount = [](const Column& a, const Column& b) { return a.amount < b.amount; };
  std::stable_sort(columns_.begin(), columns_.end(), by_amount);
  while (needed < columns_.size()) {
    const std::size_t dropped = std::min(batch, columns_.size() - needed);
    kept.assign(columns_.begin() + static_cast<std::ptrdiff_t>(dropped), columns_.end());
    const double rate = kept.empty() ? 0 : solve_alone(kept);
    if (rate >= floor) {
      rate_ = rate;
      const auto end = kept.end() - static_cast<std::ptrdiff_t>(needed);
      std::stable_sort(kept.begin(), end, by_amount);
      columns_ = kept;
      continue;
    }
    if (dropped == 1) {
      std::rotate(columns_.begin(), columns_.begin() + 1, columns_.end());
      ++needed;
    }
    batch = std::max<std::size_t>(1, dropped / 2);
  }
  std::erase_if(columns_, [](const Column& column) { return column.amount <= 0; });
}

std::vector<PackedTree> TreePacker::trees() const {
  std::vector<PackedTree> result;
  for (const Column& column : columns_) result.push_back({column.trees, column.amount * scale_});
  std::stable_sort(result.begin(), result.end(),
                   [](const PackedTree& a, const PackedTree& b) { return a.rate > b.rate; });
  return result;
}

}  // namespace talweg::forest
