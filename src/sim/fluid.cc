#include "sim/fluid.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace talweg::sim {

namespace {

constexpr double kPerSecond = 1e12;    // picoseconds
constexpr double kNearly = 0.5;        // of a byte: what is missing when a point is taken to be reached
constexpr double kLongestWait = 1e18;  // ps: 11 days; then it looks again
constexpr std::int64_t kByteTimeUnit = 1024;
constexpr double kMostAnswers = 0.5;  // of a link's capacity: acknowledgements do not starve data

std::vector<double> capacities_of(const cluster::Cluster& cluster) {
  std::vector<double> capacities;
  for (const cluster::Link& link : cluster.links) capacities.push_back(link.capacity.bytes_per_second());
  for (const cluster::CapacityGroup& g : cluster.groups) capacities.push_back(g.capacity.bytes_per_second());
  return capacities;
}

}  // namespace

Fluid::Fluid(const TransportOptions& options, Network& network, EventQueue& events, FlowClient& client,
             std::uint64_t seed, const Picoseconds& clock)
    : Transport(options, network, events, client, seed),
      clock_(clock),
      shares_(capacities_of(network.cluster())),
      links_(network.cluster().links.size()),
      groups_(links_),
      answers_(links_ + network.cluster().groups.size()),
      carried_(links_) {
  auto resource = static_cast<std::uint32_t>(links_);
  for (const cluster::CapacityGroup& group : network.cluster().groups) {
    for (const int l : group.links) groups_[static_cast<std::size_t>(l)].push_back(resource);
    ++resource;
  }
}

void Fluid::opened(FlowId) {
  streams_.emplace_back();
}

void Fluid::on_packet(Packet* packet, Picoseconds) {
  network_.packets().give_back(packet);  // nobody sends any
}

// Paths.

void Fluid::add_uses(std::vector<MaxMin::Use>& uses, int from, int to, std::uint32_t route,
                     std::uint32_t spread, double weight) const {
  for (const Network::Share& share : network_.shares(from, to, route, spread, options_.spray)) {
    const auto part = static_cast<float>(share.part * weight);
    uses.push_back({static_cast<std::uint32_t>(share.link), part});
    for (const std::uint32_t group : groups_[static_cast<std::size_t>(share.link)])
      uses.push_back({group, part});
  }
}

void Fluid::find_path(FlowId flow) {
  Stream& f = streams_[flow];
  if (f.reroutes == reroutes_) return;
  f.reroutes = reroutes_;
  const FlowOptions& ends = flows_[flow];
  const std::uint32_t spread = senders_[flow].spread;
  const double payload = options_.payload_bytes;
  f.there.clear();
  f.back.clear();
  add_uses(f.there, ends.from, ends.to, ends.route, spread, (payload + options_.header_bytes) / payload);
  add_uses(f.back, ends.to, ends.from, kNoRoute, flow * 0x9E3779B1U,
           options_.acknowledgement_bytes / payload / options_.ack_every);
  f.latency = f.byte_time = 0;
  bool first = true;
  for (const int l : network_.path(ends.from, ends.to, ends.route, spread)) {
    const cluster::Link& link = network_.cluster().links[static_cast<std::size_t>(l)];
    f.latency += picoseconds(link.latency);
    if (!first) f.byte_time += TransmitTime(link.capacity).of(kByteTimeUnit);
    first = false;
  }
}

// From when the last byte that was written leaves until it arrives.
Picoseconds Fluid::delay(FlowId flow) const {
  const Stream& f = streams_[flow];
  const std::int64_t packet =
      std::min<std::int64_t>(senders_[flow].written - receivers_[flow].delivered, options_.payload_bytes) +
      options_.header_bytes;
  return f.latency + f.byte_time * packet / kByteTimeUnit;
}

// Progress.

void Fluid::move_to(FlowId flow, Picoseconds now) {
  Stream& f = streams_[flow];
  if (!f.active || now == f.since) return;
  Sender& s = senders_[flow];
  const double all = static_cast<double>(s.written);
  const double sent = std::min(all, f.sent + f.rate * (static_cast<double>(now - f.since) / kPerSecond));
  for (const auto* uses : {&f.there, &f.back})
    for (const MaxMin::Use& use : *uses)
      if (use.resource < links_) carried_[use.resource] += static_cast<double>(use.weight) * (sent - f.sent);
  f.sent = sent;
  f.since = now;
  s.unsent = s.written - static_cast<std::int64_t>(std::min(all, sent + kNearly));
  s.sent_segments = static_cast<std::uint64_t>(std::ceil(sent / options_.payload_bytes));
}

void Fluid::pump(FlowId flow, Picoseconds now) {
  move_to(flow, now);
  Stream& f = streams_[flow];
  if (!f.active && senders_[flow].unsent > 0) {
    find_path(flow);
    f.active = true;
    f.since = now;
    f.place = active_.size();
    active_.push_back(flow);
    plan_filling(now);
  }
  set_wake(flow, now);
  tell_writable(flow, now);
}

void Fluid::stop(FlowId flow, Picoseconds now) {
  Stream& f = streams_[flow];
  f.active = false;
  f.sent = static_cast<double>(senders_[flow].written);
  senders_[flow].unsent = 0;
  f.rate = 0;
  f.stopped = now;
  streams_[active_.back()].place = f.place;
  active_[f.place] = active_.back();
  active_.pop_back();
  plan_filling(now);
}

void Fluid::plan_filling(Picoseconds now) {
  if (planned_) return;
  planned_ = true;
  events_.push(std::max(now, filled_ + kPause), EventKind::timer, kFill);
}

void Fluid::fill(Picoseconds now) {
  planned_ = false;
  filled_ = now;
  paths_.clear();
  for (const FlowId flow : active_) {
    find_path(flow);
    move_to(flow, now);
    paths_.push_back(&streams_[flow].there);
  }
  shares_.fill(paths_, rates_);
  // Acknowledgements take what data then lack.
  std::vector<std::pair<std::uint32_t, double>> before;
  for (std::size_t i = 0; i < active_.size(); ++i)
    for (const MaxMin::Use& use : streams_[active_[i]].back) {
      if (answers_[use.resource] == 0) before.emplace_back(use.resource, shares_.capacity(use.resource));
      answers_[use.resource] += rates_[i] * static_cast<double>(use.weight);
    }
  for (const auto& [resource, capacity] : before)
    shares_.set_capacity(resource, capacity - std::min(answers_[resource], capacity * kMostAnswers));
  shares_.fill(paths_, rates_);
  for (const auto& [resource, capacity] : before) {
    shares_.set_capacity(resource, capacity);
    answers_[resource] = 0;
  }
  for (std::size_t i = 0; i < active_.size(); ++i) {
    streams_[active_[i]].rate = rates_[i];
    set_wake(active_[i], now);
  }
}

// What somebody waits for.

void Fluid::notify_at(FlowId flow, std::int64_t bytes) {
  Transport::notify_at(flow, bytes);
  look(flow, clock_);
}

void Fluid::notify_below(FlowId flow, std::int64_t low_water) {
  Transport::notify_below(flow, low_water);
  look(flow, clock_);
  Stream& f = streams_[flow];
  if (senders_[flow].unsent >= low_water || f.event == clock_) return;
  f.wake = f.event = clock_;  // less waits than when the asker looked
  events_.push(clock_, EventKind::timer, flow);
}

void Fluid::look(FlowId flow, Picoseconds now) {
  move_to(flow, now);
  announce_arrival(flow, now);
  set_wake(flow, now);
}

void Fluid::announce_arrival(FlowId flow, Picoseconds now) {
  Stream& f = streams_[flow];
  const Receiver& r = receivers_[flow];
  if (f.arriving || r.notify_at == kNever) return;
  Picoseconds at = now;
  if (r.notify_at > r.delivered) {
    const double beyond = f.sent - static_cast<double>(r.notify_at);
    if (beyond < -kNearly) return;
    const Picoseconds left = f.active && f.rate > 0
                                 ? now - static_cast<Picoseconds>(std::max(beyond, 0.0) / f.rate * kPerSecond)
                                 : f.stopped;
    at = std::max(now, left + delay(flow));
    f.due = r.notify_at;
  }
  f.arriving = true;
  events_.push(at, EventKind::timer, kArrival + flow);
}

// The next time at which the flow has sent all, or what its ends asked to be told of.
void Fluid::set_wake(FlowId flow, Picoseconds now) {
  Stream& f = streams_[flow];
  f.wake = kNever;
  if (!f.active || f.rate <= 0) return;
  const Sender& s = senders_[flow];
  const Receiver& r = receivers_[flow];
  double next = static_cast<double>(s.written);
  const auto consider = [&](std::int64_t bytes) {
    if (static_cast<double>(bytes) > f.sent + kNearly) next = std::min(next, static_cast<double>(bytes));
  };
  if (s.low_water > 0) consider(s.written - s.low_water + 1);
  if (!f.arriving) consider(r.notify_at);
  const double wait = std::ceil(std::max(next - f.sent, 0.0) / f.rate * kPerSecond);
  f.wake = now + static_cast<Picoseconds>(std::min(wait, kLongestWait));
  if (f.wake >= f.event) return;
  f.event = f.wake;
  events_.push(f.wake, EventKind::timer, flow);
}

void Fluid::on_wake(FlowId flow, Picoseconds now) {
  Stream& f = streams_[flow];
  if (f.event != now) return;  // an earlier one took its place
  f.event = kNever;
  if (f.wake > now) {  // it has become slower, or has stopped
    f.event = f.wake;
    if (f.wake != kNever) events_.push(f.wake, EventKind::timer, flow);
    tell_writable(flow, now);
    return;
  }
  move_to(flow, now);
  if (f.active && f.sent + kNearly >= static_cast<double>(senders_[flow].written)) stop(flow, now);
  announce_arrival(flow, now);
  set_wake(flow, now);
  tell_writable(flow, now);
}

void Fluid::on_arrival(FlowId flow, Picoseconds now) {
  Stream& f = streams_[flow];
  Receiver& r = receivers_[flow];
  f.arriving = false;
  r.delivered = std::max(r.delivered, f.due);
  r.heard = senders_[flow].answered = now;
  tell_delivered(flow, now);
  look(flow, now);
}

void Fluid::on_timer(std::uint32_t target, Picoseconds now) {
  events_.pop();
  if (target == kFill)
    fill(now);
  else if (target >= kArrival)
    on_arrival(target - kArrival, now);
  else
    on_wake(target, now);
}

void Fluid::on_reroute(Picoseconds now) {
  for (const FlowId flow : active_) move_to(flow, now);
  ++reroutes_;
  plan_filling(now);
}

void Fluid::count(Picoseconds now) {
  for (const FlowId flow : active_) move_to(flow, now);
  const std::int64_t packet = options_.payload_bytes + options_.header_bytes;
  for (std::size_t l = 0; l < carried_.size(); ++l) {
    const auto bytes = static_cast<std::int64_t>(carried_[l]);
    if (bytes < packet) continue;
    network_.add_carried(static_cast<int>(l), bytes / packet, bytes);
    carried_[l] -= static_cast<double>(bytes);
  }
}

}  // namespace talweg::sim
