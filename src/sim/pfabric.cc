#include "sim/pfabric.h"

#include <algorithm>
#include <limits>

namespace talweg::sim {

namespace {

constexpr int kRoundTrips = 3;      // of a timeout
constexpr int kProbesAfter = 5;     // timeouts without an answer
constexpr int kRarerAfter = 128;    // timeouts and probes; then half as often each time
constexpr int kMostTimeouts = 200;  // that are counted
constexpr int kProbeBytes = 1;      // of payload

}  // namespace

PFabric::PFabric(const TransportOptions& options, Network& network, EventQueue& events, FlowClient& client,
                 std::uint64_t seed)
    : Transport(with_turns(options), network, events, client, seed) {
  least_left_first_ = true;
}

void PFabric::opened(FlowId flow) {
  Window& w = windows_.emplace_back();
  const PathTrip trip = path_trip(flows_[flow]);
  const std::int64_t segments = options_.first_window > 0 ? options_.first_window : trip.segments();
  w.most = std::max<std::int64_t>(std::min(segments * options_.payload_bytes, options_.most_window_bytes),
                                  options_.payload_bytes);
  w.bytes = w.threshold = w.most;
  w.timeout = picoseconds(options_.least_rto);
  if (w.timeout == 0) w.timeout = kRoundTrips * trip.round_trip;
  if (w.timeout == 0) w.timeout = picoseconds(options_.first_rto);  // there is no way yet
}

void PFabric::on_packet(Packet* packet, Picoseconds now) {
  if ((packet->flags & kDamaged) != 0) {
    network_.packets().give_back(packet);
  } else if (packet->kind == PacketKind::data) {
    packet->credit = 0;  // an answer goes before all segments
    acknowledge_segment(packet, now);
  } else {
    on_answer(packet, now);
  }
}

void PFabric::on_answer(Packet* packet, Picoseconds now) {
  const FlowId flow = packet->flow;
  Sender& s = senders_[flow];
  const std::uint32_t number = packet->number;
  const std::uint32_t echo = packet->echo;
  const Picoseconds sent = packet->sent;
  const std::uint8_t flags = packet->flags;
  network_.packets().give_back(packet);
  s.answered = now;
  s.backoff = 0;
  std::int64_t bytes = 0;
  if (echo >= s.first && (flags & kTrimmed) == 0) bytes += acknowledge(s, echo);
  bytes += acknowledge_before(s, number);
  measure(s, now - sent);
  if ((flags & kMarked) != 0) ++s.marks;
  windows_[flow].acknowledged += bytes;
  grow(windows_[flow], bytes);
  pump(flow, now);
}

void PFabric::grow(Window& w, std::int64_t bytes) const {
  if (w.bytes < w.threshold) {
    w.bytes += bytes;
  } else {
    w.growth += bytes;
    if (w.growth >= w.bytes) {
      w.growth -= w.bytes;
      w.bytes += options_.payload_bytes;
    }
  }
  w.bytes = std::min(w.bytes, w.most);
}

bool PFabric::send_one(FlowId flow, Picoseconds now) {
  Sender& s = senders_[flow];
  if (s.backoff >= kProbesAfter) return false;
  while (!s.lost.empty() && (s.lost.front() < s.first || s.segment(s.lost.front()).state != State::lost))
    s.lost.pop();
  const bool again = !s.lost.empty();
  if (!again && s.unsent == 0) return false;
  const std::int64_t bytes =
      again ? s.segment(s.lost.front()).bytes : std::min<std::int64_t>(s.unsent, options_.payload_bytes);
  if (s.in_flight > 0 && s.in_flight + bytes > windows_[flow].bytes) return false;
  if (again) {
    const std::uint32_t number = s.lost.pop();
    s.segment(number).state = State::in_flight;
    ++s.retransmissions;
    transmit(flow, number, false, now);
  } else {
    transmit(flow, cut_segment(flow), false, now);
  }
  return true;
}

void PFabric::transmit(FlowId flow, std::uint32_t number, bool probe, Picoseconds now) {
  constexpr std::int64_t kMost = std::numeric_limits<std::uint32_t>::max();
  Sender& s = senders_[flow];
  Packet* packet = packet_of(flow, number, now);
  packet->credit = static_cast<std::uint32_t>(std::min(left(flow), kMost));
  if (probe) {  // its segment is as lost as it was
    s.in_flight -= s.segment(number).bytes;
    packet->bytes = static_cast<std::uint16_t>(options_.header_bytes + kProbeBytes);
    packet->flags |= kTrimmed;
  }
  network_.send(flows_[flow].from, packet, now);
}

auto PFabric::sender(Picoseconds now) {
  return [this, now](FlowId flow) {
    if (!send_one(flow, now)) return false;
    arm(flow, now + windows_[flow].timeout);
    tell_writable(flow, now);
    return true;
  };
}

void PFabric::pump(FlowId flow, Picoseconds now) {
  auto send = sender(now);
  offer(flow, now, send);
  tell_writable(flow, now);
}

void PFabric::arm(FlowId flow, Picoseconds when) {
  Sender& s = senders_[flow];
  if (when >= s.timer_at) return;
  s.timer_at = when;
  events_.push(when, EventKind::timer, flow);
}

void PFabric::on_timer(std::uint32_t target, Picoseconds now) {
  events_.pop();
  if (target >= kTurn) {
    auto send = sender(now);
    take_turns(static_cast<int>(target - kTurn), true, now, send);
  } else {
    on_flow_timer(target, now);
  }
}

void PFabric::on_flow_timer(FlowId flow, Picoseconds now) {
  Sender& s = senders_[flow];
  Window& w = windows_[flow];
  if (s.timer_at != now) return;  // an earlier one took its place
  s.timer_at = kNever;
  if (s.first == s.next) return;
  Picoseconds oldest = kNever;
  Picoseconds newest_late = -1;
  for (std::uint32_t n = s.first; n != s.next; ++n) {
    const Segment& segment = s.segment(n);
    if (segment.state != State::in_flight) continue;
    if (segment.sent + w.timeout > now) {
      oldest = std::min(oldest, segment.sent);
      continue;
    }
    newest_late = std::max(newest_late, segment.sent);
    lose(s, n);
  }
  const bool probing = s.backoff >= kProbesAfter;
  if (newest_late > w.cut || (probing && s.in_flight == 0)) {
    ++s.timeouts;
    s.backoff = static_cast<std::uint8_t>(std::min(s.backoff + 1, kMostTimeouts));
    const std::int64_t segment = options_.payload_bytes;
    if (w.bytes > segment) w.threshold = std::max(w.bytes / 2, 2 * segment);
    w.bytes = segment;
    w.growth = 0;
    w.cut = now;
  }
  if (oldest != kNever) arm(flow, oldest + w.timeout);
  if (s.backoff < kProbesAfter) {
    pump(flow, now);
    return;
  }
  if (s.in_flight > 0) return;
  transmit(flow, s.first, true, now);
  const int doublings = std::max(0, s.backoff - kRarerAfter);
  arm(flow, now + std::min(w.timeout << std::min(doublings, 24), picoseconds(options_.most_rto)));
}

}  // namespace talweg::sim
