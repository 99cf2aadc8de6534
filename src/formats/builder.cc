#include "formats/builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/fail.h"

namespace talweg::formats {

int Builder::add(Node node, int line) {
  if (cluster_.nodes.size() == kMostNodes)
    fail(line, fmt::format("this makes more than {} nodes", kMostNodes));
  cluster_.nodes.push_back(std::move(node));
  node_lines_.push_back(line);
  return static_cast<int>(cluster_.nodes.size()) - 1;
}

void Builder::connect(int a, int b, Bandwidth capacity, Nanoseconds latency, int line) {
  connect_one_way(a, b, capacity, latency, line);
  connect_one_way(b, a, capacity, latency, line);
}

void Builder::connect_one_way(int from, int to, Bandwidth capacity, Nanoseconds latency, int line) {
  const auto [place, fresh] = link_between_.emplace(std::pair(from, to), cluster_.links.size());
  if (!fresh) {
    cluster::Link& link = cluster_.links[place->second];
    link.capacity.bits_per_second += capacity.bits_per_second;
    link.latency = std::min(link.latency, latency);
    return;
  }
  if (cluster_.links.size() == kMostLinks)
    fail(line, fmt::format("this makes more than {} links", kMostLinks));
  cluster_.links.push_back({from, to, capacity, latency});
  link_lines_.push_back(line);
}

void Builder::drop_dead_ends() {
  std::vector<std::set<int>> neighbours(cluster_.nodes.size());
  for (const cluster::Link& link : cluster_.links) {
    neighbours[static_cast<std::size_t>(link.from)].insert(link.to);
    neighbours[static_cast<std::size_t>(link.to)].insert(link.from);
  }
  std::vector<bool> dropped(cluster_.nodes.size());
  std::vector<int> open(cluster_.nodes.size());
  for (std::size_t i = 0; i < open.size(); ++i) open[i] = static_cast<int>(i);
  while (!open.empty()) {
    const auto node = static_cast<std::size_t>(open.back());
    open.pop_back();
    if (dropped[node] || neighbours[node].size() > 1 || cluster_.nodes[node].kind == NodeKind::worker)
      continue;
    dropped[node] = true;
    for (const int neighbour : neighbours[node]) {
      neighbours[static_cast<std::size_t>(neighbour)].erase(static_cast<int>(node));
      open.push_back(neighbour);
    }
  }

  Builder kept(origin_);
  std::vector<int> number(cluster_.nodes.size());
  for (std::size_t i = 0; i < cluster_.nodes.size(); ++i)
    if (!dropped[i]) number[i] = kept.add(cluster_.nodes[i], node_lines_[i]);
  for (std::size_t i = 0; i < cluster_.links.size(); ++i) {
    const cluster::Link& link = cluster_.links[i];
    const auto from = static_cast<std::size_t>(link.from), to = static_cast<std::size_t>(link.to);
    if (!dropped[from] && !dropped[to])
      kept.connect_one_way(number[from], number[to], link.capacity, link.latency, link_lines_[i]);
  }
  *this = std::move(kept);
}

Cluster Builder::finish() {
  if (const auto problem = find_problem(cluster_)) {
    const auto& lines = problem->section == cluster::Section::nodes ? node_lines_ : link_lines_;
    const auto index = static_cast<std::size_t>(problem->index);
    fail(index < lines.size() ? lines[index] : 1, problem->text);
  }
  return std::move(cluster_);
}

void Builder::fail(int line, const std::string& text) const {
  throw_error(ErrorCode::bad_file, "{}:{}: {}", origin_, line, text);
}

}  // namespace talweg::formats
