// Dinic's algorithm: blocking flows in the graph of shortest augmenting paths (Dinitz 1970).
#include "cluster/max_flow.h"

#include <algorithm>
#include <limits>

namespace talweg::cluster {

int MaxFlow::add_arc(int from, int to, std::int64_t capacity) {
  const int index = static_cast<int>(arcs_.size());
  arcs_.push_back({to, capacity, 0});
  arcs_.push_back({from, 0, 0});
  arcs_of_[static_cast<std::size_t>(from)].push_back(index);
  arcs_of_[static_cast<std::size_t>(to)].push_back(index + 1);
  return index;
}

void MaxFlow::set_capacity(int arc, std::int64_t capacity) {
  arcs_[static_cast<std::size_t>(arc)].capacity = capacity;
}

std::int64_t MaxFlow::solve(int source, int sink) {
  source_ = source;
  for (Arc& arc : arcs_) arc.left = arc.capacity;
  std::int64_t total = 0;
  while (find_levels(source, sink)) {
    next_.assign(arcs_of_.size(), 0);
    while (const std::int64_t pushed = push(source, sink, std::numeric_limits<std::int64_t>::max()))
      total += pushed;
  }
  return total;
}

bool MaxFlow::find_levels(int source, int sink) {
  level_.assign(arcs_of_.size(), -1);
  level_[static_cast<std::size_t>(source)] = 0;
  std::vector<int> queue{source};
  for (std::size_t i = 0; i < queue.size(); ++i) {
    const int level = level_[static_cast<std::size_t>(queue[i])];
    for (const int index : arcs_of_[static_cast<std::size_t>(queue[i])]) {
      const Arc& arc = arcs_[static_cast<std::size_t>(index)];
      if (arc.left == 0 || level_[static_cast<std::size_t>(arc.to)] >= 0) continue;
      level_[static_cast<std::size_t>(arc.to)] = level + 1;
      queue.push_back(arc.to);
    }
  }
  return level_[static_cast<std::size_t>(sink)] >= 0;
}

// Sends up to `most` along shortest paths; recursion is as deep as a shortest path is long.
std::int64_t MaxFlow::push(int node, int sink, std::int64_t most) {
  if (node == sink) return most;
  const auto& arcs = arcs_of_[static_cast<std::size_t>(node)];
  std::int64_t sent = 0;
  for (std::size_t& i = next_[static_cast<std::size_t>(node)]; i < arcs.size(); ++i) {
    Arc& arc = arcs_[static_cast<std::size_t>(arcs[i])];
    if (arc.left == 0 ||
        level_[static_cast<std::size_t>(arc.to)] != level_[static_cast<std::size_t>(node)] + 1)
      continue;
    const std::int64_t pushed = push(arc.to, sink, std::min(most - sent, arc.left));
    arc.left -= pushed;
    arcs_[static_cast<std::size_t>(arcs[i] ^ 1)].left += pushed;
    sent += pushed;
    if (sent == most) break;
  }
  return sent;
}

std::vector<bool> MaxFlow::source_side() const {
  std::vector<bool> side(arcs_of_.size());
  side[static_cast<std::size_t>(source_)] = true;
  std::vector<int> open{source_};
  while (!open.empty()) {
    const int node = open.back();
    open.pop_back();
    for (const int index : arcs_of_[static_cast<std::size_t>(node)]) {
      const Arc& arc = arcs_[static_cast<std::size_t>(index)];
      if (arc.left == 0 || side[static_cast<std::size_t>(arc.to)]) continue;
      side[static_cast<std::size_t>(arc.to)] = true;
      open.push_back(arc.to);
    }
  }
  return side;
}

}  // namespace talweg::cluster
