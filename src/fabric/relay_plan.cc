#include "fabric/relay_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "fabric/relay.h"
#include "sim/carried_packets.h"
#include "sim/packet.h"

namespace talweg::fabric {

namespace {

// What a host may send at once: little, for what has left it waits in the network in its order; but what the
// rate needs until the kernel looks again.
constexpr std::int64_t kLeastHostBurst = 16 * 1024;
constexpr double kHostBurstSeconds = 250e-6;
// What TCP hands down at once: within the burst, so that the kernel cuts it up a few packets at a time, and
// not while the relay waits for all of 64 KiB.
constexpr int kHostSegments = 10;
constexpr int kHostQueueBytes = 512 * 1024;  // that wait in the kernel

// Of all links that leave the node, each no quicker than what it shares with others.
double rate_of(const cluster::Cluster& cluster, int node) {
  double sum = 0;
  for (std::size_t l = 0; l < cluster.links.size(); ++l) {
    if (cluster.links[l].from != node) continue;
    double rate = cluster.links[l].capacity.bits_per_second;
    for (const cluster::CapacityGroup& group : cluster.groups)
      if (std::ranges::count(group.links, static_cast<int>(l)) > 0)
        rate = std::min(rate, group.capacity.bits_per_second);
    sum += rate;
  }
  return sum;
}

// Full packets leave as fast as the links take them; the kernel counts them without Ethernet's header.
std::string host_rate_line(double rate) {
  const double bits = std::max(8.0, rate * kRelayMtu / (kRelayMtu + kEthernetBytes));
  const auto burst = std::max(kLeastHostBurst, static_cast<std::int64_t>(bits / 8 * kHostBurstSeconds));
  return fmt::format("qdisc replace dev eth0 root tbf rate {:.0f}bit burst {}b limit {}b", std::round(bits),
                     burst, std::max<std::int64_t>(kHostQueueBytes, 4 * burst));
}

}  // namespace

LabPlan plan_relayed_lab(const cluster::Cluster& cluster, const LabMeans& means) {
  if (cluster.workers() == 0)
    throw_error(ErrorCode::unsupported, "cannot simulate the cluster: it has no workers");
  std::vector<int> nodes;
  for (std::size_t n = 0; n < cluster.nodes.size(); ++n)
    if (can_aggregate(cluster.nodes[n])) nodes.push_back(static_cast<int>(n));
  if (nodes.size() > kMaxLabHosts)
    throw_error(ErrorCode::unsupported,
                "cannot simulate the cluster: it has more than {} hosts; a lab lives on one machine",
                kMaxLabHosts);
  const sim::CarriedPackets carried(cluster, {}, 1, {});
  const auto reaches = [&](int from, int to) {
    const std::vector<int> path = carried.network().path(from, to, sim::kNoRoute, 0);
    return !path.empty() && cluster.links[static_cast<std::size_t>(path.back())].to == to;
  };
  LabPlan plan;
  plan.network = cluster;
  const auto address_of = [&](std::size_t host) { return fmt::format("{}.{}", means.subnet, host + 1); };
  for (std::size_t h = 0; h < nodes.size(); ++h) {
    const cluster::Node& node = cluster.nodes[static_cast<std::size_t>(nodes[h])];
    HostPlan host;
    host.name = node.name;
    host.worker = node.kind == cluster::NodeKind::worker;
    host.address = address_of(h);
    host.node = nodes[h];
    host.ip = {"link set lo up", fmt::format("addr add {}/24 dev eth0 noprefixroute", host.address),
               fmt::format("link set eth0 mtu {} gso_max_size {} up", kRelayMtu, kHostSegments * kRelayMtu),
               fmt::format("route add {}.0/24 dev eth0 src {}{}", means.subnet, host.address,
                           means.congestion_control.empty() ? "" : " congctl " + means.congestion_control)};
    for (std::size_t d = 0; d < nodes.size(); ++d)
      if (d != h && !reaches(nodes[h], nodes[d]))
        host.ip.push_back(fmt::format("route add unreachable {}/32", address_of(d)));
    // What a switch sends of itself meets the queues of its links at once.
    if (const double rate = rate_of(cluster, host.node); node.kind != cluster::NodeKind::switch_ && rate > 0)
      host.tc = {host_rate_line(rate)};
    plan.hosts.push_back(std::move(host));
  }
  return plan;
}

}  // namespace talweg::fabric
