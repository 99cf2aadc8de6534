// How long the flows of a simulation took: the distribution of their completion times, and their slowdown by
// size, which is the time that a flow took over the time that it would have taken alone.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "cluster/cluster.h"
#include "sim/matrix_run.h"
#include "sim/simulation.h"

namespace talweg::study {

struct FlowStatistics {
  static constexpr std::size_t kMostPoints = 500;

  // Flows of about the same size: within a factor of 1.41.
  struct OfSize {
    double bytes = 0;  // mean
    std::size_t flows = 0;
    double p50 = 0, p99 = 0;  // slowdown
  };

  std::vector<std::pair<double, double>> completion;  // seconds; the share of flows that took no longer
  std::vector<OfSize> by_size;                        // the smallest first
  double p50 = 0, p99 = 0;                            // slowdown, of all
};

// Seconds that a flow takes which has the network to itself and whose window never holds it up: the packets
// of `bytes` one behind the other over the route that cluster::Routes would take, each switch passing on
// whole packets.
class LoneFlow {
 public:
  // The cluster outlives it.
  LoneFlow(const cluster::Cluster& cluster, const sim::TransportOptions& transport);

  // Quick for flows from the same node one after the other. 0 where there is no route.
  double seconds(int from, int to, std::int64_t bytes);

 private:
  struct Route {
    bool reached = false;
    std::int64_t relays = 0;   // workers passed
    std::int64_t latency = 0;  // nanoseconds
    std::int64_t hops = 0;
    double per_byte = 0;          // seconds, summed over the links
    double slowest_per_byte = 0;  // of the narrowest link
  };
  void find_routes(int from);

  const cluster::Cluster& cluster_;
  const sim::TransportOptions transport_;
  const int workers_;
  std::vector<std::vector<int>> leaving_;  // links by node
  int from_ = -1;
  std::vector<Route> routes_;  // from there, by node
};

FlowStatistics statistics_of(const std::vector<sim::FlowResult>& flows, const cluster::Cluster& cluster,
                             const sim::TransportOptions& transport);

}  // namespace talweg::study
