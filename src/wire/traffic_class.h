// What an IP header says of a datagram's class (datagram.h): DSCP and ECN, in the octet that IPv4 calls type
// of service and IPv6 traffic class.
//
// The priority chooses the DSCP, by which a switch chooses one of its queues. Droppable ones are not
// ECN-capable: a queue with RED and ECN drops them where it marks others.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "wire/datagram.h"

namespace talweg::wire {

// By priority, the most urgent first: CS5, AF41, AF31, AF21, best effort, AF11, CS1, LE (RFC 4594, RFC 8622).
inline constexpr std::array<std::uint8_t, 8> kDscp = {40, 34, 26, 18, 0, 10, 8, 1};
inline constexpr std::array<const char*, 8> kDscpNames = {"CS5",         "AF41", "AF31", "AF21",
                                                          "best effort", "AF11", "CS1",  "LE"};

inline constexpr std::uint8_t kEcnMask = 3;
inline constexpr std::uint8_t kEcnCapable = 2;  // ECT(0)
inline constexpr std::uint8_t kEcnMarked = 3;   // CE: congestion experienced

// `mark_priority`: else all is best effort.
constexpr std::uint8_t traffic_class(std::uint8_t service, bool mark_priority) {
  const std::uint8_t dscp = mark_priority ? kDscp[service & kPriorityMask] : 0;
  return static_cast<std::uint8_t>(dscp << 2 | ((service & kDroppable) != 0 ? 0 : kEcnCapable));
}

// The priority that a switch takes it for: that of the DSCP above, and of others that of best effort.
constexpr std::uint8_t priority_of(std::uint8_t traffic_class) {
  for (std::size_t priority = 0; priority < kDscp.size(); ++priority)
    if (kDscp[priority] == traffic_class >> 2) return static_cast<std::uint8_t>(priority);
  return kOrdinary;
}

}  // namespace talweg::wire
