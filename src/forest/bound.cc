#include "forest/bound.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <queue>
#include <utility>

#include "base/at.h"
#include "base/fail.h"
#include "cluster/arborescence.h"
#include "cluster/stubs.h"
#include "forest/bound_exact.h"
#include "forest/pair_flows.h"
#include "forest/tree_growth.h"
#include "forest/tree_packer.h"

namespace talweg::forest {
namespace {

using Prices = std::vector<std::int64_t>;

constexpr std::int64_t kNoPrice = std::int64_t{1} << 51;
constexpr double kSame = 1e-9;  // rates are the same but for rounding
// Some seconds. Only for hundreds of links without any pattern: what was proved by then is as good as the
// same.
constexpr std::int64_t kMostEffort = 3'000'000'000;
constexpr std::size_t kSeeds = 32;  // most bounds are reached by a few trees of the best connected
// Among more workers a bound need not be nearer than this to what trees reach.
constexpr int kMostWorkersExactly = 256;
constexpr double kNearEnough = 0.008;
constexpr double kReached = 1e-7;       // below the bound: but for rounding
constexpr double kPairsReached = 1e-6;  // the same, of what is summed over all pairs

// Blocks travel, each from one rank to one other.
bool exchanges_blocks(Collective op) {
  return has_parts(op) && !goes_up(op) && !goes_down(op);
}

// Integer prices of links, those of their groups included, and what trees cost at them.
class PriceList {
 public:
  PriceList(const cluster::Cluster& cluster, const Prices& links, const Prices& groups)
      : cluster_(cluster), workers_(at(cluster.workers())), prices_(links), leaving_(cluster.nodes.size()) {
    for (std::size_t group = 0; group < groups.size(); ++group)
      for (const int link : cluster.groups[group].links) prices_[at(link)] += groups[group];
    for (std::size_t link = 0; link < cluster.links.size(); ++link)
      leaving_[at(cluster.links[link].from)].push_back(static_cast<int>(link));
    for (std::size_t node = workers_; node < cluster.nodes.size(); ++node) {
      copies_ = copies_ || can_multicast(cluster.nodes[node]);
      sums_ = sums_ || can_aggregate(cluster.nodes[node]);
    }
    const std::size_t roots = copies_ || sums_ ? cluster.nodes.size() : workers_;
    const auto stubs = cluster::find_stubs(cluster);
    std::vector<Prices> from_switch(cluster.nodes.size());  // where stubs hang on it
    for (std::size_t node = 0; node < roots; ++node) {
      const cluster::Stub& stub = stubs[node];
      if (stub.at < 0) {
        distances_.push_back(distances(node));
        continue;
      }
      Prices& shared = from_switch[at(stub.at)];
      if (shared.empty()) shared = distances(at(stub.at));
      distances_.push_back(shared);
      for (std::int64_t& distance : distances_.back()) distance += prices_[at(stub.up)];
      distances_.back()[node] = 0;
    }
  }

  // The cheapest trees from each root there may be. Where nodes between workers copy or sum, trees may branch
  // there; they cost no less than the way to the farthest worker.
  std::vector<std::int64_t> down() const { return trees(copies_, false); }
  std::vector<std::int64_t> up() const { return trees(sums_, true); }
  // The cheapest paths of all pairs that exchange blocks, together.
  Wide paths(Collective op, NodeId root) const {
    Wide sum = 0;
    for (std::size_t from = 0; from < workers_; ++from) {
      if (op == Collective::scatter && from != at(root)) continue;
      for (std::size_t to = 0; to < workers_; ++to)
        if (op != Collective::gather || to == at(root)) sum += distances_[from][to];
    }
    return sum;
  }

 private:
  std::vector<std::int64_t> trees(bool branching, bool upward) const {
    const auto cost = [&](std::size_t root, std::size_t worker) {
      return upward ? distances_[worker][root] : distances_[root][worker];
    };
    std::vector<std::int64_t> result;
    if (branching) {
      for (std::size_t root = 0; root < (copies_ && sums_ ? distances_.size() : workers_); ++root) {
        result.push_back(0);
        for (std::size_t worker = 0; worker < workers_; ++worker)
          result.back() = std::max(result.back(), cost(root, worker));
      }
      return result;
    }
    std::vector<std::int64_t> costs;
    for (std::size_t from = 0; from < workers_; ++from)
      for (std::size_t to = 0; to < workers_; ++to) costs.push_back(cost(from, to));
    const cluster::Arborescences<std::int64_t> cheapest(std::move(costs), static_cast<int>(workers_));
    for (std::size_t root = 0; root < workers_; ++root)
      result.push_back(cheapest.cost(static_cast<int>(root)));
    return result;
  }

  Prices distances(std::size_t from) const {
    Prices best(leaving_.size(), kNoPrice);
    best[from] = 0;
    using Key = std::pair<std::int64_t, int>;
    std::priority_queue<Key, std::vector<Key>, std::greater<>> queue;
    queue.emplace(0, static_cast<int>(from));
    while (!queue.empty()) {
      const auto [cost, node] = queue.top();
      queue.pop();
      if (cost != best[at(node)]) continue;
      for (const int link : leaving_[at(node)]) {
        const int next = cluster_.links[at(link)].to;
        if (cost + prices_[at(link)] >= best[at(next)]) continue;
        best[at(next)] = cost + prices_[at(link)];
        queue.emplace(best[at(next)], next);
      }
    }
    return best;
  }

  const cluster::Cluster& cluster_;
  std::size_t workers_;
  Prices prices_;
  std::vector<std::vector<int>> leaving_;
  std::vector<Prices> distances_;  // from each node
  bool copies_ = false, sums_ = false;
};

// One bound, from its reason.
class BoundFinder {
 public:
  BoundFinder(const cluster::Cluster& cluster, Collective op, NodeId root)
      : cluster_(cluster), capacities_(cluster) {
    best_.op = op;
    best_.root = root;
    best_.rate = Ratio(1, 0);
  }

  Bound find() {
    if (cluster_.workers() == 1) {
      best_.attained = true;
      return best_;
    }
    if (exchanges_blocks(best_.op)) {
      bound_blocks();
      return best_;
    }
    try_cut(narrowest_cut(cluster_, capacities_, best_.op, best_.root));
    best_.attained = cuts_suffice();
    if (best_.attained) return best_;
    if (best_.op == Collective::all_reduce && direct_and_symmetric()) {
      try_partition(weakest_partition(cluster_, capacities_));
      best_.attained = true;
      return best_;
    }
    try_partition(everything_apart());
    pack_trees();
    return best_;
  }

 private:
  double rate() const { return best_.rate.value(); }

  void try_prices(Certificate certificate) {
    const Ratio proved =
        rate_at_prices(cluster_, best_.op, best_.root, certificate.link_prices, certificate.group_prices);
    // Equal but for rounding: the reason that was tried first is the simpler one.
    if (std::isfinite(rate()) && proved.value() >= rate() * (1 - kSame)) return;
    best_.rate = proved;
    best_.certificate = std::move(certificate);
  }

  Certificate unpriced(Certificate::Kind kind) const {
    return {kind, {}, Prices(cluster_.links.size()), Prices(cluster_.groups.size())};
  }

  void try_cut(const std::vector<bool>& side) {
    Certificate certificate = unpriced(Certificate::Kind::cut);
    certificate.parts.resize(2);
    for (std::size_t node = 0; node < side.size(); ++node)
      certificate.parts[side[node] ? 0 : 1].push_back(static_cast<int>(node));
    for (std::size_t link = 0; link < cluster_.links.size(); ++link)
      certificate.link_prices[link] =
          side[at(cluster_.links[link].from)] && !side[at(cluster_.links[link].to)] ? 1 : 0;
    try_prices(std::move(certificate));
  }

  void try_partition(const std::vector<int>& part) {
    Certificate certificate = unpriced(Certificate::Kind::partition);
    std::map<int, std::vector<int>> parts;
    for (std::size_t node = 0; node < part.size(); ++node)
      parts[part[node]].push_back(static_cast<int>(node));
    for (auto& [name, nodes] : parts) certificate.parts.push_back(std::move(nodes));
    for (std::size_t link = 0; link < cluster_.links.size(); ++link)
      certificate.link_prices[link] =
          part[at(cluster_.links[link].from)] != part[at(cluster_.links[link].to)] ? 1 : 0;
    try_prices(std::move(certificate));
  }

  std::vector<int> everything_apart() const {
    std::vector<int> part(cluster_.nodes.size());
    for (std::size_t node = 0; node < part.size(); ++node) part[node] = static_cast<int>(node);
    return part;
  }

  void bound_blocks() {
    PairFlows flows(cluster_, best_.op, best_.root);
    flows.add_shortest();
    const bool one_end = best_.op != Collective::all_to_all;
    const auto side = one_end ? narrowest_cut(cluster_, capacities_, best_.op, best_.root)
                              : narrowest_set(cluster_, capacities_, flows.busy());
    try_cut(side);
    try_grouped_cut(side);
    try_busiest_group(flows.busy());
    try_partition(everything_apart());
    const auto reached = [&] { return flows.rate() * cluster_.workers() >= rate() * (1 - kPairsReached); };
    // What flows to one end, or from it, is as much as its least cut lets pass.
    best_.attained = reached() || (one_end && cluster_.groups.empty());
    if (best_.attained || !flows.few()) return;
    flows.solve(rate() / cluster_.workers(), kMostEffort);
    try_solution(flows.link_prices(), flows.group_prices());
    best_.attained = reached();
  }

  // A cut some of whose links could carry more than the group that they are in.
  void try_grouped_cut(const std::vector<bool>& side) {
    Certificate certificate = unpriced(Certificate::Kind::prices);
    Prices& crosses = certificate.link_prices;
    bool grouped = false;
    for (std::size_t link = 0; link < cluster_.links.size(); ++link)
      crosses[link] = side[at(cluster_.links[link].from)] && !side[at(cluster_.links[link].to)] ? 1 : 0;
    for (std::size_t group = 0; group < cluster_.groups.size(); ++group) {
      const std::vector<int>& links = cluster_.groups[group].links;
      std::int64_t capacity = 0;
      for (const int link : links) capacity += crosses[at(link)] * capacities_.links[at(link)];
      if (capacity <= capacities_.groups[group]) continue;
      for (const int link : links) crosses[at(link)] = 0;
      certificate.group_prices[group] = 1;
      grouped = true;
    }
    if (grouped) try_prices(std::move(certificate));
  }

  // One that both directions share may be in no cut that counts.
  void try_busiest_group(const std::vector<double>& busy) {
    std::vector<double> loads;
    for (const cluster::CapacityGroup& group : cluster_.groups) {
      double load = 0;
      for (const int link : group.links)
        load += busy[at(link)] * cluster_.links[at(link)].capacity.bits_per_second;
      loads.push_back(load / group.capacity.bits_per_second);
    }
    if (loads.empty()) return;
    Certificate certificate = unpriced(Certificate::Kind::prices);
    const auto busiest = std::ranges::max_element(loads) - loads.begin();
    certificate.group_prices[static_cast<std::size_t>(busiest)] = 1;
    try_prices(std::move(certificate));
  }

  // Prices that a program ended with, and those of all links between the parts that they keep apart.
  void try_solution(const std::vector<double>& link_prices, const std::vector<double>& group_prices) {
    const auto priced = [](double price) { return price > 0; };
    if (std::ranges::none_of(link_prices, priced) && std::ranges::none_of(group_prices, priced)) return;
    Certificate certificate = rounded(link_prices, group_prices);
    try_partition(joined_by_free_links(certificate));
    try_prices(std::move(certificate));
  }

  // Whether trees reach what cuts allow: not all_reduce; no groups; and no plain switch that takes in less
  // than it can put out (of what goes up: puts out less than it takes in), hence would have to multiply it.
  bool cuts_suffice() const {
    if (best_.op == Collective::all_reduce || !cluster_.groups.empty()) return false;
    std::vector<std::int64_t> surplus(cluster_.nodes.size());
    for (std::size_t link = 0; link < cluster_.links.size(); ++link) {
      surplus[at(cluster_.links[link].to)] += capacities_.links[link];
      surplus[at(cluster_.links[link].from)] -= capacities_.links[link];
    }
    for (std::size_t node = at(cluster_.workers()); node < surplus.size(); ++node)
      if (goes_down(best_.op) ? surplus[node] < 0 : surplus[node] > 0) return false;
    return true;
  }

  bool direct_and_symmetric() const {
    if (!cluster_.groups.empty() || std::ssize(cluster_.nodes) != cluster_.workers()) return false;
    std::map<std::pair<int, int>, double> links;
    for (const auto& link : cluster_.links) links[{link.from, link.to}] = link.capacity.bits_per_second;
    return std::ranges::all_of(links, [&](const auto& link) {
      const auto back = links.find({link.first.second, link.first.first});
      return back != links.end() && back->second == link.second;
    });
  }

  void pack_trees() {
    TreeMarket market(cluster_, best_.op, best_.root, TreeMarket::Paths::all);
    TreePacker packer(market, best_.op, 0, {}, kSeeds);
    const bool exactly = cluster_.workers() <= kMostWorkersExactly;
    packer.run(exactly ? kSame : kNearEnough, rate() * (1 - kSame), kMostEffort);
    // There are none yet where the search ended while some trees were free.
    const std::vector<double>& prices = packer.prices();
    if (packer.rate() < rate() * (1 - kSame) && !prices.empty()) {
      std::vector<double> of_links;
      for (std::size_t link = 0; link < cluster_.links.size(); ++link)
        of_links.push_back(prices[at(market.resources_of(static_cast<int>(link)).front())]);
      try_solution(of_links, {prices.end() - std::ssize(cluster_.groups), prices.end()});
    }
    const auto trees = packer.trees();
    const double ring = trees.size() == 1 ? ring_rate(market, trees.front().trees) : 0;
    best_.attained = std::max(packer.rate(), ring) >= rate() * (1 - kReached);
  }

  // Prices of an optimal basis are fractions with a small common denominator on most networks; else they are
  // rounded so finely that the bound hardly changes.
  Certificate rounded(const std::vector<double>& link_prices, const std::vector<double>& group_prices) const {
    constexpr int kGreatest = 20000;
    constexpr double kFine = 1 << 30;
    double most = 0;
    for (const auto* prices : {&link_prices, &group_prices})
      for (const double price : *prices) most = std::max(most, price);
    double multiple = kFine / most;
    for (int count = 1; count <= kGreatest; ++count) {
      const auto near = [&](double price) {
        const double scaled = price * count / most;
        return std::abs(scaled - std::round(scaled)) < 1e-6;
      };
      if (!std::ranges::all_of(link_prices, near) || !std::ranges::all_of(group_prices, near)) continue;
      multiple = count / most;
      break;
    }
    Certificate certificate = unpriced(Certificate::Kind::prices);
    const auto whole = [&](double price) { return std::llround(price * multiple); };
    std::ranges::transform(link_prices, certificate.link_prices.begin(), whole);
    std::ranges::transform(group_prices, certificate.group_prices.begin(), whole);
    return certificate;
  }

  // The parts into which the network falls without the links that have a price.
  std::vector<int> joined_by_free_links(const Certificate& certificate) const {
    auto part = everything_apart();
    for (std::size_t link = 0; link < cluster_.links.size(); ++link) {
      if (certificate.link_prices[link] != 0) continue;
      const int merged = part[at(cluster_.links[link].from)];
      std::ranges::replace(part, merged, part[at(cluster_.links[link].to)]);
    }
    return part;
  }

  const cluster::Cluster& cluster_;
  ExactCapacities capacities_;
  Bound best_;
};

}  // namespace

Ratio rate_at_prices(const cluster::Cluster& cluster, Collective op, NodeId root, const Prices& link_prices,
                     const Prices& group_prices) {
  const ExactCapacities capacities(cluster);
  const PriceList list(cluster, link_prices, group_prices);
  Wide worth = 0;
  for (std::size_t link = 0; link < link_prices.size(); ++link)
    worth += static_cast<Wide>(link_prices[link]) * capacities.links[link];
  for (std::size_t group = 0; group < group_prices.size(); ++group)
    worth += static_cast<Wide>(group_prices[group]) * capacities.groups[group];
  if (exchanges_blocks(op)) return capacities.rate(worth * cluster.workers(), list.paths(op, root));
  const auto down = goes_down(op) ? list.down() : std::vector<std::int64_t>{};
  const auto up = goes_up(op) ? list.up() : std::vector<std::int64_t>{};
  const auto workers = at(cluster.workers());
  switch (op) {
    case Collective::broadcast:
      return capacities.rate(worth, down[at(root)]);
    case Collective::reduce:
      return capacities.rate(worth, up[at(root)]);
    case Collective::all_reduce: {
      std::int64_t least = std::numeric_limits<std::int64_t>::max();
      for (std::size_t node = 0; node < std::min(down.size(), up.size()); ++node)
        least = std::min(least, down[node] + up[node]);
      return capacities.rate(worth, least);
    }
    default: {
      std::int64_t sum = 0;
      for (std::size_t node = 0; node < workers; ++node) sum += goes_down(op) ? down[node] : up[node];
      return capacities.rate(worth * cluster.workers(), sum);
    }
  }
}

bool has_bound(Collective op) {
  return goes_up(op) || goes_down(op) || exchanges_blocks(op);
}

Bound best_rate(const cluster::Cluster& cluster, Collective op, NodeId root) {
  validate(cluster);
  if (!has_bound(op)) throw_error(ErrorCode::unsupported, "no bound is known for {}", name(op));
  return BoundFinder(cluster, op, root).find();
}

}  // namespace talweg::forest
