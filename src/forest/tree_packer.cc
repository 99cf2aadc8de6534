// Column generation (Gilmore and Gomory 1961; for forests Barahona 1995). At prices y of the resources, no
// packing has more rate than (sum of capacity y) / (cost of the cheapest tree): load times price, summed over
// resources, is at most the numerator and at least rate times the denominator. The prices of the program over
// the trees known so far bring this bound down while the trees they find bring the rate up. These prices jump
// about: at first there always are trees over links that cost nothing yet. Half way between them and the best
// prices known they bring both together in a tenth of the work (Wentges 1997).
#include "forest/tree_packer.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/at.h"
#include "forest/load_level.h"
#include "forest/tree_growth.h"

namespace talweg::forest {
namespace {

constexpr double kRounding = 1e-9;   // of reduced gains
constexpr int kMostRounds = 20000;   // never met; keeps rounding from turning in circles
constexpr int kRootsPerRound = 4;    // whose trees are offered
constexpr double kSteadiness = 0.5;  // of the prices that trees are bought at: the part of the best known
constexpr double kRefused = -1e6;    // a gain that nothing makes up for
constexpr int kMostGrown = 16;
constexpr std::int64_t kMostGrowing = 1'000'000'000;  // effort for a tree: about a second
// Where acknowledgements are counted nearly all links limit, and prices that a program begins with are far
// off: trees that level loads, per resource, and of them the last ones, which the program begins with.
constexpr double kLevelled = 1.5, kLevelledBest = 0.75;
constexpr std::size_t kMostLevelledBest = 300;
constexpr int kSharpest = 6;  // of the powers of loads that are levelled, as a power of 2
constexpr int kConcentrations = 8;
constexpr double kConcentration = 0.01;                // that the greatest tree gains more
constexpr std::int64_t kMostPruning = 10'000'000'000;  // effort: then the trees are left as many as they are
// Exchanges of edges between solutions of the program, and in all.
constexpr std::size_t kTriesPerEdge = 80, kTriesAtOnce = 200000;
constexpr int kMostTries = 800000;
// Of the exchanges, from round to round; then it begins anew with other trees, since it may be caught where
// no way leads on.
constexpr double kWarmest = 3, kColdest = 0.35, kCooling = 0.6;
constexpr double kAim = 0.994;                  // of the most possible: what trees are reshaped for
constexpr double kLeastRate = 0.02;             // of the mean
constexpr double kPerHop[] = {1.0, 0.2, 0.02};  // of the mean cost of an edge, from shallow to cheap

}  // namespace

TreePacker::TreePacker(TreeMarket& market, Collective op, double depth_penalty, std::vector<double> parts,
                       std::size_t seeds, WorkLimit* limit)
    : market_(market),
      op_(op),
      per_root_(has_parts(op)),
      depth_penalty_(depth_penalty),
      parts_(std::move(parts)),
      seeds_(seeds),
      limit_(limit),
      scale_(*std::ranges::max_element(market.capacities())) {
  if (parts_.empty()) parts_.assign(at(market.workers()), 1.0 / market.workers());
  parts_.resize(at(market.sites()));
  for (const double capacity : market.capacities()) capacities_.push_back(capacity / scale_);
}

void TreePacker::spend(std::int64_t steps) const {
  if (limit_ != nullptr) limit_->spend(steps);
}

// What bounds them is often as simple: the links of the narrowest worker, or those of all.
bool TreePacker::grow(double gap, double enough) {
  for (const auto& prices : market_.tiers()) {
    market_.set_prices(prices);
    sharpen_upper(prices);
  }
  double goal = std::min(enough, upper_ * (1 - gap));
  TreeGrowth growth(market_, std::min(enough, upper_));
  if (!growth.spans() || growth.effort() > kMostGrowing) return false;
  for (int i = 0; i < kMostGrown && growth.rate() < goal; ++i) {
    spend(growth.effort());
    columns_.push_back(make_column(growth.next()));
    // Whoever wants a rate, not trees, is content to know of a ring.
    if (i == 0 && std::isfinite(enough) && ring_rate(market_, columns_[0].trees) >= goal) return true;
    if (i > 0 || growth.rate() >= goal) continue;
    // Perhaps no tree can do with less of what holds this one down: a slow uplink, say.
    std::vector<double> prices(capacities_.size());
    prices[at(growth.busiest())] = 1;
    market_.set_prices(prices);
    sharpen_upper(prices);
    goal = std::min(enough, upper_ * (1 - gap));
  }
  return growth.rate() >= goal;
}

// Trees that are good on even networks: straight to everybody, and following the wide links.
void TreePacker::seed() {
  std::vector<double> prices;
  for (const double capacity : capacities_) prices.push_back(1 / capacity);
  market_.set_prices(prices);
  std::vector<NodeId> roots = market_.roots();
  if (market_.symmetric()) {
    roots.resize(at(market_.sites()));
    std::iota(roots.begin(), roots.end(), 0);
  }
  if (!per_root_ && roots.size() > seeds_) {  // the best connected
    std::vector<double> costs;
    for (NodeId root = 0; root < market_.sites(); ++root) costs.push_back(market_.cost_of_star(root));
    std::ranges::stable_sort(roots, [&](NodeId a, NodeId b) { return costs[at(a)] < costs[at(b)]; });
    roots.resize(seeds_);
  }
  for (const NodeId root : roots) {
    spend(market_.effort());
    for (const double per_hop : kPerHop)
      columns_.push_back(make_column(market_.shallow(root, per_hop * market_.mean_cost())));
    if (root == roots.front() || !market_.symmetric())
      columns_.push_back(make_column(market_.cheapest(root)));
  }
}

void TreePacker::level() {
  std::vector<double> used(capacities_.size());
  for (const Column& column : columns_)
    for (const auto& term : column.terms)
      used[at(term.row)] += term.amount / static_cast<double>(columns_.size());
  LoadLevel level(capacities_, used);
  const auto resources = static_cast<double>(capacities_.size());
  const int steps = static_cast<int>(kLevelled * resources);
  const auto kept = std::min(kMostLevelledBest, static_cast<std::size_t>(kLevelledBest * resources));
  for (int step = 0; step < steps; ++step) {
    const int sharpness = 1 + kSharpest * step / steps;
    const auto prices = level.prices(sharpness);
    market_.set_prices(prices);
    sharpen_upper(prices);
    std::pair<double, NodeId> best{std::numeric_limits<double>::infinity(), 0};
    for (const NodeId root : market_.roots())
      best = std::min(best, std::pair(market_.cost(market_.cheapest(root)), root));
    spend(2 * market_.effort());
    Column column = make_column(market_.cheapest(best.second));
    level.mix(column.terms, sharpness);
    if (step + static_cast<int>(kept) >= steps) columns_.push_back(std::move(column));
  }
}

TreePacker::Column TreePacker::make_column(TreePair trees) const {
  if (market_.symmetric() && market_.paths() == TreeMarket::Paths::routes) {  // which are alike both ways
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
  PackingLp lp(std::move(rows), limit_);
  if (per_root_) {
    std::vector<PackingLp::Term> rate;
    for (int root = 0; root < market_.workers(); ++root)
      rate.push_back({static_cast<int>(capacities_.size()) + root, parts_[at(root)]});
    lp.add_column(std::move(rate), 1);
  }
  return lp;
}

double TreePacker::read(const PackingLp& lp, std::vector<Column>& columns) const {
  const auto amounts = lp.amounts();
  const std::size_t first = per_root_ ? 1 : 0;
  std::vector<double> used(capacities_.size()), of_root(at(market_.sites()));
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
  if (per_root_) {
    sum = std::numeric_limits<double>::infinity();
    for (std::size_t root = 0; root < of_root.size(); ++root)
      if (parts_[root] > 0) sum = std::min(sum, of_root[root] / parts_[root]);
  }
  return sum / most * scale_;
}

void TreePacker::run(double gap, double enough, std::int64_t most_effort) {
  if (market_.workers() == 1) return;
  const bool grown = !per_root_ && market_.workers() > kFewWorkers && grow(gap, enough);
  if (!grown) seed();
  if (market_.acknowledges() && !per_root_ && market_.workers() <= kFewWorkers) level();
  PackingLp lp = make_lp();
  std::size_t loaded = 0;
  for (int round = 0; round < kMostRounds; ++round) {
    for (; loaded < columns_.size(); ++loaded) lp.add_column(columns_[loaded].terms, columns_[loaded].gain);
    lp.solve();
    if (grown) break;
    const bool found = buy(lp.prices());
    rate_ = lp.value() * scale_;
    const std::int64_t effort = lp.effort() + round * market_.effort();
    if (!found || rate_ >= upper_ * (1 - gap) || rate_ >= enough || effort > most_effort) break;
  }
  columns_.resize(loaded);
  rate_ = read(lp, columns_);
}

// Buys trees that gain more than they cost.
bool TreePacker::buy(const std::vector<double>& prices) {
  return buy_at(steady(prices), prices) || buy_at(prices, prices);
}

// Between the program's prices and the best known, or, as long as there are none, prices by capacity; of the
// same worth all together.
std::vector<double> TreePacker::steady(const std::vector<double>& prices) const {
  const auto worth = [&](const std::vector<double>& of) {
    return std::inner_product(capacities_.begin(), capacities_.end(), of.begin(), 0.0);
  };
  std::vector<double> best = prices_;
  if (best.empty())
    for (const double capacity : capacities_) best.push_back(1 / capacity);
  const double scale = worth(prices) / worth(best);
  for (std::size_t i = 0; i < best.size(); ++i)
    best[i] = (1 - kSteadiness) * prices[i] + kSteadiness * scale * best[i];
  return best;
}

// Offers trees that are cheap at `market_prices`, which are of the resources alone, as `prices` need not be.
bool TreePacker::buy_at(const std::vector<double>& market_prices, const std::vector<double>& prices) {
  market_.set_prices(
      {market_prices.begin(), market_prices.begin() + static_cast<std::ptrdiff_t>(capacities_.size())});
  sharpen_upper(market_prices);
  std::vector<std::pair<double, NodeId>> by_cost;
  for (const NodeId root : market_.roots()) {
    spend(market_.effort());
    const double root_price = per_root_ ? prices[capacities_.size() + at(root)] : 0;
    by_cost.emplace_back(market_.cost(market_.cheapest(root)) - root_price, root);
  }
  std::ranges::stable_sort(by_cost, [](const auto& a, const auto& b) { return a.first < b.first; });
  if (!per_root_ && std::ssize(by_cost) > kRootsPerRound) by_cost.resize(kRootsPerRound);
  bool found = false;
  for (const auto& [cost, root] : by_cost) {
    spend(0);
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
    spend(0);  // with many roots it takes long, and somebody may have given it up
    const double cost = market_.cost(market_.cheapest(root));
    least = std::min(least, cost);
    sum += parts_[at(root)] * cost;
  }
  const double cost = per_root_ ? sum : least;
  if (cost <= 0 || worth / cost * scale_ >= upper_) return;
  upper_ = worth / cost * scale_;
  prices_.assign(prices.begin(), prices.begin() + static_cast<std::ptrdiff_t>(capacities_.size()));
}

// Among packings of nearly the same rate those with great squares of amounts have few trees: that sum is
// raised step by step along its tangent (Frank and Wolfe 1956), which makes a tree gain more, the more of it
// there is.
void TreePacker::concentrate(PackingLp& lp, double floor) {
  const auto used = [](const std::vector<Column>& columns) {
    return std::ranges::count_if(columns, [](const Column& c) { return c.amount > 0; });
  };
  double most = 0;
  for (const Column& column : columns_) most = std::max(most, column.amount);
  auto tried = columns_;
  for (int round = 0; round < kConcentrations && most > 0 && lp.effort() < kMostPruning; ++round) {
    for (std::size_t i = 0; i < tried.size(); ++i)
      lp.set_gain(number(i), columns_[i].gain + kConcentration * tried[i].amount / most);
    lp.solve();
    const double rate = read(lp, tried);
    if (rate < floor || used(tried) >= used(columns_)) continue;
    columns_ = tried;
    rate_ = rate;
  }
  for (std::size_t i = 0; i < columns_.size(); ++i)
    lp.set_gain(number(i), columns_[i].amount > 0 ? columns_[i].gain : kRefused);
}

// Refuses trees, the least used first, for as long as the others make up for them; several at once at first.
void TreePacker::drop_least(PackingLp& lp, double floor) {
  std::vector<bool> settled(columns_.size());  // refused, or needed
  for (std::size_t i = 0; i < columns_.size(); ++i) settled[i] = columns_[i].amount <= 0;
  std::size_t batch = std::max<std::size_t>(1, columns_.size() / 4);
  auto tried = columns_;
  for (;;) {
    std::vector<std::size_t> open;
    for (std::size_t i = 0; i < columns_.size(); ++i)
      if (!settled[i]) open.push_back(i);
    if (open.empty() || lp.effort() > kMostPruning) break;
    std::ranges::stable_sort(
        open, [&](std::size_t a, std::size_t b) { return columns_[a].amount < columns_[b].amount; });
    open.resize(std::min(batch, open.size()));
    for (const std::size_t i : open) lp.set_gain(number(i), kRefused);
    lp.solve();
    const double rate = read(lp, tried);
    const bool without = std::ranges::all_of(open, [&](std::size_t i) { return tried[i].amount <= 0; });
    if (without && rate >= floor) {
      columns_ = tried;
      rate_ = rate;
    } else {
      for (const std::size_t i : open) lp.set_gain(number(i), columns_[i].gain);
    }
    if ((without && rate >= floor) || open.size() == 1)
      for (const std::size_t i : open) settled[i] = true;
    else
      batch = open.size() / 2;
  }
}

void TreePacker::prune(double floor) {
  const auto unused = [](const Column& column) { return column.amount <= 0; };
  std::erase_if(columns_, unused);
  PackingLp lp = make_lp();
  for (const Column& column : columns_) lp.add_column(column.terms, column.gain);
  lp.solve();
  concentrate(lp, floor);
  drop_least(lp, floor);
  std::erase_if(columns_, unused);
}

// The trees exchange edges, the program finds the rates that they then have, and so on in turn.
void TreePacker::reshape(std::size_t most, double floor) {
  auto all = trees();
  if (per_root_ || market_.aggregates() || all.size() <= most) return;
  auto packed = all;
  packed.resize(most);
  TreeExchange exchange(market_, packed, limit_);
  const std::size_t area = most * at(market_.workers());
  const int tries = static_cast<int>(std::min(kTriesAtOnce, kTriesPerEdge * area));
  const int rounds = kMostTries / tries;
  double warmth = kWarmest;
  for (int round = 0; round <= rounds; ++round) {
    std::vector<Column> columns;
    for (const PackedTree& tree : packed) columns.push_back(make_column(tree.trees));
    PackingLp lp = make_lp();
    for (const Column& column : columns) lp.add_column(column.terms, 1);
    lp.solve();
    const double rate = read(lp, columns);
    if (rate >= floor) {
      columns_ = std::move(columns);
      rate_ = rate;
      return;
    }
    // Trees that the program has no use for are to be of use once they changed.
    double sum = 0;
    for (std::size_t i = 0; i < packed.size(); ++i) {
      packed[i].rate = std::max(columns[i].amount * scale_, kLeastRate * upper_ / static_cast<double>(most));
      sum += packed[i].rate;
    }
    for (PackedTree& tree : packed) tree.rate *= kAim * upper_ / sum;
    exchange.even_out(packed, tries, warmth);
    warmth *= kCooling;
    if (warmth >= kColdest) continue;
    warmth = kWarmest;
    std::rotate(all.begin(), all.begin() + 1, all.end());
    packed.assign(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(most));
  }
}

std::vector<PackedTree> TreePacker::trees() const {
  std::vector<PackedTree> result;
  for (const Column& column : columns_)
    if (column.amount > 0) result.push_back({column.trees, column.amount * scale_});
  std::ranges::stable_sort(result, [](const PackedTree& a, const PackedTree& b) { return a.rate > b.rate; });
  return result;
}

}  // namespace talweg::forest
