// Cluster: the network that the workers share. Read by planners, cost model, lab and simulator alike.
//
// File form (YAML; JSON is the same tree), every key that is not shown here is an error:
//   nodes:
//     - {name: host0, kind: worker}                      # workers are ranks, in the order written
//     - {name: host1}                                    # another
//     - {name: host2}
//     - {name: sw, kind: switch}                         # kind: worker | switch | aggregator
//     - {name: asic, kind: switch, multicast: true, aggregate: true}   # more than forwarding
//     - {name: agg, kind: aggregator, switch: "10.0.0.9:4711"}         # `talweg switch` listens there
//     - {name: rack, kind: switch, switch: "10.0.1.9:4711", above: agg}   # and sums there, for that one
//   links:
//     - {between: [host0, sw], capacity: 1Gbit/s, latency: 30us}     # both ways
//     - {from: host1, to: sw, capacity: 200Mbit/s, latency: 30us}    # one way
//     - {from: sw, to: host1, capacity: 100Mbit/s}
//     - {between: [sw, asic], capacity: 10Gbit/s}
//     - {between: [host2, sw], capacity: 1Gbit/s, burst: 128KiB}     # short messages pass at once
//   groups:                                              # what several links share
//     - {name: nic0, capacity: 1Gbit/s, links: [host0->sw, sw->host0]}
//   processor: {message: 5us, copy: 40Gbit/s, sum: 120Gbit/s}    # what TCP costs a worker's
//   shared_cores: 2                                      # of one machine that all workers run on
//   confidence: 0.03                                     # measured: rates are right within 3 %
//   measured: 2026-03-01T12:00:00Z                       # and when
// All but nodes and links may be left out, and each part of `processor`.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/units.h"

namespace talweg::cluster {

enum class NodeKind { worker, switch_, aggregator };

struct Node {
  std::string name;
  NodeKind kind = NodeKind::worker;
  bool can_multicast = false;  // copy one packet to several links
  bool can_aggregate = false;  // sum
  std::string switch_at{};     // where a `talweg switch` listens there, "10.0.0.9:4711"; empty: there is none
  std::string above{};  // node whose switch sums what this one's and others have summed; empty: none does
  bool operator==(const Node&) const = default;
};

// Directed. Latency is one way, first bit to first bit, software included if it was measured so.
struct Link {
  int from = 0;
  int to = 0;
  Bandwidth capacity;
  Nanoseconds latency;
  Bytes burst{};  // that pass faster than `capacity` after a pause, as a shaper's token bucket lets them
  bool operator==(const Link&) const = default;
};

// The links together carry at most `capacity`.
struct CapacityGroup {
  std::string name;
  Bandwidth capacity;
  std::vector<int> links;
  bool operator==(const CapacityGroup&) const = default;
};

// What TCP costs a worker's processor, where somebody has measured it; 0: not known.
struct Processor {
  Nanoseconds message{};  // of all that goes to one peer, or comes from it, at once
  Bandwidth copy{};       // how fast its bytes are sent, or received, while nothing else is done
  Bandwidth sum{};        // how fast received bytes are added to others
  bool operator==(const Processor&) const = default;
};

// The flags above with what else implies them: workers, aggregators and nodes with a `talweg switch` do both.
bool can_multicast(const Node& node);
bool can_aggregate(const Node& node);

// nodes[0 .. workers-1] are the workers, in rank order; inner nodes follow.
struct Cluster {
  std::vector<Node> nodes;
  std::vector<Link> links;
  std::vector<CapacityGroup> groups;
  // Cores that all workers share, where they run on one machine (processes of one host, a lab); 0: every
  // worker has one of its own.
  int shared_cores = 0;
  Processor processor{};
  // Of a network that was measured: the half-width of its rates as a part of them, and when that was
  // (2026-03-01T12:00:00Z). 0 and empty: written by hand. Planners take the rates as they are.
  double confidence = 0;
  std::string measured{};
  int workers() const;
  bool operator==(const Cluster&) const = default;
};

// What is wrong with a cluster, if anything: which entry of which list, and one sentence.
enum class Section { nodes, links, groups };
struct Problem {
  Section section = Section::nodes;
  int index = 0;
  std::string text;
};
// The first of: no worker; an inner node before a worker; a name that is empty, taken or holds "->" or a
// space; a link with an end that does not exist, to itself, written twice, without a positive finite capacity
// or with a negative latency; a group likewise, or without links; a worker that cannot reach another one.
std::optional<Problem> find_problem(const Cluster& cluster);
// The same for one list alone, those before it being right: a reader can speak up before it follows wrong
// names.
std::optional<Problem> find_problem(const Cluster& cluster, Section section);
// Throws Error{invalid_argument} when there is one.
void validate(const Cluster& cluster);

// Throws Error{bad_file}: "cluster.yaml:7: links[2].capacity: expected a bandwidth such as 1Gbit/s, got
// \"fast\"". `origin` is what the text is called in messages.
Cluster parse_cluster(const std::string& text, const std::string& origin);
Cluster load_cluster(const std::string& path);
std::string to_yaml(const Cluster& cluster);
std::string to_json(const Cluster& cluster);

// A star: `n` workers around one switch, every link with the same capacity and latency both ways.
Cluster uniform_star(int n, Bandwidth capacity, Nanoseconds latency);
// Every pair of `n` workers has links of its own both ways (ranks of one host that share memory).
Cluster uniform_mesh(int n, Bandwidth capacity, Nanoseconds latency);

// Those of `aggregators`, by name.
std::vector<std::string> aggregator_names(const Cluster& cluster);
// The inner nodes that can sum, and that all workers reach and are reached from.
std::vector<int> nodes_that_sum(const Cluster& cluster);
// Those of them that have no switch of their own to do it: `talweg aggregator` runs there, and trees may lead
// through them.
std::vector<int> aggregators(const Cluster& cluster);
// The same network, with the same numbers, where these inner nodes only forward: nothing runs on them.
Cluster without(const Cluster& cluster, std::span<const int> nodes);
// The same network where something runs on the aggregators of these names alone; they are numbered first
// behind the workers, in this order. Names that no aggregator has are passed over.
Cluster staffed(const Cluster& cluster, std::span<const std::string> names);

// The same network as seen by some of its workers, renumbered in the order given: the others become inner
// nodes that only forward. For groups split from a group. Each worker is listed once.
Cluster restrict_to(const Cluster& cluster, std::span<const int> workers);

}  // namespace talweg::cluster
