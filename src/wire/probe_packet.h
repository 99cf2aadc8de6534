// ProbePacket: what a datagram of `talweg fabric` says of itself, so that whoever it comes to sees what the
// network has done to it. It is all of the datagram but for padding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <type_traits>

namespace talweg::wire {

struct ProbePacket {
  std::uint64_t token = 0;     // of the run: what has another one is somebody else's
  std::int64_t sent_ns = 0;    // by the sender's wall clock
  std::uint32_t order = 0;     // among all that its sender sends in this trial
  std::uint32_t number = 0;    // among those of its kind
  std::uint16_t trial = 0;     // which measurement it belongs to
  std::uint16_t sender = 0;    // a host
  std::uint8_t left_with = 0;  // the traffic class (wire/traffic_class.h) that it was sent with
  std::uint8_t stage = 0;      // of the trial
  std::uint8_t load = 0;       // 1: one of those that fill the link
  std::uint8_t unused = 0;
};
static_assert(sizeof(ProbePacket) == 32 && std::is_trivially_copyable_v<ProbePacket> &&
              std::has_unique_object_representations_v<ProbePacket>);

// `to` has room for it.
inline void encode_probe(const ProbePacket& packet, std::span<std::byte> to) {
  std::memcpy(to.data(), &packet, sizeof packet);
}

// None: it is too short, or of another run or trial.
inline std::optional<ProbePacket> decode_probe(std::span<const std::byte> from, std::uint64_t token,
                                               std::uint16_t trial) {
  ProbePacket packet;
  if (from.size() < sizeof packet) return {};
  std::memcpy(&packet, from.data(), sizeof packet);
  if (packet.token != token || packet.trial != trial) return {};
  return packet;
}

}  // namespace talweg::wire
