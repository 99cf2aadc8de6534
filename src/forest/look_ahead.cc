#include "forest/look_ahead.h"

#include <algorithm>

#include "forest/cost.h"
#include "forest/flow_control.h"

namespace talweg::forest {
namespace {

// Through shared memory no link has a queue, and who sends to all at once wastes its cache.
bool pairs_have_links(NodeId rank, int ranks, const cluster::Cluster& network,
                      const cluster::Routes& routes) {
  const auto direct = [&](NodeId from, NodeId to) {
    return from == to ||
           (routes.path(from, to).size() == 1 && routes.latency(from, to) >= CostParameters{}.memory_latency);
  };
  const auto all_direct = [&](NodeId from) {
    for (NodeId to = 0; to < ranks; ++to)
      if (!direct(from, to)) return false;
    return true;
  };
  if (!network.groups.empty() || !all_direct(rank)) return false;
  // Others may have to pass this rank's links.
  for (NodeId from = 0; from < ranks; ++from)
    if (!all_direct(from)) return false;
  return true;
}

// The most that the rank's ways hold.
std::int64_t wire_of(NodeId rank, int ranks, const cluster::Routes& routes) {
  std::int64_t wire = 0;
  for (NodeId to = 0; to < ranks; ++to)
    if (to != rank)
      wire = std::max(
          wire, bytes_on_wire(routes.rate(rank, to).bytes_per_second(),
                              Nanoseconds{routes.latency(rank, to).value + routes.latency(to, rank).value}));
  return wire;
}

}  // namespace

std::int64_t exchange_wire(NodeId rank, int ranks, const cluster::Cluster& network,
                           const cluster::Routes& routes) {
  return pairs_have_links(rank, ranks, network, routes) ? kNobodyWaits : wire_of(rank, ranks, routes);
}

LookAhead look_ahead(const Request& request, const cluster::Cluster& network, const cluster::Routes& routes) {
  LookAhead ahead{.lanes = lanes_of(request, network, routes)};
  if (request.op != Collective::all_to_all) return ahead;
  const bool nobody_waits = pairs_have_links(0, request.ranks, network, routes);
  for (NodeId rank = 0; rank < request.ranks; ++rank)
    ahead.wires.push_back(nobody_waits ? kNobodyWaits : wire_of(rank, request.ranks, routes));
  return ahead;
}

LookAhead look_ahead(const Request& request, const cluster::Cluster& network) {
  if (request.op != Collective::scatter && request.op != Collective::all_to_all) return {};
  return look_ahead(request, network, cluster::Routes(network));
}

}  // namespace talweg::forest
