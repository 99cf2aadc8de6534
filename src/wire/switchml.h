// SwitchML's published packets (p4lang/p4app-switchML, its last commit of July 2022): the payload of UDP
// datagrams between workers and a switch that listens on ports 0xBEE0 to 0xBEEF. Big-endian.
//
//    0  kind 4 bits, unused 1 bit, size 3 bits     1  job u8     2  packet u32     6  version 1 bit, slot 15 bits
//    8  exponents i8, i8
//   10  64 or 256 integers i32
//
// Earlier commits have the exponents behind the integers. The job's byte changes with every tensor; it and
// the packet's number are the workers' own, and come back in the result as they were sent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace talweg::wire {

inline constexpr std::uint16_t kSwitchmlFirstPort = 0xBEE0;
inline constexpr std::uint16_t kSwitchmlLastPort = 0xBEEF;

struct SwitchmlHeader {
  std::uint8_t kind = 0;  // 4 bits, the workers' own
  std::uint8_t job = 0;
  std::uint32_t packet = 0;
  std::uint16_t slot = 0;  // 15 bits
  bool version = false;
  std::int8_t exponents[2] = {0, 0};
  std::uint16_t elements = 0;  // 64 or 256
  bool operator==(const SwitchmlHeader&) const = default;
};
inline constexpr std::size_t kSwitchmlHeaderBytes = 10;  // with the exponents
inline constexpr std::uint16_t kSwitchmlSlots = 1U << 15;
constexpr std::size_t switchml_bytes(std::uint16_t elements) {
  return kSwitchmlHeaderBytes + std::size_t{elements} * 4;
}
inline constexpr std::size_t kMaxSwitchmlBytes = switchml_bytes(256);

// Null, or why these bytes are no packet of SwitchML's (a static string). Its integers follow the header.
[[nodiscard]] const char* decode(std::span<const std::byte> packet, SwitchmlHeader& header);
// Writes kSwitchmlHeaderBytes.
void encode(const SwitchmlHeader& header, std::byte* packet);

}  // namespace talweg::wire
