#include "steer/assumed_network.h"

#include <fmt/format.h>

#include <set>

namespace talweg::steer {

namespace {
// Ordinary Ethernet. Between hosts of one rank each a frame takes this twice, once for each of its two links;
// where hosts have several ranks, these links have half of it, and the way through memory comes on top.
// Either is what Ethernet takes from one process to another.
constexpr Bandwidth kEthernet{10e9};
constexpr Nanoseconds kEthernetLatency{25'000};
}  // namespace

cluster::Cluster assumed_network(const std::vector<int>& host_of) {
  const int n = static_cast<int>(host_of.size());
  const std::set<int> hosts(host_of.begin(), host_of.end());
  if (hosts.size() == 1) return cluster::uniform_mesh(n, kMemory, kMemoryLatency);
  if (hosts.size() == host_of.size()) return cluster::uniform_star(n, kEthernet, kEthernetLatency);
  cluster::Cluster c;
  for (int r = 0; r < n; ++r)
    c.nodes.push_back({fmt::format("rank{}", r), cluster::NodeKind::worker, true, true});
  const int first_host = n;
  for (const int h : hosts)
    c.nodes.push_back({fmt::format("host{}", h), cluster::NodeKind::switch_, false, false});
  const int core = static_cast<int>(c.nodes.size());
  c.nodes.push_back({"network", cluster::NodeKind::switch_, false, false});
  const auto both = [&](int a, int b, Bandwidth rate, Nanoseconds latency) {
    c.links.push_back({a, b, rate, latency});
    c.links.push_back({b, a, rate, latency});
  };
  for (int r = 0; r < n; ++r)
    both(r, first_host + host_of[static_cast<std::size_t>(r)], kMemory,
         Nanoseconds{kMemoryLatency.value / 2});
  for (const int h : hosts) both(first_host + h, core, kEthernet, Nanoseconds{kEthernetLatency.value / 2});
  return c;
}

}  // namespace talweg::steer
