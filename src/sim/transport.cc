#include "sim/transport.h"

#include <algorithm>
#include <utility>

#include "base/fail.h"
#include "sim/dctcp.h"
#include "sim/fluid.h"
#include "sim/pfabric.h"
#include "sim/pulled.h"

namespace talweg::sim {

namespace {
constexpr std::size_t kFirstRing = 64;  // segments; the arrival bits are whole words of as many
constexpr std::uint32_t kPathlessWindow = 10;
}  // namespace

Transport::Transport(const TransportOptions& options, Network& network, EventQueue& events,
                     FlowClient& client, std::uint64_t seed)
    : options_(options), network_(network), events_(events), client_(client), random_(seed, 1) {
  const cluster::Cluster& cluster = network.cluster();
  if (cluster.links.size() >= kHost - kTurn || cluster.nodes.size() >= EventQueue::kMaxTargets - kHost)
    refuse("a network of {} nodes and {} links is too large", cluster.nodes.size(), cluster.links.size());
  if (options.turns) turns_.resize(cluster.links.size());
}

FlowId Transport::open(const FlowOptions& options) {
  if (senders_.size() >= kMostFlows) refuse("more than {} flows: expected fewer in one run", kMostFlows);
  const auto id = static_cast<FlowId>(senders_.size());
  flows_.push_back(options);
  receivers_.emplace_back();
  senders_.emplace_back().spread = static_cast<std::uint32_t>(random_.next());
  opened(id);
  return id;
}

void Transport::write(FlowId flow, std::int64_t bytes, Picoseconds now) {
  senders_[flow].unsent += bytes;
  senders_[flow].written += bytes;
  pump(flow, now);
}

std::uint32_t Transport::cut_segment(FlowId flow) {
  Sender& s = senders_[flow];
  if (s.next - s.first == s.ring.size()) make_room(s, receivers_[flow]);
  const std::int64_t bytes = std::min<std::int64_t>(s.unsent, options_.payload_bytes);
  Segment& segment = s.segment(s.next);
  segment.bytes = static_cast<std::uint16_t>(bytes);
  segment.state = State::in_flight;
  segment.asked = false;
  s.unsent -= bytes;
  segment.pushed = s.unsent == 0;
  return s.next++;
}

Packet* Transport::packet_of(FlowId flow, std::uint32_t number, Picoseconds now) {
  Sender& s = senders_[flow];
  const FlowOptions& f = flows_[flow];
  Segment& segment = s.segment(number);
  segment.sent = now;
  s.in_flight += segment.bytes;
  ++s.sent_segments;
  Packet* packet = network_.packets().take();
  packet->sent = now;
  packet->flow = flow;
  packet->number = number;
  packet->source = f.from;
  packet->destination = f.to;
  packet->spread = options_.spray ? s.spread++ : s.spread;
  packet->route = f.route;
  packet->bytes = static_cast<std::uint16_t>(segment.bytes + options_.header_bytes);
  packet->hop = 0;
  packet->priority =
      static_cast<std::uint8_t>(std::min(f.priority + options_.data_priority, kPriorities - 1));
  packet->kind = PacketKind::data;
  packet->flags = 0;
  return packet;
}

std::int64_t Transport::acknowledge(Sender& s, std::uint32_t number) {
  Segment& segment = s.segment(number);
  if (segment.state == State::acknowledged) return 0;
  if (segment.state != State::lost) s.in_flight -= segment.bytes;
  segment.state = State::acknowledged;
  return segment.bytes;
}

std::int64_t Transport::acknowledge_before(Sender& s, std::uint32_t number) {
  std::int64_t bytes = 0;
  for (; s.first < number; ++s.first) bytes += acknowledge(s, s.first);
  while (s.first != s.next && s.segment(s.first).state == State::acknowledged) ++s.first;
  return bytes;
}

void Transport::lose(Sender& s, std::uint32_t number) {
  Segment& segment = s.segment(number);
  segment.state = State::lost;
  s.in_flight -= segment.bytes;
  s.lost.push(number);
}

void Transport::measure(Sender& s, Picoseconds round_trip) {
  if (s.round_trip == 0) {
    s.round_trip = std::max<Picoseconds>(round_trip, 1);
    s.deviation = round_trip / 2;
    return;
  }
  const Picoseconds error = round_trip - s.round_trip;
  s.round_trip += error / 8;
  s.deviation += ((error < 0 ? -error : error) - s.deviation) / 4;
}

Picoseconds Transport::timeout(const Sender& s) const {
  const Picoseconds base = s.round_trip == 0
                               ? picoseconds(options_.first_rto)
                               : std::max(picoseconds(options_.least_rto), s.round_trip + 4 * s.deviation);
  return std::min(base << s.backoff, picoseconds(options_.most_rto));
}

void Transport::arrive(FlowId flow, std::uint32_t number) {
  Receiver& r = receivers_[flow];
  const std::uint32_t bits = static_cast<std::uint32_t>(r.arrived.size()) * 64;
  const auto word = [&](std::uint32_t n) -> std::uint64_t& { return r.arrived[(n & (bits - 1)) / 64]; };
  const auto bit = [](std::uint32_t n) { return std::uint64_t{1} << (n % 64); };
  if (number - r.expected >= bits) return;
  word(number) |= bit(number);
  Sender& s = senders_[flow];
  while ((word(r.expected) & bit(r.expected)) != 0) {
    word(r.expected) &= ~bit(r.expected);
    r.delivered += s.segment(r.expected).bytes;
    ++r.expected;
  }
}

void Transport::turn_around(Packet* packet, std::uint32_t expected) const {
  packet->kind = PacketKind::acknowledgement;
  packet->echo = packet->number;
  packet->number = expected;
  packet->bytes = static_cast<std::uint16_t>(options_.acknowledgement_bytes);
  packet->hop = 0;
  packet->route = kNoRoute;
  packet->priority = static_cast<std::uint8_t>(options_.acknowledgement_priority);
  std::swap(packet->source, packet->destination);
  packet->spread = packet->flow * 0x9E3779B1U + (options_.spray ? packet->echo : 0);
}

void Transport::answer(Packet* packet, Picoseconds now) {
  turn_around(packet, receivers_[packet->flow].expected);
  const int here = packet->source;
  network_.send(here, packet, now);
}

void Transport::acknowledge_segment(Packet* packet, Picoseconds now) {
  const FlowId flow = packet->flow;
  receivers_[flow].heard = now;
  if ((packet->flags & kTrimmed) == 0) arrive(flow, packet->number);
  answer(packet, now);
  tell_delivered(flow, now);
}

Transport::PathTrip Transport::path_trip(const FlowOptions& f) const {
  const auto& links = network_.cluster().links;
  PathTrip trip;
  const auto add = [&](int from, int to, std::uint32_t route, std::int64_t bytes) {
    for (const int l : network_.path(from, to, route, 0)) {
      const cluster::Link& link = links[static_cast<std::size_t>(l)];
      const Picoseconds took = TransmitTime(link.capacity).of(bytes);
      trip.round_trip += took + picoseconds(link.latency);
      if (bytes == options_.payload_bytes + options_.header_bytes)
        trip.slowest = std::max(trip.slowest, took);
    }
  };
  add(f.from, f.to, f.route, options_.payload_bytes + options_.header_bytes);
  if (trip.slowest > 0) add(f.to, f.from, kNoRoute, options_.acknowledgement_bytes);
  return trip;
}

std::uint32_t Transport::PathTrip::segments() const {
  return slowest == 0 ? kPathlessWindow : static_cast<std::uint32_t>(round_trip / slowest) + 1;
}

void Transport::bring_forward(RingQueue<FlowId>& ready) const {
  std::size_t least = 0;
  for (std::size_t i = 1; i < ready.size(); ++i)
    if (left(ready[i]) < left(ready[least])) least = i;
  // The others keep their order.
  for (; least > 0; --least) std::swap(ready[least], ready[least - 1]);
}

void Transport::tell_delivered(FlowId flow, Picoseconds now) {
  Receiver& r = receivers_[flow];
  if (r.delivered < r.notify_at) return;
  r.notify_at = kNever;
  client_.on_delivered(flow, r.delivered, now);
}

void Transport::tell_writable(FlowId flow, Picoseconds now) {
  Sender& s = senders_[flow];
  if (s.unsent >= s.low_water) return;
  s.low_water = 0;
  client_.on_writable(flow, now);
}

void Transport::make_room(Sender& s, Receiver& r) {
  std::vector<Segment> ring(std::max(s.ring.size() * 2, kFirstRing));
  const std::uint32_t begin = s.next - static_cast<std::uint32_t>(s.ring.size());
  for (std::uint32_t n = begin; n != s.next; ++n) ring[n & (ring.size() - 1)] = s.segment(n);
  s.ring = std::move(ring);
  const std::uint32_t old_bits = static_cast<std::uint32_t>(r.arrived.size()) * 64;
  std::vector<std::uint64_t> arrived(s.ring.size() / 64);
  for (std::uint32_t n = r.expected; n != r.expected + old_bits; ++n)
    if ((r.arrived[(n & (old_bits - 1)) / 64] >> (n % 64) & 1) != 0)
      arrived[(n & (static_cast<std::uint32_t>(s.ring.size()) - 1)) / 64] |= std::uint64_t{1} << (n % 64);
  r.arrived = std::move(arrived);
}

FlowCounters Transport::counters(FlowId flow) const {
  const Sender& s = senders_[flow];
  return {s.written, receivers_[flow].delivered, s.sent_segments, s.retransmissions, s.timeouts, s.marks};
}

std::unique_ptr<Transport> make_transport(const TransportOptions& options, Network& network,
                                          EventQueue& events, FlowClient& client, std::uint64_t seed,
                                          const Picoseconds& clock) {
  if (options.kind == TransportKind::pulled)
    return std::make_unique<Pulled>(options, network, events, client, seed);
  if (options.kind == TransportKind::pfabric)
    return std::make_unique<PFabric>(options, network, events, client, seed);
  if (options.kind == TransportKind::fluid)
    return std::make_unique<Fluid>(options, network, events, client, seed, clock);
  return std::make_unique<Dctcp>(options, network, events, client, seed);
}

}  // namespace talweg::sim
