// Loops over blocks of a tensor, as streaming aggregation needs them: which blocks hold anything, how large a
// block's values are, float32 to and from integers of a block's scale, 16-bit floats summed in float32.
//
//   nonzero_blocks(DataType::f32, data, count, 256, bitmap);       // bit b: block b holds something
//   const std::uint32_t largest = max_magnitude(data, count);      // as bits; from kNotFiniteBits on: no number
//   quantise(ints, data, count, scale, limit);                     // ints[i] = round(data[i] * scale)
//
// Pointers need no alignment. No policy: no threads, no allocation, no exceptions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "talweg/types.h"

namespace talweg::kernel {

// Whether all values are zero, of either sign.
bool is_zero(DataType type, const void* data, std::size_t count);

constexpr std::size_t bitmap_words(std::size_t blocks) {
  return (blocks + 63) / 64;
}
// Sets bit b % 64 of bitmap[b / 64] where block b of `block` elements (the last may have fewer) is not zero,
// and clears all other bits of those words.
void nonzero_blocks(DataType type, const void* data, std::size_t count, std::size_t block,
                    std::uint64_t* bitmap);

// Bit i: element i of `count` float32, 64 at most, is not zero.
std::uint64_t nonzero_elements(const void* data, std::size_t count);

// The bits of the largest |x| of float32: these order as numbers do, with infinity and NaN at their end.
inline constexpr std::uint32_t kNotFiniteBits = 0x7f800000;
std::uint32_t max_magnitude(const void* data, std::size_t count);

// ints[i] = data[i] * scale, rounded to nearest even, and no further from zero than `limit`, which is at most
// 2^31 - 1. Values and products are finite. The largest float32 that is no larger than the limit stands for
// it.
void quantise(void* ints, const void* data, std::size_t count, float scale, std::int32_t limit);
// data[i] = float(ints[i]) * scale. `data` may be exactly `ints`.
void dequantise(void* data, const void* ints, std::size_t count, float scale);

// Of words of four bytes, from and to the other order of bytes. `out` may be exactly `in`.
void swap_words(void* out, const void* in, std::size_t count);

// Values of f16, bf16 or f32 as float32 and back (to nearest even); and added to float32.
void widen(DataType type, float* out, const void* in, std::size_t count);
void add_widened(DataType type, float* sums, const void* in, std::size_t count);
void narrow(DataType type, void* out, const float* in, std::size_t count);

}  // namespace talweg::kernel
