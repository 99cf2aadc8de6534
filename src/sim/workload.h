// Workload: what happens on a simulated network. Several groups of ranks that compute and communicate, each
// with its own start and priority; flows; background traffic; links and nodes that fail and are repaired.
//
// File form (YAML or JSON); times, sizes and rates carry their units, nodes are called by their names:
//   groups:
//     - name: big
//       ranks: [h0, h1, h2, h3]             # or `all`
//       start: 1ms                          # 0 if left out, as all times
//       priority: 1                         # 0 is the most urgent, 7 the least; where queues have priorities
//       repeat: 10                          # 1
//       jitter: 5%                          # deviation of compute times, of each rank for itself
//       may_lose: 1%                        # of steps whose algorithm is bounded, as --may-lose
//       may_lose_sender: 0.5%               # and may_lose_call: limits beside it, as the flags of these names
//       droppable: 50%                      # of its packets, those of the smallest values; as --droppable
//       queues: 4                           # priorities 1 .. 4 for layers by depth; 1: all is best effort, 4
//       steps:
//         - {compute: 10ms}
//         - {op: all_reduce, bytes: 64MiB, algorithm: ring, type: float}    # the cheapest if left out
//         - {op: all_reduce, bytes: 4MiB, algorithm: bounded, depth: 0.5}   # as --algo bounded; 0: the first layer
//   flows:
//     - {from: h0, to: h3, bytes: 10MB, start: 1ms, priority: 2, route: [h0, leaf0, spine1, leaf1, h3]}
//   background:                             # datagrams at random times (Poisson), nobody waits for them
//     - {from: all, to: random, rate: 1Gbit/s, packet: 1500, start: 0ms, end: 5ms, priority: 7}
//     - {from: h3, to: h0, rate: 1Gbit/s, burst: 1MB}    # likewise, flows of so much, as fast as they go
//   changes:
//     - {at: 2ms, fail: leaf0->spine1}      # or a node
//     - {at: 3ms, repair: leaf0->spine1}
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cluster/cluster.h"
#include "sim/matrix_file.h"
#include "talweg/types.h"

namespace talweg::sim {

struct WorkloadStep {
  Nanoseconds compute{};
  std::optional<Collective> op;  // none: the step computes
  std::int64_t bytes = 0;        // of the vector, as talweg perf counts it
  DataType type = DataType::f32;
  int root = 0;
  std::string algorithm;
  double depth = 0;  // by kBounded: where in the model, 0 next to its input .. 1 next to its output
};

struct WorkloadGroup {
  std::string name;
  std::vector<int> nodes;  // by rank
  Nanoseconds start{};
  int priority = 0;
  int repeat = 1;
  double jitter = 0;
  double may_lose = 0.01;  // of steps by kBounded, which are of one type
  std::optional<double> may_lose_sender{}, may_lose_call{};
  double droppable = 0;  // and the next, of such steps: BoundedSumsOptions
  int queues = 1;
  std::vector<WorkloadStep> steps;
};

struct BackgroundTraffic {
  std::vector<int> from;  // each sends at the rate
  int to = -1;            // -1: each packet to another worker, drawn at random
  Bandwidth rate;
  std::uint16_t packet_bytes = 1500;
  std::int64_t burst_bytes = 0;  // above 0: flows of so much in place of datagrams
  Nanoseconds start{};
  Nanoseconds end{-1};  // -1: as long as anything else goes on
  int priority = 0;
};

struct NetworkChange {
  Nanoseconds at{};
  std::vector<int> links;
  int node = -1;  // or this
  bool up = false;
};

struct Workload {
  std::vector<WorkloadGroup> groups;
  struct Flow {
    Connection connection;
    std::vector<int> route;  // links; empty: what the network finds
  };
  std::vector<Flow> flows;
  std::vector<BackgroundTraffic> background;
  std::vector<NetworkChange> changes;
};

// Throws Error{bad_file}: file, line and what was expected.
Workload parse_workload(const std::string& text, const std::string& origin, const cluster::Cluster& cluster);

// "leaf0->spine1" (all links between the two, that way), or a node's name. Throws Error{invalid_argument}.
NetworkChange change_of(const std::string& what, const cluster::Cluster& cluster);

}  // namespace talweg::sim
