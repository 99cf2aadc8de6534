#include "wire/switchml.h"

namespace talweg::wire {

namespace {

// Sizes 0 and 2 (128 and 512 bytes) have a number, and no worker that would take them.
constexpr unsigned kSize256 = 1, kSize1024 = 3;
constexpr std::uint16_t kVersionBit = 0x8000;

unsigned octet(std::span<const std::byte> packet, std::size_t i) {
  return std::to_integer<unsigned>(packet[i]);
}

}  // namespace

const char* decode(std::span<const std::byte> packet, SwitchmlHeader& header) {
  if (packet.size() < kSwitchmlHeaderBytes) return "shorter than its header";
  const unsigned size = octet(packet, 0) & 7;
  if (size != kSize256 && size != kSize1024) return "a size that no worker has";
  SwitchmlHeader h;
  h.kind = static_cast<std::uint8_t>(octet(packet, 0) >> 4);
  h.job = static_cast<std::uint8_t>(octet(packet, 1));
  h.packet = octet(packet, 2) << 24 | octet(packet, 3) << 16 | octet(packet, 4) << 8 | octet(packet, 5);
  const unsigned index = octet(packet, 6) << 8 | octet(packet, 7);
  h.version = (index & kVersionBit) != 0;
  h.slot = static_cast<std::uint16_t>(index & ~unsigned{kVersionBit});
  h.exponents[0] = static_cast<std::int8_t>(octet(packet, 8));
  h.exponents[1] = static_cast<std::int8_t>(octet(packet, 9));
  h.elements = size == kSize256 ? 64 : 256;
  if (packet.size() != switchml_bytes(h.elements)) return "not as long as it says";
  header = h;
  return nullptr;
}

void encode(const SwitchmlHeader& h, std::byte* packet) {
  const auto put = [&](std::size_t i, unsigned value) { packet[i] = static_cast<std::byte>(value & 0xff); };
  put(0, unsigned{h.kind} << 4 | (h.elements == 64 ? kSize256 : kSize1024));
  put(1, h.job);
  for (unsigned i = 0; i < 4; ++i) put(2 + i, h.packet >> (24 - 8 * i));
  const unsigned index = h.slot | (h.version ? unsigned{kVersionBit} : 0U);
  put(6, index >> 8);
  put(7, index);
  put(8, static_cast<std::uint8_t>(h.exponents[0]));
  put(9, static_cast<std::uint8_t>(h.exponents[1]));
}

}  // namespace talweg::wire
