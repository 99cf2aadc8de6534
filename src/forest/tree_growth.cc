// Prim's order, with costs that change while the tree grows: an edge costs what it adds to the sum, over all
// resources, of a high power of load by capacity (as online routing of circuits does: Aspnes et al. 1997).
// Nearly the busiest alone counts: first resources stay within what their capacity allows, and of ways that
// do the tree takes the shortest, at the least depth. So hosts of a leaf come in a row where each may have
// two neighbours, leaves of a pod likewise, and narrow hosts become leaves of the tree.
//
// Every worker has to be joined somewhere, and what that costs on its own link is the same wherever it is. It
// counts for nearly nothing, but for the order of workers that could be joined alike: the widest first, on
// which others can hang.
#include "forest/tree_growth.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "base/at.h"

namespace talweg::forest {
namespace {

constexpr int kDoublings = 4;       // of the power, which is 16
constexpr double kFullest = 1e15;   // above, powers would overflow
constexpr double kRoom = 0.7;       // of what the aim allows: below, nothing costs anything
constexpr double kOwnLink = 0.001;  // of what a new worker's own link costs
constexpr double kPerLinkPrice = 1e-9;

double busy(double load) {
  load = std::clamp(load, kRoom, kFullest);
  for (int i = 0; i < kDoublings; ++i) load *= load;
  return load;
}

}  // namespace

TreeGrowth::TreeGrowth(TreeMarket& market, double aim)
    : market_(market),
      op_(market.operation()),
      workers_(at(market.workers())),
      place_of_(workers_),
      as_parent_(workers_),
      as_child_(workers_),
      aim_(aim),
      loads_(market.capacities().size()),
      added_(loads_.size()) {
  find_places();
  find_ways();
}

void TreeGrowth::find_places() {
  const bool up = goes_up(op_) && !market_.symmetric(), down = goes_down(op_);
  std::map<int, int> place_at;
  for (NodeId worker = 0; worker < market_.workers(); ++worker) {
    const cluster::Stub& stub = market_.stub(worker);
    const int fresh = static_cast<int>(places_.size());
    const int place = stub.at < 0 ? fresh : place_at.emplace(stub.at, fresh).first->second;
    if (place == fresh) places_.emplace_back();
    places_[at(place)].workers.push_back(worker);
    place_of_[at(worker)] = place;
    if (stub.at < 0) continue;
    // What goes over the one link of its own is acknowledged over the other.
    const double answers = market_.acknowledged(worker, worker == 0 ? 1 : 0);
    const auto add = [&](Resources& own, int link, int back) {
      for (const int resource : market_.resources_of(link)) own.push_back({resource, 1});
      if (answers <= 0) return;
      for (const int resource : market_.resources_of(back)) own.push_back({resource, answers});
    };
    if (down) add(as_parent_[at(worker)], stub.up, stub.down);
    if (up) add(as_parent_[at(worker)], stub.down, stub.up);
    if (down) add(as_child_[at(worker)], stub.down, stub.up);
    if (up) add(as_child_[at(worker)], stub.up, stub.down);
  }
}

void TreeGrowth::find_ways() {
  const bool up = goes_up(op_) && !market_.symmetric(), down = goes_down(op_);
  ways_.clear();
  for (int from = 0; from < static_cast<int>(places_.size()); ++from) {
    for (int to = 0; to < static_cast<int>(places_.size()); ++to) {
      if (from == to && places_[at(to)].workers.size() == 1) continue;
      const NodeId parent = places_[at(from)].workers.front();
      const NodeId child = places_[at(to)].workers[from == to ? 1 : 0];
      Way way{from, to, {}};
      if (down && !append_way(parent, child, way)) continue;
      if (up && !append_way(child, parent, way)) continue;
      ways_.push_back(std::move(way));
    }
  }
}

bool TreeGrowth::append_way(NodeId from, NodeId to, Way& way) const {
  const auto links = market_.links_between(from, to);
  double length = 0;
  for (const auto& [link, part] : links) {
    if (link == market_.stub(from).up || link == market_.stub(to).down) continue;
    for (const int resource : market_.resources_of(link)) {
      way.resources.push_back({resource, part});
      length += part * market_.alike(link);
    }
  }
  for (const auto& [link, part] : market_.answers_between(from, to)) {
    if (link == market_.stub(from).down || link == market_.stub(to).up) continue;
    for (const int resource : market_.resources_of(link)) way.resources.push_back({resource, part});
  }
  way.length += static_cast<int>(std::lround(length));
  return !links.empty();
}

bool TreeGrowth::spans() const {
  std::vector<std::vector<int>> next(places_.size());
  for (const Way& way : ways_) next[at(way.from)].push_back(way.to);
  std::vector<bool> seen(places_.size());
  std::vector<int> reached{place_of_[at(market_.roots().front())]};
  seen[at(reached[0])] = true;
  for (std::size_t i = 0; i < reached.size(); ++i) {
    for (const int place : next[at(reached[i])]) {
      if (seen[at(place)]) continue;
      seen[at(place)] = true;
      reached.push_back(place);
    }
  }
  return reached.size() == places_.size();
}

double TreeGrowth::cost(const Resources& resources) const {
  double sum = 0;
  for (const auto& used : resources) sum += used.amount * added_[at(used.row)];
  return sum;
}

void TreeGrowth::load(const Resources& resources) {
  for (const auto& used : resources) {
    loads_[at(used.row)] += used.amount;
    measure(at(used.row));
  }
}

void TreeGrowth::measure(std::size_t resource) {
  const double part = aim_ / (std::max(1, trees_) * market_.capacities()[resource]);
  added_[resource] = busy((loads_[resource] + 1) * part) - busy(loads_[resource] * part);
}

void TreeGrowth::look_around(Place& place) {
  place.parent = place.child = -1;
  for (const NodeId worker : place.workers) {
    if (grown_[at(worker)]) {
      const double own = cost(as_parent_[at(worker)]);
      if (place.parent >= 0 &&
          (own > place.parent_cost ||
           (own == place.parent_cost && depths_[at(worker)] >= depths_[at(place.parent)])))
        continue;
      place.parent = worker;
      place.parent_cost = own;
    } else {
      const double own = kOwnLink * cost(as_child_[at(worker)]);
      if (place.child >= 0 && own >= place.child_cost) continue;
      place.child = worker;
      place.child_cost = own;
    }
  }
}

int TreeGrowth::parent_depth(const Way& way) const {
  return depths_[at(places_[at(way.from)].parent)];
}

const TreeGrowth::Way* TreeGrowth::cheapest_way() const {
  const Way* best = nullptr;
  double least = std::numeric_limits<double>::infinity();
  for (const Way& way : ways_) {
    const Place &from = places_[at(way.from)], &to = places_[at(way.to)];
    if (from.parent < 0 || to.child < 0) continue;
    const double ends = from.parent_cost + to.child_cost;
    if (ends > least) continue;
    const double all = ends + cost(way.resources);
    if (all > least) continue;
    const auto order = [&](const Way& w) { return std::pair(w.length, parent_depth(w)); };
    if (all == least && order(way) >= order(*best)) continue;
    least = all;
    best = &way;
  }
  return best;
}

TreePair TreeGrowth::next() {
  ++trees_;
  for (std::size_t resource = 0; resource < added_.size(); ++resource) measure(resource);
  if (market_.paths() == TreeMarket::Paths::all) {
    const double most = std::max(1.0, *std::ranges::max_element(added_));
    std::vector<double> prices;
    for (const double added : added_) prices.push_back(added / most + kPerLinkPrice);
    market_.set_prices(prices);
    find_ways();
  }
  grown_.assign(workers_, false);
  depths_.assign(workers_, 0);
  NodeId root = market_.roots().front();
  if (op_ == Collective::all_reduce) {  // the one with most room
    for (NodeId worker = 0; at(worker) < workers_; ++worker)
      if (cost(as_parent_[at(worker)]) < cost(as_parent_[at(root)])) root = worker;
  }
  std::vector<NodeId> parents(workers_, root);
  grown_[at(root)] = true;
  for (Place& place : places_) look_around(place);
  while (const Way* const way = cheapest_way()) {
    Place &from = places_[at(way->from)], &to = places_[at(way->to)];
    const NodeId parent = from.parent, child = to.child;
    parents[at(child)] = parent;
    depths_[at(child)] = depths_[at(parent)] + 1;
    grown_[at(child)] = true;
    load(as_parent_[at(parent)]);
    load(way->resources);
    load(as_child_[at(child)]);
    look_around(from);
    if (&from != &to) look_around(to);
  }
  parents.resize(at(market_.sites()), -1);  // aggregators take no part
  TreePair trees{.root = root, .up = {}, .down = {}};
  if (goes_up(op_)) trees.up = parents;
  if (goes_down(op_)) trees.down = std::move(parents);
  return trees;
}

int TreeGrowth::busiest() const {
  const auto part = [&](int i) { return loads_[at(i)] / market_.capacities()[at(i)]; };
  int busiest = 0;
  for (int i = 1; at(i) < loads_.size(); ++i)
    if (part(i) > part(busiest)) busiest = i;
  return busiest;
}

double TreeGrowth::rate() const {
  const std::size_t most = at(busiest());
  return trees_ > 0 ? trees_ * market_.capacities()[most] / loads_[most] : 0;
}

double ring_rate(const TreeMarket& market, const TreePair& tree) {
  const auto helpers = tree.down.begin() + static_cast<std::ptrdiff_t>(market.workers());
  if (!market.symmetric() || std::any_of(helpers, tree.down.end(), [](NodeId parent) { return parent >= 0; }))
    return 0;
  std::vector<int> neighbours(at(market.workers()));
  for (NodeId node = 0; node < market.workers(); ++node) {
    if (node == tree.root) continue;
    ++neighbours[at(node)];
    ++neighbours[at(tree.down[at(node)])];
  }
  std::vector<NodeId> ends;
  for (NodeId node = 0; node < market.workers(); ++node) {
    if (neighbours[at(node)] > 2) return 0;
    if (neighbours[at(node)] == 1) ends.push_back(node);
  }
  if (ends.size() != 2) return 0;
  const auto closing = market.links_between(ends[0], ends[1]);
  if (closing.empty()) return 0;
  std::vector<double> loads(market.capacities().size());
  for (const auto& term : market.use(tree)) loads[at(term.row)] += term.amount;
  for (const auto& [link, part] : closing)
    for (const int resource : market.resources_of(link)) loads[at(resource)] += part;
  double most = 0;
  for (std::size_t i = 0; i < loads.size(); ++i) most = std::max(most, loads[i] / market.capacities()[i]);
  const double workers = market.workers();
  return workers / (workers - 1) / most;
}

std::int64_t TreeGrowth::effort() const {
  std::size_t links = 0;
  for (const Way& way : ways_) links += 1 + way.resources.size();
  return static_cast<std::int64_t>(links * workers_);
}

}  // namespace talweg::forest
