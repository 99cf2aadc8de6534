// The cost model: how long a forest takes on a cluster, and the chunk sizes that suit both.
//
//   const CostModel model(cluster);          // routes are worked out once
//   model.choose_chunks(forest);
//   double seconds = model.seconds(forest);  // or predict_seconds(forest, cluster)
//
// time = fill + stream. A tree moves its slice in m chunks of c bytes. One chunk takes one edge in
//
//   hop = 2 frame + latency + (c + header) / rate + c (send + receive + reduce)       (reduce: upward only)
//
// where `frame` is the processor's work for a message on either side (once for all that are ready for the
// same peer together: they travel together), rate that of the narrowest link or group of the route, and send,
// receive, reduce the work for a byte. Every link, every group and every node's processor is a resource with
// three numbers:
//
//   head    when the first chunk can reach it, by the hops before it      (least over the edges that use it)
//   stream  the work of all trees on it: (bytes + m header) / capacity, or m frame + bytes (send, ...)
//   tail    what the last chunk has still to go after it                  (least over the edges that use it)
//
// A slice that fits into the bursts of a route meets no rate there; of what a link carries in all,
// burst_share of its burst passes at once: calls that follow each other find the bucket nearly empty. Where
// all workers share the cores of one machine, the work of all processors over these cores is a bound as well.
//
// No schedule beats head + stream + tail on any resource (the one-machine bound of shop scheduling, Carlier
// 1982), nor the hops along the longest path of any tree. The prediction is the largest of these. In a chain,
// fill = head + tail is the classical (hops - 1) chunk times; in a ring with m = 1 the path of 2(N-1) hops is
// the whole time; with long vectors all of them tend to bytes / capacity on the busiest resource.
//
// Incast: where more than a few hosts send to one at once, the switch's queue to it overflows and what is
// lost is sent again; a link into a node over which k senders reach it by TCP works longer by the factor
// 1 + incast_loss (k - incast_free).
//
// Chunk size: of a tree with slice s and h hops from the farthest leaf up and down again, fill grows by (h-1)
// c / rate and stream by (s / c) frame; the sum is least at c = sqrt(s frame rate / (h-1)). It depends on
// nothing but the tree itself, so that ranks which do not know each other's counts (see Request) agree on the
// trees they share.
#pragma once

#include <cstdint>
#include <vector>

#include "cluster/cluster.h"
#include "cluster/routing.h"
#include "forest/forest.h"
#include "wire/frame.h"

namespace talweg::forest {

// Everything that can be calibrated. Times in seconds; the defaults are for a recent x86 server, and what the
// cluster says of its processors goes before them.
struct CostParameters {
  // What a message costs the processor on either side, and a byte of it. Sending a byte and receiving it are
  // taken to cost the same.
  struct Transport {
    double per_frame = 0;
    double per_byte = 0;
    std::int64_t most_chunk_bytes = 0;  // above, pipelines and caches suffer
  };
  Transport tcp{5e-6, 1 / 5e9, 256 << 10};       // a system call, the stack, a wake-up; copy and checksum
  Transport memory{0.2e-6, 1 / 20e9, 64 << 10};  // a ring slot; one copy; chunks stay in the cache
  double reduce_per_byte = 1 / 15e9;             // added to what is received on the way up

  // Payload over bytes on the wire: 1448 of an Ethernet frame's 1514, as shapers and switches count.
  double tcp_payload = 1448.0 / 1514.0;
  std::int64_t header_bytes = sizeof(wire::Header);  // of a chunk's frame

  // Two workers with a link of their own that is quicker than this share memory; all others speak TCP.
  Nanoseconds memory_latency{3000};

  // Measured with 2 to 8 hosts on a shaped bridge: three senders at once cost nothing, seven some 8 %.
  int incast_free = 3;
  double incast_loss = 0.02;

  double burst_share = 0.125;  // of a token bucket, refilled between calls

  std::int64_t least_chunk_bytes = 8 << 10;  // of chunks; below, frames cost more than bytes
};

// The parameters, but for what the cluster says.
CostParameters parameters_for(const cluster::Cluster& cluster, const CostParameters& parameters = {});

class CostModel {
 public:
  // The cluster must be valid; it is copied.
  explicit CostModel(const cluster::Cluster& cluster, const CostParameters& parameters = {});

  // The forest must be one that verify() accepts on this cluster, with chunks chosen.
  double seconds(const Forest& forest) const;
  // Sets every tree's chunk: as above, a multiple of 64 bytes, in chunks of equal size, within the bounds;
  // the whole slice when that is shorter.
  void choose_chunks(Forest& forest) const;

  const cluster::Cluster& network() const { return cluster_; }
  const cluster::Routes& routes() const { return routes_; }
  const CostParameters& parameters() const { return parameters_; }
  // Bytes per second that a node can send and receive at once: the lesser of the two sums over its links.
  double capacity(NodeId node) const { return capacities_[static_cast<std::size_t>(node)]; }
  // All workers by capacity, the greatest first, then by rank.
  const std::vector<NodeId>& best_connected() const { return best_connected_; }
  // The same of the workers and the aggregators together.
  const std::vector<NodeId>& servers() const { return servers_; }

 private:
  // What sending from one node to another costs.
  struct Hop {
    bool memory = false;
    double overhead = 0;       // per chunk: two frames and the latency
    double frame = 0;          // of that, the work of either processor
    double per_byte = 0;       // on the wire, at the rate of the narrowest part of the route
    double work_per_byte = 0;  // of either processor
    double payload = 1;        // over bytes on the wire
    double burst = 0;          // bytes that every link of the route lets pass at once
    std::int64_t most_chunk_bytes = 0;
  };
  // A link, a group or a node's processor while a forest is priced.
  struct Resource;
  class Pricing;

  const Hop& hop(NodeId from, NodeId to) const {
    return hops_[static_cast<std::size_t>(from) * cluster_.nodes.size() + static_cast<std::size_t>(to)];
  }
  void measure_hops();
  void measure_nodes();
  std::int64_t chunk_of(const Tree& tree, int nodes, std::int64_t element_size) const;

  cluster::Cluster cluster_;
  CostParameters parameters_;
  cluster::Routes routes_;
  std::vector<Hop> hops_;
  std::vector<std::vector<std::size_t>> groups_of_link_;
  std::vector<double> capacities_;
  std::vector<NodeId> best_connected_, servers_;
};

double predict_seconds(const Forest& forest, const cluster::Cluster& cluster,
                       const CostParameters& parameters = {});
void choose_chunks(Forest& forest, const cluster::Cluster& cluster, const CostParameters& parameters = {});

}  // namespace talweg::forest
