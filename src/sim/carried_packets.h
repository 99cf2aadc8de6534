// CarriedPackets: somebody else's packets, carried through a simulated network by whatever clock drives it:
// priorities, marks, selective dropping, shallow buffers, delays and losses without a protocol of ours.
//
//   CarriedPackets carried(cluster, options, 1 << 12, [&](const CarriedPackets::Arrival& a) {
//     hand_over(a.node, my_bytes[a.slot], a.marked);
//   });
//   carried.advance(now);                               // what has arrived by then is handed out
//   if (const auto slot = carried.put({.from = 0, .to = 1, .bytes = 1514}, now)) my_bytes[*slot] = ...;
//   sleep_until(carried.next());
//
// A packet is known by its slot, of which there are as many as may be inside at once. A slot is free again
// once nothing of its packet is on the way: it has arrived, twice where the network doubled it, or was lost,
// of which nobody is told. Nothing is allocated per packet once as many as ever have been inside.
//
// Times do not go back; what is put at an earlier time than the last is put at that one. A run may last 100
// days, or 2^38 events.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "cluster/cluster.h"
#include "sim/event_queue.h"
#include "sim/network.h"
#include "sim/packet.h"
#include "sim/time.h"
#include "sim/workload.h"

namespace talweg::sim {

class CarriedPackets : private Endpoint {
 public:
  struct Packet {
    int from = 0;  // nodes of the cluster
    int to = 0;
    std::uint16_t bytes = 0;    // on the wire
    std::uint8_t priority = 0;  // 0 is the most urgent
    bool markable = true;       // else dropped where others are marked
    std::uint32_t spread = 0;   // chooses among equal paths: the same for all packets of a flow
  };
  struct Arrival {
    int node = 0;
    std::uint32_t slot = 0;
    Picoseconds time = 0;  // at which it arrived, not after what advance() was told
    bool marked = false;
    bool damaged = false;  // bits were flipped on the way
  };
  using Taker = std::function<void(const Arrival&)>;

  // `most`: packets inside at once. `take` is called by advance(), and by put() between a node and itself; it
  // must not put. Throws Error{invalid_argument} for policies that cannot work.
  CarriedPackets(const cluster::Cluster& cluster, const NetworkOptions& options, std::uint32_t most,
                 Taker take);
  CarriedPackets(const CarriedPackets&) = delete;
  CarriedPackets& operator=(const CarriedPackets&) = delete;

  // What fails and is repaired at its time.
  void schedule(std::vector<NetworkChange> changes);

  // The slot that the packet has from now on; none: there is no free one, and the packet was not taken. A
  // slot may be free again at once, where the first queue drops its packet.
  std::optional<std::uint32_t> put(const Packet& packet, Picoseconds now);
  void advance(Picoseconds now);
  // When something happens next; kNever: nothing is on the way.
  Picoseconds next();

  bool full() const { return free_.empty(); }
  std::size_t inside() const { return copies_.size() - free_.size(); }
  const Network& network() const { return network_; }

 private:
  void on_packet(int node, sim::Packet* packet) override;
  void on_copied(const sim::Packet& packet) override;
  void on_lost(const sim::Packet& packet) override;
  void change();

  EventQueue events_;
  Network network_;
  Taker take_;
  Picoseconds now_ = 0;
  std::vector<std::uint32_t> copies_;   // on the way, by slot
  std::vector<std::uint32_t> free_;     // slots
  std::vector<NetworkChange> changes_;  // the next one last
};

}  // namespace talweg::sim
