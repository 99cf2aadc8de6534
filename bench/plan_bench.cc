// How long planning with the planner "packed" takes, and what it makes: CPU time of one core, trees, depth
// and the part of the bound that the busiest link allows. One line of JSON for each network; see
// suite/planning.py.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "base/random.h"
#include "forest/bound.h"
#include "forest/fat_tree.h"
#include "forest/planner.h"
#include "forest/topologies.h"
#include "forest/tree_market.h"
#include "forest/verify.h"

namespace {

using namespace talweg;
using namespace talweg::forest;

double cpu_seconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

// Hosts of 1 to 10 Gbit/s, on one switch or eight to a leaf.
cluster::Cluster uneven(int hosts, bool leaves) {
  Random random(7);
  cluster::Cluster result;
  const double rates[] = {1e9, 2e9, 5e9, 10e9};
  const auto add = [&](const std::string& name, cluster::NodeKind kind) {
    result.nodes.push_back({.name = name, .kind = kind});
    return static_cast<int>(result.nodes.size()) - 1;
  };
  const auto join = [&](int a, int b, double rate) {
    result.links.push_back({a, b, {rate}, {1000}});
    result.links.push_back({b, a, {rate}, {1000}});
  };
  for (int host = 0; host < hosts; ++host) add(fmt::format("h{}", host), cluster::NodeKind::worker);
  const int spine = add("spine", cluster::NodeKind::switch_);
  int leaf = spine;
  for (int host = 0; host < hosts; ++host) {
    if (leaves && host % 8 == 0) {
      leaf = add(fmt::format("leaf{}", host / 8), cluster::NodeKind::switch_);
      join(leaf, spine, 8 * rates[random.below(4)]);
    }
    join(host, leaf, rates[random.below(4)]);
  }
  return result;
}

// A grid of direct links of 1 to 10 Gbit/s.
cluster::Cluster grid(int side) {
  Random random(7);
  cluster::Cluster result;
  const double rates[] = {1e9, 2e9, 5e9, 10e9};
  const auto join = [&](int a, int b) {
    const double rate = rates[random.below(4)];
    result.links.push_back({a, b, {rate}, {1000}});
    result.links.push_back({b, a, {rate}, {1000}});
  };
  for (int host = 0; host < side * side; ++host) result.nodes.push_back({.name = fmt::format("h{}", host)});
  for (int host = 0; host < side * side; ++host) {
    if (host % side + 1 < side) join(host, host + 1);
    if (host + side < side * side) join(host, host + side);
  }
  return result;
}

void measure(const std::string& name, const cluster::Cluster& cluster) {
  constexpr std::int64_t kElements = std::int64_t{1} << 34;
  Request request{.ranks = cluster.workers(), .counts = {kElements}, .element_size = 4};
  const double begin = cpu_seconds();
  const Forest forest = find_planner("packed").plan(request, cluster);
  const double planned = cpu_seconds();
  const double bound = best_rate(cluster, Collective::all_reduce).rate.value();
  const double bounded = cpu_seconds();
  const Verification load = verify(forest, &cluster);
  double seconds = 0;
  for (std::size_t link = 0; link < cluster.links.size(); ++link)
    seconds = std::max(seconds, 8 * static_cast<double>(load.link_bytes[link].value) /
                                    cluster.links[link].capacity.bits_per_second);
  int deepest = 0;
  for (const Tree& tree : forest.trees) {
    std::vector<NodeId> parents(cluster.nodes.size(), tree.root);
    for (const Edge& edge : tree.down) parents[static_cast<std::size_t>(edge.child)] = edge.parent;
    deepest = std::max(deepest, depth(parents, tree.root));
  }
  fmt::print(
      R"({{"name": "{}", "ranks": {}, "plan_ms": {:.3f}, "bound_ms": {:.3f}, "trees": {}, "depth": {}, )"
      R"("of_bound": {:.5f}}})"
      "\n",
      name, cluster.workers(), (planned - begin) * 1e3, (bounded - planned) * 1e3, forest.trees.size(),
      deepest, 8.0 * 4 * static_cast<double>(kElements) / seconds / bound);
  std::fflush(stdout);
}

}  // namespace

// Networks of up to so many workers: plan_bench 64. Or one fat tree of switches with so many ports:
// plan_bench fat-tree 16 even; uneven: hosts of 10 to 40 Gbit/s; summed: and equal switches as one; failed:
// uneven, and 20 links between switches are down, which ones says a seed: plan_bench fat-tree 16 failed 3.
int main(int argc, char** argv) {
  const auto measure_fat_tree = [](int ports, const std::string& kind, std::uint64_t seed = 1) {
    constexpr int kFailed = 20;
    const auto whole = fat_tree(ports, kind == "even" ? Hosts::even : Hosts::uneven,
                                kind == "summed" ? Switches::as_one : Switches::each);
    measure(fmt::format("fat-tree-{}-{}", ports, kind),
            kind == "failed" ? with_failed_links(whole, kFailed, seed) : whole);
  };
  if (argc > 3 && std::string(argv[1]) == "fat-tree") {
    measure_fat_tree(std::atoi(argv[2]), argv[3], argc > 4 ? std::strtoull(argv[4], nullptr, 10) : 1);
    return 0;
  }
  const int most = argc > 1 ? std::atoi(argv[1]) : 64;
  for (const Topology& topology : topologies())
    if (topology.cluster.workers() <= most) measure(topology.id, topology.cluster);
  for (const int hosts : {16, 64, 256, 1024}) {
    if (hosts > most) break;
    measure(fmt::format("uneven-star-{}", hosts), uneven(hosts, false));
    measure(fmt::format("uneven-leaves-{}", hosts), uneven(hosts, true));
    if (hosts <= 256)
      measure(fmt::format("uneven-grid-{}", hosts), grid(static_cast<int>(std::lround(std::sqrt(hosts)))));
  }
  for (const int ports : {8, 16}) {
    if (ports * ports * ports / 4 > most) break;
    for (const char* const kind : {"even", "summed", "uneven", "failed"}) measure_fat_tree(ports, kind);
  }
}
