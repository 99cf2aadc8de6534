// Simulated annealing (Kirkpatrick, Gelatt and Vecchi 1983): exchanges are tried at random, and taken unless
// they worsen the balance by more than a random threshold, which sinks to nothing. It needs no logarithm and
// no exponential, whose last digits differ between machines: all ranks must find the same trees. The balance
// is the sum, over resources, of a high power of how busy they are: nearly the busiest alone counts, but it
// has a slope everywhere.
#include "forest/tree_exchange.h"

#include <algorithm>
#include <limits>

namespace talweg::forest {
namespace {

constexpr int kSquarings = 6;  // of the power, which is 64
constexpr int kStages = 20;
constexpr double kExchangeCooling = 0.8;  // from stage to stage, to a hundredth in the end
constexpr double kBusiest = 1e4;          // above, powers would overflow

double weight(double load) {
  load = std::min(load, kBusiest);
  for (int i = 0; i < kSquarings; ++i) load *= load;
  return load;
}

std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

// Makes `top` the root, by turning the way to it round.
void hang_on(std::vector<NodeId>& parents, NodeId top) {
  NodeId below = top;
  for (NodeId node = top;;) {
    const NodeId above = parents[at(node)];
    parents[at(node)] = below;
    if (above == node) return;
    below = node;
    node = above;
  }
}

}  // namespace

TreeExchange::TreeExchange(const TreeMarket& market, const std::vector<PackedTree>& trees, WorkLimit* limit)
    : market_(market), workers_(at(market.workers())), limit_(limit) {
  for (NodeId from = 0; from < market.workers(); ++from)
    for (NodeId to = 0; to < market.workers(); ++to) edges_.push_back(market.resources_between(from, to));
  for (const PackedTree& tree : trees)
    deepest_ =
        std::max({deepest_, depth(tree.trees.up, tree.trees.root), depth(tree.trees.down, tree.trees.root)});
}

void TreeExchange::even_out(std::vector<PackedTree>& trees, int tries, double warmth) {
  load_.assign(market_.capacities().size(), 0);
  for (const PackedTree& tree : trees)
    for (const auto& term : market_.use(tree.trees))
      load_[at(term.row)] += term.amount * tree.rate / market_.capacities()[at(term.row)];
  for (int stage = 0; stage < kStages; ++stage) {
    for (int i = 0; i < tries / kStages; ++i) {
      if (limit_ != nullptr) limit_->spend(static_cast<std::int64_t>(workers_));
      // Nearly the logarithm of 1 / u, with which Metropolis et al. (1953) compare.
      const double u = random_.uniform();
      const double allowed = warmth * 2 * (1 - u) / (1 + u);
      PackedTree& tree = trees[random_.below(trees.size())];
      if (market_.symmetric())
        exchange_any(tree, allowed);
      else
        exchange_parent(tree, allowed);
    }
    warmth *= kExchangeCooling;
  }
  if (market_.symmetric())
    for (PackedTree& tree : trees) tree.trees.up = tree.trees.down;
}

// A new edge closes a circle, and the edge of the circle that is missed least goes.
void TreeExchange::exchange_any(PackedTree& tree, double allowed) {
  const NodeId top = any_worker(), end = any_worker();
  const auto& entering = edge(top, end);
  Shape& parents = tree.trees.down;
  if (entering.empty() || parents[at(top)] == end || parents[at(end)] == top) return;
  hang_on(parents, top);
  tree.trees.root = top;
  NodeId best = end;
  double least = std::numeric_limits<double>::infinity();
  for (NodeId node = end; node != top; node = parents[at(node)]) {
    const double worse = change(edge(parents[at(node)], node), entering, tree.rate);
    if (worse >= least) continue;
    least = worse;
    best = node;
  }
  if (least > allowed) return;
  Shape changed = parents;
  changed[at(best)] = best;
  hang_on(changed, end);
  changed[at(end)] = top;
  Shape middle = changed;
  if (depth(middle, centre(middle, top)) > deepest_) return;
  change(edge(parents[at(best)], best), entering, tree.rate);
  apply();
  parents = std::move(changed);
}

// A worker goes to another parent, with all that is below it.
void TreeExchange::exchange_parent(PackedTree& tree, double allowed) {
  const bool upward = !tree.trees.up.empty() && (tree.trees.down.empty() || random_.below(2) == 0);
  Shape& parents = upward ? tree.trees.up : tree.trees.down;
  const NodeId moved = any_worker(), parent = any_worker(), old = parents[at(moved)];
  if (moved == tree.trees.root || parent == old) return;
  const auto& entering = upward ? edge(moved, parent) : edge(parent, moved);
  if (entering.empty()) return;
  for (NodeId node = parent; node != tree.trees.root; node = parents[at(node)])
    if (node == moved) return;
  if (change(upward ? edge(moved, old) : edge(old, moved), entering, tree.rate) > allowed) return;
  parents[at(moved)] = parent;
  if (depth(parents, tree.trees.root) > deepest_)
    parents[at(moved)] = old;
  else
    apply();
}

double TreeExchange::change(const Terms& from, const Terms& to, double rate) {
  changes_.clear();
  const auto add = [&](int resource, double more) {
    more /= market_.capacities()[at(resource)];
    for (auto& [known, sum] : changes_) {
      if (known != resource) continue;
      sum += more;
      return;
    }
    changes_.emplace_back(resource, more);
  };
  for (const auto& term : from) add(term.row, -rate * term.amount);
  for (const auto& term : to) add(term.row, rate * term.amount);
  double worse = 0;
  for (const auto& [resource, more] : changes_)
    if (more != 0) worse += weight(load_[at(resource)] + more) - weight(load_[at(resource)]);
  return worse;
}

void TreeExchange::apply() {
  for (const auto& [resource, more] : changes_) load_[at(resource)] += more;
}

}  // namespace talweg::forest
