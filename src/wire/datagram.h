// The 32 bytes in front of every datagram, whichever protocol sends it. Little-endian; the struct is the
// layout.
//
//    0  magic u16, version u8, type u8        16  sender u16, own16 u16
//    4  flags u8, class u8, length u16        20  own32 u32
//    8  job u32, epoch u32                    24  number u64
//
// Then `length` bytes of payload, then a trailer: a checksum of 4 bytes or a tag of 16, as the group's
// DatagramProtection has it (datagram_cipher.h makes and checks both). A datagram has exactly these bytes, or
// is refused.
//
// What all protocols share is above. A protocol has a range of types, gives own16 and own32 whatever meaning
// it likes, and puts what needs more room at the front of its payload. All of it stands under the checksum or
// tag; of an encrypted datagram the header can be read by everybody, and own16 and own32 with it.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>

namespace talweg::wire {

// How the datagrams of a group are told from damaged and foreign ones. All members use the same.
enum class DatagramProtection : std::uint8_t {
  checksum,       // CRC-32C: against damage, not against people
  authenticated,  // a tag that only who holds the key can make
  encrypted,      // and nobody else can read the payload
};
const char* to_string(DatagramProtection protection);
constexpr std::size_t trailer_bytes(DatagramProtection protection) {
  return protection == DatagramProtection::checksum ? 4 : 16;
}

// Who a type belongs to. Within its range a protocol numbers as it likes, and refuses what it does not know.
inline constexpr std::uint8_t kFlowTypes = 1;          // 1 .. 31: protocol/datagram
inline constexpr std::uint8_t kAggregationTypes = 32;  // 32 .. 63: streaming aggregation
inline constexpr std::uint8_t kBoundedTypes = 64;      // 64 .. 95: transport that may lose a bounded part
inline constexpr std::uint8_t kDatagramTypes = 96;     // none from here on

inline constexpr std::uint16_t kDatagramMagic = 0x4454;  // "TD"
inline constexpr std::uint8_t kDatagramVersion = 1;

// Flags.
inline constexpr std::uint8_t kDatagramToAll = 1;  // sealed once for all members: with the key of everybody
inline constexpr std::uint8_t kDatagramEncrypted = 2;  // set by the sealer, as the one above
inline constexpr std::uint8_t kDatagramAsks = 4;       // its sender waits for an acknowledgement

// The class: what the network may do with a datagram. Bits 0 .. 2 are its priority, 0 the most urgent one;
// bit 3 says that it may be lost before others are.
inline constexpr std::uint8_t kPriorityMask = 7;
inline constexpr std::uint8_t kDroppable = 8;
inline constexpr std::uint8_t kOrdinary = 4;  // the priority of what has no other

// A sender that is everybody's peer, as the receiver in a DatagramScope.
inline constexpr std::uint16_t kEverybody = 0xffff;

struct DatagramHeader {
  std::uint16_t magic = kDatagramMagic;
  std::uint8_t version = kDatagramVersion;
  std::uint8_t type = 0;
  std::uint8_t flags = 0;
  std::uint8_t service = 0;  // its class
  std::uint16_t length = 0;  // of the payload
  std::uint32_t job = 0;     // the low half of the number that was drawn for the group
  std::uint32_t epoch = 0;   // which life of the group
  std::uint16_t sender = 0;  // its node in the plan: a rank, a switch or an aggregator
  std::uint16_t own16 = 0;   // the protocol's
  std::uint32_t own32 = 0;   // the protocol's
  std::uint64_t number = 0;  // of this sender's datagrams to this receiver; given by the sealer, never twice
  bool operator==(const DatagramHeader&) const = default;
};
inline constexpr std::size_t kDatagramHeaderBytes = 32;
static_assert(sizeof(DatagramHeader) == kDatagramHeaderBytes);
static_assert(std::has_unique_object_representations_v<DatagramHeader>, "no padding travels");
static_assert(std::endian::native == std::endian::little,
              "the wire is little-endian; byte swaps are not written yet");

// The largest payload that UDP over IPv4 can carry behind a header with a tag.
inline constexpr std::size_t kMaxDatagramPayload = 65535 - 20 - 8 - kDatagramHeaderBytes - 16;
// Of a path whose packets (IP header included) have `mtu` bytes: payload of one datagram. 0 when there is no
// room.
std::size_t datagram_payload(std::size_t mtu, bool ipv6, DatagramProtection protection);

// Why a datagram is not acted upon.
enum class DatagramRefusal : std::uint8_t {
  none,
  too_short,  // shorter than a header with its trailer
  foreign,    // no datagram of Talweg's
  version,    // of another version of this layout
  type,       // a type or flag that nobody has
  length,     // it has not as many bytes as its header says
  mode,       // encrypted where others are not, or the other way round
  job,        // of another job
  epoch,      // of an earlier or later life of this group
  sender,     // from nobody that is known here
  replayed,   // this number has been accepted before
  stale,      // so old that it cannot be said whether it has
  damaged,    // the checksum or tag does not match
  count_
};
// "the tag or checksum does not match": for people.
const char* to_string(DatagramRefusal refusal);

// How many were refused, by reason. A few bytes per reason; kept by whoever receives.
class DatagramRefusals {
 public:
  void count(DatagramRefusal why) { ++counts_[static_cast<std::size_t>(why)]; }
  std::uint64_t operator[](DatagramRefusal why) const { return counts_[static_cast<std::size_t>(why)]; }
  std::uint64_t total() const;
  // "3 damaged, 1 of another job"; empty when there were none.
  std::string to_string() const;

 private:
  std::array<std::uint64_t, static_cast<std::size_t>(DatagramRefusal::count_)> counts_{};
};

// Writes 32 bytes.
void encode(const DatagramHeader& header, std::byte* datagram);
// Reads the header of a whole datagram and checks what can be checked without a key: everything up to
// DatagramRefusal::mode. `header` is filled in only where nothing is wrong.
[[nodiscard]] DatagramRefusal decode(std::span<const std::byte> datagram, DatagramProtection protection,
                                     DatagramHeader& header);

std::string to_string(const DatagramHeader& header);

}  // namespace talweg::wire
