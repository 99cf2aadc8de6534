#include "sim/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <vector>

#include "sim/network_parts.h"
#include "talweg/error.h"

namespace talweg::sim {

// -1: there is none. `spread` is the packet's, or a copy where it only looks ahead.
inline int Network::next_link(int node, const Packet& packet, int hop, std::uint32_t& spread) const {
  if (packet.route == kNoRoute) return forwarding_.link(node, packet.destination, spread);
  const auto& route = routes_[packet.route];
  return static_cast<std::size_t>(hop) < route.size() ? route[static_cast<std::size_t>(hop)] : -1;
}

void Network::fetch(int link) const {
  const auto l = static_cast<std::size_t>(link);
  __builtin_prefetch(&links_[l], 1);
  if (!ports_.empty()) __builtin_prefetch(&ports_[l], 1);
}

// In a large network most of an event's time would go to waiting for memory. So it is asked for ahead: two
// slots of the queue before its own for a link's line, and for its port's where that is free again; one for
// those of the packets that are moved; and in the slot itself for those of the link which a packet goes on
// to, or for what its receiver keeps.
inline void Network::prefetch() {
  if (events_.turns() == fetched_) return;
  fetched_ = events_.turns();
  const std::vector<Event>& near = events_.near();
  for (auto it = near.rbegin(); it != near.rend(); ++it) {
    const Event& event = *it;
    if (event.kind() != EventKind::arrival) continue;
    const Link& link = links_[event.target()];
    const Packet& packet = *link.head;
    if ((packet.flags & kMulticast) != 0) continue;
    if (packet.destination == link.to) {
      endpoint_.on_near(packet);
      continue;
    }
    std::uint32_t spread = packet.spread;
    const int next = next_link(link.to, packet, packet.hop + 1, spread);
    if (next >= 0) fetch(next);
  }
  events_.following(1, [&](const Event& event) {
    if (event.kind() == EventKind::arrival) {
      __builtin_prefetch(links_[event.target()].head, 1);
    } else if (event.kind() == EventKind::port) {
      __builtin_prefetch(links_[event.target()].tail, 1);
      for (const Queue& q : ports_[event.target()].queues) __builtin_prefetch(q.head, 1);
    } else if (event.kind() == EventKind::timer) {
      endpoint_.on_near_timer(event.target(), 1);
    }
  });
  events_.following(2, [&](const Event& event) {
    if (event.kind() == EventKind::arrival)
      __builtin_prefetch(&links_[event.target()], 1);
    else if (event.kind() == EventKind::port)
      fetch(static_cast<int>(event.target()));
    else if (event.kind() == EventKind::timer)
      endpoint_.on_near_timer(event.target(), 2);
  });
}

void Network::on_arrival(std::uint32_t target, Picoseconds now) {
  Link& link = links_[target];
  Packet* packet = link.head;
  link.head = packet->next;
  if (link.head != nullptr) {
    link.head_arrival = packet->next_arrival;
    events_.replace_top(link.head_arrival, EventKind::arrival, target);
  } else {
    events_.pop();
  }
  prefetch();
  ++counters_.link_hops;
  ++packet->hop;
  if (link.lossy && !survives(static_cast<int>(target), packet, now)) return;
  forward(link.to, packet, now);
}

Packet* Network::copy_of(const Packet& packet) {
  Packet* copy = pool_.take();
  *copy = packet;
  endpoint_.on_copied(packet);
  return copy;
}

void Network::lose(Packet* packet) {
  endpoint_.on_lost(*packet);
  pool_.give_back(packet);
}

void Network::forward(int node, Packet* packet, Picoseconds now) {
  if ((packet->flags & kMulticast) != 0) [[unlikely]] {
    multicast(node, packet, now);
    return;
  }
  if (packet->destination == node) {
    endpoint_.on_packet(node, packet);
    return;
  }
  const int link = next_link(node, *packet, packet->hop, packet->spread);
  if (link < 0) [[unlikely]] {
    ++counters_.unroutable;
    lose(packet);
    return;
  }
  transmit(link, packet, now);
}

inline void Network::transmit(int l, Packet* packet, Picoseconds now) {
  Link& link = hot(l);
  const Shape& s = shape(link);
  const Picoseconds done = std::max(link.busy_until, now) + s.transmit.of(packet->bytes);
  const Picoseconds backlog = done - now;
  if (backlog > s.calm) {
    transmit_with_care(l, packet, now);
    return;
  }
  link.busy_until = done;
  link.most_backlog = std::max(link.most_backlog, backlog);
  ++link.packets;
  link.bytes += packet->bytes;
  append(l, packet, done + s.delay);
}

// Behind all that are on the wire.
inline void Network::append(int l, Packet* packet, Picoseconds arrival) {
  Link& link = hot(l);
  packet->next = nullptr;
  if (link.head == nullptr) {
    link.head = packet;
    link.head_arrival = arrival;
    events_.push(arrival, EventKind::arrival, static_cast<std::uint32_t>(l));
  } else {
    link.tail->next = packet;
    link.tail->next_arrival = arrival;
  }
  link.tail = packet;
}

// Where packets are held up at random, one may overtake others; but not the first, whose arrival is already
// scheduled.
void Network::insert(int l, Packet* packet, Picoseconds arrival) {
  Link& link = hot(l);
  if (link.head == nullptr) {
    append(l, packet, arrival);
    return;
  }
  arrival = std::max(arrival, link.head_arrival);
  Packet* before = link.head;
  while (before->next != nullptr && before->next_arrival <= arrival) before = before->next;
  packet->next = before->next;
  packet->next_arrival = before->next_arrival;
  before->next = packet;
  before->next_arrival = arrival;
  if (packet->next == nullptr) link.tail = packet;
}

void Network::transmit_with_care(int l, Packet* packet, Picoseconds now) {
  Link& link = hot(l);
  const Shape& s = shape(link);
  if (const Picoseconds took = s.transmit.of(packet->bytes);
      took <= s.calm_if_idle && link.busy_until <= now && link.waiting == 0) {
    link.busy_until = now + took;
    link.most_backlog = std::max(link.most_backlog, took);
    ++link.packets;
    link.bytes += packet->bytes;
    append(l, packet, link.busy_until + s.delay);
    return;
  }
  if (s.down) {
    ++details(l).lost;
    lose(packet);
    return;
  }
  if (s.port) {
    enqueue(l, packet, now);
    return;
  }
  const Picoseconds backlog = link.busy_until - now;
  if (admit(l, packet, backlog > 0 ? details(l).narrowest.bytes_in(backlog) : 0)) launch(l, packet, now);
}

inline bool Network::admit(int l, Packet* packet, std::int64_t queued) {
  const Shape& s = shape(hot(l));
  const QueuePolicy& policy = s.policy;
  const std::int64_t after = queued + packet->bytes;
  const bool urgent = packet->priority == 0 && policy.urgent_limit_bytes > 0;
  const std::int64_t limit = urgent ? policy.urgent_limit_bytes : s.limit_bytes;
  const std::int64_t own_limit = policy.class_limit_bytes[packet->priority];
  bool drop = (limit > 0 && after > limit) || (own_limit > 0 && after > own_limit);
  bool mark = s.mark_bytes > 0 && queued > s.mark_bytes;
  if (!drop && policy.red.most_bytes > 0 && queued > policy.red.least_bytes) [[unlikely]] {
    const double span = static_cast<double>(policy.red.most_bytes - policy.red.least_bytes);
    const double share = static_cast<double>(queued - policy.red.least_bytes) / span;
    const bool chosen =
        queued > policy.red.most_bytes || details(l).random.uniform() < share * policy.red.probability;
    (policy.red.marks ? mark : drop) |= chosen;
  }
  drop = drop || (mark && (packet->flags & kUnmarkable) != 0);
  if (drop) [[unlikely]] {
    ++details(l).dropped[packet->priority];
    lose(packet);
    return false;
  }
  if (mark && (packet->kind == PacketKind::data || packet->kind == PacketKind::datagram)) {
    packet->flags |= kMarked;
    ++details(l).marked[packet->priority];
  }
  return true;
}

void Network::enqueue(int l, Packet* packet, Picoseconds now) {
  Link& link = hot(l);
  const Shape& s = shape(link);
  Port& port = this->port(l);
  auto number = static_cast<unsigned>(std::min<int>(packet->priority, s.policy.priorities - 1));
  if (s.policy.trim && packet->kind == PacketKind::data && (packet->flags & kTrimmed) == 0 &&
      queue(l, number).bytes + packet->bytes > s.limit_bytes) {
    packet->flags |= kTrimmed;
    packet->bytes = std::min(packet->bytes, s.policy.trimmed_bytes);
    packet->priority = 0;
    ++details(l).trimmed;
    number = 0;
  }
  const bool by_left = s.policy.least_left_first;
  const bool waited = link.waiting != 0;
  if (by_left && !make_way(l, *packet)) [[unlikely]] {
    ++details(l).dropped[packet->priority];
    lose(packet);
    return;
  }
  if (!admit(l, packet, by_left ? port.bytes : queue(l, number).bytes)) return;
  if (link.busy_until <= now && !waited) {
    launch(l, packet, now);
    return;
  }
  if (by_left) [[unlikely]]
    details(l).more->by_left.push_back({packet->credit, packet->flow, packet});
  else
    queue(l, number).push(packet);
  link.waits(number);
  port.bytes += packet->bytes;
  port.most_bytes = std::max(port.most_bytes, port.bytes);
  if (!waited) events_.push(link.busy_until, EventKind::port, static_cast<std::uint32_t>(l));
}

// Drops what has more left than the packet that comes, as long as that does not fit. False: it never will.
bool Network::make_way(int l, const Packet& packet) {
  Link& link = hot(l);
  Port& port = this->port(l);
  const std::int64_t limit = shape(link).limit_bytes;
  auto& more = *details(l).more;
  while (limit > 0 && port.bytes + packet.bytes > limit) {
    if (more.by_left.empty() || more.most_left() <= packet.credit) return false;
    Packet* dropped = more.pop_most_left();
    if (more.by_left.empty()) link.waits_no_more(0);
    port.bytes -= dropped->bytes;
    ++details(l).dropped[dropped->priority];
    lose(dropped);
  }
  return true;
}

// What goes next of what waits, which is something.
Packet* Network::take_waiting(int l) {
  Link& link = hot(l);
  Packet* packet = nullptr;
  if (shape(link).policy.least_left_first) [[unlikely]] {
    auto& more = *details(l).more;
    packet = more.pop_least_left();
    if (more.by_left.empty()) link.waits_no_more(0);
  } else {
    const auto number = static_cast<unsigned>(std::countr_zero(link.waiting + 0U));
    Queue& from = queue(l, number);
    packet = from.pop();
    if (from.head == nullptr) link.waits_no_more(number);
  }
  port(l).bytes -= packet->bytes;
  return packet;
}

void Network::on_port(std::uint32_t target, Picoseconds now) {
  Link& link = links_[target];
  if (link.waiting == 0) {  // the link went down meanwhile
    events_.pop();
    return;
  }
  const int l = static_cast<int>(target);
  launch(l, take_waiting(l), now);
  if (link.waiting != 0)
    events_.replace_top(link.busy_until, EventKind::port, target);
  else
    events_.pop();
}

inline void Network::launch(int l, Packet* packet, Picoseconds now) {
  Link& link = hot(l);
  const Shape& s = shape(link);
  if (!s.plain) {
    launch_with_others(l, packet, now);
    return;
  }
  link.busy_until = std::max(link.busy_until, now) + s.transmit.of(packet->bytes);
  link.most_backlog = std::max(link.most_backlog, link.busy_until - now);
  ++link.packets;
  link.bytes += packet->bytes;
  append(l, packet, link.busy_until + s.delay);
}

// Where capacity is shared, bursts are saved up, or packets are held up.
void Network::launch_with_others(int l, Packet* packet, Picoseconds now) {
  Link& link = hot(l);
  LinkDetails& d = details(l);
  Picoseconds start = now;
  Picoseconds shared = now;
  for (const int g : d.groups) {
    CapacityGroup& group = groups_[static_cast<std::size_t>(g)];
    start = std::max(start, group.busy_until);
    group.busy_until = std::max(group.busy_until, now) + group.transmit.of(packet->bytes);
    shared = std::max(shared, group.busy_until);
  }
  link.busy_until = std::max(link.busy_until, start - d.burst) + shape(link).transmit.of(packet->bytes);
  const Picoseconds departure = std::max({link.busy_until, start, shared});
  link.most_backlog = std::max(link.most_backlog, departure - now);
  ++link.packets;
  link.bytes += packet->bytes;
  const Picoseconds arrival = departure + shape(link).delay;
  if (d.loss.delay <= 0) {
    append(l, packet, arrival);
    return;
  }
  const auto most = static_cast<std::uint64_t>(picoseconds(d.loss.most_delay));
  const bool held_up = d.random.uniform() < d.loss.delay;
  insert(l, packet, held_up ? arrival + static_cast<Picoseconds>(d.random.below(most + 1)) : arrival);
}

bool Network::survives(int l, Packet* packet, Picoseconds now) {
  LinkDetails& d = details(l);
  if (d.doomed) {  // it was on the wire when the link failed
    d.doomed = false;
    ++d.lost;
    lose(packet);
    return false;
  }
  const LossModel& m = d.loss;
  const auto happens = [&](double probability) {
    return probability > 0 && d.random.uniform() < probability;
  };
  if (m.burst_lasts.value > 0) {
    if (now >= d.burst_until && happens(m.burst_begins)) d.burst_until = now + picoseconds(m.burst_lasts);
    d.in_burst = now < d.burst_until;
  } else if (m.burst_begins > 0) {
    d.in_burst = d.in_burst ? !happens(m.burst_ends) : happens(m.burst_begins);
  }
  if (happens(m.loss) || (d.in_burst && happens(m.burst_loss)) ||
      happens(d.bit_errors.probability(8 * packet->bytes))) {
    ++d.lost;
    lose(packet);
    return false;
  }
  if (happens(m.damage)) packet->flags |= kDamaged;
  if (happens(m.duplicate)) {
    Packet* copy = copy_of(*packet);
    forward(hot(l).to, copy, now);
  }
  return true;
}

void Network::multicast(int node, Packet* packet, Picoseconds now) {
  const auto& links = multicast_[static_cast<std::size_t>(packet->destination) * cluster_.nodes.size() +
                                 static_cast<std::size_t>(node)];
  if (links.empty()) {
    endpoint_.on_packet(node, packet);
    return;
  }
  for (std::size_t i = 1; i < links.size(); ++i) {
    Packet* copy = copy_of(*packet);
    transmit(links[i], copy, now);
  }
  transmit(links[0], packet, now);
}

}  // namespace talweg::sim
