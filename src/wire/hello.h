// The first bytes on a connection, from the side that connects: who speaks, of which job, in which version.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace talweg::wire {

inline constexpr std::uint16_t kProtocolVersion = 1;

struct Hello {
  std::uint16_t version = kProtocolVersion;
  std::uint16_t stream = 0;  // 0 .. streams-1 of this pair of ranks
  std::uint32_t rank = 0;
  std::uint64_t job =
      0;  // the number that rank 0 drew for this group: strangers and other jobs do not know it
};
inline constexpr std::size_t kHelloBytes = 32;

std::array<std::byte, kHelloBytes> encode(const Hello& hello);
// Empty when the greeting is sound, else the reason in words.
std::string decode(std::span<const std::byte, kHelloBytes> bytes, Hello& hello);

}  // namespace talweg::wire
