#include "cluster/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "base/host_port.h"
#include "cluster/capacity.h"
#include "talweg/error.h"

namespace talweg::cluster {
namespace {

constexpr Nanoseconds kMostLatency{3600LL * 1'000'000'000};
constexpr const char* kRange = ": expected a capacity of 1 bit/s to 1000 Tbit/s";

bool in_range(Bandwidth capacity) {
  return capacity >= kLeastCapacity && capacity <= kMostCapacity;
}
bool valid(Bandwidth capacity) {
  return std::isfinite(capacity.bits_per_second) && capacity.bits_per_second > 0;
}

// Switches of racks are below one that is below none, and no other switch is beside that one.
std::optional<Problem> find_rack_problem(const Cluster& cluster) {
  const auto rack = std::ranges::find_if(cluster.nodes, [](const Node& node) { return !node.above.empty(); });
  if (rack == cluster.nodes.end()) return std::nullopt;
  const auto top = std::ranges::find(cluster.nodes, rack->above, &Node::name);
  if (top == cluster.nodes.end() || top->switch_at.empty() || !top->above.empty() ||
      top->kind == NodeKind::worker)
    return Problem{
        Section::nodes, static_cast<int>(rack - cluster.nodes.begin()),
        fmt::format("above of node {}: expected a node that is no worker and has a switch with none "
                    "above it, got \"{}\"",
                    rack->name, rack->above)};
  for (std::size_t i = 0; i < cluster.nodes.size(); ++i) {
    const Node& node = cluster.nodes[i];
    const auto problem = [&](std::string text) {
      return Problem{Section::nodes, static_cast<int>(i), std::move(text)};
    };
    if (!node.above.empty() && (node.switch_at.empty() || node.kind == NodeKind::worker))
      return problem(
          fmt::format("above of node {}: it is for nodes that are no workers and have a switch", node.name));
    if (!node.switch_at.empty() && &node != &*top && node.above != top->name)
      return problem(
          fmt::format("the switch of node {} is not below {} as that of {} is: expected all of them to be",
                      node.name, top->name, rack->name));
  }
  return std::nullopt;
}

std::optional<Problem> find_node_problem(const Cluster& cluster) {
  std::set<std::string> names;
  bool inner = false;
  for (std::size_t i = 0; i < cluster.nodes.size(); ++i) {
    const Node& node = cluster.nodes[i];
    const auto problem = [&](std::string text) {
      return Problem{Section::nodes, static_cast<int>(i), std::move(text)};
    };
    if (node.name.empty() || node.name.find("->") != std::string::npos ||
        node.name.find_first_of(" \t\n") != std::string::npos) {
      return problem(
          fmt::format("node name \"{}\": expected a word without spaces and without \"->\"", node.name));
    }
    if (!names.insert(node.name).second) {
      return problem(fmt::format("node name \"{}\" is taken: expected every name once", node.name));
    }
    if (node.kind == NodeKind::worker && inner) {
      return problem(
          fmt::format("worker {} comes after an inner node: expected the workers first", node.name));
    }
    if (!node.switch_at.empty() && !parse_host_port(node.switch_at)) {
      return problem(
          fmt::format("switch of node {}: expected an address and a port, such as 10.0.0.9:4711, got \"{}\"",
                      node.name, node.switch_at));
    }
    inner = inner || node.kind != NodeKind::worker;
  }
  if (cluster.workers() == 0) return Problem{Section::nodes, 0, "expected at least one node of kind worker"};
  return find_rack_problem(cluster);
}

std::optional<Problem> find_link_problem(const Cluster& cluster) {
  const int nodes = static_cast<int>(cluster.nodes.size());
  std::set<std::pair<int, int>> seen;
  for (std::size_t i = 0; i < cluster.links.size(); ++i) {
    const Link& link = cluster.links[i];
    const auto problem = [&](std::string text) {
      return Problem{Section::links, static_cast<int>(i), std::move(text)};
    };
    if (link.from < 0 || link.from >= nodes || link.to < 0 || link.to >= nodes) {
      return problem(fmt::format("link {}->{}: expected nodes 0 to {}", link.from, link.to, nodes - 1));
    }
    const std::string what =
        fmt::format("link {}->{}", cluster.nodes[static_cast<std::size_t>(link.from)].name,
                    cluster.nodes[static_cast<std::size_t>(link.to)].name);
    if (link.from == link.to) return problem(what + " leads from a node to itself: expected two nodes");
    if (!seen.emplace(link.from, link.to).second) {
      return problem(what + " is written twice: expected one link each way between two nodes");
    }
    if (!valid(link.capacity)) return problem(what + ": expected a capacity above zero");
    if (!in_range(link.capacity)) return problem(what + kRange);
    if (link.latency.value < 0) return problem(what + ": expected a latency of zero or more");
    if (link.latency > kMostLatency) return problem(what + ": expected a latency of at most an hour");
    if (link.burst.value < 0) return problem(what + ": expected a burst of zero or more");
  }
  return std::nullopt;
}

std::optional<Problem> find_group_problem(const Cluster& cluster) {
  const int links = static_cast<int>(cluster.links.size());
  std::set<std::string> names;
  for (std::size_t i = 0; i < cluster.groups.size(); ++i) {
    const CapacityGroup& group = cluster.groups[i];
    const auto problem = [&](const std::string& text) {
      return Problem{Section::groups, static_cast<int>(i), fmt::format("group \"{}\"{}", group.name, text)};
    };
    if (group.name.empty()) return problem(": expected a name");
    if (!names.insert(group.name).second) return problem(" is taken: expected every name once");
    if (!valid(group.capacity)) return problem(": expected a capacity above zero");
    if (!in_range(group.capacity)) return problem(kRange);
    if (group.links.empty()) return problem(": expected at least one link");
    std::set<int> members;
    for (const int link : group.links) {
      if (link < 0 || link >= links) {
        return problem(fmt::format(": link {}: expected 0 to {}", link, links - 1));
      }
      if (!members.insert(link).second) return problem(": a link is listed twice");
    }
  }
  return std::nullopt;
}

// Nodes that can be reached from `start` along links, or against them.
std::vector<bool> reached(const Cluster& cluster, int start, bool along) {
  std::vector<std::vector<int>> next(cluster.nodes.size());
  for (const Link& link : cluster.links) {
    next[static_cast<std::size_t>(along ? link.from : link.to)].push_back(along ? link.to : link.from);
  }
  std::vector<bool> seen(cluster.nodes.size());
  std::vector<int> open{start};
  seen[static_cast<std::size_t>(start)] = true;
  while (!open.empty()) {
    const int node = open.back();
    open.pop_back();
    for (const int neighbour : next[static_cast<std::size_t>(node)]) {
      if (seen[static_cast<std::size_t>(neighbour)]) continue;
      seen[static_cast<std::size_t>(neighbour)] = true;
      open.push_back(neighbour);
    }
  }
  return seen;
}

// What one worker and the others are to each other.
struct Neighbourhood {
  std::vector<bool> behind, before;  // by node: the worker reaches it; it reaches the worker
  std::vector<int> together, apart;  // workers that are both, and all others

  Neighbourhood(const Cluster& cluster, int worker)
      : behind(reached(cluster, worker, true)), before(reached(cluster, worker, false)) {
    const int workers = cluster.workers();
    for (int other = 0; other < workers; ++other) {
      const auto index = static_cast<std::size_t>(other);
      (behind[index] && before[index] ? together : apart).push_back(other);
    }
  }
};

// "h0, h1, h2 and 5 more"
std::string some_names(const Cluster& cluster, const std::vector<int>& nodes) {
  constexpr std::size_t kNamed = 3;
  std::string text;
  for (std::size_t i = 0; i < std::min(nodes.size(), kNamed); ++i)
    text += (i == 0 ? "" : ", ") + cluster.nodes[static_cast<std::size_t>(nodes[i])].name;
  if (nodes.size() > kNamed) text += fmt::format(" and {} more", nodes.size() - kNamed);
  return text;
}

// All workers reach each other exactly if the first one reaches, and is reached by, every other one. Where it
// is not so, the few are named as the cause, not the many.
std::optional<Problem> find_gap(const Cluster& cluster) {
  Neighbourhood most(cluster, 0);
  if (most.apart.empty()) return std::nullopt;
  if (most.apart.size() > most.together.size())
    if (Neighbourhood others(cluster, most.apart.front()); others.together.size() > most.together.size())
      most = std::move(others);
  const int worker = most.apart.front();
  const auto index = static_cast<std::size_t>(worker);
  const bool one = most.apart.size() == 1;
  const char* what = one ? "is cut off from" : "are cut off from";
  if (one && most.behind[index]) what = "cannot reach";
  if (one && most.before[index]) what = "cannot be reached from";
  return Problem{Section::nodes, worker,
                 fmt::format("{} {} {} {}, and every collective needs {}: expected a path of links",
                             one ? "worker" : "workers", some_names(cluster, most.apart), what,
                             some_names(cluster, most.together), one ? "it" : "them")};
}

}  // namespace

bool can_multicast(const Node& node) {
  return node.kind != NodeKind::switch_ || node.can_multicast || !node.switch_at.empty();
}
bool can_aggregate(const Node& node) {
  return node.kind != NodeKind::switch_ || node.can_aggregate || !node.switch_at.empty();
}

std::vector<int> aggregators(const Cluster& cluster) {
  std::vector<int> result = nodes_that_sum(cluster);
  std::erase_if(result,
                [&](int node) { return !cluster.nodes[static_cast<std::size_t>(node)].switch_at.empty(); });
  return result;
}

std::vector<int> nodes_that_sum(const Cluster& cluster) {
  std::vector<int> result;
  const auto can = [&](std::size_t node) { return can_aggregate(cluster.nodes[node]); };
  std::size_t node = static_cast<std::size_t>(cluster.workers());
  while (node < cluster.nodes.size() && !can(node)) ++node;
  if (node == cluster.nodes.size()) return result;  // as nearly everywhere
  const auto from_first = reached(cluster, 0, true), to_first = reached(cluster, 0, false);
  for (; node < cluster.nodes.size(); ++node)
    if (can(node) && from_first[node] && to_first[node]) result.push_back(static_cast<int>(node));
  return result;
}

std::vector<std::string> aggregator_names(const Cluster& cluster) {
  std::vector<std::string> names;
  for (const int node : aggregators(cluster))
    names.push_back(cluster.nodes[static_cast<std::size_t>(node)].name);
  return names;
}

int Cluster::workers() const {
  return static_cast<int>(
      std::ranges::count_if(nodes, [](const Node& node) { return node.kind == NodeKind::worker; }));
}

std::optional<Problem> find_problem(const Cluster& cluster) {
  for (const Section section : {Section::nodes, Section::links, Section::groups}) {
    if (auto problem = find_problem(cluster, section)) return problem;
  }
  return find_gap(cluster);
}

std::optional<Problem> find_problem(const Cluster& cluster, Section section) {
  switch (section) {
    case Section::nodes:
      return find_node_problem(cluster);
    case Section::links:
      return find_link_problem(cluster);
    case Section::groups:
      return find_group_problem(cluster);
  }
  return std::nullopt;
}

void validate(const Cluster& cluster) {
  if (const auto problem = find_problem(cluster)) {
    throw Error(ErrorCode::invalid_argument, "cluster: " + problem->text);
  }
}

Cluster uniform_star(int n, Bandwidth capacity, Nanoseconds latency) {
  Cluster star;
  for (int i = 0; i < n; ++i) star.nodes.push_back({.name = fmt::format("host{}", i)});
  star.nodes.push_back({.name = "switch", .kind = NodeKind::switch_});
  for (int i = 0; i < n; ++i) {
    star.links.push_back({i, n, capacity, latency});
    star.links.push_back({n, i, capacity, latency});
  }
  validate(star);
  return star;
}

Cluster uniform_mesh(int n, Bandwidth capacity, Nanoseconds latency) {
  Cluster mesh;
  for (int i = 0; i < n; ++i) mesh.nodes.push_back({.name = fmt::format("host{}", i)});
  for (int i = 0; i < n; ++i) {
    for (int j = i + 1; j < n; ++j) {
      mesh.links.push_back({i, j, capacity, latency});
      mesh.links.push_back({j, i, capacity, latency});
    }
  }
  validate(mesh);
  return mesh;
}

}  // namespace talweg::cluster
