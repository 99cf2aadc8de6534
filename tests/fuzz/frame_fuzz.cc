// Headers of frames, as they come and with a magic number and a checksum that hold.
#include <cstring>
#include <string>

#include "fuzz/fuzz.h"
#include "wire/frames.h"

using namespace talweg;

namespace {
void look(std::span<const std::byte, sizeof(wire::Header)> bytes) {
  wire::Header header;
  if (wire::decode(bytes, header) != nullptr) return;
  fuzz::require(header.length <= wire::kMaxPayload);
  fuzz::require(!wire::to_string(header).empty());
  wire::Header again;
  set_signature(again, wire::signature_of(header));
  fuzz::require(wire::signature_of(again) == wire::signature_of(header));
  if (header.type == wire::FrameType::up || header.type == wire::FrameType::down) {
    wire::seal(again = encode(wire::call_of(header), wire::chunk_of(header)));
    fuzz::require(wire::to_string(again) == wire::to_string(header));
  }
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < sizeof(wire::Header)) return 0;
  std::array<std::byte, sizeof(wire::Header)> bytes;
  std::memcpy(bytes.data(), data, bytes.size());
  look(bytes);
  wire::Header header;
  std::memcpy(&header, bytes.data(), sizeof header);
  header.magic = wire::kMagic;
  wire::seal(header);
  std::memcpy(bytes.data(), &header, sizeof header);
  look(bytes);
  return 0;
}
