// What the cost model knows of a network before it sees a plan: hops, capacities, announcements.
#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>
#include <vector>

#include "base/at.h"
#include "base/collectives.h"
#include "forest/agreement.h"
#include "forest/cost.h"

namespace talweg::forest {
namespace {

constexpr double kFullPacket = 1514;  // bytes of it on the wire

}  // namespace

CostParameters parameters_for(const cluster::Cluster& cluster, const CostParameters& parameters) {
  const cluster::Processor& known = cluster.processor;
  CostParameters result = parameters;
  if (known.message.value > 0) result.tcp.per_batch = static_cast<double>(known.message.value) * 1e-9;
  if (known.copy.bits_per_second > 0) result.tcp.per_byte = 1 / known.copy.bytes_per_second();
  if (known.sum.bits_per_second > 0) result.reduce_per_byte = 1 / known.sum.bytes_per_second();
  return result;
}

CostModel::CostModel(const cluster::Cluster& cluster, const CostParameters& parameters)
    : cluster_(cluster),
      parameters_(parameters_for(cluster, parameters)),
      routes_(cluster_),
      groups_of_link_(cluster_.links.size()) {
  for (std::size_t g = 0; g < cluster_.groups.size(); ++g) {
    for (const int link : cluster_.groups[g].links) groups_of_link_[at(link)].push_back(g);
  }
  measure_hops();
  measure_nodes();
  measure_agreement();
}

void CostModel::measure_hops() {
  const auto nodes = static_cast<NodeId>(cluster_.nodes.size());
  const int workers = cluster_.workers();
  hops_.resize(at(nodes) * at(nodes));
  for (NodeId from = 0; from < nodes; ++from) {
    for (NodeId to = 0; to < nodes; ++to) {
      const bool memory = from < workers && to < workers && routes_.path(from, to).size() == 1 &&
                          routes_.latency(from, to) < parameters_.memory_latency;
      Hop& hop = hops_[at(from) * at(nodes) + at(to)];
      hop.memory = memory;
      hop.latency = static_cast<double>(routes_.latency(from, to).value) * 1e-9;
      hop.burst = std::numeric_limits<double>::infinity();
      routes_.for_each_share(from, to, [&](int link, double) {
        hop.burst = std::min(hop.burst, static_cast<double>(cluster_.links[at(link)].burst.value));
      });
      const double payload = memory ? 1 : parameters_.tcp_payload;
      const auto per_byte = [&](const Bandwidth& rate) { return 1 / (rate.bytes_per_second() * payload); };
      hop.per_byte = per_byte(routes_.rate(from, to));
      const auto path = routes_.path(from, to);
      if (path.empty()) continue;
      double all = 0, narrowest = 0;
      for (const int link : path) {
        const double one = per_byte(cluster_.links[at(link)].capacity);
        all += one;
        narrowest = std::max(narrowest, one);
      }
      hop.forward = all - narrowest;
      hop.first = path.front();
      hop.last = path.back();
    }
  }
}

void CostModel::measure_nodes() {
  const int workers = cluster_.workers();
  // Links of one group count for no more than the group; a link in several counts for the first.
  const auto sum = [&](int node, bool outgoing) {
    double total = 0;
    std::vector<double> in_group(cluster_.groups.size());
    for (std::size_t i = 0; i < cluster_.links.size(); ++i) {
      const auto& link = cluster_.links[i];
      if ((outgoing ? link.from : link.to) != node) continue;
      (groups_of_link_[i].empty() ? total : in_group[groups_of_link_[i].front()]) +=
          link.capacity.bytes_per_second();
    }
    for (std::size_t g = 0; g < in_group.size(); ++g) {
      total += std::min(in_group[g], cluster_.groups[g].capacity.bytes_per_second());
    }
    return total;
  };
  for (int node = 0; at(node) < cluster_.nodes.size(); ++node)
    capacities_.push_back(workers == 1 ? 1 : std::min(sum(node, true), sum(node, false)));
  best_connected_.resize(at(workers));
  std::iota(best_connected_.begin(), best_connected_.end(), 0);
  servers_ = best_connected_;
  for (const NodeId node : aggregators(cluster_))
    if (can_multicast(cluster_.nodes[at(node)])) servers_.push_back(node);
  for (auto* const nodes : {&best_connected_, &servers_})
    std::ranges::stable_sort(*nodes, [&](NodeId a, NodeId b) { return capacity(a) > capacity(b); });
}

// Calls follow each other, and ranks end them one after the other: whoever is last begins the next one when
// the others have long heard from each other, and tells them all, one by one.
void CostModel::measure_agreement() {
  const int workers = cluster_.workers();
  const double packet =
      static_cast<double>(parameters_.header_bytes) + kFullPacket * (1 - parameters_.tcp_payload);
  for (NodeId from = 0; from < workers; ++from) {
    Spent last;
    std::vector<double> bytes(cluster_.links.size());
    for (NodeId to = 0; to < workers; ++to) {
      if (from == to) continue;
      const Hop& used = hop(from, to);
      last.latency = std::max(last.latency, used.latency);
      last.processors += transport(used).per_batch;
      if (used.memory) continue;
      routes_.for_each_share(from, to, [&](int link, double part) {
        double& sent = bytes[at(link)] += part * packet;
        const cluster::Link& way = cluster_.links[at(link)];
        if (sent > static_cast<double>(way.burst.value))
          last.links = std::max(last.links, sent / way.capacity.bytes_per_second());
      });
    }
    if (workers > 1) last.processors += transport(hop(from, (from + 1) % workers)).per_batch;
    if (const int cores = cluster_.shared_cores; cores > 0)
      last.processors =
          std::max(last.processors, 2 * (workers - 1) * parameters_.tcp.per_batch / cores) + turn();
    agreement_ = std::max(agreement_, last);
  }
}

CostModel::Spent CostModel::agreement(const Request& request) const {
  return request.op == Collective::send_recv || data_carry_agreement(request) ? Spent{} : agreement_;
}

double CostModel::turn() const {
  const int cores = cluster_.shared_cores, workers = cluster_.workers();
  return cores > 0 && workers > cores ? parameters_.turn * workers / cores : 0;
}

}  // namespace talweg::forest
