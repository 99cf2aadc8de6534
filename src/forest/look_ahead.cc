#include "forest/look_ahead.h"

#include <algorithm>
#include <limits>

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

// A quick host that is ahead as far as its own ways hold meets others at slow ones: only where none is
// quicker than another by more than this are ways kept full.
constexpr double kWaysAlike = 1.25;

bool ways_are_alike(int ranks, const cluster::Routes& routes) {
  double least = std::numeric_limits<double>::infinity(), most = 0;
  for (NodeId from = 0; from < ranks; ++from) {
    for (NodeId to = 0; to < ranks; ++to) {
      if (from == to) continue;
      const double rate = routes.rate(from, to).bytes_per_second();
      least = std::min(least, rate);
      most = std::max(most, rate);
    }
  }
  return most <= kWaysAlike * least;
}

// The most that the rank's ways hold, where all ways are alike.
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
  if (pairs_have_links(rank, ranks, network, routes)) return kNobodyWaits;
  return ways_are_alike(ranks, routes) ? wire_of(rank, ranks, routes) : 0;
}

LookAhead look_ahead(const Request& request, const cluster::Cluster& network, const cluster::Routes& routes) {
  LookAhead ahead{.lanes = lanes_of(request, network, routes)};
  if (request.op != Collective::all_to_all) return ahead;
  const bool nobody_waits = pairs_have_links(0, request.ranks, network, routes);
  ahead.alike = ways_are_alike(request.ranks, routes);
  for (NodeId rank = 0; rank < request.ranks; ++rank)
    ahead.wires.push_back(nobody_waits  ? kNobodyWaits
                          : ahead.alike ? wire_of(rank, request.ranks, routes)
                                        : 0);
  return ahead;
}

LookAhead look_ahead(const Request& request, const cluster::Cluster& network) {
  if (request.op != Collective::scatter && request.op != Collective::all_to_all) return {};
  return look_ahead(request, network, cluster::Routes(network));
}

}  // namespace talweg::forest
