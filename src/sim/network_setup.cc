// How a network is built and changed; network.cc moves packets.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/fail.h"
#include "sim/network_parts.h"

namespace talweg::sim {

namespace {

constexpr Picoseconds kMostBurst = 3600 * kPicosecondsPerSecond;  // what no run empties

void check(const QueuePolicy& policy) {
  const auto refuse = [](const std::string& text) {
    throw Error(ErrorCode::invalid_argument, "queue policy: " + text);
  };
  if (policy.priorities < 1 || policy.priorities > kPriorities)
    refuse(fmt::format("{} priorities: expected 1 .. {}", policy.priorities, kPriorities));
  if (policy.trim && (policy.priorities < 2 || policy.limit_bytes <= 0))
    refuse("trimming needs a limit, and a second priority for what remains");
  if (policy.red.most_bytes > 0 && policy.red.most_bytes <= policy.red.least_bytes)
    refuse("RED: most_bytes must be above least_bytes");
  if (policy.least_left_first && policy.priorities > 1)
    refuse("what has least left first: it has one queue, not several by priority");
}

void check(const LossModel& m) {
  for (const double p :
       {m.loss, m.bit_error_rate, m.burst_begins, m.burst_ends, m.burst_loss, m.duplicate, m.damage, m.delay})
    if (!(p >= 0 && p <= 1)) refuse("loss model: {} is no probability", p);
  if (m.burst_lasts.value < 0 || m.burst_lasts.value > kNever / 2 / kPicosecondsPerNanosecond)
    refuse("loss model: bursts of {} ns", m.burst_lasts.value);
}

// What a file cannot have, but a program's own cluster can.
void check(const cluster::Cluster& cluster) {
  for (const cluster::Link& link : cluster.links)
    if (!(link.capacity.bits_per_second > 0) || link.latency.value < 0)
      refuse(
          "link {}->{}: expected a capacity above 0 and a latency of at least 0, got {} "
          "bit/s and {} ns",
          cluster.nodes[static_cast<std::size_t>(link.from)].name,
          cluster.nodes[static_cast<std::size_t>(link.to)].name, link.capacity.bits_per_second,
          link.latency.value);
}

}  // namespace

Network::~Network() = default;

Network::Network(const cluster::Cluster& cluster, const NetworkOptions& options, EventQueue& events,
                 Endpoint& endpoint)
    : cluster_(cluster),
      events_(events),
      endpoint_(endpoint),
      forwarding_(cluster),
      links_(cluster.links.size()),
      details_(cluster.links.size()),
      node_down_(cluster.nodes.size(), false),
      seed_(options.seed) {
  if (links_.size() > EventQueue::kMaxTargets) refuse("a network of {} links is too large", links_.size());
  check(options.switch_queue);
  check(options.host_queue);
  check(options.loss);
  check(cluster);
  const auto of_switches = std::make_shared<const QueuePolicy>(options.switch_queue);
  const auto of_hosts = std::make_shared<const QueuePolicy>(options.host_queue);
  for (const cluster::CapacityGroup& group : cluster.groups) {
    for (const int l : group.links) details(l).groups.push_back(static_cast<int>(groups_.size()));
    groups_.push_back({TransmitTime(group.capacity), 0});
  }
  for (std::size_t l = 0; l < links_.size(); ++l) {
    Bandwidth least = cluster.links[l].capacity;
    for (const int g : details_[l].groups) {
      const Bandwidth shared = cluster.groups[static_cast<std::size_t>(g)].capacity;
      if (shared.bits_per_second < least.bits_per_second) least = shared;
    }
    details_[l].narrowest = TransmitTime(least);
  }
  const int workers = cluster.workers();
  for (std::size_t l = 0; l < links_.size(); ++l) {
    const cluster::Link& given = cluster.links[l];
    links_[l].to = given.to;
    LinkDetails& d = details_[l];
    d.random = Random(seed_, l);
    d.burst = TransmitTime(given.capacity).of_at_most(given.burst.value, kMostBurst);
    d.policy = given.from < workers ? of_hosts : of_switches;
    d.loss = options.loss;
    settle(static_cast<int>(l));
  }
}

void Network::set_policy(int link, const QueuePolicy& policy) {
  check(policy);
  details(link).policy = std::make_shared<const QueuePolicy>(policy);
  settle(link);
}

void Network::set_loss(int link, const LossModel& loss) {
  check(loss);
  details(link).loss = loss;
  settle(link);
}

// Works out the backlog up to which the fast path will do.
void Network::settle(int l) {
  LinkDetails& d = details(l);
  Link& link = hot(l);
  const QueuePolicy& policy = *d.policy;
  d.bit_errors.rate = d.loss.bit_error_rate;
  link.lossy = d.loss.any() || d.doomed ? 1 : 0;
  const cluster::Link& given = cluster_.links[static_cast<std::size_t>(l)];
  Shape shape;
  shape.transmit = TransmitTime(given.capacity);
  shape.delay = picoseconds(given.latency);
  shape.policy = policy;
  shape.down = d.down;
  shape.plain = !d.down && d.groups.empty() && d.burst <= 0 && d.loss.delay <= 0;
  shape.port = d.port = d.port || policy.priorities > 1 || policy.least_left_first;
  if (d.port && ports_.empty()) ports_.resize(links_.size());
  if ((policy.priorities > static_cast<int>(Port::kQueues) || policy.least_left_first) && !d.more)
    d.more = std::make_unique<MoreQueues>();
  if (d.port || !shape.plain) {
    shape.calm = -kNever;
    if (shape.plain) shape.calm_if_idle = kNever;
  }
  const auto look_from = [&](std::int64_t bytes) {
    shape.calm = shape.transmit.of_at_most(bytes, shape.calm);
    shape.calm_if_idle = shape.transmit.of_at_most(bytes, shape.calm_if_idle);
  };
  if (round_trip_ == 0 && (policy.mark_by_delay || policy.limit_round_trips > 0))
    round_trip_ = longest_round_trip();
  shape.limit_bytes = policy.limit_bytes;
  if (policy.limit_round_trips > 0)
    shape.limit_bytes =
        std::max(shape.limit_bytes, policy.limit_round_trips * d.narrowest.bytes_in(round_trip_));
  if (shape.limit_bytes > 0) look_from(shape.limit_bytes);
  for (const std::int64_t limit : policy.class_limit_bytes)
    if (limit > 0) look_from(limit);
  shape.mark_bytes = policy.mark_bytes;
  if (policy.mark_by_delay) {
    shape.mark_bytes = std::max(shape.mark_bytes, d.narrowest.bytes_in(round_trip_));
    if (shape.limit_bytes > 0) shape.mark_bytes = std::min(shape.mark_bytes, shape.limit_bytes / 2);
  }
  if (shape.mark_bytes > 0) look_from(shape.mark_bytes);
  if (policy.red.most_bytes > 0) look_from(policy.red.least_bytes);
  const auto same = std::ranges::find(shapes_, shape);
  if (same == shapes_.end() && shapes_.size() == kMostShapes)
    refuse("more than {} kinds of links", kMostShapes);
  link.shape = static_cast<std::uint32_t>(same - shapes_.begin()) & (kMostShapes - 1);
  if (same == shapes_.end()) shapes_.push_back(shape);
}

// Of a full packet there and a short one back, between the workers that are farthest apart: seen from the
// first worker, and then from the one that is farthest from it. In a tree no trip is longer, elsewhere none
// is twice as long.
Picoseconds Network::longest_round_trip() const {
  constexpr std::int64_t kThere = 1514;
  constexpr std::int64_t kBack = 66;
  const auto one_way = [this](int from, int to, std::int64_t bytes) {
    Picoseconds time = 0;
    for (const int l : path(from, to, kNoRoute, 0)) {
      time += details_[static_cast<std::size_t>(l)].narrowest.of(bytes) +
              picoseconds(cluster_.links[static_cast<std::size_t>(l)].latency);
    }
    return time;
  };
  const int workers = cluster_.workers();
  Picoseconds longest = 0;
  int farthest = 0;
  for (int sweep = 0; sweep < 2; ++sweep) {
    const int here = farthest;
    for (int there = 0; there < workers; ++there) {
      const Picoseconds trip = one_way(here, there, kThere) + one_way(there, here, kBack);
      if (trip <= longest) continue;
      longest = trip;
      farthest = there;
    }
  }
  return longest;
}

std::uint32_t Network::add_route(const std::vector<int>& links) {
  const auto refuse = [](const std::string& text) {
    throw Error(ErrorCode::invalid_argument, "route: " + text);
  };
  if (links.empty()) refuse("it has no links");
  std::vector<int> seen;
  int at = -1;
  for (const int l : links) {
    if (l < 0 || static_cast<std::size_t>(l) >= links_.size()) refuse(fmt::format("there is no link {}", l));
    const cluster::Link& link = cluster_.links[static_cast<std::size_t>(l)];
    const std::string& from = cluster_.nodes[static_cast<std::size_t>(link.from)].name;
    if (at >= 0 && link.from != at)
      refuse(
          fmt::format("{} does not follow on {}", from, cluster_.nodes[static_cast<std::size_t>(at)].name));
    if (std::ranges::find(seen, link.from) != seen.end()) refuse(fmt::format("it comes to {} twice", from));
    seen.push_back(link.from);
    at = link.to;
  }
  if (std::ranges::find(seen, at) != seen.end())
    refuse(fmt::format("it comes to {} twice", cluster_.nodes[static_cast<std::size_t>(at)].name));
  routes_.push_back(links);
  return static_cast<std::uint32_t>(routes_.size() - 1);
}

int Network::add_multicast(const std::vector<int>& links) {
  const std::size_t nodes = cluster_.nodes.size();
  const std::size_t group = multicast_.size() / nodes;
  multicast_.resize(multicast_.size() + nodes);
  std::vector<bool> reached(nodes, false);
  for (const int l : links) {
    const cluster::Link& link = cluster_.links[static_cast<std::size_t>(l)];
    if (reached[static_cast<std::size_t>(link.to)])
      refuse("multicast: {} is reached twice", cluster_.nodes[static_cast<std::size_t>(link.to)].name);
    reached[static_cast<std::size_t>(link.to)] = true;
    multicast_[group * nodes + static_cast<std::size_t>(link.from)].push_back(l);
  }
  return static_cast<int>(group);
}

void Network::set_links(const std::vector<int>& links, bool up) {
  for (const int l : links) details(l).failed = !up;
  reroute();
}

void Network::set_node(int node, bool up) {
  node_down_[static_cast<std::size_t>(node)] = !up;
  reroute();
}

void Network::reroute() {
  std::vector<bool> down(links_.size());
  for (std::size_t l = 0; l < links_.size(); ++l) {
    LinkDetails& d = details_[l];
    const cluster::Link& link = cluster_.links[l];
    const bool now_down = d.failed || node_down_[static_cast<std::size_t>(link.from)] ||
                          node_down_[static_cast<std::size_t>(link.to)];
    if (now_down && !d.down) drop_all(static_cast<int>(l));
    const bool changed = d.down != now_down;
    d.down = down[l] = now_down;
    if (changed) settle(static_cast<int>(l));
  }
  forwarding_.rebuild(down);
}

// All but the first packet on the wire go at once; its arrival is scheduled, so it is lost when it arrives.
void Network::drop_all(int l) {
  Link& link = hot(l);
  LinkDetails& d = details(l);
  const auto drop = [&](Packet* packet) {
    ++d.lost;
    lose(packet);
  };
  while (link.waiting != 0) drop(take_waiting(l));
  if (link.head == nullptr) return;
  while (link.head->next != nullptr) {
    Packet* packet = link.head->next;
    link.head->next = packet->next;
    drop(packet);
  }
  link.tail = link.head;
  d.doomed = true;
}

std::int64_t Network::waiting_bytes(int l) const {
  return ports_.empty() ? 0 : ports_[static_cast<std::size_t>(l)].bytes;
}

std::int64_t Network::queued_bytes(int l, Picoseconds now) const {
  const Link& link = links_[static_cast<std::size_t>(l)];
  const LinkDetails& d = details_[static_cast<std::size_t>(l)];
  const Picoseconds backlog = link.busy_until - now;
  return (backlog > 0 ? d.narrowest.bytes_in(backlog) : 0) + waiting_bytes(l);
}

std::vector<int> Network::path(int from, int to, std::uint32_t route, std::uint32_t spread) const {
  if (route != kNoRoute) return routes_[route];
  std::vector<int> links;
  for (int node = from; node != to && links.size() < cluster_.nodes.size();) {
    const int link = forwarding_.link(node, to, spread);
    if (link < 0) break;
    links.push_back(link);
    node = cluster_.links[static_cast<std::size_t>(link)].to;
  }
  return links;
}

std::vector<Network::Share> Network::shares(int from, int to, std::uint32_t route, std::uint32_t spread,
                                            bool spread_out) const {
  std::vector<Share> all;
  if (!spread_out || route != kNoRoute) {
    for (const int l : path(from, to, route, spread)) all.push_back({l, 1.0});
    if (all.empty() || links_[static_cast<std::size_t>(all.back().link)].to != to) return {};
  } else {
    // Equal ways have equally many links: all that is passed after so many is known when the next are chosen.
    std::map<int, double> here{{from, 1.0}};
    while (here.begin()->first != to) {
      std::map<int, double> next;
      for (const auto& [node, part] : here) {
        const std::span<const int> choices = forwarding_.choices(node, to);
        if (choices.empty() || all.size() > links_.size()) return {};
        const double each = part / static_cast<double>(choices.size());
        for (const int l : choices) {
          all.push_back({l, each});
          next[links_[static_cast<std::size_t>(l)].to] += each;
        }
      }
      here = std::move(next);
    }
  }
  const bool down = std::ranges::any_of(
      all, [&](const Share& share) { return details_[static_cast<std::size_t>(share.link)].down; });
  return down ? std::vector<Share>{} : all;
}

void Network::add_carried(int l, std::int64_t packets, std::int64_t bytes) {
  Link& link = hot(l);
  link.packets += static_cast<std::uint64_t>(packets);
  link.bytes += bytes;
}

Picoseconds Network::clear_at(int l, Picoseconds now) const {
  const Link& link = links_[static_cast<std::size_t>(l)];
  const std::int64_t waiting = waiting_bytes(l);
  const TransmitTime& narrowest = details_[static_cast<std::size_t>(l)].narrowest;
  return std::max(link.busy_until, now) + (waiting > 0 ? narrowest.of(waiting) : 0);
}

std::int64_t Network::sent_bytes(int l, Picoseconds now) const {
  const Link& link = links_[static_cast<std::size_t>(l)];
  const Picoseconds backlog = link.busy_until - now;
  if (backlog <= 0) return link.bytes;
  return link.bytes - details_[static_cast<std::size_t>(l)].narrowest.bytes_in(backlog);
}

LinkCounters Network::counters(int l) const {
  const Link& link = links_[static_cast<std::size_t>(l)];
  const LinkDetails& d = details_[static_cast<std::size_t>(l)];
  LinkCounters c;
  c.packets = link.packets;
  c.bytes = link.bytes;
  c.most_queued_bytes = d.narrowest.bytes_in(std::max<Picoseconds>(link.most_backlog, 0)) +
                        (ports_.empty() ? 0 : ports_[static_cast<std::size_t>(l)].most_bytes);
  c.marked = d.marked;
  c.trimmed = d.trimmed;
  c.dropped = d.dropped;
  c.lost = d.lost;
  return c;
}

}  // namespace talweg::sim
