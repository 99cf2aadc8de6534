// A lab: the network of a Cluster, built on this machine out of network namespaces, bridges and traffic
// control.
//
// How to use it:
//   Lab lab = Lab::build(cluster::load_cluster("cluster.yaml"));
//   for (const std::string& line : lab.warnings()) fmt::print(stderr, "{}\n", line);
//   LaunchResult result = lab.run({"./train"}, "cluster.yaml", {});     // one rank per worker, on its host
//
// The lab lives as long as the object or a process in it, and leaves nothing behind, however its holder ends.
// Of what these cannot do (priorities, marks, losses, several paths, delays on every kernel) a lab with a
// simulated network can: Lab::build_relayed(cluster, options), see relay.h.
//
// A lab that outlives its builder is held by a process of its own: see lab_state.h.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cluster/cluster.h"
#include "fabric/lab_plan.h"
#include "fabric/launcher.h"
#include "fabric/net_namespace.h"
#include "fabric/relay.h"

namespace talweg::fabric {

struct LabHost {
  std::string name;
  bool worker = true;
  std::string address;
  NetNamespace net;
  int switch_port = 0;  // of the `talweg switch` that is to be there; 0: none is
  std::string above{};  // the host with the switch above that one; empty: there is none
  std::string group{};  // its first multicast group, see HostPlan
  std::string rack{};   // of a worker: the host with its rack's switch; empty: it has none
};

// Programs that serve the ranks of a lab, each with its arguments; empty: they do without.
struct LabHelpers {
  std::vector<std::string> aggregator;      // gets the host's name as a further argument
  std::vector<std::string> switch_command;  // gets the address and port to listen at, and its key's file
};

class Lab {
 public:
  // Gains the privileges it needs (see privileges.h) and builds everything. Throws Error{unsupported}: a
  // cluster that cannot be emulated, missing rights or programs; Error{system}: the kernel refused something.
  static Lab build(const cluster::Cluster& cluster);

  // The same with a relay in place of bridges and traffic control. Throws Error{unsupported} also where
  // there is no /dev/net/tun, Error{invalid_argument} for policies that cannot work.
  static Lab build_relayed(const cluster::Cluster& cluster, const RelayOptions& options);

  // These hosts are those of `plan`.
  Lab(std::vector<LabHost> hosts, NetNamespace switches, const LabPlan& plan);

  const std::vector<LabHost>& hosts() const { return hosts_; }  // workers first, in rank order
  const NetNamespace& switches() const { return switches_; }
  const std::vector<std::string>& warnings() const { return warnings_; }  // what is not emulated

  // Runs `command` as one rank on each worker's host, with the host's name as its host name and RANK,
  // WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, TALWEG_AGGREGATORS_AT,
  // TALWEG_CLUSTER and the interface in its environment; and, in the same environment but for the ranks, a
  // switch on hosts that have one in the cluster, and an aggregator on all others that are no worker's.
  // Unless TALWEG_SWITCH is set, it names these switches, or each rank's rack's, and TALWEG_SWITCH_KEY_FILE
  // the key that all of them have; where it is set, none of them is started.
  // TALWEG_CLUSTER is `cluster_file` without links to it; where links are left out, or it was no file that
  // can be read again, a file of what there is that lasts as long as the ranks. A relay starts before them
  // and ends after them; without it they end. Blocks and throws as launch() does.
  LaunchResult run(const std::vector<std::string>& command, const std::string& cluster_file,
                   const LaunchOptions& options, const LabHelpers& helpers = {}) const;

  // Of the last run of a lab with a relay.
  RelayReport relay_report() const;

 private:
  std::vector<LabHost> hosts_;
  NetNamespace switches_;
  std::unique_ptr<Relay> relay_;  // or bridges in `switches_`
  std::vector<std::string> warnings_;
  bool whole_;           // no links are left out
  std::string network_;  // what there is, as YAML
};

}  // namespace talweg::fabric
