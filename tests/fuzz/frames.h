// For the fuzzers whose input is a stream of frames.
#pragma once

#include <cstring>
#include <vector>

#include "base/crc32c.h"
#include "wire/frame.h"

namespace talweg::fuzz {

// Gives headers a magic number, a length below 4096 and checksums that hold, so that what lies behind these
// checks is reached.
inline void repair_frames(std::vector<std::byte>& bytes) {
  for (std::size_t at = 0; at + sizeof(wire::Header) <= bytes.size();) {
    wire::Header header;
    std::memcpy(&header, bytes.data() + at, sizeof header);
    header.magic = wire::kMagic;
    header.length %= 4096;
    const std::size_t payload = at + sizeof header;
    if (payload + header.length <= bytes.size())
      header.payload_checksum = crc32c(bytes.data() + payload, header.length);
    wire::seal(header);
    std::memcpy(bytes.data() + at, &header, sizeof header);
    at = payload + header.length;
  }
}

}  // namespace talweg::fuzz
