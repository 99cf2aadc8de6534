// What a switch asks of whoever drives it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "protocol/aggregation/switch_terms.h"
#include "wire/datagram.h"

namespace talweg::protocol {

struct SwitchAction {
  enum class To : std::uint8_t {
    one,    // the datagram goes to the only one of `peers`
    all,    // to each of them: by multicast, or by as many sends
    above,  // to the switch above; `peers` is empty
  } to = To::one;
  std::span<const Peer> peers;
  wire::DatagramHeader header;  // its length and number are left to who seals it; unused on SwitchML's wire
  std::span<const std::byte> payload;
};
// At most so many from one datagram.
inline constexpr std::size_t kMaxSwitchActions = 4;

}  // namespace talweg::protocol
