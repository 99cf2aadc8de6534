#include "sim/carried_packets.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace talweg::sim {

CarriedPackets::CarriedPackets(const cluster::Cluster& cluster, const NetworkOptions& options,
                               std::uint32_t most, Taker take)
    : network_(cluster, options, events_, *this), take_(std::move(take)), copies_(most, 0), free_(most) {
  for (std::uint32_t slot = 0; slot < most; ++slot) free_[slot] = most - 1 - slot;
}

void CarriedPackets::schedule(std::vector<NetworkChange> changes) {
  changes_.insert(changes_.end(), changes.begin(), changes.end());
  std::ranges::stable_sort(changes_, std::ranges::greater{}, &NetworkChange::at);
}

std::optional<std::uint32_t> CarriedPackets::put(const Packet& packet, Picoseconds now) {
  if (free_.empty()) return std::nullopt;
  advance(now);
  const std::uint32_t slot = free_.back();
  free_.pop_back();
  copies_[slot] = 1;
  sim::Packet* inside = network_.packets().take();
  *inside = sim::Packet{};
  inside->kind = PacketKind::datagram;
  inside->sent = now_;
  inside->number = slot;
  inside->source = packet.from;
  inside->destination = packet.to;
  inside->spread = packet.spread;
  inside->bytes = packet.bytes;
  inside->priority = std::min<std::uint8_t>(packet.priority, kPriorities - 1);
  inside->flags = packet.markable ? 0 : kUnmarkable;
  network_.send(packet.from, inside, now_);
  return slot;
}

void CarriedPackets::advance(Picoseconds now) {
  for (Picoseconds time = next(); time <= now; time = next()) {
    now_ = std::max(now_, time);
    if (!changes_.empty() && picoseconds(changes_.back().at) <= time) {
      change();
      continue;
    }
    const Event event = events_.top();
    if (event.kind() == EventKind::arrival)
      network_.on_arrival(event.target(), now_);
    else
      network_.on_port(event.target(), now_);
  }
  now_ = std::max(now_, now);
}

Picoseconds CarriedPackets::next() {
  const Picoseconds event = events_.empty() ? kNever : events_.top().time;
  return changes_.empty() ? event : std::min(event, picoseconds(changes_.back().at));
}

void CarriedPackets::change() {
  const NetworkChange change = std::move(changes_.back());
  changes_.pop_back();
  if (change.node >= 0)
    network_.set_node(change.node, change.up);
  else
    network_.set_links(change.links, change.up);
}

void CarriedPackets::on_packet(int node, sim::Packet* packet) {
  take_({.node = node,
         .slot = packet->number,
         .time = now_,
         .marked = (packet->flags & kMarked) != 0,
         .damaged = (packet->flags & kDamaged) != 0});
  on_lost(*packet);  // there is one less from now on
  network_.packets().give_back(packet);
}

void CarriedPackets::on_copied(const sim::Packet& packet) {
  ++copies_[packet.number];
}

void CarriedPackets::on_lost(const sim::Packet& packet) {
  if (--copies_[packet.number] == 0) free_.push_back(packet.number);
}

}  // namespace talweg::sim
