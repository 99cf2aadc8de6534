// Findings: what a survey has found out about the network between hosts, and the Cluster that says the same.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cluster/cluster.h"
#include "steer/bottleneck.h"

namespace talweg::steer {

using cluster::Cluster;

// Rates in bit/s, on the wire as links have them.
struct Findings {
  int hosts = 0;
  std::vector<Estimate> out, in;              // by host: its port, each way
  std::vector<std::optional<Estimate>> both;  // by host: what the two ways share, if they do
  struct Pair {
    Flow flow;
    Estimate rate;
  };
  std::vector<Pair> pairs;  // slower than their ports, alone too; if there are any: what all others reached
  struct Uplink {
    std::vector<int> inside;                    // hosts that share a way to all others
    std::optional<Estimate> leaving, entering;  // none: no limit was found
  };
  std::vector<Uplink> uplinks;
  std::vector<std::vector<double>> latency_ns;  // one way, between hosts; empty: not measured

  double confidence = 0;  // the widest half-width of all estimates above
  double doubt = 0;       // the chance, at most, that something in `both` or `uplinks` is not there
  int trials = 0;
  int unexplained_flows = 0;  // that were slower, in some round, than all of this says
  int unmeasured_pairs = 0;   // held up, but too many to be measured each alone: taken to be as their ports
};

// Which rank is where, and what hosts and ranks are called. A host with one rank is that rank's worker.
struct Layout {
  std::vector<int> host_of;             // by rank; hosts are numbered from 0
  std::vector<std::string> host_names;  // by host
  Bandwidth memory;                     // between ranks of one host; nobody has measured it
  Nanoseconds memory_latency;
};

// What hosts are called in the cluster: unique, and fit for a file.
std::vector<std::string> node_names(const Layout& layout);

// Rates that cannot be told apart become the same, so that hosts that are alike look alike. Ports alone make
// a star, uplinks of separate sets of hosts a tree, everything else a mesh with groups for what is shared.
// Two hosts are linked straight to each other.
Cluster to_cluster(const Findings& findings, const Layout& layout);

}  // namespace talweg::steer
