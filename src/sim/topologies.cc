#include "sim/topologies.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <numeric>

#include "base/fail.h"

namespace talweg::sim {

namespace {

using cluster::Cluster;

// What a machine has memory for.
struct Most {
  std::int64_t number;
  const char* what;
  [[noreturn]] void refuse() const {
    talweg::refuse("the network is too large: expected at most {} {}", number, what);
  }
};
constexpr Most kMostNodes{1 << 20, "hosts and switches"};
constexpr Most kMostLinks{1 << 21, "links"};

// Of numbers of which each is at least 1.
int product(std::initializer_list<int> factors, Most most = kMostNodes) {
  std::int64_t all = 1;
  for (const int factor : factors)
    if ((all *= factor) > most.number) most.refuse();
  return static_cast<int>(all);
}

class Builder {
 public:
  explicit Builder(int hosts) {
    if (hosts < 1) refuse("a network of {} hosts: expected at least 1", hosts);
    for (int h = 0; h < hosts; ++h) add(fmt::format("h{}", h), cluster::NodeKind::worker);
  }
  int add_switch(std::string name) { return add(std::move(name), cluster::NodeKind::switch_); }
  void join(int a, int b, LinkShape link) {
    cluster_.links.push_back({a, b, link.capacity, link.latency, {}});
    cluster_.links.push_back({b, a, link.capacity, link.latency, {}});
  }
  Cluster take() { return std::move(cluster_); }

 private:
  int add(std::string name, cluster::NodeKind kind) {
    if (cluster_.nodes.size() == static_cast<std::size_t>(kMostNodes.number)) kMostNodes.refuse();
    cluster::Node node;
    node.name = std::move(name);
    node.kind = kind;
    cluster_.nodes.push_back(std::move(node));
    return static_cast<int>(cluster_.nodes.size()) - 1;
  }
  Cluster cluster_;
};

std::size_t index(int i) {
  return static_cast<std::size_t>(i);
}

int even_share(int all, int parts, const char* what) {
  if (parts < 1 || all % parts != 0) refuse("{}: {} cannot be divided by {}", what, all, parts);
  return all / parts;
}

// A Clos network (leaf-spine, fat tree) as tiers of switches, the lowest first. `radix_up` of the last tier
// is not used.
struct ClosTier {
  LinkShape down;  // links toward the hosts
  int radix_down = 0;
  int radix_up = 0;
};
struct Clos {
  int hosts = 0;
  int pod_hosts = 0;            // hosts below one switch group of tier 1; two tiers: all
  std::vector<ClosTier> tiers;  // 2 or 3
};

Cluster clos(const Clos& shape) {
  const std::size_t tiers = shape.tiers.size();
  const ClosTier& t0 = shape.tiers[0];
  const ClosTier& t1 = shape.tiers[1];
  Builder b(shape.hosts);
  const int pods = even_share(shape.hosts, shape.pod_hosts, "hosts per pod");
  const int leaves = even_share(shape.pod_hosts, t0.radix_down, "hosts per leaf switch");  // of a pod
  std::vector<int> tier1;
  for (int p = 0; p < pods; ++p) {
    std::vector<int> tops;
    for (int a = 0; a < t0.radix_up; ++a)
      tops.push_back(b.add_switch(tiers == 2 ? fmt::format("spine{}", a) : fmt::format("pod{}agg{}", p, a)));
    for (int l = 0; l < leaves; ++l) {
      const int leaf = b.add_switch(tiers == 2 ? fmt::format("leaf{}", l) : fmt::format("pod{}leaf{}", p, l));
      for (int h = 0; h < t0.radix_down; ++h) b.join((p * leaves + l) * t0.radix_down + h, leaf, t0.down);
      for (const int top : tops) b.join(leaf, top, t1.down);
    }
    tier1.insert(tier1.end(), tops.begin(), tops.end());
  }
  if (tiers == 2) return b.take();
  for (int a = 0; a < t0.radix_up; ++a)
    for (int c = 0; c < t1.radix_up; ++c) {
      const int core = b.add_switch(fmt::format("core{}", a * t1.radix_up + c));
      for (int p = 0; p < pods; ++p) b.join(tier1[index(p * t0.radix_up + a)], core, shape.tiers[2].down);
    }
  return b.take();
}

}  // namespace

Cluster star(int hosts, LinkShape link) {
  Builder b(hosts);
  const int hub = b.add_switch("switch");
  for (int h = 0; h < hosts; ++h) b.join(h, hub, link);
  return b.take();
}

Cluster leaf_spine(int leaves, int hosts_per_leaf, int spines, LinkShape host_link, LinkShape up_link) {
  Clos shape;
  if (leaves < 1 || hosts_per_leaf < 1) refuse("leaves and spines need leaves and hosts");
  shape.hosts = shape.pod_hosts = product({leaves, hosts_per_leaf});
  product({leaves, std::max(spines, 1)}, kMostLinks);
  shape.tiers = {{host_link, hosts_per_leaf, spines}, {up_link, leaves, 0}};
  return clos(shape);
}

Cluster fat_tree(int hosts, int tiers, int oversubscription, LinkShape link) {
  if (tiers != 2 && tiers != 3) refuse("a fat tree of {} tiers: expected 2 or 3", tiers);
  int half = 1;  // of a switch's ports
  const auto room = [&] {
    const auto ports = static_cast<std::int64_t>(half);
    return 2 * ports * ports * (tiers == 2 ? 1 : ports);
  };
  while (room() < hosts) ++half;
  if (room() != hosts) refuse("a fat tree of {} hosts: the next that is full has {}", hosts, room());
  const int up = even_share(half, oversubscription, "links up of the first tier by oversubscription");
  Clos shape;
  shape.hosts = hosts;
  shape.pod_hosts = tiers == 2 ? hosts : half * half;
  shape.tiers = {{link, half, up}, {link, tiers == 2 ? 2 * half : half, half}};
  if (tiers == 3) shape.tiers.push_back({link, 2 * half, 0});
  return clos(shape);
}

Cluster torus(const std::vector<int>& dimensions, LinkShape host_link, LinkShape router_link) {
  const int n = std::accumulate(dimensions.begin(), dimensions.end(), 1, [](int all, int d) {
    if (d < 1) refuse("a torus of {} in one dimension: expected at least 1", d);
    return product({all, d});
  });
  if (dimensions.empty()) refuse("a torus needs a dimension");
  Builder b(n);
  for (int r = 0; r < n; ++r) b.join(r, b.add_switch(fmt::format("r{}", r)), host_link);
  int stride = 1;
  for (const int d : dimensions) {
    for (int r = 0; r < n; ++r) {
      const int place = r / stride % d;
      const int next = r + (place + 1 == d ? stride * (1 - d) : stride);
      // In a ring of two the second link would be the first one again.
      if (d > 2 || (d == 2 && place == 0)) b.join(n + r, n + next, router_link);
    }
    stride *= d;
  }
  return b.take();
}

Cluster dragonfly(int routers, int hosts, int global, LinkShape local_link, LinkShape global_link) {
  if (routers < 1 || hosts < 1 || global < 1) refuse("a dragonfly needs routers, hosts and global links");
  const int groups = product({routers, global}) + 1;
  product({groups, routers, routers}, kMostLinks);
  product({groups, groups}, kMostLinks);
  Builder b(product({groups, routers, hosts}));
  std::vector<int> router;
  for (int r = 0; r < groups * routers; ++r) {
    router.push_back(b.add_switch(fmt::format("g{}r{}", r / routers, r % routers)));
    for (int h = 0; h < hosts; ++h) b.join(r * hosts + h, router.back(), local_link);
  }
  const auto at = [&](int group, int r) { return router[index(group * routers + r)]; };
  for (int g = 0; g < groups; ++g)
    for (int a = 0; a < routers; ++a)
      for (int c = a + 1; c < routers; ++c) b.join(at(g, a), at(g, c), local_link);
  // Port p of a group leads to the group p + 1 further on; seen from there it is port groups - 2 - p.
  for (int g = 0; g < groups; ++g)
    for (int p = 0; p < groups - 1; ++p) {
      const int other = (g + p + 1) % groups;
      if (g < other) b.join(at(g, p / global), at(other, (groups - 2 - p) / global), global_link);
    }
  return b.take();
}

}  // namespace talweg::sim
