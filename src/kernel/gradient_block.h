// One block of gradient_code.h: its scale, a value's code, and the random number that rounds it. These few
// functions say what the format means; the plain loops are made of them and the vector loops must agree.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernel/gradient_code.h"

namespace talweg::kernel {

constexpr std::uint32_t kInfinityBits = 0x7f800000;

constexpr std::uint32_t magnitude_bits(float value) {
  return std::bit_cast<std::uint32_t>(value) & 0x7fffffff;
}

constexpr std::int32_t top_code(Code code) {
  return code == Code::int8 ? 127 : 7;
}

// Of the largest magnitude's bits, which order NaN above infinity above all numbers.
inline float scale_of(Code code, std::uint32_t largest_bits) {
  if (largest_bits >= kInfinityBits) return std::bit_cast<float>(largest_bits);
  const float largest = std::bit_cast<float>(largest_bits);
  if (largest < kSmallest) return 0;
  const auto top = static_cast<float>(top_code(code));
  const float scale = largest / top;
  // Rounded up, it may take the largest of all numbers beyond what there is.
  if (std::isinf(scale * top)) return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scale) - 1);
  return scale;
}

// Whether codes are what their scale multiplies.
inline bool is_plain_scale(float scale) {
  return std::isfinite(scale) && scale != 0;
}

// A multiplication by an odd number and a shift onto itself are each reversible: no two numbers become one.
// (Constants: Wellons, "Prospecting for hash functions", 2018.)
constexpr std::uint32_t scramble(std::uint32_t x) {
  x ^= x >> 16;
  x *= 0x7feb352dU;
  x ^= x >> 15;
  x *= 0x846ca68bU;
  return x ^ (x >> 16);
}

// Uniform in [0, 1), a multiple of 2^-24, for the value of this number.
constexpr float random_fraction(std::uint64_t seed, std::uint32_t number) {
  const std::uint32_t once = scramble(number + static_cast<std::uint32_t>(seed));
  const std::uint32_t bits = scramble(once ^ static_cast<std::uint32_t>(seed >> 32));
  return static_cast<float>(bits >> 8) * 0x1p-24f;
}

// `inverse` is 1 / scale of a plain scale.
inline std::int32_t code_of(float value, float inverse, std::int32_t top, const Rounding& rounding,
                            std::uint32_t number) {
  const float quotient = value * inverse;
  float code = 0;
  if (rounding.stochastic) {
    const float below = std::floor(quotient);
    code = below + (random_fraction(rounding.seed, number) < quotient - below ? 1.0f : 0.0f);
  } else {
    code = std::nearbyint(quotient);
  }
  return std::clamp(static_cast<std::int32_t>(code), -top, top);
}

// Of a block with an infinity, whose scale is infinite.
constexpr std::int32_t code_beside_infinity(float value, std::int32_t top) {
  if (magnitude_bits(value) < kInfinityBits) return 0;
  return value > 0 ? top : -top;
}

inline float value_of(std::int32_t code, float scale) {
  if (code == 0 && std::isinf(scale)) return 0;
  return static_cast<float>(code) * scale;
}

}  // namespace talweg::kernel
