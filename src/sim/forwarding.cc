#include "sim/forwarding.h"

#include <algorithm>
#include <compare>
#include <map>
#include <queue>

namespace talweg::sim {

namespace {

struct Distance {
  int workers = 1 << 30;  // passed on the way
  std::int64_t latency = 0;
  int links = 0;
  auto operator<=>(const Distance&) const = default;
};

}  // namespace

// Distances of all nodes to one target, backwards (Dijkstra).
class Forwarding::Search {
 public:
  explicit Search(const Forwarding& f) : f_(f), leaf_(f.nodes_.size()), distance_(f.nodes_.size()) {
    // Nothing passes through a node whose only neighbour is one other node.
    for (std::size_t n = 0; n < leaf_.size(); ++n)
      leaf_[n] = f.out_[n].size() == 1 &&
                 std::ranges::all_of(f.in_[n], [&](int l) { return link(l).from == link(f.out_[n][0]).to; });
  }

  void run(int target, const std::vector<bool>& down) {
    std::ranges::fill(distance_, Distance{});
    target_ = target;
    distance_[static_cast<std::size_t>(target)] = {0, 0, 0};
    std::priority_queue<std::pair<Distance, int>, std::vector<std::pair<Distance, int>>, std::greater<>> open;
    open.push({{0, 0, 0}, target});
    while (!open.empty()) {
      const auto [at, node] = open.top();
      open.pop();
      if (at > distance_[static_cast<std::size_t>(node)]) continue;
      for (const int l : f_.in_[static_cast<std::size_t>(node)]) {
        const auto from = static_cast<std::size_t>(link(l).from);
        if (leaf_[from] || down[static_cast<std::size_t>(l)]) continue;
        const Distance through = over(l);
        if (!(through < distance_[from])) continue;
        distance_[from] = through;
        open.push({through, link(l).from});
      }
    }
  }

  // All links out of `node` that lie on a best path; the first of them where that leads through a worker.
  void best_links(int node, const std::vector<bool>& down, std::vector<int>& links) const {
    links.clear();
    Distance best;
    for (const int l : f_.out_[static_cast<std::size_t>(node)]) {
      if (down[static_cast<std::size_t>(l)] || !reached(link(l).to)) continue;
      const Distance through = over(l);
      if (through > best) continue;
      if (through < best) links.clear();
      best = through;
      links.push_back(l);
    }
    if (!links.empty() && best.workers > 0) links.erase(links.begin() + 1, links.end());
  }

 private:
  const cluster::Link& link(int l) const { return f_.cluster_.links[static_cast<std::size_t>(l)]; }
  bool reached(int node) const {
    return distance_[static_cast<std::size_t>(node)].workers < Distance{}.workers;
  }
  Distance over(int l) const {
    const int to = link(l).to;
    Distance d = distance_[static_cast<std::size_t>(to)];
    d.workers += to != target_ && to < workers() ? 1 : 0;
    d.latency += link(l).latency.value;
    d.links += 1;
    return d;
  }
  int workers() const { return workers_; }

  const Forwarding& f_;
  const int workers_ = f_.cluster_.workers();
  std::vector<bool> leaf_;
  std::vector<Distance> distance_;
  int target_ = 0;
};

Forwarding::Forwarding(const cluster::Cluster& cluster)
    : cluster_(cluster),
      out_(cluster.nodes.size()),
      in_(cluster.nodes.size()),
      nodes_(cluster.nodes.size()),
      places_(cluster.nodes.size()) {
  for (std::size_t l = 0; l < cluster.links.size(); ++l) {
    out_[static_cast<std::size_t>(cluster.links[l].from)].push_back(static_cast<int>(l));
    in_[static_cast<std::size_t>(cluster.links[l].to)].push_back(static_cast<int>(l));
  }
  place_nodes();
  rebuild(std::vector<bool>(cluster.links.size(), false));
}

void Forwarding::place_nodes() {
  std::map<int, std::uint32_t> column_of;
  for (std::size_t n = 0; n < nodes_.size(); ++n) {
    if (out_[n].size() == 1) nodes_[n].only_link = out_[n][0];
    if (out_[n].size() > 1) nodes_[n].row = static_cast<int>(rows_++);
    if (out_[n].empty()) nodes_[n].row = static_cast<int>(rows_++);
    Place& place = places_[n];
    place.at = static_cast<int>(n);
    // Behind a worker, ways are chosen otherwise than to it.
    if (in_[n].size() == 1 &&
        cluster_.links[static_cast<std::size_t>(in_[n][0])].from >= cluster_.workers()) {
      place.last_link = in_[n][0];
      place.at = cluster_.links[static_cast<std::size_t>(in_[n][0])].from;
    }
    const cluster::Node& node = cluster_.nodes[n];
    if (node.kind == cluster::NodeKind::switch_ && !cluster::can_aggregate(node)) continue;
    const auto [it, fresh] = column_of.emplace(place.at, static_cast<std::uint32_t>(targets_.size()));
    if (fresh) targets_.push_back(place.at);
    place.column = it->second;
  }
  columns_ = targets_.size();
}

int Forwarding::entry_for(const std::vector<int>& links, std::size_t row) {
  if (links.empty()) return -1;
  if (links.size() == 1) return links[0];
  const auto same = [&](int entry) {
    const Group& g = groups_[static_cast<std::size_t>(-2 - entry)];
    return g.count == links.size() && std::equal(links.begin(), links.end(), members_.begin() + g.first);
  };
  if (last_entry_[row] < -1 && same(last_entry_[row])) return last_entry_[row];
  groups_.push_back({static_cast<std::uint32_t>(members_.size()), static_cast<std::uint32_t>(links.size())});
  members_.insert(members_.end(), links.begin(), links.end());
  return last_entry_[row] = -1 - static_cast<int>(groups_.size());
}

std::span<const int> Forwarding::choices(int node, int destination) const {
  const Node& n = nodes_[static_cast<std::size_t>(node)];
  if (n.only_link >= 0) return {&n.only_link, 1};
  const Place& place = places_[static_cast<std::size_t>(destination)];
  if (place.last_link >= 0 && place.at == node) return {&place.last_link, 1};
  const int& entry = table_[static_cast<std::size_t>(n.row) * columns_ + place.column];
  if (entry >= 0) return {&entry, 1};
  if (entry == -1) return {};
  const Group& group = groups_[static_cast<std::size_t>(-2 - entry)];
  return {members_.data() + group.first, group.count};
}

void Forwarding::rebuild(const std::vector<bool>& down) {
  groups_.clear();
  members_.clear();
  table_.assign(rows_ * columns_, -1);
  last_entry_.assign(rows_, -1);
  Search search(*this);
  std::vector<int> links;
  for (std::size_t column = 0; column < columns_; ++column) {
    search.run(targets_[column], down);
    for (std::size_t n = 0; n < nodes_.size(); ++n) {
      if (nodes_[n].row < 0 || static_cast<int>(n) == targets_[column]) continue;
      search.best_links(static_cast<int>(n), down, links);
      const auto row = static_cast<std::size_t>(nodes_[n].row);
      table_[row * columns_ + column] = entry_for(links, row);
    }
  }
}

}  // namespace talweg::sim
