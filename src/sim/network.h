// Network: the links, queues and switches of a cluster, moving packets in virtual time.
//
//   EventQueue events;
//   Network network(cluster, {}, events, endpoint);
//   network.send(node, packet);        // `endpoint` gets it at its destination
//   while (!events.empty()) ... network.on_arrival(events.top().target(), now);
//
// A packet that is sent over a link is given its time of arrival at once: a FIFO's future is known when a
// packet joins it. So a hop is one event, and a link has one event pending however many packets are on it.
// Only where priorities may reorder what waits does a link wake up a second time, when its transmitter is
// free.
//
// Switches store and forward: a packet arrives when its last bit has, `latency` after it was sent. Capacity
// groups work like a FIFO in front of their links, of which all that waits counts for the queue of each; a
// link's burst is a token bucket's.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/random.h"
#include "cluster/cluster.h"
#include "sim/event_queue.h"
#include "sim/forwarding.h"
#include "sim/huge_pages.h"
#include "sim/packet.h"
#include "sim/queue_policy.h"

namespace talweg::sim {

// Who gets packets at their destination, and owns them from then on.
class Endpoint {
 public:
  virtual ~Endpoint() = default;
  virtual void on_packet(int node, Packet* packet) = 0;
  // For whoever counts what is on its way: one more of these is from now on; one of them will not arrive.
  virtual void on_copied(const Packet&) {}
  virtual void on_lost(const Packet&) {}
  // One of these will be handed over soon: for whoever fetches ahead the memory that this will touch.
  virtual void on_near(const Packet&) {}
  // Likewise of a timer, once two slots of the queue ahead and once one.
  virtual void on_near_timer(std::uint32_t /*target*/, int /*slots*/) {}
};

struct NetworkOptions {
  QueuePolicy switch_queue;  // in front of every link that leaves a switch or an aggregator
  QueuePolicy host_queue;    // and of those that leave a worker
  LossModel loss;            // of every link
  std::uint64_t seed = 1;
  bool operator==(const NetworkOptions&) const = default;
};

struct LinkCounters {
  std::uint64_t packets = 0;  // sent, whatever became of them
  std::int64_t bytes = 0;
  std::int64_t most_queued_bytes = 0;
  std::array<std::uint64_t, kPriorities> marked{};  // by priority
  std::uint64_t trimmed = 0;
  std::array<std::uint64_t, kPriorities> dropped{};  // by the queue, for want of room
  std::uint64_t lost = 0;                            // on the wire, or because the link was down
};

struct NetworkCounters {
  std::uint64_t link_hops = 0;  // packets that crossed a link
  std::uint64_t unroutable = 0;
};

class Network {
 public:
  // The cluster is copied. Throws Error{invalid_argument} for policies that cannot work.
  Network(const cluster::Cluster& cluster, const NetworkOptions& options, EventQueue& events,
          Endpoint& endpoint);
  ~Network();

  // Before the first packet: what differs from the options. Throws Error{invalid_argument}. Losses may change
  // at any time, but for delays.
  void set_policy(int link, const QueuePolicy& policy);
  void set_loss(int link, const LossModel& loss);
  // Links one behind the other, each passed once; a packet whose `route` is the number returned follows them.
  std::uint32_t add_route(const std::vector<int>& links);
  // Copies of a packet go along a tree: packets with kMulticast and this number as destination are copied at
  // every node onto those of `links` that leave it, and handed over at nodes that none of them leaves.
  int add_multicast(const std::vector<int>& links);

  PacketPool& packets() { return pool_; }
  // Takes the packet; it starts at `node`.
  void send(int node, Packet* packet, Picoseconds now) { forward(node, packet, now); }

  void on_arrival(std::uint32_t link, Picoseconds now);
  void on_port(std::uint32_t link, Picoseconds now);

  // What is on the way or waits there is lost. Routes avoid it from then on; packets that have come to rely
  // on it are lost.
  void set_link(int link, bool up) { set_links({link}, up); }
  void set_links(const std::vector<int>& links, bool up);
  void set_node(int node, bool up);

  // The links that a packet passes, as many as there are up to where there is no way on.
  std::vector<int> path(int from, int to, std::uint32_t route, std::uint32_t spread) const;

  // The part of the traffic of two nodes that each link carries: all of it on one path, or an even share
  // where packets take all equal ones in turn (`spread_out`). Empty: there is no way.
  struct Share {
    int link = 0;
    double part = 0;
  };
  std::vector<Share> shares(int from, int to, std::uint32_t route, std::uint32_t spread,
                            bool spread_out) const;

  const cluster::Cluster& cluster() const { return cluster_; }
  LinkCounters counters(int link) const;
  const NetworkCounters& counters() const { return counters_; }
  // What has crossed a link without being a packet here.
  void add_carried(int link, std::int64_t packets, std::int64_t bytes);
  // Bytes that have left, as far as whole packets go.
  std::int64_t sent_bytes(int link, Picoseconds now) const;
  // Bytes that wait or are being sent.
  std::int64_t queued_bytes(int link, Picoseconds now) const;
  // When all of these will have left, as far as is known now.
  Picoseconds clear_at(int link, Picoseconds now) const;

  // Fetches ahead what a packet that is sent over the link will touch.
  void fetch(int link) const;
  // The link over which a packet leaves the node that sends it; -1: there is no way.
  int first_link(int from, int to, std::uint32_t route, std::uint32_t spread) const {
    return route == kNoRoute ? forwarding_.link(from, to, spread) : routes_[route].front();
  }

 private:
  // What every hop touches, in one cache line: in a large network nearly all of an event's time goes to
  // waiting for memory. What many links have in common stands in a Shape, of which there are few.
  struct Shape {
    TransmitTime transmit;
    Picoseconds delay = 0;
    Picoseconds calm = kNever;      // the backlog, packet included, up to which nothing need be considered
    Picoseconds calm_if_idle = -1;  // the same of a queue with priorities in which nothing waits
    std::int64_t limit_bytes = 0;   // what the policy comes to here
    std::int64_t mark_bytes = 0;
    bool down = false;   // for whatever reason
    bool plain = false;  // no capacity is shared, no burst saved up, no packet held up: sent one by one
    bool port = false;   // there are priorities, or were
    QueuePolicy policy;
    bool operator==(const Shape&) const = default;
  };
  static constexpr std::uint32_t kMostShapes = 1U << 23;
  struct alignas(64) Link {
    Packet* head = nullptr;  // on the wire, by arrival
    Packet* tail = nullptr;
    Picoseconds head_arrival = 0;
    Picoseconds busy_until = 0;
    std::uint64_t packets = 0;
    std::int64_t bytes = 0;
    Picoseconds most_backlog = 0;
    std::int32_t to = 0;
    std::uint32_t lossy : 1 = 0;
    std::uint32_t waiting : 8 = 0;  // a bit for each queue of its port in which something does
    std::uint32_t shape : 23 = 0;

    void waits(unsigned queue) { waiting = (waiting | 1U << queue) & 0xffU; }
    void waits_no_more(unsigned queue) { waiting = (waiting & ~(1U << queue)) & 0xffU; }
  };
  static_assert(sizeof(Link) == 64);
  struct Queue;
  struct Port;
  struct MoreQueues;
  struct LinkDetails;
  struct CapacityGroup;

  Link& hot(int link) { return links_[static_cast<std::size_t>(link)]; }
  const Shape& shape(const Link& link) const { return shapes_[link.shape]; }
  Port& port(int link);
  Queue& queue(int link, unsigned number);
  LinkDetails& details(int link);
  std::int64_t waiting_bytes(int link) const;  // in queues with priorities

  void prefetch();
  int next_link(int node, const Packet& packet, int hop, std::uint32_t& spread) const;
  void forward(int node, Packet* packet, Picoseconds now);
  void multicast(int node, Packet* packet, Picoseconds now);
  void transmit(int link, Packet* packet, Picoseconds now);
  void transmit_with_care(int link, Packet* packet, Picoseconds now);
  bool admit(int link, Packet* packet, std::int64_t queued);
  void enqueue(int link, Packet* packet, Picoseconds now);
  bool make_way(int link, const Packet& packet);
  Packet* take_waiting(int link);
  void launch(int link, Packet* packet, Picoseconds now);
  void launch_with_others(int link, Packet* packet, Picoseconds now);
  void append(int link, Packet* packet, Picoseconds arrival);
  void insert(int link, Packet* packet, Picoseconds arrival);
  // Draws what the wire does; false when the packet is gone.
  bool survives(int link, Packet* packet, Picoseconds now);
  Packet* copy_of(const Packet& packet);
  void lose(Packet* packet);
  void settle(int link);
  Picoseconds longest_round_trip() const;
  void drop_all(int link);
  void reroute();

  const cluster::Cluster cluster_;
  EventQueue& events_;
  Endpoint& endpoint_;
  PacketPool pool_;
  Forwarding forwarding_;
  std::vector<Link, HugePages<Link>> links_;
  std::vector<Shape> shapes_;
  std::vector<Port, HugePages<Port>> ports_;  // by link; empty where none has priorities
  std::vector<LinkDetails> details_;
  std::vector<CapacityGroup> groups_;
  std::vector<std::vector<int>> routes_;
  std::vector<std::vector<int>> multicast_;  // by group and node: links, at group * nodes + node
  std::vector<bool> node_down_;
  std::uint64_t seed_;
  Picoseconds round_trip_ = 0;  // of the longest path, once some policy marks by it
  std::uint64_t fetched_ = 0;   // turns of the queue whose events' memory was asked for
  NetworkCounters counters_;
};

}  // namespace talweg::sim
