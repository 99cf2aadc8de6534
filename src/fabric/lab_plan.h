// What it takes to emulate a Cluster with Linux namespaces, worked out without touching the system.
//
// Every worker and aggregator becomes a host: a namespace with one device, eth0. All switches live in one
// more namespace, each as a bridge, and one that aggregates is a host on its bridge as well; a link between
// two nodes becomes a pair of virtual Ethernet devices, shaped at each end to the rate of its direction.
// Hosts with links straight to each other share a bridge that limits nothing; there the sender shapes by
// destination. Where such hosts have no link of their own, packets take the cluster's route through others,
// or are refused as unreachable where there is none.
#pragma once

#include <string>
#include <vector>

#include "cluster/cluster.h"

namespace talweg::fabric {

// A lab lives on one machine and in one /24.
inline constexpr int kMaxLabHosts = 250;

// What the kernel at hand can do and which addresses are free.
struct LabMeans {
  bool delay = false;              // netem
  std::string congestion_control;  // for every connection in the lab; empty: leave the system's default
  std::string subnet = "10.77.0";  // the first three bytes
};

struct HostPlan {
  std::string name;
  bool worker = true;
  bool forwards = false;  // carries packets of others
  std::string address;
  int node = -1;     // of the cluster
  std::string port;  // its device in the switches' namespace
  // Of the switch that sums at this host: the first of its multicast groups, by which it reaches all of its
  // workers at once as the cluster says. Empty: it does not, or there is none.
  std::string group;
  std::vector<std::string> ip;  // lines for `ip -batch` in its namespace
  std::vector<std::string> tc;  // lines for `tc -batch` in its namespace
};

struct LabPlan {
  std::vector<HostPlan> hosts;          // in the cluster's order: rank i is host i
  std::vector<std::string> bridges_ip;  // in the switches' namespace, before the ports exist
  std::vector<std::string> ports_ip;    // and after
  std::vector<std::string> ports_tc;
  std::vector<std::string> warnings;  // what is not emulated, one line each
  // What the lab is: of several equal paths it has one. Ranks plan with it.
  cluster::Cluster network;
  std::string left_out;  // one line that says what the cluster has besides; empty: nothing
  int workers() const;
};

// Throws Error{unsupported}, naming the node or link: a switch link with one direction only, a node on two
// switches, switches in a loop, several links from one node to another, too many hosts, a cluster without
// workers. Of links that are left out nothing is asked.
LabPlan plan_lab(const cluster::Cluster& cluster, const LabMeans& means);

}  // namespace talweg::fabric
