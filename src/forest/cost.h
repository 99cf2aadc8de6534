// The cost model: how long a forest takes on a cluster, and the chunk sizes that suit both.
//
//   const CostModel model(cluster);          // routes are worked out once
//   model.choose_chunks(forest);
//   double seconds = model.seconds(forest);  // or predict_seconds(forest, cluster)
//   model.breakdown(forest).reason;          // "links limit: h2's downlink carries 70 MB of the 71 MB ..."
//
// time = fill + stream. A tree moves its slice in m chunks of c bytes. One chunk, a frame of f = c + header
// bytes, takes one edge in
//
//   hop = send + latency + f / rate + forward + receive
//
// where rate is that of the narrowest link or group of the route, and send and receive are what a batch of
// this one frame costs either processor (host_costs.h). Switches have a packet whole before they pass it on:
// forward is what one packet takes on each link of the route but the narrowest. Siblings wait for each other:
// their k chunks reach one parent, or leave it, at the rate of its own link and one after the other through
// its processor, so the last of them is k - 1 chunks later than the first. A sum waits for the last.
//
// Every link, every group and every node's processor is a resource with three numbers:
//
//   head    when the first chunk can reach it, by the hops before it      (least over the edges that use it)
//   stream  the work of all trees on it: m f / capacity, or what the batches cost that hold the m frames
//   tail    what the last chunk has still to go after it                  (least over the edges that use it)
//
// What travels the other way is work as well. TCP acknowledges what it gets: a link carries besides its own
// frames 66 bytes for every second packet of 1514 that goes the other way. Parents grant their children
// chunks (flow_control.h): a batch at either end for each half of a window of w chunks. And whoever waits for
// a grant does not send: an edge upward moves no more than w chunks in the time of a hop and of a message
// back, and only one before its parent is known to have begun.
//
// Batches are counted as few as they can be. Whoever has more frames than it has time for sends, or reads,
// several at once. So first chunks that are ready for one peer together share a batch, and a tree that
// follows its first chunk adds batches only for what does not fit into that one (kMostBatchBytes). Many small
// chunks therefore cost a processor no more than few large ones, but for their headers. But sums go up as
// grants let them, and results follow: the first chunk alone, the rest of a window, then half of one at a
// time; trees between the same two nodes share these batches. In shared memory each frame is a batch.
//
// A slice that fits into the bursts of a route meets no rate there; of what a link carries in all,
// burst_share of its burst passes at once: calls that follow each other find the bucket nearly empty. Where
// all workers share the cores of one machine, the work of all processors over these cores is a bound as well;
// of more workers than cores, each hop's receiver has to be given a core first, which takes a turn of all
// others: hops x turn x workers / cores on top.
//
// No schedule of these trees beats head + stream + tail on any link (the one-machine bound of shop
// scheduling, Carlier 1982), nor the hops along the longest path of any tree, siblings and grants counted.
// The prediction is the largest of these. In a chain, fill = head + tail is the classical (hops - 1) chunk
// times; in a ring with m = 1 the path of 2(N-1) hops is the whole time; with long vectors all of them tend
// to bytes / capacity on the busiest resource. What the largest is made of, time on links, of processors and
// latency, is its breakdown; what limits is the one without which the largest would be least.
//
// In collectives whose data do not tell each rank that all have begun (agreement.h), the ranks announce
// themselves before anything is sent. Where calls follow each other, all wait for the one that began last:
// for its N-1 headers, each a batch of its processor and a packet on its link, the longest latency, and a
// batch of a receiver, before all the rest. Of a scatter few blocks are on their way at a time
// (block_turns.h), and others wait for these: what they take is played through (cost_blocks.cc), links shared
// fairly among those under way, and is a bound like the others.
//
// Incast: where more than a few hosts send to one at once, the switch's queue to it overflows and what is
// lost is sent again; a link into a node over which k senders reach it by TCP works longer by the factor
// 1 + incast_loss (k - incast_free). What is queued, and so what can be lost, has an end: more than
// incast_most senders cost what so many do. Of an all-to-all that goes in turns (look_ahead.h) no more meet
// than each rank has blocks on their way.
//
// Chunk size: of a tree with slice s and h hops from the farthest leaf up and down again, fill grows by (h-1)
// c / rate. Were every chunk a batch of its own, stream would grow by (s / c) batch; the sum is then least at
// c = sqrt(s batch rate / (h-1)). Smaller chunks would count on processors to gather them. It depends on
// nothing but the tree itself, so that ranks which do not know each other's counts (see Request) agree on the
// trees they share.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cluster/cluster.h"
#include "cluster/routing.h"
#include "forest/forest.h"
#include "forest/host_costs.h"
#include "wire/frame.h"

namespace talweg::forest {

// Everything that can be calibrated. Times in seconds; the defaults are for a recent x86 server, and what the
// cluster says of its processors goes before them.
struct CostParameters {
  // What a batch costs the processor on either side, and a byte of it. Sending a byte and receiving it are
  // taken to cost the same.
  struct Transport {
    double per_batch = 0;
    double per_byte = 0;
    std::int64_t most_batch_bytes = 0;  // 0: every frame is a batch
    std::int64_t most_chunk_bytes = 0;  // above, pipelines and caches suffer
  };
  // A system call, the stack, a wake-up; copy and checksum.
  Transport tcp{5e-6, 1 / 5e9, kMostBatchBytes, 256 << 10};
  // A ring slot for each frame; one copy; chunks stay in the cache.
  Transport memory{0.2e-6, 1 / 20e9, 0, 64 << 10};
  double reduce_per_byte = 1 / 15e9;  // added to what is received on the way up

  // Payload over bytes on the wire: 1448 of an Ethernet frame's 1514, as shapers and switches count.
  double tcp_payload = 1448.0 / 1514.0;
  std::int64_t header_bytes = sizeof(wire::Header);  // of a chunk's frame

  // Two workers with a link of their own that is quicker than this share memory; all others speak TCP.
  Nanoseconds memory_latency{3000};

  // Of what TCP carries, what goes back to acknowledge it: 66 bytes for every second full packet (RFC 5681).
  // Simulated hosts acknowledge every one, hosts of a lab fewer.
  double tcp_acknowledgements = 33.0 / 1514.0;

  // Measured with 2 to 8 hosts on a shaped bridge: three senders at once cost nothing, seven some 8 %. Among
  // simulated hosts 15 to 63 cost 2 % in a star, and fifteen some 20 % in a fat tree: between them.
  int incast_free = 3;
  int incast_most = 12;
  double incast_loss = 0.02;
  // How much longer a link into a node works over which so many send to it.
  double incast(int senders) const {
    return 1 + incast_loss * std::max(0, std::min(senders, incast_most) - incast_free);
  }

  double burst_share = 0.125;  // of a token bucket, refilled between calls

  // Of more ranks than cores, one that waits is given a core after the others. Set with 4 and 8 ranks on two
  // cores of one machine. Of 6 ranks there, an all-reduce of 4 KiB is predicted to take 13.8 us by a star (12
  // to 15 measured), 31 us by halving and doubling (24 to 33); at 16 ranks it is some 40 % short (star: 65 to
  // 92 us). Simulated hosts know nothing of it.
  double turn = 1.5e-6;

  std::int64_t least_chunk_bytes = 8 << 10;  // of chunks; below, frames cost more than bytes
};

// The parameters, but for what the cluster says.
CostParameters parameters_for(const cluster::Cluster& cluster, const CostParameters& parameters = {});

// What a predicted time is made of: the way of the chunk, or the work of the resource, that sets it.
struct Breakdown {
  enum class Limit { links, processors, latency };

  double links = 0;            // seconds on links, at their rates
  double processors = 0;       // seconds of sending, receiving and reducing
  double latency = 0;          // seconds of it
  Limit limit = Limit::links;  // the one without which the prediction would be least
  double without = 0;          // seconds that it then would be
  std::string reason{};        // in words: "processors limit: h3 is busy for 84 % of the time, ..."

  double seconds() const { return links + processors + latency; }
  bool operator==(const Breakdown&) const = default;
};
// "links", "processors", "latency".
const char* name(Breakdown::Limit limit);

class CostModel {
 public:
  // The cluster must be valid; it is copied.
  explicit CostModel(const cluster::Cluster& cluster, const CostParameters& parameters = {});

  // The forest must be one that verify() accepts on this cluster, with chunks chosen.
  // `begun`: messages before have told that all ranks have, so that nobody waits for announcements.
  double seconds(const Forest& forest, bool begun = false) const;
  // Of these, what the busiest link, group or processor has to do: calls that are under way together take
  // turns there, and what else each of them takes passes meanwhile.
  double busiest(const Forest& forest) const;
  // Adds up to seconds(), but for rounding.
  Breakdown breakdown(const Forest& forest, bool begun = false) const;
  // Sets every tree's chunk: as above, a multiple of 64 bytes, in chunks of equal size, within the bounds;
  // the whole slice when that is shorter.
  void choose_chunks(Forest& forest) const;

  const cluster::Cluster& network() const { return cluster_; }
  const cluster::Routes& routes() const { return routes_; }
  const CostParameters& parameters() const { return parameters_; }
  // Of what one node sends to another, the part that comes back on the other's route to it: acknowledgements.
  double acknowledged(NodeId from, NodeId to) const {
    return hop(from, to).memory ? 0 : parameters_.tcp_acknowledgements;
  }
  // Bytes per second that a node can send and receive at once: the lesser of the two sums over its links.
  double capacity(NodeId node) const { return capacities_[static_cast<std::size_t>(node)]; }
  // All workers by capacity, the greatest first, then by rank.
  const std::vector<NodeId>& best_connected() const { return best_connected_; }
  // The same of the workers and the aggregators together.
  const std::vector<NodeId>& servers() const { return servers_; }

 private:
  // What sending from one node to another takes.
  struct Hop {
    bool memory = false;
    double latency = 0;   // seconds
    double per_byte = 0;  // seconds on the wire, at the rate of the narrowest part of the route
    double forward = 0;   // seconds for a byte of a packet, on the links of the route but the narrowest
    int first = -1;       // links of the route
    int last = -1;
    double burst = 0;  // bytes that every link of the route lets pass at once
  };
  // While a forest is priced, in seconds or in seconds by what they are spent on: a link, a group or a node's
  // processor, and all of them.
  struct Spent {  // compared by the sum
    double links = 0, processors = 0, latency = 0;

    double seconds() const { return links + processors + latency; }
    friend Spent operator+(const Spent& a, const Spent& b) {
      return {a.links + b.links, a.processors + b.processors, a.latency + b.latency};
    }
    friend bool operator<(const Spent& a, const Spent& b) { return a.seconds() < b.seconds(); }
  };
  template <class Time>
  struct Resource;
  template <class Time>
  struct Most;
  template <class Time>
  class Pricing;
  // What sets a prediction, and how much of it there is.
  struct Limiter {
    enum class Part { path, link, group, processor, cores, blocks };
    Part part = Part::path;
    std::size_t index = 0;
    double bytes = 0;  // on the wire, or that a processor sends and receives
    double batches = 0;
    double slowdown = 1;  // of a link, by how many senders meet there
  };

  // Seconds until a receiver has a core; 0 where each has its own.
  double turn() const;
  const Hop& hop(NodeId from, NodeId to) const {
    return hops_[static_cast<std::size_t>(from) * cluster_.nodes.size() + static_cast<std::size_t>(to)];
  }
  const CostParameters::Transport& transport(const Hop& hop) const {
    return hop.memory ? parameters_.memory : parameters_.tcp;
  }
  template <class Time>
  Pricing<Time> priced(const Forest& forest) const;
  std::string words(const Breakdown& breakdown, const Limiter& limiter) const;
  void measure_hops();
  void measure_nodes();
  void measure_agreement();
  // What ranks take to hear from each other before they send; nothing where data tell it.
  Spent agreement(const Request& request) const;
  // What a scatter's blocks take that wait for each other; 0 of other forests.
  Spent blocks_in_turn(const Forest& forest) const;
  // How many may send to one at once.
  int meeting_senders(const Forest& forest) const;
  std::int64_t chunk_of(const Tree& tree, int nodes, std::int64_t element_size) const;

  cluster::Cluster cluster_;
  CostParameters parameters_;
  cluster::Routes routes_;
  std::vector<Hop> hops_;
  std::vector<std::vector<std::size_t>> groups_of_link_;
  std::vector<double> capacities_;
  std::vector<NodeId> best_connected_, servers_;
  Spent agreement_;
};

double predict_seconds(const Forest& forest, const cluster::Cluster& cluster,
                       const CostParameters& parameters = {});
void choose_chunks(Forest& forest, const cluster::Cluster& cluster, const CostParameters& parameters = {});

}  // namespace talweg::forest
