// Trees that cross uplinks less often, at nobody's expense.
#include "forest/untangle.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "base/at.h"
#include "base/random.h"
#include "forest/packed.h"
#include "forest/requests.h"
#include "sanitized.h"

namespace talweg::forest {
namespace {

// Pods of racks of hosts: each rack's switch hangs on that of its pod, these on the core.
struct Fabric {
  cluster::Cluster cluster;
  int hosts_of_rack = 0;
  int racks_of_pod = 0;

  int racks() const { return cluster.workers() / hosts_of_rack; }
  int pods() const { return racks() / racks_of_pod; }
  int rack(NodeId host) const { return host / hosts_of_rack; }
  int pod(NodeId host) const { return rack(host) / racks_of_pod; }
};

// With links that carry as much either way, or (`alike` false) something else.
Fabric random_fabric(std::uint64_t seed, int pods, bool alike) {
  Random random(seed);
  const auto several = [&](std::uint64_t most) { return 2 + static_cast<int>(random.below(most - 1)); };
  Fabric fabric{.cluster = {}, .hosts_of_rack = several(4), .racks_of_pod = several(pods > 1 ? 3 : 5)};
  cluster::Cluster& cluster = fabric.cluster;
  const int racks = pods * fabric.racks_of_pod, hosts = racks * fabric.hosts_of_rack;
  for (int host = 0; host < hosts; ++host) cluster.nodes.push_back({.name = fmt::format("h{}", host)});
  for (int i = 0; i < racks + pods; ++i)
    cluster.nodes.push_back({.name = fmt::format("s{}", i), .kind = cluster::NodeKind::switch_});
  cluster.nodes.push_back({.name = "core", .kind = cluster::NodeKind::switch_});
  const double rates[] = {5e6, 10e6, 20e6, 40e6};
  const auto wire = [&](int a, int b) {
    const double rate = rates[random.below(4)];
    cluster.links.push_back({a, b, {rate}, {10000}});
    cluster.links.push_back({b, a, {alike ? rate : rates[random.below(4)]}, {10000}});
  };
  for (int host = 0; host < hosts; ++host) wire(host, hosts + host / fabric.hosts_of_rack);
  for (int rack = 0; rack < racks; ++rack) wire(hosts + rack, hosts + racks + rack / fabric.racks_of_pod);
  for (int pod = 0; pod < pods; ++pod) wire(hosts + racks + pod, hosts + racks + pods);
  return fabric;
}

std::vector<NodeId> shuffled(int hosts, Random& random) {
  std::vector<NodeId> order(at(hosts));
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  return order;
}

std::vector<double> loads_of(const TreeMarket& market, const std::vector<PackedTree>& trees) {
  std::vector<double> loads(market.capacities().size());
  for (const PackedTree& tree : trees)
    for (const auto& term : market.use(tree.trees)) loads[at(term.row)] += term.amount * tree.rate;
  return loads;
}

// Edges between places, such as racks.
template <class PlaceOf>
int crossings(const std::vector<NodeId>& parents, PlaceOf&& place_of) {
  int count = 0;
  for (NodeId node = 0; node < std::ssize(parents); ++node)
    count += place_of(node) != place_of(parents[at(node)]) ? 1 : 0;
  return count;
}

bool hangs_together(const std::vector<NodeId>& parents, NodeId root) {
  for (NodeId node = 0; node < std::ssize(parents); ++node) {
    NodeId here = node;
    for (std::size_t steps = 0; here != root; here = parents[at(here)])
      if (++steps > parents.size()) return false;
  }
  return parents[at(root)] == root;
}

void expect_no_load_grows(const TreeMarket& market, const std::vector<PackedTree>& before,
                          const std::vector<PackedTree>& after, std::uint64_t seed) {
  const std::vector<double> old_loads = loads_of(market, before), loads = loads_of(market, after);
  for (std::size_t i = 0; i < loads.size(); ++i)
    EXPECT_LE(loads[i], old_loads[i] + 1e-6) << "resource " << i << ", seed " << seed;
}

// A path through all hosts can visit each rack once, and each pod; but the rack in which it begins, where it
// ends as well.
TEST(Untangle, PathsLeaveEachRackAndPodOnce) {
  int once_more = 0;  // than necessary, before
  for (const int pods : {1, 3}) {
    for (std::uint64_t seed = 0; seed < fewer(20U); ++seed) {
      const Fabric fabric = random_fabric(seed, pods, true);
      const int hosts = fabric.cluster.workers();
      const TreeMarket market(fabric.cluster, Collective::all_reduce, 0, TreeMarket::Paths::routes);
      ASSERT_TRUE(market.symmetric());
      Random random(seed + 1000);
      std::vector<PackedTree> before;
      for (int i = 0; i < 4; ++i) {
        const std::vector<NodeId> order = shuffled(hosts, random);
        std::vector<NodeId> parents(order.size());
        for (std::size_t j = 0; j < order.size(); ++j) parents[at(order[j])] = order[j == 0 ? 0 : j - 1];
        const NodeId root = centre(parents, order[0]);
        before.push_back({{root, parents, parents}, 1e6 * (i + 1)});
      }
      std::vector<PackedTree> after = before;
      untangle(market, after);
      expect_no_load_grows(market, before, after, seed);
      ASSERT_EQ(after.size(), before.size());
      for (std::size_t i = 0; i < after.size(); ++i) {
        const auto& [root, up, down] = after[i].trees;
        EXPECT_TRUE(hangs_together(down, root)) << seed;
        EXPECT_EQ(up, down);
        EXPECT_EQ(after[i].rate, before[i].rate);
        EXPECT_LE(depth(down, root), depth(before[i].trees.down, before[i].trees.root)) << seed;
        const auto rack = [&](NodeId host) { return fabric.rack(host); };
        const auto pod = [&](NodeId host) { return fabric.pod(host); };
        EXPECT_LE(crossings(down, rack), fabric.racks()) << "seed " << seed << ", pods " << pods;
        EXPECT_LE(crossings(down, pod), fabric.pods()) << "seed " << seed << ", pods " << pods;
        once_more += crossings(before[i].trees.down, rack) > fabric.racks() ? 1 : 0;
      }
    }
  }
  EXPECT_GT(once_more, 20);
}

// Whatever trees there are, and where links differ by direction: up and down on their own.
TEST(Untangle, TreesCrossLessAndNoLinkCarriesMore) {
  int crossed = 0, crosses = 0;
  for (std::uint64_t seed = 0; seed < fewer(40U); ++seed) {
    const Fabric fabric = random_fabric(seed, seed % 2 == 0 ? 1 : 3, false);
    const int hosts = fabric.cluster.workers();
    for (const Collective op : {Collective::all_reduce, Collective::broadcast, Collective::reduce}) {
      const TreeMarket market(fabric.cluster, op, 1, TreeMarket::Paths::routes);
      Random random(seed);
      std::vector<PackedTree> before;
      for (int i = 0; i < 3; ++i) {
        const NodeId root = op == Collective::all_reduce ? i : 1;
        const auto grown = [&] {
          std::vector<NodeId> order = shuffled(hosts, random);
          std::swap(*std::ranges::find(order, root), order[0]);
          std::vector<NodeId> parents(order.size(), root);
          for (std::size_t j = 1; j < order.size(); ++j) parents[at(order[j])] = order[random.below(j)];
          return parents;
        };
        PackedTree tree{{root, {}, {}}, 1e6};
        if (goes_up(op)) tree.trees.up = grown();
        if (goes_down(op)) tree.trees.down = grown();
        before.push_back(tree);
      }
      std::vector<PackedTree> after = before;
      untangle(market, after);
      expect_no_load_grows(market, before, after, seed);
      for (std::size_t i = 0; i < after.size(); ++i) {
        EXPECT_EQ(after[i].trees.root, before[i].trees.root);
        for (const auto shape : {&TreePair::up, &TreePair::down}) {
          const std::vector<NodeId>& was = before[i].trees.*shape;
          const std::vector<NodeId>& is = after[i].trees.*shape;
          ASSERT_EQ(is.size(), was.size());
          if (is.empty()) continue;
          EXPECT_TRUE(hangs_together(is, after[i].trees.root)) << seed << " " << name(op);
          EXPECT_LE(depth(is, after[i].trees.root), depth(was, before[i].trees.root)) << seed;
          const auto rack = [&](NodeId host) { return fabric.rack(host); };
          EXPECT_LE(crossings(is, rack), crossings(was, rack)) << seed << " " << name(op);
          crossed += crossings(was, rack);
          crosses += crossings(is, rack);
        }
      }
    }
  }
  EXPECT_LT(crosses, crossed * 9 / 10);
}

TEST(Untangle, LeavesNothingToDoInPackings) {
  for (std::uint64_t seed = 0; seed < fewer(6U); ++seed) {
    const Fabric fabric = random_fabric(seed, 1, seed % 2 == 0);
    for (const Collective op : {Collective::all_reduce, Collective::all_gather}) {
      const CostModel model(fabric.cluster);
      const TreeMarket market(fabric.cluster, op, 0, TreeMarket::Paths::routes);
      for (const Packing& packing : pack(even_request(op, fabric.cluster.workers(), 0, 1 << 24, 4), model)) {
        std::vector<PackedTree> again = packing.trees;
        untangle(market, again);
        EXPECT_EQ(again, packing.trees) << seed << " " << name(op);
      }
    }
  }
}

}  // namespace
}  // namespace talweg::forest
