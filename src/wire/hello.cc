#include "wire/hello.h"

#include <fmt/format.h>

#include <cstring>

#include "base/crc32c.h"

namespace talweg::wire {

namespace {
constexpr std::uint64_t kHelloMagic = 0x6f6c6c6548574c54ULL;  // "TLWHello"

struct Layout {
  std::uint64_t magic;
  std::uint16_t version;
  std::uint16_t stream;
  std::uint32_t rank;
  std::uint64_t job;
  std::uint32_t reserved;
  std::uint32_t checksum;
};
static_assert(sizeof(Layout) == kHelloBytes);
}  // namespace

std::array<std::byte, kHelloBytes> encode(const Hello& hello) {
  Layout layout{kHelloMagic, hello.version, hello.stream, hello.rank, hello.job, 0, 0};
  layout.checksum = crc32c(&layout, offsetof(Layout, checksum));
  std::array<std::byte, kHelloBytes> bytes;
  std::memcpy(bytes.data(), &layout, sizeof layout);
  return bytes;
}

std::string decode(std::span<const std::byte, kHelloBytes> bytes, Hello& hello) {
  Layout layout;
  std::memcpy(&layout, bytes.data(), sizeof layout);
  if (layout.magic != kHelloMagic) return "the peer does not speak Talweg";
  // Before the checksum: a later version may compute it otherwise.
  if (layout.version != kProtocolVersion)
    return fmt::format("the peer speaks protocol version {}, this is version {}", layout.version,
                       kProtocolVersion);
  if (layout.checksum != crc32c(&layout, offsetof(Layout, checksum)))
    return "the greeting's checksum does not match";
  hello = {layout.version, layout.stream, layout.rank, layout.job};
  return {};
}

}  // namespace talweg::wire
