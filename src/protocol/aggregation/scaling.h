// How float32 becomes integers that any number of workers can sum in any order without a carry, and back.
//
// All workers take the scale of a block from E, the largest of their exponents for it (2^E > max|x| on every
// worker): with L = ceil(log2(workers)) an integer counts units of 2^(E + L - 31). No worker's integer
// exceeds (2^31 - 1) / workers, so a sum never wraps; each is off by half a unit at most, the sum by
// `workers` halves. The scale is a power of two: scaling itself rounds nothing.
//
//   - A block in which any worker has an infinity or NaN comes out as NaN throughout: its integers would say
//     nothing, and are not sent.
//   - A block whose unit would be below 2^-126 (E < L - 95, all values below 2^-95 * workers) is taken for
//     zero: no data are sent for it. That is said here because the original leaves it to an overflow.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "wire/aggregation.h"

namespace talweg::protocol {

// From the bits of the largest |x| (kernel::max_magnitude).
constexpr std::int16_t exponent_of(std::uint32_t magnitude_bits) {
  if (magnitude_bits == 0) return wire::kZeroExponent;
  if (magnitude_bits >= 0x7f800000) return wire::kNotFiniteExponent;
  return static_cast<std::int16_t>(static_cast<int>(magnitude_bits >> 23) + wire::kLeastExponent);
}

struct BlockScale {
  enum class Kind : std::uint8_t { zero, not_finite, scaled } kind = Kind::zero;
  float to_integer = 0;
  float to_float = 0;
  std::int32_t limit = 0;  // of one worker's integers
};

inline BlockScale scale_of(std::int16_t exponent, std::uint32_t workers) {
  BlockScale scale;
  if (exponent == wire::kNotFiniteExponent) {
    scale.kind = BlockScale::Kind::not_finite;
    return scale;
  }
  const int shift = 31 - static_cast<int>(std::bit_width(workers - 1)) - exponent;
  if (exponent == wire::kZeroExponent || shift > 126) return scale;
  scale.kind = BlockScale::Kind::scaled;
  scale.to_integer = std::ldexp(1.0F, shift);
  scale.to_float = std::ldexp(1.0F, -shift);
  scale.limit = static_cast<std::int32_t>(std::uint32_t{std::numeric_limits<std::int32_t>::max()} / workers);
  return scale;
}

// The largest error of a sum, of a block whose largest exponent is known.
inline double error_bound(std::int16_t exponent, std::uint32_t workers) {
  const BlockScale scale = scale_of(exponent, workers);
  if (scale.kind == BlockScale::Kind::scaled) return 0.5 * workers * static_cast<double>(scale.to_float);
  return exponent == wire::kZeroExponent ? 0 : std::ldexp(static_cast<double>(workers), exponent);
}

}  // namespace talweg::protocol
