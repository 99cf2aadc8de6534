// The crc32 instruction takes eight bytes, but its result is ready only three cycles later: one stream runs
// at a third of what the unit can do. So a block is read as three stripes of L bytes at once, and the three
// remainders are joined:
//   crc(A B C) = crc(A) x^(16 L) + crc(B) x^(8 L) + crc(C)   (mod P, stripes B and C started from 0).
// The multiplication by x^n is one carry-less multiplication by the constant x^(n-33) mod P, then one crc32
// instruction: with reflected bits, clmul of two 32-bit operands yields a b x, and crc32 of a 64-bit word w
// is w x^32 mod P.
#include "base/crc32c.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include <cstring>

#define TALWEG_CRC_TARGET __attribute__((target("sse4.2,pclmul")))

namespace talweg {
namespace {

constexpr std::size_t kLongStripe = 2048;  // bytes: joins cost nothing in a 64 KiB chunk
constexpr std::size_t kShortStripe = 128;  // bytes: messages of a few hundred bytes still run three abreast

// x^n mod P, reflected.
constexpr std::uint32_t power_of_x(std::size_t n) {
  std::uint32_t r = 0x80000000;
  for (std::size_t i = 0; i < n; ++i) r = (r >> 1) ^ ((r & 1) ? 0x82F63B78 : 0);
  return r;
}

std::uint64_t load(const unsigned char* p) {
  std::uint64_t word;
  std::memcpy(&word, p, sizeof word);
  return word;
}

TALWEG_CRC_TARGET std::uint64_t times(std::uint64_t crc, std::uint32_t constant) {
  const __m128i product = _mm_clmulepi64_si128(_mm_cvtsi64_si128(static_cast<long long>(crc)),
                                               _mm_cvtsi64_si128(static_cast<long long>(constant)), 0);
  return _mm_crc32_u64(0, static_cast<std::uint64_t>(_mm_cvtsi128_si64(product)));
}

// Consumes all whole blocks of three stripes.
template <std::size_t stripe>
TALWEG_CRC_TARGET std::uint64_t stripes(std::uint64_t crc, const unsigned char*& p, std::size_t& bytes) {
  constexpr std::uint32_t kOver1 = power_of_x(8 * stripe - 33);
  constexpr std::uint32_t kOver2 = power_of_x(16 * stripe - 33);
  for (; bytes >= 3 * stripe; bytes -= 3 * stripe, p += 3 * stripe) {
    std::uint64_t a = crc, b = 0, c = 0;
    for (std::size_t i = 0; i < stripe; i += 8) {
      a = _mm_crc32_u64(a, load(p + i));
      b = _mm_crc32_u64(b, load(p + stripe + i));
      c = _mm_crc32_u64(c, load(p + 2 * stripe + i));
    }
    crc = times(a, kOver2) ^ times(b, kOver1) ^ c;
  }
  return crc;
}

}  // namespace

TALWEG_CRC_TARGET std::uint32_t crc32c_hardware(const void* data, std::size_t bytes, std::uint32_t seed) {
  const auto* p = static_cast<const unsigned char*>(data);
  std::uint64_t crc = static_cast<std::uint32_t>(~seed);
  crc = stripes<kLongStripe>(crc, p, bytes);
  crc = stripes<kShortStripe>(crc, p, bytes);
  for (; bytes >= 8; bytes -= 8, p += 8) crc = _mm_crc32_u64(crc, load(p));
  auto crc32 = static_cast<std::uint32_t>(crc);
  for (; bytes > 0; --bytes, ++p) crc32 = _mm_crc32_u8(crc32, *p);
  return ~crc32;
}

bool crc32c_hardware_available() {
  return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
}

}  // namespace talweg

#else

namespace talweg {

std::uint32_t crc32c_hardware(const void* data, std::size_t bytes, std::uint32_t seed) {
  return crc32c_software(data, bytes, seed);
}

bool crc32c_hardware_available() {
  return false;
}

}  // namespace talweg

#endif
