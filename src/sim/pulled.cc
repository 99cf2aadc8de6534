#include "sim/pulled.h"

#include <algorithm>

namespace talweg::sim {

namespace {

constexpr int kMostDoublings = 8;

// How far a count is ahead of another one; both wrap.
std::int32_t ahead(std::uint32_t count, std::uint32_t of) {
  return static_cast<std::int32_t>(count - of);
}

}  // namespace

Pulled::Pulled(const TransportOptions& options, Network& network, EventQueue& events, FlowClient& client,
               std::uint64_t seed)
    : Transport(with_turns(options), network, events, client, seed), hosts_(network.cluster().nodes.size()) {
  std::vector<double> rate(hosts_.size());
  for (const cluster::Link& link : network.cluster().links)
    rate[static_cast<std::size_t>(link.to)] += link.capacity.bits_per_second;
  for (std::size_t n = 0; n < hosts_.size(); ++n)
    if (rate[n] > 0)
      hosts_[n].pace = TransmitTime(Bandwidth{rate[n]}).of(options.payload_bytes + options.header_bytes);
}

void Pulled::opened(FlowId flow) {
  givers_.emplace_back();
  Asker& a = askers_.emplace_back();
  const bool of_path = options_.first_window == 0;
  a.window = of_path ? path_trip(flows_[flow]).segments() : static_cast<std::uint32_t>(options_.first_window);
  a.most_asked = of_path ? 2 * a.window : a.window;  // queues make round trips longer than the path's
}

void Pulled::on_packet(Packet* packet, Picoseconds now) {
  if ((packet->flags & kDamaged) != 0)
    network_.packets().give_back(packet);
  else if (packet->kind == PacketKind::data)
    on_segment(packet, now);
  else
    on_answer(packet, now);
}

// The sender's side.

std::uint32_t Pulled::segments_in(std::int64_t bytes) const {
  return static_cast<std::uint32_t>((bytes + options_.payload_bytes - 1) / options_.payload_bytes);
}

bool Pulled::send_one(FlowId flow, Picoseconds now) {
  Sender& s = senders_[flow];
  Giver& g = givers_[flow];
  while (!s.lost.empty() && (s.lost.front() < s.first || s.segment(s.lost.front()).state != State::lost))
    s.lost.pop();
  const bool again = !s.lost.empty();
  if (!again) g.overdue = 0;  // answered after all
  if (!again && s.unsent == 0) return false;
  if (ahead(g.announced + g.refused, g.granted) <= 0) {  // no pulls are owed
    const std::uint32_t window = askers_[flow].window;
    g.unasked = std::max(g.unasked, window - std::min(window, segments_in(s.in_flight)));
  }
  bool asked = false;
  if (again && g.overdue > 0) {
    --g.overdue;
    asked = s.segment(s.lost.front()).asked;
  } else if (g.used != g.granted) {
    ++g.used;
    asked = true;
  } else if (!again && g.unasked > 0) {
    --g.unasked;
  } else {
    return false;
  }
  std::uint32_t number = 0;
  if (again) {
    number = s.lost.pop();
    s.segment(number).state = State::in_flight;
    ++s.retransmissions;
  } else {
    number = cut_segment(flow);
    if (asked) ++g.new_asked;
  }
  s.segment(number).asked = asked;
  announce(s, g);
  Packet* packet = packet_of(flow, number, now);
  packet->credit = g.announced;
  if (asked) packet->flags |= kAsked;
  arm(flow, now + timeout(s));
  network_.send(flows_[flow].from, packet, now);
  return true;
}

void Pulled::announce(const Sender& s, Giver& g) const {
  const std::uint32_t waiting = segments_in(s.unsent);
  const std::uint32_t all = g.new_asked + waiting - std::min(waiting, g.unasked);
  if (ahead(all, g.announced) > 0) g.announced = all;
}

auto Pulled::sender(Picoseconds now) {
  return [this, now](FlowId flow) {
    if (!send_one(flow, now)) return false;
    tell_writable(flow, now);
    return true;
  };
}

void Pulled::pump(FlowId flow, Picoseconds now) {
  auto send = sender(now);
  offer(flow, now, send);
  tell_writable(flow, now);
}

void Pulled::on_answer(Packet* packet, Picoseconds now) {
  const FlowId flow = packet->flow;
  Sender& s = senders_[flow];
  Giver& g = givers_[flow];
  const std::uint32_t number = packet->number;
  const std::uint32_t echo = packet->echo;
  const std::uint32_t credit = packet->credit;
  const Picoseconds sent = packet->sent;
  const std::uint8_t flags = packet->flags;
  const bool pull = packet->kind == PacketKind::pull;
  network_.packets().give_back(packet);
  s.answered = now;
  s.backoff = 0;
  if (ahead(credit, g.granted) > 0) g.granted = credit;
  if (!pull) {
    const bool known = echo >= s.first;
    if ((flags & kTrimmed) != 0) {
      ++g.refused;
      if (known && s.segment(echo).state == State::in_flight && s.segment(echo).sent == sent) lose(s, echo);
    } else {
      if (known) acknowledge(s, echo);
      measure(s, now - sent);
    }
    if ((flags & kMarked) != 0) ++s.marks;
  }
  acknowledge_before(s, number);
  pump(flow, now);
}

// The receiver's side.

bool Pulled::wants(const Asker& a) const {
  return ahead(a.announced + a.headers, a.granted) > 0 &&
         ahead(a.granted, a.arrived) < static_cast<std::int32_t>(a.most_asked);
}

void Pulled::on_segment(Packet* packet, Picoseconds now) {
  const FlowId flow = packet->flow;
  const int here = packet->destination;
  Receiver& r = receivers_[flow];
  Asker& a = askers_[flow];
  r.heard = now;
  if ((packet->flags & kTrimmed) != 0)
    ++a.headers;
  else
    arrive(flow, packet->number);
  if ((packet->flags & kAsked) != 0 && a.arrived != a.granted) ++a.arrived;
  if (ahead(packet->credit, a.announced) > 0) a.announced = packet->credit;
  Host& host = hosts_[static_cast<std::size_t>(here)];
  list(flow, host);
  const FlowId asked = !host.pending && now >= host.next ? ask(host, now) : kNoFlow;
  wait_for_pace(here, host);
  turn_around(packet, r.expected);
  packet->credit = a.granted;
  network_.send(here, packet, now);
  if (asked != kNoFlow && asked != flow) send_pull(asked, now);
  tell_delivered(flow, now);
}

void Pulled::list(FlowId flow, Host& host) {
  Asker& a = askers_[flow];
  if (a.listed || !wants(a)) return;
  a.listed = true;
  host.listed.push(flow);
}

// Grants one packet to the flow whose turn it is.
FlowId Pulled::ask(Host& host, Picoseconds now) {
  while (!host.listed.empty()) {
    const FlowId flow = host.listed.pop();
    Asker& a = askers_[flow];
    a.listed = false;
    if (!wants(a)) continue;
    ++a.granted;
    host.next = now + host.pace;
    list(flow, host);
    return flow;
  }
  return kNoFlow;
}

void Pulled::wait_for_pace(int node, Host& host) {
  if (host.pending || host.listed.empty()) return;
  host.pending = true;
  events_.push(host.next, EventKind::timer, kHost + static_cast<std::uint32_t>(node));
}

void Pulled::send_pull(FlowId flow, Picoseconds now) {
  const FlowOptions& f = flows_[flow];
  const Asker& a = askers_[flow];
  Packet* packet = network_.packets().take();
  packet->sent = now;
  packet->flow = flow;
  packet->number = receivers_[flow].expected;
  packet->echo = 0;
  packet->source = f.to;
  packet->destination = f.from;
  packet->spread = flow * 0x9E3779B1U + (options_.spray ? a.granted : 0);
  packet->route = kNoRoute;
  packet->credit = a.granted;
  packet->bytes = static_cast<std::uint16_t>(options_.acknowledgement_bytes);
  packet->hop = 0;
  packet->priority = static_cast<std::uint8_t>(options_.acknowledgement_priority);
  packet->kind = PacketKind::pull;
  packet->flags = 0;
  network_.send(f.to, packet, now);
}

// Timers.

void Pulled::on_timer(std::uint32_t target, Picoseconds now) {
  events_.pop();
  if (target >= kHost) {
    const int node = static_cast<int>(target - kHost);
    Host& host = hosts_[static_cast<std::size_t>(node)];
    host.pending = false;
    const FlowId flow = ask(host, now);
    wait_for_pace(node, host);
    if (flow != kNoFlow) send_pull(flow, now);
  } else if (target >= kTurn) {
    auto send = sender(now);
    take_turns(static_cast<int>(target - kTurn), true, now, send);
  } else {
    on_flow_timer(target, now);
  }
}

void Pulled::fetch_timer(std::uint32_t target, int slots) const {
  if (target >= kHost) {
    const auto node = static_cast<std::size_t>(target - kHost);
    if (slots > 1)
      __builtin_prefetch(&hosts_[node], 1);
    else if (const auto& listed = hosts_[node].listed; !listed.empty())
      fetch_own(listed.front(), static_cast<int>(node));
  } else if (target >= kTurn) {
    const int link = static_cast<int>(target - kTurn);
    if (slots > 1) {
      fetch_turn(link);
    } else if (!ready(link).empty()) {
      const FlowId flow = ready(link).front();
      fetch(flow);
      fetch_own(flow, flows_[flow].from);
    }
  }
}

void Pulled::arm(FlowId flow, Picoseconds when) {
  Sender& s = senders_[flow];
  if (when >= s.timer_at) return;
  s.timer_at = when;
  events_.push(when, EventKind::timer, flow);
}

void Pulled::on_flow_timer(FlowId flow, Picoseconds now) {
  Sender& s = senders_[flow];
  Giver& g = givers_[flow];
  if (s.timer_at != now) return;  // an earlier one took its place
  s.timer_at = kNever;
  if (s.first == s.next && s.unsent == 0) return;
  const Picoseconds limit = now - timeout(s) / 8 * 7;  // those that would be due soon as well
  Picoseconds oldest = now;
  bool late = false;
  for (std::uint32_t n = s.first; n != s.next; ++n) {
    const Segment& segment = s.segment(n);
    if (segment.state != State::in_flight) continue;
    if (segment.sent > limit) {
      oldest = std::min(oldest, segment.sent);
      continue;
    }
    lose(s, n);
    ++g.overdue;
    late = true;
  }
  if (!late && s.in_flight == 0 && s.answered <= limit) {
    ++(s.lost.empty() ? g.unasked : g.overdue);
    late = true;
  }
  if (late) {
    ++s.timeouts;
    s.backoff = static_cast<std::uint8_t>(std::min(s.backoff + 1, kMostDoublings));
  }
  arm(flow, oldest + timeout(s));
  pump(flow, now);
}

}  // namespace talweg::sim
