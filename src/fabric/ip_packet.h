// What a relay has to know of an IPv4 packet, and what a network does to one.
//
//   if (const auto ip = read_ip(packet)) ... ip->destination, ip->traffic_class, ip->flow
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/random.h"

namespace talweg::fabric {

struct IpPacket {
  std::uint32_t source = 0;  // as numbers: 10.0.0.1 is 0x0a000001
  std::uint32_t destination = 0;
  std::uint8_t traffic_class = 0;
  std::uint32_t flow = 0;  // a hash of addresses, protocol and, but for fragments, ports
};

inline constexpr std::size_t kLeastIpBytes = 20;

// 4, 6 or whatever stands there; 0: nothing does.
int ip_version(std::span<const std::uint8_t> packet);
// Nothing for what is not a whole IPv4 packet: another version, or lengths that do not agree.
std::optional<IpPacket> read_ip(std::span<const std::uint8_t> packet);

// Both of a packet that read_ip() reads. The first leaves alone what is not ECN-capable, and keeps the
// header's checksum right (RFC 1624); the second flips a bit behind the header, if there is anything.
void mark_congestion(std::span<std::uint8_t> packet);
void flip_payload_bit(std::span<std::uint8_t> packet, Random& random);

}  // namespace talweg::fabric
