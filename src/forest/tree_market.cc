#include "forest/tree_market.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <queue>
#include <tuple>
#include <utility>

#include "base/at.h"

namespace talweg::forest {
namespace {

// The cost of an edge that does not exist: above that of any tree.
constexpr double kAbsent = 1e18;
constexpr double kSamePart = 1e-9;  // but for rounding
// Of a link's rate and that of the way back: above, acknowledgements of a full link take more than 2.7 % of
// the way back.
constexpr double kAsQuick = 1.25;

bool on(const std::vector<NodeId>& parents, NodeId site) {
  return at(site) < parents.size() && parents[at(site)] >= 0;
}

}  // namespace

TreeMarket::TreeMarket(const cluster::Cluster& cluster, Collective op, NodeId root, Paths paths,
                       const Acknowledged& acknowledged, const std::vector<double>& processors)
    : cluster_(cluster),
      workers_(at(cluster.workers())),
      op_(op),
      paths_(paths),
      resources_(cluster.links.size()),
      leaving_(cluster.nodes.size()),
      stubs_(cluster::find_stubs(cluster)) {
  if (paths == Paths::routes) routes_.emplace(cluster);
  choose_helpers();
  for (std::size_t link = 0; link < cluster.links.size(); ++link)
    leaving_[at(cluster.links[link].from)].push_back(static_cast<int>(link));
  symmetric_ = find_symmetry();
  if (acknowledged && routes_) find_acknowledged(acknowledged);
  const auto leader = [&](int link) { return routes_ ? routes_->leader(link) : link; };
  for (std::size_t link = 0; link < cluster.links.size(); ++link) {
    int known = leader(static_cast<int>(link));
    if (symmetric_) known = std::min(known, leader(reverse_[link]));
    if (known < static_cast<int>(link)) {
      resources_[link] = resources_[at(known)];
      continue;
    }
    resources_[link] = {static_cast<int>(capacities_.size())};
    capacities_.push_back(cluster.links[link].capacity.bits_per_second);
  }
  for (const cluster::CapacityGroup& group : cluster.groups) {
    for (const int link : group.links) resources_[at(link)].push_back(static_cast<int>(capacities_.size()));
    capacities_.push_back(group.capacity.bits_per_second);
  }
  for (NodeId worker = 0; at(worker) < processors.size(); ++worker)
    add_processor(worker, processors[at(worker)]);
  const bool rooted = facts(op).rooted;
  for (NodeId site = 0; site < (goes_up(op) && goes_down(op) ? sites() : workers()); ++site)
    if (rooted ? site == root : !symmetric_ || site == 0) roots_.push_back(site);
}

void TreeMarket::add_processor(NodeId worker, double rate) {
  std::vector<std::size_t> own;  // links, of those that are loaded alike the one that leads
  double links = 0;
  for (std::size_t link = 0; link < cluster_.links.size(); ++link) {
    if (cluster_.links[link].from != worker && cluster_.links[link].to != worker) continue;
    links += cluster_.links[link].capacity.bits_per_second;
    own.push_back(routes_ ? at(routes_->leader(static_cast<int>(link))) : link);
  }
  if (links <= rate) return;
  std::ranges::sort(own);
  own.erase(std::unique(own.begin(), own.end()), own.end());
  for (const std::size_t link : own) resources_[link].push_back(static_cast<int>(capacities_.size()));
  capacities_.push_back(symmetric_ ? rate / 2 : rate);  // what goes one way then counts for both
}

// A tree of least cost that may pass some helpers is a spanning tree of least cost of the workers and those
// it does pass (Hakimi 1971). With few helpers every set of them is looked at; with more: none, each alone,
// and all, from which those go that nothing hangs on.
void TreeMarket::choose_helpers() {
  nodes_.resize(workers_);
  std::iota(nodes_.begin(), nodes_.end(), 0);
  choices_ = {nodes_};
  for (const NodeId node : aggregators(cluster_))
    if (!goes_down(op_) || can_multicast(cluster_.nodes[at(node)])) nodes_.push_back(node);
  const std::size_t helpers = nodes_.size() - workers_;
  const auto choose = [&](const auto& chosen) {
    choices_.push_back(choices_.front());
    for (std::size_t i = 0; i < helpers; ++i)
      if (chosen(i)) choices_.back().push_back(static_cast<NodeId>(workers_ + i));
  };
  if (helpers <= kMostChosenFreely) {
    for (std::size_t set = 1; set < std::size_t{1} << helpers; ++set)
      choose([&](std::size_t i) { return (set >> i & 1) != 0; });
  } else {
    for (std::size_t one = 0; one < helpers; ++one) choose([&](std::size_t i) { return i == one; });
    choose([](std::size_t) { return true; });
  }
}

TreePair TreeMarket::in_nodes(const TreePair& trees) const {
  const auto named = [&](const Shape& parents) {
    Shape result(parents.empty() ? 0 : at(nodes_.back()) + 1, -1);
    for (std::size_t site = 0; site < parents.size(); ++site)
      if (parents[site] >= 0) result[at(nodes_[site])] = nodes_[at(parents[site])];
    return result;
  };
  return {.root = nodes_[at(trees.root)], .up = named(trees.up), .down = named(trees.down)};
}

bool TreeMarket::find_symmetry() {
  if (op_ != Collective::all_reduce || !cluster_.groups.empty()) return false;
  std::map<std::pair<int, int>, int> link_of;
  for (std::size_t link = 0; link < cluster_.links.size(); ++link)
    link_of[{cluster_.links[link].from, cluster_.links[link].to}] = static_cast<int>(link);
  for (const cluster::Link& link : cluster_.links) {
    const auto found = link_of.find({link.to, link.from});
    if (found == link_of.end() || cluster_.links[at(found->second)].capacity != link.capacity) return false;
    reverse_.push_back(found->second);
  }
  if (paths_ == Paths::all) return true;
  for (const NodeId from : nodes_) {
    for (const NodeId to : nodes_) {
      if (to >= from || (passes_worker(from, to) && passes_worker(to, from))) continue;  // no edge of a tree
      if (!alike_both_ways(from, to)) return false;
    }
  }
  return true;
}

void TreeMarket::find_acknowledged(const Acknowledged& acknowledged) {
  std::map<std::pair<int, int>, double> rates;
  for (const cluster::Link& link : cluster_.links)
    rates[{link.from, link.to}] += link.capacity.bits_per_second;
  const bool alike = std::ranges::all_of(rates, [&](const auto& rate) {
    const auto back = rates.find({rate.first.second, rate.first.first});
    return back != rates.end() && rate.second <= kAsQuick * back->second;
  });
  if (alike) return;
  for (const NodeId from : nodes_)
    for (const NodeId to : nodes_) acknowledged_.push_back(from == to ? 0 : acknowledged(from, to));
}

bool TreeMarket::alike_both_ways(NodeId from, NodeId to) const {
  if (!routes_->spreads(from, to) && !routes_->spreads(to, from)) {
    const auto there = routes_->path(from, to), back = routes_->path(to, from);
    return std::equal(there.begin(), there.end(), back.rbegin(), back.rend(),
                      [&](int a, int b) { return reverse_[at(a)] == b; });
  }
  std::map<int, double> more;  // by link, there than back
  routes_->for_each_share(from, to, [&](int link, double part) { more[link] += part; });
  routes_->for_each_share(to, from,
                          [&](int link, double part) { more[routes_->leader(reverse_[at(link)])] -= part; });
  return std::ranges::all_of(more, [](const auto& m) { return std::abs(m.second) < kSamePart; });
}

void TreeMarket::set_prices(const std::vector<double>& prices) {
  std::vector<double> link_prices(cluster_.links.size());
  for (std::size_t link = 0; link < link_prices.size(); ++link)
    for (const int resource : resources_[link]) link_prices[link] += prices[at(resource)];
  costs_.assign(nodes_.size() * nodes_.size(), kAbsent);
  if (paths_ == Paths::routes)
    price_routes(link_prices);
  else
    price_all_paths(link_prices);
  double sum = 0;
  int edges = 0;
  for (std::size_t i = 0; i < costs_.size(); ++i) {
    if (costs_[i] >= kAbsent || i % (nodes_.size() + 1) == 0) continue;
    sum += costs_[i];
    ++edges;
  }
  mean_cost_ = edges > 0 ? sum / edges : 0;
  down_.clear();
  up_.clear();
}

bool TreeMarket::passes_worker(NodeId from, NodeId to) const {
  const auto path = routes_->path(from, to);
  return std::ranges::any_of(path, [&](int link) {
    const NodeId passed = cluster_.links[at(link)].to;
    return passed != to && cluster_.nodes[at(passed)].kind == cluster::NodeKind::worker;
  });
}

// Edges whose route passes through a third worker are left out: that worker can be on the tree itself.
void TreeMarket::price_routes(const std::vector<double>& link_prices) {
  for (std::size_t from = 0; from < nodes_.size(); ++from) {
    for (std::size_t to = 0; to < nodes_.size(); ++to) {
      if (routes_->path(nodes_[from], nodes_[to]).empty() || passes_worker(nodes_[from], nodes_[to]))
        continue;
      double cost = 0;
      for_each_use(static_cast<NodeId>(from), static_cast<NodeId>(to),
                   [&](int link, double part) { cost += part * link_prices[at(link)]; });
      costs_[from * nodes_.size() + to] = cost;
    }
  }
}

void TreeMarket::price_all_paths(const std::vector<double>& link_prices) {
  const std::size_t nodes = cluster_.nodes.size();
  entering_.assign(nodes_.size() * nodes, -1);
  std::vector<Reach> from_switch(nodes);  // where stubs hang on it
  for (NodeId from = 0; from < sites(); ++from) {
    const cluster::Stub& hanging = stub(nodes_[at(from)]);
    Reach own;
    if (hanging.at < 0) {
      own = search(nodes_[at(from)], link_prices);
    } else if (from_switch[at(hanging.at)].best.empty()) {
      from_switch[at(hanging.at)] = search(hanging.at, link_prices);
    }
    const Reach& reach = hanging.at < 0 ? own : from_switch[at(hanging.at)];
    const double before = hanging.at < 0 ? 0 : link_prices[at(hanging.up)];
    std::copy(reach.entering.begin(), reach.entering.end(),
              entering_.begin() + static_cast<std::ptrdiff_t>(at(from) * nodes));
    if (hanging.at >= 0) entering_[at(from) * nodes + at(hanging.at)] = hanging.up;
    for (NodeId to = 0; to < sites(); ++to)
      if (to != from)
        costs_[at(from) * nodes_.size() + at(to)] = before + reach.best[at(nodes_[at(to)])].first;
  }
}

TreeMarket::Reach TreeMarket::search(int from, const std::vector<double>& link_prices) const {
  const std::size_t nodes = cluster_.nodes.size();
  Reach reach{std::vector(nodes, std::pair{kAbsent, std::numeric_limits<int>::max()}),
              std::vector<int>(nodes, -1)};
  using Key = std::tuple<double, int, int>;  // cost, hops, node
  reach.best[at(from)] = {0, 0};
  std::priority_queue<Key, std::vector<Key>, std::greater<>> queue;
  queue.emplace(0, 0, from);
  while (!queue.empty()) {
    const auto [cost, hops, node] = queue.top();
    queue.pop();
    if (std::pair{cost, hops} != reach.best[at(node)]) continue;
    if (node != from && node < workers()) continue;  // workers pass nothing on but as nodes of the tree
    for (const int link : leaving_[at(node)]) {
      const int next = cluster_.links[at(link)].to;
      const std::pair reached{cost + link_prices[at(link)], hops + 1};
      if (reached >= reach.best[at(next)]) continue;
      reach.best[at(next)] = reached;
      reach.entering[at(next)] = link;
      queue.emplace(reached.first, reached.second, next);
    }
  }
  return reach;
}

std::vector<std::vector<double>> TreeMarket::tiers() const {
  std::vector<int> distance(cluster_.nodes.size(), -1), order(workers_);
  for (NodeId worker = 0; worker < workers(); ++worker) {
    distance[at(worker)] = 0;
    order[at(worker)] = worker;
  }
  for (std::size_t i = 0; i < order.size(); ++i) {
    for (const int link : leaving_[at(order[i])]) {
      const int next = cluster_.links[at(link)].to;
      if (distance[at(next)] >= 0) continue;
      distance[at(next)] = distance[at(order[i])] + 1;
      order.push_back(next);
    }
  }
  std::vector<std::vector<double>> result(at(distance[at(order.back())]) + 1,
                                          std::vector<double>(capacities_.size()));
  std::vector<double> into(workers_), out_of(workers_);
  for (std::size_t i = 0; i < cluster_.links.size(); ++i) {
    const cluster::Link& link = cluster_.links[i];
    const int lower = distance[at(link.from)], upper = distance[at(link.to)];
    if (lower < 0 || upper < 0) continue;
    result[at(std::min(lower, upper))][at(resources_[i].front())] = alike(static_cast<int>(i));
    if (lower == 0) out_of[at(link.from)] += link.capacity.bits_per_second;
    if (upper == 0) into[at(link.to)] += link.capacity.bits_per_second;
  }
  // Of what goes down every worker but the root takes in all, and the root puts it out; of what goes up it is
  // the other way round. In an all-reduce everyone does both.
  const bool both = goes_up(op_) && goes_down(op_);
  double least = std::numeric_limits<double>::infinity();
  std::pair<NodeId, bool> narrowest;  // whether it is what goes in
  for (NodeId worker = 0; worker < workers(); ++worker) {
    const bool is_root = worker == roots_.front();
    for (const bool in : {true, false}) {
      if (!both && (in != is_root) != goes_down(op_)) continue;
      const double width = (in ? into : out_of)[at(worker)];
      if (width >= least) continue;
      least = width;
      narrowest = {worker, in};
    }
  }
  result.emplace_back(capacities_.size());
  for (std::size_t i = 0; i < cluster_.links.size(); ++i)
    if ((narrowest.second ? cluster_.links[i].to : cluster_.links[i].from) == narrowest.first)
      result.back()[at(resources_[i].front())] = 1;
  return result;
}

std::int64_t TreeMarket::effort() const {
  constexpr std::int64_t kPerEdge = 64, kPerLink = 16;
  const auto edges = static_cast<std::int64_t>(nodes_.size() * nodes_.size() * choices_.size());
  const auto links = static_cast<std::int64_t>(nodes_.size() * cluster_.links.size());
  return kPerEdge * edges + (paths_ == Paths::all ? kPerLink * links : 0);
}

void TreeMarket::for_each_share(NodeId from, NodeId to, const std::function<void(int, double)>& visit) const {
  if (paths_ == Paths::routes) {
    routes_->for_each_share(nodes_[at(from)], nodes_[at(to)], visit);
    return;
  }
  const int* const entering = &entering_[at(from) * cluster_.nodes.size()];
  for (NodeId node = nodes_[at(to)]; node != nodes_[at(from)]; node = cluster_.links[at(entering[node])].from)
    visit(entering[node], 1);
}

void TreeMarket::for_each_use(NodeId from, NodeId to, const std::function<void(int, double)>& visit) const {
  for_each_share(from, to, visit);
  const double answers = acknowledged(from, to);
  if (answers > 0) for_each_share(to, from, [&](int link, double part) { visit(link, answers * part); });
}

TreePair TreeMarket::cheapest(NodeId root) const {
  TreePair trees{.root = root, .up = {}, .down = {}};
  if (goes_down(op_)) trees.down = buy(root, down_, false);
  if (goes_up(op_)) trees.up = symmetric_ ? trees.down : buy(root, up_, true);
  return trees;
}

TreeMarket::Shape TreeMarket::buy(NodeId root, Trees& known, bool upward) const {
  known.resize(choices_.size());
  Shape best;
  double least = 0;
  for (std::size_t c = 0; c < choices_.size(); ++c) {
    const auto& choice = choices_[c];
    const auto place = std::ranges::lower_bound(choice, root);
    if (place == choice.end() || *place != root) continue;
    if (!known[c]) {
      std::vector<double> costs;
      for (const NodeId parent : choice)
        for (const NodeId child : choice)
          costs.push_back(parent == child ? kAbsent : edge(child, parent, upward));
      known[c] =
          std::make_unique<cluster::Arborescences<double>>(std::move(costs), static_cast<int>(choice.size()));
    }
    const auto found = known[c]->parents(static_cast<int>(place - choice.begin()));
    Shape parents(nodes_.size(), -1);
    for (std::size_t i = 0; i < choice.size(); ++i) parents[at(choice[i])] = choice[at(found[i])];
    drop_idle(parents, root, upward);
    double cost = 0;
    for (NodeId site = 0; site < sites(); ++site)
      if (site != root && parents[at(site)] >= 0) cost += edge(site, parents[at(site)], upward);
    if (!best.empty() && cost >= least) continue;
    least = cost;
    best = std::move(parents);
  }
  return best;
}

// Takes helpers off the tree on which nothing hangs, or one site that could as well hang on their parent.
void TreeMarket::drop_idle(Shape& parents, NodeId root, bool upward) const {
  for (bool changed = aggregates(); changed;) {
    changed = false;
    for (NodeId helper = workers(); helper < sites(); ++helper) {
      const NodeId above = parents[at(helper)];
      if (above < 0 || helper == root) continue;
      const auto children = std::ranges::count(parents, helper);
      if (children > 1) continue;
      if (children == 1) {
        const auto child = std::ranges::find(parents, helper);
        const auto site = static_cast<NodeId>(child - parents.begin());
        if (edge(site, above, upward) > edge(site, helper, upward) + edge(helper, above, upward)) continue;
        *child = above;
      }
      parents[at(helper)] = -1;
      changed = true;
    }
  }
}

TreePair TreeMarket::shallow(NodeId root, double per_hop) const {
  TreePair trees{.root = root, .up = {}, .down = {}};
  if (goes_down(op_)) trees.down = grow(root, per_hop, false);
  if (goes_up(op_)) trees.up = symmetric_ ? trees.down : grow(root, per_hop, true);
  return trees;
}

TreeMarket::Shape TreeMarket::grow(NodeId root, double per_hop, bool upward) const {
  Shape parents(nodes_.size(), root);
  std::vector<double> least(nodes_.size(), std::numeric_limits<double>::infinity());
  std::vector<int> depths(nodes_.size());
  std::vector<bool> grown(nodes_.size());
  NodeId last = root;
  for (std::size_t count = 1; count < nodes_.size(); ++count) {
    grown[at(last)] = true;
    NodeId nearest = -1;
    for (NodeId node = 0; node < sites(); ++node) {
      if (grown[at(node)]) continue;
      const double cost = edge(node, last, upward) + per_hop * depths[at(last)];
      if (cost < least[at(node)]) {
        least[at(node)] = cost;
        parents[at(node)] = last;
        depths[at(node)] = depths[at(last)] + 1;
      }
      if (nearest < 0 || least[at(node)] < least[at(nearest)]) nearest = node;
    }
    last = nearest;
  }
  drop_idle(parents, root, upward);
  return parents;
}

double TreeMarket::cost(const TreePair& trees) const {
  double sum = 0;
  for (NodeId site = 0; site < sites(); ++site) {
    if (site == trees.root) continue;
    if (on(trees.down, site)) sum += edge(trees.down[at(site)], site);
    if (on(trees.up, site) && !symmetric_) sum += edge(site, trees.up[at(site)]);
  }
  return sum;
}

double TreeMarket::cost_of_star(NodeId root) const {
  double sum = 0;
  for (NodeId node = 0; node < workers(); ++node)
    if (node != root) sum += edge(root, node) + edge(node, root);
  return sum;
}

std::vector<PackingLp::Term> TreeMarket::use(const TreePair& trees) const {
  std::map<int, double> used;
  const auto take = [&](int link, double part) {
    for (const int resource : resources_[at(link)]) used[resource] += part;
  };
  for (NodeId site = 0; site < sites(); ++site) {
    if (site == trees.root) continue;
    if (on(trees.down, site)) for_each_use(trees.down[at(site)], site, take);
    if (on(trees.up, site) && !symmetric_) for_each_use(site, trees.up[at(site)], take);
  }
  std::vector<PackingLp::Term> terms;
  for (const auto& [resource, amount] : used) terms.push_back({resource, amount});
  return terms;
}

std::vector<TreeMarket::Share> TreeMarket::links_between(NodeId from, NodeId to) const {
  std::vector<Share> result;
  if (from == to || (paths_ == Paths::routes ? passes_worker(from, to) : edge(from, to) >= kAbsent))
    return result;
  for_each_share(from, to, [&](int link, double part) { result.push_back({link, part}); });
  if (paths_ == Paths::all) std::ranges::reverse(result);
  return result;
}

std::vector<TreeMarket::Share> TreeMarket::answers_between(NodeId from, NodeId to) const {
  std::vector<Share> result;
  const double answers = acknowledged(from, to);
  if (answers > 0 && !passes_worker(from, to))
    for_each_share(to, from, [&](int link, double part) { result.push_back({link, answers * part}); });
  return result;
}

std::vector<PackingLp::Term> TreeMarket::resources_between(NodeId from, NodeId to) const {
  std::vector<PackingLp::Term> result;
  const auto add = [&](const std::vector<Share>& shares) {
    for (const auto& [link, part] : shares)
      for (const int resource : resources_of(link)) result.push_back({resource, part});
  };
  add(links_between(from, to));
  add(answers_between(from, to));
  return result;
}

int depth(const std::vector<NodeId>& parents, NodeId root) {
  std::vector<int> depths(parents.size(), -1);
  if (!parents.empty()) depths[at(root)] = 0;
  int most = 0;
  std::vector<NodeId> way;
  for (NodeId node = 0; node < std::ssize(parents); ++node) {
    if (!on(parents, node)) continue;
    way.clear();
    NodeId known = node;
    for (; depths[at(known)] < 0; known = parents[at(known)]) way.push_back(known);
    int below = depths[at(known)];
    for (auto step = way.rbegin(); step != way.rend(); ++step) depths[at(*step)] = ++below;
    most = std::max(most, depths[at(node)]);
  }
  return most;
}

NodeId centre(std::vector<NodeId>& parents, NodeId root) {
  std::vector<std::vector<NodeId>> neighbours(parents.size());
  for (NodeId node = 0; node < std::ssize(parents); ++node) {
    if (node == root || !on(parents, node)) continue;
    neighbours[at(node)].push_back(parents[at(node)]);
    neighbours[at(parents[at(node)])].push_back(node);
  }
  // Hangs the tree on `top`; returns the node that is reached last, hence farthest.
  const auto hang = [&](NodeId top) {
    std::vector<NodeId> order{top};
    parents[at(top)] = top;
    for (std::size_t i = 0; i < order.size(); ++i)
      for (const NodeId next : neighbours[at(order[i])])
        if (next != parents[at(order[i])]) {
          parents[at(next)] = order[i];
          order.push_back(next);
        }
    return order.back();
  };
  const NodeId one_end = hang(root);
  NodeId other_end = hang(one_end);
  std::vector<NodeId> longest{other_end};
  for (; other_end != one_end; other_end = parents[at(other_end)]) longest.push_back(parents[at(other_end)]);
  // Of two middles the one written first, so that equal trees get equal roots.
  const NodeId middle = std::min(longest[(longest.size() - 1) / 2], longest[longest.size() / 2]);
  hang(middle);
  return middle;
}

}  // namespace talweg::forest
