#include "sim/reliable.h"

#include <algorithm>

namespace talweg::sim {

namespace {
constexpr int kAlphaShift = 4;  // the gain of 1/16 of RFC 8257
constexpr std::int64_t kAlphaOne = 1 << 20;
constexpr std::uint32_t kReordered = 3;  // numbers
constexpr int kMostBackoff = 8;          // doublings
}  // namespace

Reliable::Reliable(const TransportOptions& options, Network& network, EventQueue& events, FlowClient& client,
                   std::uint64_t seed)
    : options_(options), network_(network), events_(events), client_(client), random_(seed, 1) {}

FlowId Reliable::open(const FlowOptions& options) {
  const auto id = static_cast<FlowId>(senders_.size());
  flows_.push_back(options);
  receivers_.emplace_back();
  receivers_.back().arrived.resize(1);
  Sender& s = senders_.emplace_back();
  s.ring.resize(64);
  s.window = static_cast<std::int64_t>(options_.first_window) * options_.payload_bytes;
  s.threshold = options_.most_window_bytes;
  s.alpha = kAlphaOne;
  s.spread = static_cast<std::uint32_t>(random_.next());
  return id;
}

void Reliable::write(FlowId flow, std::int64_t bytes, Picoseconds now) {
  senders_[flow].unsent += bytes;
  senders_[flow].written += bytes;
  pump(flow, now);
}

void Reliable::on_packet(Packet* packet, Picoseconds now) {
  if ((packet->flags & kDamaged) != 0)
    network_.packets().give_back(packet);
  else if (packet->kind == PacketKind::data)
    on_segment(packet, now);
  else
    on_acknowledgement(packet, now);
}

// The segment's packet turns around and becomes its acknowledgement.
void Reliable::on_segment(Packet* packet, Picoseconds now) {
  const FlowId flow = packet->flow;
  Receiver& r = receivers_[flow];
  r.heard = now;
  const std::uint32_t number = packet->number;
  const std::uint32_t bits = static_cast<std::uint32_t>(r.arrived.size()) * 64;
  const bool trimmed = (packet->flags & kTrimmed) != 0;
  const auto word = [&](std::uint32_t n) -> std::uint64_t& { return r.arrived[(n & (bits - 1)) / 64]; };
  const auto bit = [](std::uint32_t n) { return std::uint64_t{1} << (n % 64); };
  if (!trimmed && number - r.expected < bits) {
    word(number) |= bit(number);
    Sender& s = senders_[flow];
    while ((word(r.expected) & bit(r.expected)) != 0) {
      word(r.expected) &= ~bit(r.expected);
      r.delivered += s.segment(r.expected).bytes;
      ++r.expected;
    }
  }
  packet->kind = PacketKind::acknowledgement;
  packet->echo = number;
  packet->number = r.expected;
  packet->bytes = static_cast<std::uint16_t>(options_.acknowledgement_bytes);
  packet->hop = 0;
  packet->route = kNoRoute;
  packet->priority = static_cast<std::uint8_t>(options_.acknowledgement_priority);
  std::swap(packet->source, packet->destination);
  packet->spread = flow * 0x9E3779B1U + (options_.spray ? number : 0);
  const int here = packet->source;
  network_.send(here, packet, now);
  if (r.delivered >= r.notify_at) {
    r.notify_at = kNever;
    client_.on_delivered(flow, r.delivered, now);
  }
}

// Bytes that are newly known to have arrived.
std::int64_t Reliable::acknowledge(Sender& s, std::uint32_t number) {
  Segment& segment = s.segment(number);
  if (segment.state == State::acknowledged) return 0;
  if (segment.state != State::lost) s.in_flight -= segment.bytes;
  segment.state = State::acknowledged;
  return segment.bytes;
}

void Reliable::on_acknowledgement(Packet* packet, Picoseconds now) {
  const FlowId flow = packet->flow;
  Sender& s = senders_[flow];
  const std::uint32_t number = packet->number;
  const std::uint32_t echo = packet->echo;
  const Picoseconds sent = packet->sent;
  const std::uint8_t flags = packet->flags;
  network_.packets().give_back(packet);
  s.answered = now;

  const bool limited = s.in_flight + options_.payload_bytes > s.window;
  const bool trimmed = (flags & kTrimmed) != 0;
  std::int64_t bytes = 0;
  const bool known = echo >= s.first;
  if (known && !trimmed) bytes += acknowledge(s, echo);
  for (; s.first < number; ++s.first) bytes += acknowledge(s, s.first);
  while (s.first != s.next && s.segment(s.first).state == State::acknowledged) ++s.first;
  s.scan = std::max(s.scan, s.first);
  measure(s, now - sent);
  if (!trimmed) {
    s.newest = std::max(s.newest, sent);
    s.highest = std::max({s.highest, s.first, echo + 1});
  }

  const bool marked = trimmed || (flags & kMarked) != 0;
  s.acknowledged += bytes;
  if (marked) {
    ++s.marks;
    s.marked += std::max<std::int64_t>(bytes, 1);
  }
  if (s.first >= s.window_end) renew_alpha(s);
  if (marked && s.first >= s.recover)
    cut(s, s.window - ((s.window * s.alpha) >> 21));
  else if (bytes > 0)
    grow(s, bytes, limited);
  if (known && trimmed && s.segment(echo).state != State::acknowledged &&
      s.segment(echo).state != State::lost && s.segment(echo).sent == sent)
    lose(s, echo);
  find_losses(s);
  if (bytes > 0) s.backoff = 0;
  set_timer(flow, now);
  pump(flow, now);
}

void Reliable::renew_alpha(Sender& s) {
  const std::int64_t share =
      s.acknowledged == 0 ? 0 : std::min(kAlphaOne, s.marked * kAlphaOne / s.acknowledged);
  s.alpha += (share - s.alpha) >> kAlphaShift;
  s.acknowledged = s.marked = 0;
  s.window_end = s.next;
}

void Reliable::cut(Sender& s, std::int64_t window) {
  const std::int64_t least = static_cast<std::int64_t>(options_.least_window) * options_.payload_bytes;
  s.window = std::max(window, least);
  s.threshold = s.window;
  s.growth = 0;
  s.recover = s.next;
}

void Reliable::grow(Sender& s, std::int64_t bytes, bool limited) {
  if (!limited) return;
  if (s.window < s.threshold) {
    s.window += bytes;
  } else {
    s.growth += bytes;
    if (s.growth >= s.window) {
      s.growth -= s.window;
      s.window += options_.payload_bytes;
    }
  }
  s.window = std::min(s.window, options_.most_window_bytes);
}

void Reliable::measure(Sender& s, Picoseconds round_trip) {
  if (s.round_trip == 0) {
    s.round_trip = std::max<Picoseconds>(round_trip, 1);
    s.deviation = round_trip / 2;
    return;
  }
  const Picoseconds error = round_trip - s.round_trip;
  s.round_trip += error / 8;
  s.deviation += ((error < 0 ? -error : error) - s.deviation) / 4;
}

void Reliable::find_losses(Sender& s) {
  // Over several paths what was sent up to a round trip later may overtake.
  const Picoseconds limit = s.newest - (options_.spray ? s.round_trip : 0);
  const std::uint32_t below = s.highest - std::min(s.highest, kReordered);
  bool lost = false;
  for (; s.scan != s.next && s.scan < below; ++s.scan) {
    const Segment& segment = s.segment(s.scan);
    if (segment.state != State::in_flight) continue;
    if (segment.sent > limit) break;
    lose(s, s.scan);
    lost = true;
  }
  // A retransmission has no number of its own: only time can tell.
  while (!s.sent_again.empty()) {
    const std::uint32_t number = s.sent_again.front();
    if (number >= s.first && s.segment(number).state == State::sent_again) {
      if (s.segment(number).sent + s.round_trip / 4 >= limit) break;
      lose(s, number);
      lost = true;
    }
    s.sent_again.pop();
  }
  if (lost && s.first >= s.recover) cut(s, s.window / 2);
}

void Reliable::lose(Sender& s, std::uint32_t number) {
  Segment& segment = s.segment(number);
  segment.state = State::lost;
  s.in_flight -= segment.bytes;
  s.lost.push(number);
}

void Reliable::transmit(FlowId flow, std::uint32_t number, Picoseconds now) {
  Sender& s = senders_[flow];
  const FlowOptions& f = flows_[flow];
  Segment& segment = s.segment(number);
  segment.sent = now;
  s.in_flight += segment.bytes;
  ++s.sent_segments;
  if (pace_of(flow) > 0)
    paces_[flow].clear = std::max(paces_[flow].clear, now) + paces_[flow].gap.of(segment.bytes);
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
  packet->priority = static_cast<std::uint8_t>(f.priority);
  packet->kind = PacketKind::data;
  packet->flags = 0;
  network_.send(f.from, packet, now);
}

void Reliable::pace(FlowId flow, double bytes_per_second) {
  if (flow >= paces_.size()) {
    if (bytes_per_second == 0) return;
    paces_.resize(flow + 1);
  }
  paces_[flow].bytes_per_second = bytes_per_second;
  if (bytes_per_second > 0) paces_[flow].gap = TransmitTime(Bandwidth{8 * bytes_per_second});
}

// A flow whose pace does not let it send yet is woken when it does.
bool Reliable::clear_to_send(FlowId flow, Picoseconds now) {
  if (pace_of(flow) == 0 || paces_[flow].clear <= now) return true;
  Pace& held = paces_[flow];
  if (held.wake_at != held.clear) {
    held.wake_at = held.clear;
    events_.push(held.clear, EventKind::timer, flow);
  }
  return false;
}

void Reliable::pump(FlowId flow, Picoseconds now) {
  Sender& s = senders_[flow];
  bool sent = false;
  while (!s.lost.empty()) {
    const std::uint32_t number = s.lost.front();
    if (number >= s.first && s.segment(number).state == State::lost) {
      if (s.in_flight > 0 && s.in_flight + s.segment(number).bytes > s.window) break;
      s.segment(number).state = State::sent_again;
      s.sent_again.push(number);
      ++s.retransmissions;
      transmit(flow, number, now);
      sent = true;
    }
    s.lost.pop();
  }
  while (s.unsent > 0 && s.lost.empty()) {
    const std::int64_t bytes = std::min<std::int64_t>(s.unsent, options_.payload_bytes);
    if (s.in_flight > 0 && s.in_flight + bytes > s.window) break;
    if (!clear_to_send(flow, now)) break;
    if (s.next - s.first == s.ring.size()) make_room(s, receivers_[flow]);
    Segment& segment = s.segment(s.next);
    segment.bytes = static_cast<std::uint16_t>(bytes);
    segment.state = State::in_flight;
    s.unsent -= bytes;
    transmit(flow, s.next++, now);
    sent = true;
  }
  if (sent && s.deadline == kNever) set_timer(flow, now);
  if (s.unsent < s.low_water) {
    s.low_water = 0;
    client_.on_writable(flow, now);
  }
}

void Reliable::make_room(Sender& s, Receiver& r) {
  std::vector<Segment> ring(s.ring.size() * 2);
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

Picoseconds Reliable::timeout(const Sender& s) const {
  const Picoseconds base = s.round_trip == 0
                               ? picoseconds(options_.first_rto)
                               : std::max(picoseconds(options_.least_rto), s.round_trip + 4 * s.deviation);
  return std::min(base << s.backoff, picoseconds(options_.most_rto));
}

void Reliable::set_timer(FlowId flow, Picoseconds now) {
  Sender& s = senders_[flow];
  if (s.first == s.next) {
    s.deadline = kNever;
    return;
  }
  s.deadline = now + timeout(s);
  if (s.deadline >= s.timer_at) return;
  s.timer_at = s.deadline;
  events_.push(s.deadline, EventKind::timer, flow);
}

void Reliable::on_timer(FlowId flow, Picoseconds now) {
  if (flow < paces_.size() && paces_[flow].wake_at == now) {
    events_.pop();
    paces_[flow].wake_at = kNever;
    pump(flow, now);
    return;  // where the other timer is due as well, its event comes next
  }
  Sender& s = senders_[flow];
  if (s.timer_at == now && s.deadline > now && s.deadline != kNever) {
    s.timer_at = s.deadline;
    events_.replace_top(s.deadline, EventKind::timer, flow);
    return;
  }
  events_.pop();
  if (s.timer_at != now) return;  // an earlier one took its place
  s.timer_at = kNever;
  if (s.deadline == kNever) return;
  ++s.timeouts;
  s.backoff = std::min(s.backoff + 1, kMostBackoff);
  for (std::uint32_t n = s.first; n != s.next; ++n)
    if (s.segment(n).state == State::in_flight || s.segment(n).state == State::sent_again) lose(s, n);
  s.scan = s.next;
  while (!s.sent_again.empty()) s.sent_again.pop();
  const std::int64_t half = s.window / 2;
  cut(s, 0);
  s.threshold = std::max(half, s.window);
  set_timer(flow, now);
  pump(flow, now);
}

FlowCounters Reliable::counters(FlowId flow) const {
  const Sender& s = senders_[flow];
  return {s.written, receivers_[flow].delivered, s.sent_segments, s.retransmissions, s.timeouts, s.marks};
}

}  // namespace talweg::sim
