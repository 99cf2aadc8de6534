// What both ends of a stream of bounded-loss transfers have agreed on, and what both work out from it: how a
// tensor is cut into packets, and in which order these leave.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "base/fail.h"
#include "protocol/aggregation/round_timer.h"
#include "talweg/error.h"
#include "wire/bounded.h"

namespace talweg::protocol {

// One tensor (a bucket, or a shard of one) that goes from one node to another in each iteration.
struct BoundedShape {
  std::uint32_t tensor = 0;
  std::uint64_t bytes = 0;
  // Bytes of a packet: as many whole elements as fit into a datagram behind wire::kBoundedHeadBytes.
  std::uint16_t stride = 1368;

  std::uint32_t packets() const { return static_cast<std::uint32_t>((bytes + stride - 1) / stride); }
  std::uint16_t tail() const {
    return static_cast<std::uint16_t>(bytes - std::uint64_t{packets() - 1} * stride);
  }
  std::uint16_t length(std::uint32_t packet) const { return packet + 1 == packets() ? tail() : stride; }
};
// Sums of bytes times millionths stay below 2^63, with some room for bursts (loss_budget.h).
inline constexpr std::uint64_t kMostBoundedBytes = 1ULL << 38;
// A bit each, at both ends: 32 MB of them.
inline constexpr std::uint64_t kMostPackets = 1ULL << 28;

// Elements of the part of a vector that each rank sums, in the order of ranks: as many for each of `servers`
// (ranks in ascending order; empty: all), the first ones one more where they do not divide.
inline std::vector<std::size_t> bounded_parts(std::size_t count, std::size_t ranks,
                                              std::span<const int> servers) {
  std::vector<std::size_t> parts(ranks);
  const std::size_t n = servers.empty() ? ranks : servers.size();
  for (std::size_t i = 0; i < n; ++i)
    parts[servers.empty() ? i : static_cast<std::size_t>(servers[i])] = count / n + (i < count % n ? 1 : 0);
  return parts;
}

// Why these cannot be the servers of so many ranks; empty: they can.
inline std::string complaint_about_servers(std::span<const int> servers, int ranks) {
  for (std::size_t i = 0; i < servers.size(); ++i) {
    if (servers[i] < 0 || servers[i] >= ranks)
      return "rank " + std::to_string(servers[i]) + " as a server: expected 0 to " +
             std::to_string(ranks - 1);
    if (std::ranges::count(servers.first(i), servers[i]) > 0)
      return "rank " + std::to_string(servers[i]) + " is a server twice: expected each once";
  }
  return {};
}

// Throws Error{invalid_argument}.
inline void require_possible(const BoundedShape& shape) {
  constexpr std::size_t kMostStride = wire::kMaxDatagramPayload - wire::kBoundedHeadBytes;
  if (shape.stride == 0 || shape.stride > kMostStride)
    refuse("tensor {} in packets of {} bytes: expected 1 to {}", shape.tensor, shape.stride, kMostStride);
  if (shape.bytes > kMostBoundedBytes || (shape.bytes + shape.stride - 1) / shape.stride > kMostPackets)
    refuse("tensor {} of {} bytes in packets of {}: expected at most {} packets and {} bytes", shape.tensor,
           shape.bytes, shape.stride, kMostPackets, kMostBoundedBytes);
}

// The packet that leaves first. What is cut off is what arrives last, so a fixed order would lose the same
// tail in each iteration. Multiples of an irrational number spread evenly, whatever their count (Weyl), and
// each of the three has one of its own: the golden ratio's, the square root of 2's, and of 3's.
constexpr std::uint32_t first_to_leave(std::uint32_t packets, std::uint32_t iteration, std::uint16_t sender,
                                       std::uint32_t tensor) {
  const std::uint32_t turn = iteration * 0x9e3779b9U + sender * 0x6a09e667U + tensor * 0xbb67ae85U;
  return static_cast<std::uint32_t>(std::uint64_t{turn} * packets >> 32);
}

// So many of a pass's last packets say that they are: losing one of them is likely, losing all is not.
constexpr std::uint32_t hinting_packets(std::uint32_t packets) {
  return std::clamp<std::uint32_t>(packets / 100, 1, 32);
}

struct BoundedTimes {
  // Behind a hint, so much silence says that all has come that will: longer than packets overtake each other.
  std::int64_t gap_ns = 200'000;
  // How long a receiver waits for more once no more is missing than may be; 0: it does not.
  std::int64_t linger_ns = 1'000'000;
  RoundTimes round{};  // of asking and hearing
  // A stop is said again so long after the first time: whoever waits for one that was lost would have to ask,
  // and that only after a timeout.
  std::int64_t stop_again_ns = 500'000;
};

inline constexpr std::int64_t kNeverNs = std::numeric_limits<std::int64_t>::max();

// Why a transfer has failed, for people: who is at the other end, and what is missing.
struct BoundedFailure {
  ErrorCode code = ErrorCode::timeout;
  std::string text;
  int node = 0;         // the other end
  bool silent = false;  // nothing at all has come from there
};

}  // namespace talweg::protocol
