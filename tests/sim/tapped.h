// A network with a transport on it, and a note of every packet that reaches a host.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "cluster/cluster.h"
#include "sim/event_queue.h"
#include "sim/network.h"
#include "sim/packet.h"
#include "sim/simulation.h"
#include "sim/time.h"
#include "sim/transport.h"

namespace talweg::sim {

class Tapped : private Endpoint, private FlowClient {
 public:
  Tapped(const cluster::Cluster& cluster, const SimulationOptions& options)
      : network(cluster, options.network, events, *this),
        transport(make_transport(options.transport, network, events, *this, options.seed, now)) {}

  // A packet that is nobody's, of a flow that has so many bytes left.
  void put(int from, int to, std::uint32_t flow, std::uint32_t number, std::uint32_t left,
           std::uint16_t bytes = 1500) {
    Packet* packet = network.packets().take();
    *packet = Packet{};
    packet->kind = PacketKind::datagram;
    packet->source = from;
    packet->destination = to;
    packet->flow = flow;
    packet->number = number;
    packet->credit = left;
    packet->bytes = bytes;
    network.send(from, packet, now);
  }
  // Until nothing is left to happen, or up to then.
  void run(Picoseconds until = kNever) {
    while (!events.empty() && events.top().time <= until) {
      const Event event = events.top();
      now = event.time;
      ++happened;
      if (event.kind() == EventKind::arrival)
        network.on_arrival(event.target(), now);
      else if (event.kind() == EventKind::port)
        network.on_port(event.target(), now);
      else
        transport->on_timer(event.target(), now);
    }
    if (until != kNever) now = until;
  }
  // Of data and datagrams.
  std::vector<std::uint32_t> numbers() const {
    std::vector<std::uint32_t> all;
    for (const Packet& p : arrived)
      if (p.kind != PacketKind::acknowledgement) all.push_back(p.number);
    return all;
  }

  EventQueue events;
  Network network;
  Picoseconds now = 0;
  std::unique_ptr<Transport> transport;
  std::vector<Packet> arrived;
  std::uint64_t happened = 0;

 private:
  void on_packet(int, Packet* packet) override {
    arrived.push_back(*packet);
    if (packet->kind == PacketKind::datagram)
      network.packets().give_back(packet);
    else
      transport->on_packet(packet, now);
  }
  void on_delivered(FlowId, std::int64_t, Picoseconds) override {}
  void on_writable(FlowId, Picoseconds) override {}
};

}  // namespace talweg::sim
