// Relay: the process that carries the packets of a lab's hosts through a simulated network, by the wall
// clock: a software switch with priorities, marks, selective dropping, shallow buffers, delays and losses.
//
//   Relay relay(cluster, options);
//   relay.attach({node, address, make_tun_device("eth0")});        // of each host, in its namespace
//   ... in a process of its own: return relay.carry();             // until SIGTERM, or that process is killed
//   ... and once that has ended: relay.report()
//
// It reads what hosts send, puts it into the network (sim/carried_packets.h) with the priority that its DSCP
// says (wire/traffic_class.h) and, where it is not ECN-capable, as droppable, and hands it over once it has
// arrived there: with CE where it was marked, with a bit flipped where it was damaged. What is no IPv4 packet
// to another host is dropped, and counted.
//
// It is as exact as its processor is quick: a packet that is handed over late was delayed by more than the
// network says. How late packets were, with what they have waited to be read as far as is known, is in the
// report: not what it takes until a relay that sleeps has a processor. Where more packets are inside than
// kMostInside, nothing is read, and hosts lose what they send.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "cluster/cluster.h"
#include "sim/network.h"
#include "sim/workload.h"

namespace talweg::fabric {

inline constexpr int kRelayMtu = 1500;
inline constexpr int kEthernetBytes = 14;  // of each packet on the wire, which a relay does not see
inline constexpr std::uint32_t kMostInside = 1 << 14;  // packets: 160 ms of 100'000 a second

struct RelayOptions {
  sim::NetworkOptions network;
  std::vector<sim::NetworkChange> changes;  // at times since the relay began
};

struct RelayHost {
  int node = 0;
  std::string address;
  FileDescriptor device;
};

struct RelayReport {
  bool whole = false;           // the relay came to its end; else nothing below was written
  std::int64_t lasted_ns = 0;   // from the first packet to the last
  std::uint64_t carried = 0;    // handed over
  std::uint64_t inside = 0;     // still on their way when it ended
  std::uint64_t foreign = 0;    // to nobody here, such as multicast and IPv6
  std::uint64_t malformed = 0;  // no IP packets
  std::uint64_t unroutable = 0;
  std::uint64_t refused = 0;  // by the host's kernel
  std::uint64_t unread = 0;   // lost by hosts' devices because the relay did not read them in time
  std::int64_t median_late_ns = 0;
  std::int64_t p99_late_ns = 0;
  std::int64_t worst_late_ns = 0;
  std::vector<sim::LinkCounters> links;  // by link of the cluster
};

class Relay {
 public:
  // Throws Error{invalid_argument} for policies that cannot work.
  Relay(const cluster::Cluster& cluster, const RelayOptions& options);

  void attach(RelayHost host);
  // Takes the process over; SIGTERM, which is to be blocked, ends it with 0. Throws Error{system}.
  int carry() const;
  // Of the process that was last in carry(), but for `unread`.
  RelayReport report() const;

  const cluster::Cluster& cluster() const { return cluster_; }

 private:
  cluster::Cluster cluster_;
  RelayOptions options_;
  std::vector<RelayHost> hosts_;
  FileDescriptor report_;  // a file without a name, which both processes have
};

}  // namespace talweg::fabric
