// Edmonds' algorithm (1967) in the path-growing order of Gabow, Galil, Spencer and Tarjan (1986): from any
// node walk backwards along cheapest entering arcs; where the walk meets itself contract the cycle, lowering
// the costs of the arcs into each member by that of the arc it has. What is contracted, and in which order,
// does not depend on the root, so one contraction of the whole graph (quadratic time) serves all roots; each
// then takes the cycles apart from its own node upward (linear time).
#include "cluster/arborescence.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/at.h"

namespace talweg::cluster {

template <class Cost>
Arborescences<Cost>::Arborescences(std::vector<Cost> costs, int nodes)
    : costs_(std::move(costs)), nodes_(nodes), parts_(at(nodes)) {
  contract();
}

template <class Cost>
void Arborescences<Cost>::contract() {
  struct Entry {
    Cost cost;
    int from, to;
  };
  const std::size_t n = at(nodes_);
  // The cheapest arc from one slot into another; a contracted cycle takes the slot of its first member.
  std::vector<Entry> entries(n * n);
  for (std::size_t to = 0; to < n; ++to)
    for (std::size_t from = 0; from < n; ++from)
      entries[to * n + from] = {costs_[from * n + to], static_cast<int>(from), static_cast<int>(to)};
  std::vector<int> part_in(n), slots(n), position(n, -1);
  for (std::size_t i = 0; i < n; ++i) part_in[i] = slots[i] = static_cast<int>(i);

  std::vector<int> path;
  std::vector<Cost> paid(n);
  if (nodes_ > 0) path.push_back(0);
  while (slots.size() > 1) {
    const std::size_t top = at(path.back());
    position[top] = static_cast<int>(path.size()) - 1;
    int source = -1;
    for (const int slot : slots)
      if (at(slot) != top &&
          (source < 0 || entries[top * n + at(slot)].cost < entries[top * n + at(source)].cost))
        source = slot;
    const Entry& cheapest = entries[top * n + at(source)];
    parts_[at(part_in[top])].from = cheapest.from;
    parts_[at(part_in[top])].to = cheapest.to;
    paid[top] = cheapest.cost;
    if (position[at(source)] < 0) {
      path.push_back(source);
      continue;
    }
    // The path from `source` to its end is a cycle.
    const std::size_t begin = at(position[at(source)]);
    const std::vector<int> cycle(path.begin() + static_cast<std::ptrdiff_t>(begin), path.end());
    path.resize(begin + 1);
    const int whole = static_cast<int>(parts_.size());
    parts_.emplace_back();
    for (const int slot : cycle) {
      parts_[at(part_in[at(slot)])].parent = whole;
      parts_.back().children.push_back(part_in[at(slot)]);
    }
    const std::size_t first = at(cycle.front());
    for (const int slot : cycle) {
      if (at(slot) != first) slots.erase(std::ranges::find(slots, slot));
      position[at(slot)] = -1;
    }
    for (const int other : slots) {
      if (at(other) == first) continue;
      Entry in = entries[first * n + at(other)], out = entries[at(other) * n + first];
      in.cost -= paid[first];
      for (const int slot : cycle) {
        if (at(slot) == first) continue;
        Entry entry = entries[at(slot) * n + at(other)];
        entry.cost -= paid[at(slot)];
        if (entry.cost < in.cost) in = entry;
        if (entries[at(other) * n + at(slot)].cost < out.cost) out = entries[at(other) * n + at(slot)];
      }
      entries[first * n + at(other)] = in;
      entries[at(other) * n + first] = out;
    }
    part_in[first] = whole;
  }
}

template <class Cost>
std::vector<int> Arborescences<Cost>::parents(int root) const {
  std::vector<int> result(at(nodes_));
  std::vector<int> open;
  // Takes apart every cycle around `node`, up to but without `top`.
  const auto dismantle = [&](int node, int top) {
    for (int part = node; parts_[at(part)].parent != top; part = parts_[at(part)].parent)
      for (const int child : parts_[at(parts_[at(part)].parent)].children)
        if (child != part) open.push_back(child);
  };
  result[at(root)] = root;
  dismantle(root, -1);
  while (!open.empty()) {
    const int part = open.back();
    open.pop_back();
    const int entered = parts_[at(part)].to;
    result[at(entered)] = parts_[at(part)].from;
    dismantle(entered, parts_[at(part)].parent);
  }
  return result;
}

template <class Cost>
Cost Arborescences<Cost>::cost(int root) const {
  const auto parent = parents(root);
  Cost total{};
  for (int node = 0; node < nodes_; ++node)
    if (node != root) total += costs_[at(parent[at(node)]) * at(nodes_) + at(node)];
  return total;
}

template class Arborescences<double>;
template class Arborescences<std::int64_t>;

}  // namespace talweg::cluster
