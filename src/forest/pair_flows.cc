// Column generation (Ford and Fulkerson 1958, for just this problem): the program shares links out among the
// flows that are known; its prices tell which other flows would be cheaper.
#include "forest/pair_flows.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <queue>
#include <utility>

#include "base/at.h"

namespace talweg::forest {
namespace {

constexpr double kLeastGain = 1e-9;      // of a flow: less is rounding
constexpr int kMostPriceRounds = 20000;  // never met; keeps rounding from turning in circles

}  // namespace

PairFlows::PairFlows(const cluster::Cluster& cluster, Collective op, NodeId root)
    : cluster_(cluster),
      op_(op),
      root_(root),
      leaving_(cluster.nodes.size()),
      entering_(cluster.nodes.size()),
      groups_of_(cluster.links.size()),
      link_prices_(cluster.links.size()),
      group_prices_(cluster.groups.size()) {
  for (NodeId worker = 0; worker < cluster.workers(); ++worker)
    if (op == Collective::all_to_all || (worker == root) == (op == Collective::scatter))
      sources_.push_back(worker);
  for (std::size_t link = 0; link < cluster.links.size(); ++link) {
    leaving_[at(cluster.links[link].from)].push_back(static_cast<int>(link));
    entering_[at(cluster.links[link].to)].push_back(static_cast<int>(link));
    capacities_.push_back(cluster.links[link].capacity.bits_per_second);
  }
  for (const cluster::CapacityGroup& group : cluster.groups) {
    for (const int link : group.links) groups_of_[at(link)].push_back(static_cast<int>(capacities_.size()));
    capacities_.push_back(group.capacity.bits_per_second);
  }
  scale_ = *std::ranges::max_element(capacities_);
  for (double& capacity : capacities_) capacity /= scale_;
}

bool PairFlows::receives(NodeId from, NodeId worker) const {
  return worker != from && (op_ != Collective::gather || worker == root_);
}

// Among paths of the same price those with the fewest links; blocks spread over all that are the same in
// both, so that equal paths need no flow each.
PairFlows::Flow PairFlows::cheapest(std::size_t source, const std::vector<double>& prices) const {
  using Length = std::pair<double, int>;  // price, links
  const NodeId from = sources_[source];
  std::vector<Length> best(leaving_.size(), Length{std::numeric_limits<double>::infinity(), 0});
  std::vector<NodeId> reached;  // in order
  const auto price_of = [&](int link) {
    double price = prices[at(link)];
    for (const int group : groups_of_[at(link)]) price += prices[at(group)];
    return price;
  };
  using Entry = std::pair<Length, NodeId>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
  best[at(from)] = {0, 0};
  queue.push({{0, 0}, from});
  while (!queue.empty()) {
    const auto [length, node] = queue.top();
    queue.pop();
    if (length != best[at(node)]) continue;
    reached.push_back(node);
    for (const int link : leaving_[at(node)]) {
      const NodeId next = cluster_.links[at(link)].to;
      const Length further{length.first + price_of(link), length.second + 1};
      if (further >= best[at(next)]) continue;
      best[at(next)] = further;
      queue.push({further, next});
    }
  }
  Flow flow{.source = source, .loads = {}, .cost = 0};
  std::vector<double> arriving(leaving_.size()), loads(resources());
  for (NodeId worker = 0; worker < cluster_.workers(); ++worker) {
    if (!receives(from, worker)) continue;
    arriving[at(worker)] = 1;
    flow.cost += best[at(worker)].first;
  }
  std::vector<int> ways;
  for (auto node = reached.rbegin(); node != reached.rend(); ++node) {
    if (*node == from || arriving[at(*node)] == 0) continue;
    ways.clear();
    double width = 0;
    for (const int link : entering_[at(*node)]) {
      const Length& before = best[at(cluster_.links[at(link)].from)];
      if (Length{before.first + price_of(link), before.second + 1} != best[at(*node)]) continue;
      ways.push_back(link);
      width += capacities_[at(link)];
    }
    for (const int link : ways) {
      const double part = arriving[at(*node)] * capacities_[at(link)] / width;
      arriving[at(cluster_.links[at(link)].from)] += part;
      loads[at(link)] += part;
      for (const int group : groups_of_[at(link)]) loads[at(group)] += part;
    }
  }
  for (std::size_t row = 0; row < loads.size(); ++row)
    if (loads[row] > 0) flow.loads.push_back({static_cast<int>(row), loads[row]});
  return flow;
}

void PairFlows::add_shortest() {
  const std::vector<double> free(resources());
  std::vector<double> busy(resources());
  for (std::size_t source = 0; source < sources_.size(); ++source) {
    Flow flow = cheapest(source, free);
    for (const PackingLp::Term& load : flow.loads)
      busy[at(load.row)] += load.amount / capacities_[at(load.row)];
    if (few()) flows_.push_back(std::move(flow));  // nobody else needs them
  }
  rate_ = scale_ / *std::ranges::max_element(busy);
  busy.resize(cluster_.links.size());
  busy_ = std::move(busy);
}

// What every pair gets where flows have these amounts, made to fit into the capacities.
double PairFlows::rate_of(const std::vector<double>& amounts) const {
  std::vector<double> used(resources()), of_source(sources_.size());
  for (std::size_t i = 0; i < flows_.size(); ++i) {
    of_source[flows_[i].source] += amounts[i];
    for (const PackingLp::Term& load : flows_[i].loads) used[at(load.row)] += load.amount * amounts[i];
  }
  double most = 0;
  for (std::size_t row = 0; row < used.size(); ++row) most = std::max(most, used[row] / capacities_[row]);
  return most > 0 ? *std::ranges::min_element(of_source) / most * scale_ : 0;
}

void PairFlows::sharpen(const std::vector<Flow>& flows, const std::vector<double>& prices) {
  double worth = 0, cost = 0;
  for (std::size_t row = 0; row < resources(); ++row) worth += capacities_[row] * prices[row];
  for (const Flow& flow : flows) cost += flow.cost;
  if (cost <= 0 || worth / cost >= least_) return;
  least_ = worth / cost;
  const auto groups = prices.begin() + std::ssize(link_prices_);
  link_prices_.assign(prices.begin(), groups);
  group_prices_.assign(groups, groups + std::ssize(group_prices_));
}

std::int64_t PairFlows::effort() const {
  constexpr std::int64_t kPerLink = 100;
  return kPerLink * static_cast<std::int64_t>(sources_.size() * cluster_.links.size());
}

// The program: a row for each link and group, and one for each source, which says that the rate is at most
// what its flows amount to; a column for the rate and one for each flow.
void PairFlows::solve(double enough, std::int64_t most_effort) {
  std::vector<double> capacities = capacities_;
  capacities.resize(rows());
  PackingLp lp(std::move(capacities));
  std::vector<PackingLp::Term> rate;
  for (std::size_t source = 0; source < sources_.size(); ++source)
    rate.push_back({static_cast<int>(resources() + source), 1});
  // So that the prices of sources are about 1.
  lp.add_column(std::move(rate), static_cast<double>(sources_.size()));
  // Besides the shortest paths those along wide links.
  std::vector<double> prices;
  for (const double capacity : capacities_) prices.push_back(1 / capacity);
  for (std::size_t source = 0; source < sources_.size(); ++source) flows_.push_back(cheapest(source, prices));
  std::size_t loaded = 0;
  for (int round = 0; round < kMostPriceRounds; ++round) {
    for (; loaded < flows_.size(); ++loaded) {
      std::vector<PackingLp::Term> terms = flows_[loaded].loads;
      terms.push_back({static_cast<int>(resources() + flows_[loaded].source), -1});
      lp.add_column(std::move(terms), 0);
    }
    lp.solve();
    prices = lp.prices();
    std::vector<double> amounts = lp.amounts();
    amounts.erase(amounts.begin());  // of the rate
    rate_ = std::max(rate_, rate_of(amounts));
    std::vector<Flow> found;
    for (std::size_t source = 0; source < sources_.size(); ++source)
      found.push_back(cheapest(source, prices));
    sharpen(found, prices);
    std::erase_if(
        found, [&](const Flow& flow) { return flow.cost >= prices[resources() + flow.source] - kLeastGain; });
    if (found.empty() || rate_ >= enough || rate_ >= least_ * scale_ * (1 - kLeastGain) ||
        lp.effort() + round * effort() > most_effort)
      break;
    std::ranges::move(found, std::back_inserter(flows_));
  }
}

}  // namespace talweg::forest
