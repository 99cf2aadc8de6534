// The 64 bytes in front of every chunk and every control message. Little-endian; the struct is the layout.
// What the fields mean in each type of frame is said in frames.h, and known nowhere else.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <string>

#include "wire/signature.h"

namespace talweg::wire {

enum class FrameType : std::uint8_t {
  announce = 1,        // "I have started this collective": opens the receiver's window
  up = 2,              // a chunk on its way to a tree's root; payload
  down = 3,            // a chunk on its way from the root; payload
  credit = 4,          // how many chunks of a tree the receiver of this frame may have sent in all; or, of a
                       // scatter, how many of them have arrived
  failure = 5,         // the operation has failed; payload: the reason as text
  request = 6,         // send_recv: "I have a message for you"
  clear = 7,           // send_recv: "send it"
  goodbye = 8,         // an orderly end: the connection closes without anybody having died
  wake = 9,            // rings the doorbell of a rank that sleeps on its shared-memory rings
  ping = 10,           // "what time is it there?"
  pong = 11,           // the answer
  group_failure = 12,  // the whole group has failed; payload: the reason as text
  leave = 13,          // the sender has left the group, and nothing has failed
  plan = 14,           // what rank 0 says of plans, or the next part of it; payload
  report = 15,         // what a rank tells rank 0 of its connections; payload
  lost = 16,           // the sender has lost an aggregator; payload: the reason as text
  past = 17,           // the sender has ended its collectives up to one; to an aggregator
  turn = 18,           // of a link: "have you taken all that I have sent this way?"
  taken = 19,          // the answer
};

// What a payload is, of types of frames that have one.
enum class Payload : std::uint8_t {
  none,
  text,  // what nodes say to each other, copied when it is sent
  data,  // of a call, sent from where it lies; the call's transfer says where it may be received
};
struct FrameFacts {
  const char* name;
  Payload payload;
};
// By the type's number; they begin with 1.
inline constexpr FrameFacts kFrameFacts[] = {
    {"?", Payload::none},
    {"announce", Payload::none},
    {"up", Payload::data},
    {"down", Payload::data},
    {"credit", Payload::none},
    {"failure", Payload::text},
    {"request", Payload::none},
    {"clear", Payload::none},
    {"goodbye", Payload::none},
    {"wake", Payload::none},
    {"ping", Payload::none},
    {"pong", Payload::none},
    {"group_failure", Payload::text},
    {"leave", Payload::none},
    {"plan", Payload::text},
    {"report", Payload::text},
    {"lost", Payload::text},
    {"past", Payload::none},
    {"turn", Payload::none},
    {"taken", Payload::none},
};
inline constexpr unsigned kFrameTypes = std::size(kFrameFacts);
// 64 .. 95 belong to transfers, which give them their meaning (Own, in frames.h).
inline constexpr unsigned kOwnTypes = 64;
inline constexpr unsigned kOwnKinds = 32;
inline constexpr FrameFacts kOwnFacts{"own", Payload::data};
// Of a type that there is.
constexpr const FrameFacts& facts(FrameType type) {
  const auto number = static_cast<unsigned>(type);
  return number < kFrameTypes ? kFrameFacts[number] : kOwnFacts;
}

// "TLW2": the last byte is the version of the frame layout.
inline constexpr std::uint32_t kMagic = 0x32574c54;
// A chunk is at most 256 KiB; room for larger ones later.
inline constexpr std::uint32_t kMaxPayload = 1U << 20;
// Flags.
inline constexpr std::uint16_t kHasChecksum = 1;  // `payload_checksum` is set
inline constexpr std::uint16_t kBehindAll = 2;    // arrives behind everything that was sent before it

struct Header {
  std::uint32_t magic = kMagic;
  FrameType type = FrameType::announce;
  Collective op = Collective::barrier;
  DataType data_type = DataType::u8;
  ReduceOp reduction = ReduceOp::sum;
  std::uint32_t group = 0;
  std::uint16_t root = 0;  // kMaxRanks
  std::uint16_t flags = 0;
  std::uint64_t sequence = 0;
  std::int64_t count = 0;
  std::uint64_t layout = 0;
  std::uint32_t tree = 0;
  std::uint32_t chunk = 0;
  std::uint32_t length = 0;  // payload bytes that follow
  std::uint32_t payload_checksum = 0;
  std::uint32_t plan = 0;
  std::uint32_t header_checksum = 0;  // CRC-32C of the 60 bytes before it; unused in shared memory
};
static_assert(sizeof(Header) == 64);
static_assert(std::endian::native == std::endian::little,
              "the wire is little-endian; byte swaps are not written yet");

void set_signature(Header& header, const Signature& signature);
Signature signature_of(const Header& header);

// Fills in the header's checksum.
void seal(Header& header);

// The part of `decode` that looks at values alone: for frames that come through shared memory.
const char* check(const Header& header);

// Copies 64 bytes into `header`. Returns null when the frame may be acted upon, else the reason (a static
// string) why it must not: wrong magic, version or checksum, an unknown enum value, an excessive length.
const char* decode(std::span<const std::byte, sizeof(Header)> bytes, Header& header);

std::string to_string(const Header& header);

}  // namespace talweg::wire
