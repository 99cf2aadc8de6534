#include "fabric/ip_packet.h"

#include "wire/traffic_class.h"

namespace talweg::fabric {

namespace {

constexpr std::uint32_t two_bytes(std::span<const std::uint8_t> at) {
  return static_cast<std::uint32_t>(at[0] << 8 | at[1]);
}

constexpr std::uint32_t four_bytes(std::span<const std::uint8_t> at) {
  return two_bytes(at) << 16 | two_bytes(at.subspan(2));
}

constexpr std::size_t header_bytes(std::span<const std::uint8_t> packet) {
  return std::size_t{4} * (packet[0] & 0x0f);
}

// splitmix64's: every bit of the result depends on every bit of what is hashed.
constexpr std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

}  // namespace

int ip_version(std::span<const std::uint8_t> packet) {
  return packet.empty() ? 0 : packet[0] >> 4;
}

std::optional<IpPacket> read_ip(std::span<const std::uint8_t> packet) {
  if (packet.size() < kLeastIpBytes || ip_version(packet) != 4) return std::nullopt;
  const std::size_t header = header_bytes(packet);
  if (header < kLeastIpBytes || header > packet.size() || two_bytes(packet.subspan(2)) != packet.size())
    return std::nullopt;
  constexpr std::uint8_t kTcp = 6, kUdp = 17;
  constexpr std::uint32_t kMoreFragmentsOrOffset = 0x3fff;
  const std::uint8_t protocol = packet[9];
  const bool fragment = (two_bytes(packet.subspan(6)) & kMoreFragmentsOrOffset) != 0;
  const bool has_ports = !fragment && (protocol == kTcp || protocol == kUdp) && packet.size() >= header + 4;
  IpPacket ip;
  ip.source = four_bytes(packet.subspan(12));
  ip.destination = four_bytes(packet.subspan(16));
  ip.traffic_class = packet[1];
  const std::uint64_t ports = has_ports ? four_bytes(packet.subspan(header)) : 0;
  const std::uint64_t addresses = std::uint64_t{ip.source} << 32 | ip.destination;
  ip.flow = static_cast<std::uint32_t>(mixed(mixed(addresses) + (ports << 8 | protocol)) >> 32);
  return ip;
}

void mark_congestion(std::span<std::uint8_t> packet) {
  const std::uint8_t before = packet[1];
  if ((before & wire::kEcnMask) == 0) return;
  packet[1] = before | wire::kEcnMarked;
  // ~(~checksum + ~old + new), in ones' complement; only the low half of the first word has changed.
  std::uint32_t sum =
      (~two_bytes(packet.subspan(10)) & 0xffffU) + (~std::uint32_t{before} & 0xffffU) + packet[1];
  sum = (sum & 0xffffU) + (sum >> 16);
  sum = (sum & 0xffffU) + (sum >> 16);
  packet[10] = static_cast<std::uint8_t>(~sum >> 8);
  packet[11] = static_cast<std::uint8_t>(~sum);
}

void flip_payload_bit(std::span<std::uint8_t> packet, Random& random) {
  const std::span<std::uint8_t> payload = packet.subspan(header_bytes(packet));
  if (payload.empty()) return;
  const std::uint64_t bit = random.below(8 * payload.size());
  payload[bit / 8] ^= static_cast<std::uint8_t>(1U << (bit % 8));
}

}  // namespace talweg::fabric
