#include "sim/dctcp.h"

#include <algorithm>

namespace talweg::sim {

namespace {
constexpr int kAlphaShift = 4;  // the gain of 1/16 of RFC 8257
constexpr std::int64_t kAlphaOne = 1 << 20;
constexpr std::uint32_t kReordered = 3;  // numbers
constexpr int kMostBackoff = 8;          // doublings
}  // namespace

void Dctcp::opened(FlowId) {
  Window& w = windows_.emplace_back();
  w.bytes = static_cast<std::int64_t>(options_.first_window) * options_.payload_bytes;
  w.threshold = options_.most_window_bytes;
  w.alpha = kAlphaOne;
  if (options_.ack_every > 1) unanswered_.emplace_back();
  if (demotes_) sent_.push_back(0);
}

void Dctcp::on_packet(Packet* packet, Picoseconds now) {
  if ((packet->flags & kDamaged) != 0)
    network_.packets().give_back(packet);
  else if (packet->kind == PacketKind::data)
    on_segment(packet, now);
  else
    on_acknowledgement(packet, now);
}

void Dctcp::on_segment(Packet* packet, Picoseconds now) {
  if (unanswered_.empty()) {
    acknowledge_segment(packet, now);
    return;
  }
  const FlowId flow = packet->flow;
  Receiver& r = receivers_[flow];
  Unanswered& u = unanswered_[flow];
  const std::uint32_t number = packet->number;
  const bool trimmed = (packet->flags & kTrimmed) != 0;
  const bool marked = (packet->flags & kMarked) != 0;
  const bool turned = marked != u.marked;
  if (turned || trimmed) answer_unanswered(u, now);
  u.marked = marked;
  if (now - r.heard > picoseconds(options_.least_rto)) u.quick = kQuickAnswers;
  r.heard = now;
  const bool next = number == r.expected && number >= u.beyond;
  if (!trimmed) {
    u.beyond = std::max(u.beyond, number + 1);
    arrive(flow, number);
  }

  if (u.packet != nullptr) network_.packets().give_back(u.packet);
  u.packet = packet;
  ++u.segments;
  if (turned || trimmed || !next || u.quick > 0 || u.segments >= options_.ack_every ||
      senders_[flow].segment(number).pushed) {
    if (u.quick > 0) --u.quick;
    answer_unanswered(u, now);
  } else if (u.segments == 1) {
    u.deadline = now + answer_delay_;
    if (u.wake_at == kNever) {
      u.wake_at = u.deadline;
      events_.push(u.deadline, EventKind::timer, flow);
    }
  }
  tell_delivered(flow, now);
}

void Dctcp::answer_unanswered(Unanswered& u, Picoseconds now) {
  if (u.packet == nullptr) return;
  Packet* packet = u.packet;
  u.packet = nullptr;
  u.segments = 0;
  answer(packet, now);
}

void Dctcp::on_acknowledgement(Packet* packet, Picoseconds now) {
  const FlowId flow = packet->flow;
  Sender& s = senders_[flow];
  Window& w = windows_[flow];
  const std::uint32_t number = packet->number;
  const std::uint32_t echo = packet->echo;
  const Picoseconds sent = packet->sent;
  const std::uint8_t flags = packet->flags;
  network_.packets().give_back(packet);
  s.answered = now;

  const bool trimmed = (flags & kTrimmed) != 0;
  std::int64_t bytes = 0;
  const bool known = echo >= s.first;
  if (known && !trimmed) bytes += acknowledge(s, echo);
  bytes += acknowledge_before(s, number);
  w.scan = std::max(w.scan, s.first);
  measure(s, now - sent);
  if (!trimmed) {
    w.newest = std::max(w.newest, sent);
    w.highest = std::max({w.highest, s.first, echo + 1});
  }

  const bool marked = trimmed || (flags & kMarked) != 0;
  w.acknowledged += bytes;
  if (marked) {
    ++s.marks;
    w.marked += std::max<std::int64_t>(bytes, 1);
  }
  if (s.first >= w.window_end) renew_alpha(s, w);
  if (marked && s.first >= w.recover)
    cut(s, w, w.bytes - ((w.bytes * w.alpha) >> 21));
  else if (bytes > 0)
    grow(w, bytes);
  if (known && trimmed && s.segment(echo).state != State::acknowledged &&
      s.segment(echo).state != State::lost && s.segment(echo).sent == sent)
    lose(s, echo);
  find_losses(s, w);
  if (bytes > 0) s.backoff = 0;
  set_timer(flow, now);
  pump(flow, now);
}

void Dctcp::renew_alpha(const Sender& s, Window& w) {
  const std::int64_t share =
      w.acknowledged == 0 ? 0 : std::min(kAlphaOne, w.marked * kAlphaOne / w.acknowledged);
  w.alpha += (share - w.alpha) >> kAlphaShift;
  w.acknowledged = w.marked = 0;
  w.window_end = s.next;
}

void Dctcp::cut(const Sender& s, Window& w, std::int64_t window) const {
  const std::int64_t least = static_cast<std::int64_t>(options_.least_window) * options_.payload_bytes;
  w.bytes = std::max(window, least);
  w.threshold = w.bytes;
  w.growth = 0;
  w.recover = s.next;
}

// Something has been sent.
void Dctcp::use(const Sender& s, Window& w) {
  if (s.first >= w.use_end) {
    w.use_end = s.next;
    w.full = false;
    w.most = 0;
  }
  w.most = std::max(w.most, s.in_flight);
}

void Dctcp::grow(Window& w, std::int64_t bytes) const {
  if (!w.full && !(w.bytes < w.threshold && w.bytes < 2 * w.most)) return;
  if (w.bytes < w.threshold) {
    w.bytes += bytes;
  } else {
    w.growth += bytes;
    if (w.growth >= w.bytes) {
      w.growth -= w.bytes;
      w.bytes += options_.payload_bytes;
    }
  }
  w.bytes = std::min(w.bytes, options_.most_window_bytes);
}

void Dctcp::find_losses(Sender& s, Window& w) {
  // Over several paths what was sent up to a round trip later may overtake.
  const Picoseconds limit = w.newest - (options_.spray ? s.round_trip : 0);
  const std::uint32_t below = w.highest - std::min(w.highest, kReordered);
  bool found = false;
  for (; w.scan != s.next && w.scan < below; ++w.scan) {
    const Segment& segment = s.segment(w.scan);
    if (segment.state != State::in_flight) continue;
    if (segment.sent > limit) break;
    lose(s, w.scan);
    found = true;
  }
  // A retransmission has no number of its own: only time can tell.
  while (!w.sent_again.empty()) {
    const std::uint32_t number = w.sent_again.front();
    if (number >= s.first && s.segment(number).state == State::sent_again) {
      if (s.segment(number).sent + s.round_trip / 4 >= limit) break;
      lose(s, number);
      found = true;
    }
    w.sent_again.pop();
  }
  if (found && s.first >= w.recover) cut(s, w, w.bytes / 2);
}

// When it was put off, the event moves on.
void Dctcp::on_answer_timer(FlowId flow, Picoseconds now) {
  Unanswered& u = unanswered_[flow];
  if (u.packet != nullptr && u.deadline > now) {
    u.wake_at = u.deadline;
    events_.replace_top(u.deadline, EventKind::timer, flow);
    return;
  }
  events_.pop();
  u.wake_at = kNever;
  answer_unanswered(u, now);
}

bool Dctcp::send_one(FlowId flow, Picoseconds now) {
  Sender& s = senders_[flow];
  Window& w = windows_[flow];
  for (; !s.lost.empty(); s.lost.pop()) {
    const std::uint32_t number = s.lost.front();
    if (number < s.first || s.segment(number).state != State::lost) continue;
    if (s.in_flight > 0 && s.in_flight + s.segment(number).bytes > w.bytes) return false;
    s.segment(number).state = State::sent_again;
    w.sent_again.push(number);
    ++s.retransmissions;
    s.lost.pop();
    transmit(flow, number, now);
    return true;
  }
  if (s.unsent == 0) return false;
  const std::int64_t bytes = std::min<std::int64_t>(s.unsent, options_.payload_bytes);
  if (s.in_flight > 0 && s.in_flight + bytes > w.bytes) {
    w.full = true;
    return false;
  }
  if (!clear_to_send(flow, now)) return false;
  transmit(flow, cut_segment(flow), now);
  return true;
}

void Dctcp::transmit(FlowId flow, std::uint32_t number, Picoseconds now) {
  if (pace_of(flow) > 0) {
    Pace& held = paces_[flow];
    held.clear = std::max(held.clear, now) + held.gap.of(senders_[flow].segment(number).bytes);
  }
  if (windows_[flow].bytes < std::int64_t{options_.ack_every} * options_.payload_bytes)
    senders_[flow].segment(number).pushed = true;
  Packet* packet = packet_of(flow, number, now);
  use(senders_[flow], windows_[flow]);
  if (demotes_) [[unlikely]]
    demote(flow, *packet);
  network_.send(flows_[flow].from, packet, now);
}

void Dctcp::demote(FlowId flow, Packet& packet) {
  Sender& s = senders_[flow];
  const Segment& segment = s.segment(packet.number);
  const bool first = s.first == packet.number && s.next == packet.number + 1;
  if (first && segment.state == State::in_flight) sent_[flow] = 0;
  int priority = packet.priority;
  for (const std::int64_t limit : options_.demote_bytes)
    if (limit > 0 && sent_[flow] >= limit) ++priority;
  packet.priority = static_cast<std::uint8_t>(std::min(priority, kPriorities - 1));
  sent_[flow] += segment.bytes;
}

void Dctcp::pace(FlowId flow, double bytes_per_second) {
  if (flow >= paces_.size()) {
    if (bytes_per_second == 0) return;
    paces_.resize(flow + 1);
  }
  paces_[flow].bytes_per_second = bytes_per_second;
  if (bytes_per_second > 0) paces_[flow].gap = TransmitTime(Bandwidth{8 * bytes_per_second});
}

// A flow whose pace does not let it send yet is woken when it does.
bool Dctcp::clear_to_send(FlowId flow, Picoseconds now) {
  if (pace_of(flow) == 0 || paces_[flow].clear <= now) return true;
  Pace& held = paces_[flow];
  if (held.wake_at != held.clear) {
    held.wake_at = held.clear;
    events_.push(held.clear, EventKind::timer, flow);
  }
  return false;
}

auto Dctcp::sender(Picoseconds now) {
  return [this, now](FlowId flow) {
    if (!send_one(flow, now)) return false;
    if (senders_[flow].deadline == kNever) set_timer(flow, now);
    tell_writable(flow, now);
    return true;
  };
}

void Dctcp::pump(FlowId flow, Picoseconds now) {
  if (options_.turns) {
    auto send = sender(now);
    offer(flow, now, send);
  } else {
    bool sent = false;
    while (send_one(flow, now)) sent = true;
    if (sent && senders_[flow].deadline == kNever) set_timer(flow, now);
  }
  tell_writable(flow, now);
}

void Dctcp::set_timer(FlowId flow, Picoseconds now) {
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

void Dctcp::on_timer(std::uint32_t target, Picoseconds now) {
  if (target >= kTurn) {
    events_.pop();
    auto send = sender(now);
    take_turns(static_cast<int>(target - kTurn), true, now, send);
    return;
  }
  const FlowId flow = target;
  if (flow < paces_.size() && paces_[flow].wake_at == now) {
    events_.pop();
    paces_[flow].wake_at = kNever;
    pump(flow, now);
    return;  // where another timer is due as well, its event comes next
  }
  if (!unanswered_.empty() && unanswered_[flow].wake_at == now) {
    on_answer_timer(flow, now);
    return;
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
  Window& w = windows_[flow];
  ++s.timeouts;
  s.backoff = static_cast<std::uint8_t>(std::min(s.backoff + 1, kMostBackoff));
  for (std::uint32_t n = s.first; n != s.next; ++n)
    if (s.segment(n).state == State::in_flight || s.segment(n).state == State::sent_again) lose(s, n);
  w.scan = s.next;
  while (!w.sent_again.empty()) w.sent_again.pop();
  const std::int64_t half = w.bytes / 2;
  cut(s, w, 0);
  w.threshold = std::max(half, w.bytes);
  set_timer(flow, now);
  pump(flow, now);
}

}  // namespace talweg::sim
