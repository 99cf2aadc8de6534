// The same bytes, cut in two ways: a reader of frames must hand over the same frames. The first byte says
// whether headers are given a magic number and checksums that hold; the second and third how the bytes are
// cut, and which payloads have a place.
#include <algorithm>
#include <cstring>
#include <vector>

#include "base/random.h"
#include "fuzz/frames.h"
#include "fuzz/fuzz.h"
#include "wire/frame_reader.h"

using namespace talweg;

namespace {

constexpr std::size_t kMost = 4096;  // of a payload

// Of all frames and of why no more came.
std::uint64_t read_all(const std::vector<std::byte>& bytes, std::uint64_t seed) {
  Random random{seed};
  wire::FrameReader reader(std::nullopt, kMost);
  std::vector<std::byte> into(kMost);
  std::uint64_t digest = 0;
  for (std::size_t at = 0; at < bytes.size();) {
    std::array<iovec, wire::FrameReader::kParts> parts;
    std::size_t n = 0;
    fuzz::require(reader.space(parts, n) > 0);
    const std::size_t most = 1 + random.below(seed % 2 == 0 ? bytes.size() : 100);
    std::size_t got = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t here = std::min({parts[i].iov_len, bytes.size() - at - got, most - got});
      std::memcpy(parts[i].iov_base, bytes.data() + at + got, here);
      got += here;
    }
    at += got;
    reader.wrote(got);
    for (auto step = reader.next(); step != wire::FrameReader::Step::more; step = reader.next()) {
      const wire::Header& h = reader.header();
      if (step == wire::FrameReader::Step::damaged)
        return digest ^ crc32c(reader.why().data(), reader.why().size());
      fuzz::require(h.length <= kMost);
      if (step == wire::FrameReader::Step::place) {
        if (random.below(2) == 0) reader.put({into.data(), 0, 0});
        continue;
      }
      digest = digest * 0x100000001b3ULL + crc32c(&h, sizeof h);
      digest = digest * 0x100000001b3ULL + crc32c(reader.payload(), h.length);
    }
  }
  return digest;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 3) return 0;
  const auto rest = fuzz::bytes_of(data + 3, std::min<std::size_t>(size - 3, 32U << 10));
  std::vector<std::byte> bytes(rest.begin(), rest.end());
  if (data[0] % 4 != 0) fuzz::repair_frames(bytes);
  fuzz::require(read_all(bytes, data[1]) == read_all(bytes, data[2] + 256U));
  return 0;
}
