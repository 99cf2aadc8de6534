// How float32 gradients are written for the wire: as halves, or as blocks of 8-bit or 4-bit integers with a
// scale of their own; and how they are read again, alone or onto a sum. No policy.
//
//   const GradientFormat format{Code::int8, 256};
//   std::vector<std::byte> sent(encoded_bytes(format, count));
//   encode_with_feedback(format, gradient, residual, count, sent.data(), {});
//   decode_add(format, sent.data(), count, sum);
//
// A block of n values is a float32 scale and n codes of 8 bits, or of 4 (the first of two in the low half);
// the last block may be shorter. A value is code * scale, where scale is the block's largest magnitude / 127,
// or / 7.
//
//   all values below kSmallest            scale 0: decodes to zeros
//   a NaN among them                      scale NaN: decodes to NaN throughout
//   an infinity and no NaN                scale infinite: infinities keep their sign, all else decodes to zero
//
// What is decoded is finite where the block was. Any bytes decode to something.
//
// Rounding is to nearest, ties to even, or stochastic (Alistarh et al., QSGD, NeurIPS 2017): up with the
// probability that makes the expected value right, from a seed and the value's number, so that it does not
// matter in which pieces an array is encoded. Halves are always rounded to nearest even.
//
// Pointers need no alignment. Results have the same bits on every machine; of a NaN, only that it is one.
#pragma once

#include <cstddef>
#include <cstdint>

namespace talweg::kernel {

enum class Code : std::uint8_t { f32, f16, bf16, int8, int4 };

struct GradientFormat {
  Code code = Code::int8;
  std::uint32_t block = 256;  // values; of the integer codes alone. See is_block()
};

constexpr std::uint32_t kSmallestBlock = 16;  // the widest vector: only an array's end is ever padded
constexpr std::uint32_t kLargestBlock = 1024;
constexpr bool is_block(std::uint64_t block) {
  return block >= kSmallestBlock && block <= kLargestBlock && block % kSmallestBlock == 0;
}

// Below this a block's scale would not be a normal number.
constexpr float kSmallest = 0x1p-118f;

struct Rounding {
  bool stochastic = false;
  std::uint64_t seed = 0;
  std::uint64_t first = 0;  // number of the first value, counted modulo 2^32
};

constexpr std::size_t encoded_bytes(GradientFormat format, std::size_t count) {
  const std::size_t blocks = (count + format.block - 1) / format.block;
  switch (format.code) {
    case Code::f32:
      return 4 * count;
    case Code::f16:
    case Code::bf16:
      return 2 * count;
    case Code::int8:
      return 4 * blocks + count;
    case Code::int4:
      break;
  }
  return 4 * blocks + (count + 1) / 2;  // a block that is not the last has an even number of values
}

void encode(GradientFormat format, const void* values, std::size_t count, void* out, Rounding rounding);

// Encodes sums = values + residual, and leaves in `residual` what was not sent: sums - decoded, bit for bit,
// so that nothing is lost in the long run (Seide et al., 1-bit SGD, Interspeech 2014; Karimireddy et al.,
// ICML 2019). An element whose difference is not finite keeps its residual: the step with a NaN or an
// infinity in it will be thrown away.
void encode_with_feedback(GradientFormat format, const void* values, void* residual, std::size_t count,
                          void* out, Rounding rounding);

void decode(GradientFormat format, const void* encoded, std::size_t count, void* out);
// out[i] += decoded[i].
void decode_add(GradientFormat format, const void* encoded, std::size_t count, void* out);

// The plain loops, one element at a time, same results: the reference for tests. `residual` may be null.
void encode_scalar(GradientFormat format, const void* values, void* residual, std::size_t count, void* out,
                   Rounding rounding);
void decode_scalar(GradientFormat format, const void* encoded, std::size_t count, void* out, bool add);

}  // namespace talweg::kernel
