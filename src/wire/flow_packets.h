// What DatagramFlow says in its datagrams (protocol/datagram/flow.h). Types, and the layouts of payloads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "wire/datagram.h"

namespace talweg::wire {

enum class FlowType : std::uint8_t {
  data = kFlowTypes,    // own16: the channel; payload: where in its bytes these are, u64, and the bytes
  acknowledgement = 2,  // what has come; asks for none itself
  probe = 3,            // nothing but the wish to be acknowledged
};

inline constexpr std::size_t kFlowOffsetBytes = 8;  // in front of the bytes of FlowType::data
inline constexpr std::size_t kFlowChannels = 16;    // at most
inline constexpr std::size_t kAckRanges = 32;       // at most; of what has come the newest is told

// A channel has no more than so many bytes in its life: sums of two do not overflow.
inline constexpr std::uint64_t kFlowBytes = 1ULL << 62;

struct Acknowledgement {
  struct Range {
    std::uint64_t begin = 0;  // numbers of datagrams: [begin, end)
    std::uint64_t end = 0;
    bool operator==(const Range&) const = default;
  };
  std::uint32_t held_us = 0;  // since the highest number came
  std::uint32_t window = 0;   // so many bytes may be on their way to who says this
  std::uint32_t marked = 0;   // datagrams that came with ECN's mark, in all
  // From the newest to the oldest; neither touching nor overlapping. At least one.
  std::array<Range, kAckRanges> ranges;
  std::size_t n_ranges = 0;
  // By channel: bytes up to this offset may be sent.
  std::array<std::uint64_t, kFlowChannels> limits;
  std::size_t n_limits = 0;

  std::uint64_t highest() const { return ranges[0].end - 1; }
};
inline constexpr std::size_t kMostAckBytes = 24 + 16 * kAckRanges + 8 * kFlowChannels;

// Writes at most kMostAckBytes; how many. n_ranges > 0.
std::size_t encode(const Acknowledgement& ack, std::byte* payload);
// Null, or the reason (a static string) why it must not be acted upon.
[[nodiscard]] const char* decode(std::span<const std::byte> payload, Acknowledgement& ack);

}  // namespace talweg::wire
