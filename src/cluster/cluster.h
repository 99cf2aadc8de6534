// Cluster: the network that the workers share. Read by planners, cost model, lab and simulator alike.
//
// File form (YAML; JSON is the same tree), see docs in src/cluster/README.md:
//   nodes:
//     - {name: host0, kind: worker}                      # workers are ranks, in the order written
//     - {name: sw, kind: switch}                         # kind: worker | switch | aggregator
//   links:
//     - {between: [host0, sw], capacity: 1Gbit/s, latency: 30us}     # both ways
//     - {from: host1, to: sw, capacity: 200Mbit/s, latency: 30us}    # one way
//   groups:                                              # what several links share
//     - {name: nic0, capacity: 1Gbit/s, links: [host0->sw, sw->host0]}
#pragma once

#include <string>
#include <vector>

#include "base/units.h"

namespace talweg::cluster {

enum class NodeKind { worker, switch_, aggregator };

struct Node {
  std::string name;
  NodeKind kind = NodeKind::worker;
  bool can_multicast = false;  // copy one packet to several links; workers and aggregators always can
  bool can_aggregate = false;  // sum; workers and aggregators always can
  bool operator==(const Node&) const = default;
};

// Directed. Latency is one way, first bit to first bit, software included if it was measured so.
struct Link {
  int from = 0;
  int to = 0;
  Bandwidth capacity;
  Nanoseconds latency;
  bool operator==(const Link&) const = default;
};

// The links together carry at most `capacity`.
struct CapacityGroup {
  std::string name;
  Bandwidth capacity;
  std::vector<int> links;
  bool operator==(const CapacityGroup&) const = default;
};

// nodes[0 .. workers-1] are the workers, in rank order; inner nodes follow.
struct Cluster {
  std::vector<Node> nodes;
  std::vector<Link> links;
  std::vector<CapacityGroup> groups;
  int workers() const;
  bool operator==(const Cluster&) const = default;
};

// Throws Error{bad_file}: "cluster.yaml:7: links[2].capacity: expected a bandwidth such as 1Gbit/s, got \"fast\"".
// `origin` is what the text is called in messages.
Cluster parse_cluster(const std::string& text, const std::string& origin);
Cluster load_cluster(const std::string& path);
std::string to_yaml(const Cluster& cluster);
std::string to_json(const Cluster& cluster);

// A star: `n` workers around one switch, every link with the same capacity and latency both ways.
Cluster uniform_star(int n, Bandwidth capacity, Nanoseconds latency);
// Every pair of `n` workers has links of its own both ways (ranks of one host that share memory).
Cluster uniform_mesh(int n, Bandwidth capacity, Nanoseconds latency);

}  // namespace talweg::cluster
