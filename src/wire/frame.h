// The 64 bytes in front of every chunk and every control message. Little-endian; the struct is the layout.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "wire/signature.h"

namespace talweg::wire {

enum class FrameType : std::uint8_t {
  announce = 1,  // "I have started this collective": opens the receiver's window, carries the signature
  up = 2,        // a chunk on its way to a tree's root; payload
  down = 3,      // a chunk on its way from the root; payload
  credit = 4,    // `chunk` = how many chunks of `tree` the receiver may have been sent in all
  failure = 5,   // the operation (or, with kWholeGroup, the group) has failed; payload is the reason as text
  request = 6,   // send_recv: "I have a message for you", `tree` = tag
  clear = 7,     // send_recv: "send it"
  goodbye = 8,   // an orderly end: the connection closes without anybody having died
  wake = 9,      // rings the doorbell of a rank that sleeps on its shared-memory rings
  ping = 10,     // "what time is it there?": `count` = the asker's clock, in nanoseconds
  pong = 11,     // the answer: `count` as asked, `layout` = the answerer's clock
};

inline constexpr std::uint32_t kMagic =
    0x31574c54;  // "TLW1": the last byte is the version of the frame layout
inline constexpr std::uint32_t kMaxPayload = 1U
                                             << 20;  // a chunk is at most 256 KiB; room for larger ones later
inline constexpr std::uint64_t kWholeGroup = ~0ULL;  // `sequence` of a failure that ends the group
inline constexpr std::uint32_t kAskStart =
    4;  // flags of an announce: the sender waits to hear that we have started
// Flags of a failure with kWholeGroup: nothing has failed, the sender has left the group. It comes once on
// each of `count` trees, behind whatever the sender has still sent there.
inline constexpr std::uint32_t kLeft = 8;
inline constexpr std::uint32_t kHasChecksum = 1;  // flags: `payload_checksum` is set

struct Header {
  std::uint32_t magic = kMagic;
  FrameType type = FrameType::announce;
  Collective op = Collective::barrier;
  DataType data_type = DataType::u8;
  ReduceOp reduction = ReduceOp::sum;
  std::uint32_t group = 0;
  std::int32_t root = 0;
  std::uint64_t sequence = 0;
  std::int64_t count = 0;
  std::uint64_t layout = 0;
  std::uint32_t tree = 0;
  std::uint32_t chunk = 0;
  std::uint32_t length = 0;  // payload bytes that follow
  std::uint32_t payload_checksum = 0;
  std::uint32_t flags = 0;            // failure: bits 8.. hold the ErrorCode
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
