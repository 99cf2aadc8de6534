// What ranks of bounded sums tell each other before the first call, and agree on.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "live/udp/udp_paths.h"
#include "observe/recorder.h"
#include "protocol/bounded/adaptive_deadline.h"
#include "talweg/bounded_loss.h"
#include "talweg/group.h"
#include "wire/key.h"

namespace talweg::group {

// What each rank tells the others before anything can be sent.
struct Introduction {
  std::uint64_t servers = 0;  // their digest
  std::uint32_t ppm = 0, sender_ppm = 0, call_ppm = 0;
  std::uint32_t packet_bytes = 0;
  std::uint32_t credit = 0;
  std::uint16_t port = 0;  // 0: there is no socket
  std::uint8_t policy = 0;
  std::uint8_t has_aes = 0;
  std::uint8_t by_switch = 0;       // sums may go by the group's switches
  std::array<char, 195> failure{};  // why there is no socket
  std::uint32_t address = 0;        // the group's, IPv4, in the network's order
  live::PathAddresses paths{};
  wire::Secret secret{};
};
static_assert(std::is_trivially_copyable_v<Introduction> &&
              std::has_unique_object_representations_v<Introduction>);

template <std::size_t n>
void put_text(std::array<char, n>& to, const std::string& text) {
  std::memcpy(to.data(), text.data(), std::min(text.size(), n - 1));
}
template <std::size_t n>
std::string text_of(const std::array<char, n>& from) {
  return std::string(from.data(), ::strnlen(from.data(), n));
}

// Of its socket, in the group's network.
live::UdpAddress address_of(const Introduction& of);
// Of options that can be; what only this rank's socket says is left out.
Introduction introduction_of(const BoundedLossOptions& options, std::size_t ranks);
// Throws Error{mismatch}, on every rank, where ranks disagree, and Error{system} where one has no socket.
void check_alike(const std::vector<Introduction>& all);

// Of which ranks sum and whether they are dedicated, however they are named.
std::uint64_t digest_of_servers(const BoundedLossOptions& options, std::size_t ranks);
// Where all ranks have one digest, none has to say more. Else they tell each other their servers: collective.
// Throws Error{mismatch}, on every rank, and as a collective does.
void check_servers_alike(Group& group, const BoundedLossOptions& options,
                         const std::vector<Introduction>& all);

// What each rank says before each call.
struct CallWords {
  std::uint64_t kind, count, type, reduction, refused;
  protocol::MeasuredTransfer last{};  // of this size, from which all wait for as long; no term of the call
  std::uint64_t by_switch = 0;        // as BoundedSwitch::line_up() says it; nor is this
};
static_assert(sizeof(CallWords) == 8 * sizeof(std::uint64_t));
// By rank. Throws Error{mismatch}, on every rank, where one has refused its call or makes another one.
void check_same(const Group& group, observe::CallNote::Kind kind, std::span<const CallWords> all);

}  // namespace talweg::group
