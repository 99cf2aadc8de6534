#include "sim/simulation.h"

#include <algorithm>

#include "sim/dctcp.h"
#include "sim/pulled.h"

namespace talweg::sim {

namespace {
constexpr std::uint64_t kWatchMask = (1U << 20) - 1;  // a look at a clock every tenth of a second or so
}

Simulation::Simulation(const cluster::Cluster& cluster, const SimulationOptions& options)
    : network_(cluster, options.network, events_, *this),
      transport_(make_transport(options.transport, network_, events_, *this, options.seed, now_)),
      seed_(options.seed) {
  if (options.transport.kind == TransportKind::dctcp) dctcp_ = static_cast<Dctcp*>(transport_.get());
  if (options.transport.kind == TransportKind::pulled) pulled_ = static_cast<Pulled*>(transport_.get());
}

Simulation::~Simulation() = default;

void Simulation::at(Picoseconds when, std::function<void()> call) {
  std::uint32_t slot = 0;
  if (free_calls_.empty()) {
    slot = static_cast<std::uint32_t>(calls_.size());
    calls_.push_back(std::move(call));
  } else {
    slot = free_calls_.back();
    free_calls_.pop_back();
    calls_[slot] = std::move(call);
  }
  events_.push(std::max(when, now_), EventKind::callback, slot);
}

void Simulation::every(Picoseconds first, std::function<Picoseconds()> call) {
  ++periodic_;
  at(now_ + first, [this, call = std::move(call)]() mutable {
    --periodic_;
    const Picoseconds next = call();
    if (next > 0) every(next, std::move(call));
  });
}

bool Simulation::run(Picoseconds horizon) {
  const bool ended = run_events(horizon);
  transport_->count(now_);
  return ended;
}

bool Simulation::run_events(Picoseconds horizon) {
  stopped_ = false;
  while (events_.size() > periodic_ && !stopped_) {
    const Event event = events_.top();
    if (event.time > horizon) return false;
    now_ = event.time;
    if ((++events_done_ & kWatchMask) == 0 && watcher_) watcher_();
    switch (event.kind()) {
      case EventKind::arrival:
        network_.on_arrival(event.target(), now_);
        break;
      case EventKind::port:
        network_.on_port(event.target(), now_);
        break;
      case EventKind::timer:
        if (dctcp_ != nullptr)
          dctcp_->on_timer(event.target(), now_);
        else if (pulled_ != nullptr)
          pulled_->on_timer(event.target(), now_);
        else
          transport_->on_timer(event.target(), now_);
        break;
      case EventKind::callback: {
        events_.pop();
        const auto call = std::move(calls_[event.target()]);
        free_calls_.push_back(event.target());
        call();
        break;
      }
    }
  }
  return true;
}

void Simulation::on_packet(int node, Packet* packet) {
  if (packet->kind != PacketKind::datagram) {
    if (dctcp_ != nullptr)
      dctcp_->on_packet(packet, now_);
    else if (pulled_ != nullptr)
      pulled_->on_packet(packet, now_);
    else
      transport_->on_packet(packet, now_);
    return;
  }
  const auto it = ports_.find({node, packet->flow});
  if (it != ports_.end()) it->second(*packet);
  network_.packets().give_back(packet);
}

void Simulation::on_near(const Packet& packet) {
  if (packet.kind == PacketKind::datagram) return;
  transport_->fetch(packet.flow);
  if (pulled_ != nullptr) pulled_->fetch_own(packet.flow, packet.destination);
}

void Simulation::on_near_timer(std::uint32_t target, int slots) {
  if (pulled_ != nullptr) pulled_->fetch_timer(target, slots);
}

void Simulation::on_delivered(FlowId flow, std::int64_t bytes, Picoseconds now) {
  if (FlowClient* client = client_of(flow); client != nullptr) client->on_delivered(flow, bytes, now);
}

void Simulation::on_writable(FlowId flow, Picoseconds now) {
  if (FlowClient* client = client_of(flow); client != nullptr) client->on_writable(flow, now);
}

FlowId Simulation::open(const FlowOptions& options, FlowClient& client) {
  const FlowId flow = transport_->open(options);
  clients_.resize(flow + 1, nullptr);
  clients_[flow] = &client;
  return flow;
}

void Simulation::forget(const FlowClient& client) {
  std::replace_if(
      clients_.begin(), clients_.end(), [&](const FlowClient* c) { return c == &client; }, nullptr);
}

void Simulation::set_node(int node, bool up) {
  network_.set_node(node, up);
  transport_->on_reroute(now_);
  remember({node, {}, now_}, up);
}

void Simulation::set_links(const std::vector<int>& links, bool up) {
  network_.set_links(links, up);
  transport_->on_reroute(now_);
  remember({-1, links, now_}, up);
}

void Simulation::remember(const Outage& outage, bool up) {
  const auto known = std::ranges::find_if(
      outages_, [&](const Outage& o) { return o.node == outage.node && o.links == outage.links; });
  if (up && known != outages_.end()) outages_.erase(known);
  if (!up && known == outages_.end()) outages_.push_back(outage);
}

void Simulation::bind(int node, std::uint32_t port, DatagramHandler handler) {
  ports_[{node, port}] = std::move(handler);
}

void Simulation::send(const Datagram& datagram) {
  Packet* packet = network_.packets().take();
  *packet = Packet{};
  packet->kind = PacketKind::datagram;
  packet->sent = now_;
  packet->source = datagram.from;
  packet->destination = datagram.to;
  packet->flow = datagram.port;
  packet->number = datagram.number;
  packet->bytes = datagram.bytes;
  packet->priority = datagram.priority;
  packet->route = datagram.route;
  packet->spread = datagram.spread;
  packet->flags = static_cast<std::uint8_t>((datagram.multicast ? kMulticast : 0) |
                                            (datagram.unmarkable ? kUnmarkable : 0));
  network_.send(datagram.from, packet, now_);
}

}  // namespace talweg::sim
