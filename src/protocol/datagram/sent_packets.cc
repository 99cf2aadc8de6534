#include "protocol/datagram/sent_packets.h"

#include <algorithm>

namespace talweg::protocol {

namespace {
// What counts as lost is remembered while so many newer ones are known: if it arrives after all, the
// reordering was taken for loss, and its bytes need not be sent again.
constexpr std::uint64_t kRememberLost = 1024;
}  // namespace

SentPackets::SentPackets(std::size_t most) : slots_(most) {}

void SentPackets::sent(const SentPacket& packet) {
  Path& path = paths_[packet.path];
  at(end_) = packet;
  at(end_++).order = path.sent++;
  ++on_their_way_;
  if (packet.trial)
    ++trials_;
  else
    bytes_ += packet.bytes;
  path.bytes += packet.bytes;
  last_sent_ns_ = packet.sent_ns;
  next_number_ = packet.number + 1;
}

const SentPacket* SentPackets::oldest() const {
  return oldest_ < end_ ? &at(oldest_) : nullptr;
}

std::int64_t SentPackets::patience_ns(const RoundTrip& rtt) {
  const std::int64_t trip = std::max(rtt.smoothed_ns(), rtt.latest_ns());
  return std::max<std::int64_t>(trip + trip / 4, 1'000);
}

std::uint64_t SentPackets::first_from(std::uint64_t number) const {
  std::uint64_t low = begin_, high = end_;
  while (low < high) {
    const std::uint64_t middle = low + (high - low) / 2;
    if (at(middle).number < number)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

void SentPackets::declare_lost(SentPacket& packet) {
  leave(packet);
  packet.state = SentPacket::State::lost;
}

void SentPackets::leave(const SentPacket& packet) {
  --on_their_way_;
  if (packet.trial)
    --trials_;
  else
    bytes_ -= packet.bytes;
  paths_[packet.path].bytes -= packet.bytes;
}

void SentPackets::forget() {
  const std::uint64_t remembered = std::min<std::uint64_t>(kRememberLost, slots_.size() / 2);
  while (begin_ < end_ && (at(begin_).state == SentPacket::State::arrived ||
                           (at(begin_).state == SentPacket::State::lost && end_ - begin_ > remembered)))
    ++begin_;
  oldest_ = std::max(oldest_, begin_);
  while (oldest_ < end_ && at(oldest_).state != SentPacket::State::on_its_way) ++oldest_;
}

}  // namespace talweg::protocol
