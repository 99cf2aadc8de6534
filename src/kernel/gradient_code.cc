#include "kernel/gradient_code.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/gradient_code.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernel/gradient_block.h"
#include "kernel/scalar.h"
#if HWY_TARGET != HWY_SCALAR
#include "kernel/lanes-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace talweg::kernel {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR

void encode_all(GradientFormat format, const void* values, void* residual, std::size_t count, void* out,
                Rounding rounding) {
  encode_scalar(format, values, residual, count, out, rounding);
}

void decode_all(GradientFormat format, const void* encoded, std::size_t count, void* out, bool add) {
  decode_scalar(format, encoded, count, out, add);
}

#else

// As many lanes as divide the smallest block, whatever the machine has.
using BlockTag = hn::CappedTag<float, kSmallestBlock>;
using BlockInts = hn::RebindToSigned<BlockTag>;
using BlockBits = hn::RebindToUnsigned<BlockTag>;
using BlockCodes = hn::Rebind<std::int8_t, BlockTag>;

// A block on the stack, with zeros behind its values up to whole vectors.
struct Scratch {
  alignas(64) float values[kLargestBlock];
  alignas(64) float decoded[kLargestBlock];
  alignas(64) std::int8_t codes[kLargestBlock];
};

constexpr std::size_t whole_vectors(std::size_t count) {
  return (count + kSmallestBlock - 1) / kSmallestBlock * kSmallestBlock;
}

std::uint32_t largest_bits(const float* values, std::size_t padded) {
  const BlockTag d;
  const BlockInts di;
  auto largest = hn::Zero(di);
  for (std::size_t i = 0; i < padded; i += hn::Lanes(d))
    largest = hn::Max(largest, hn::BitCast(di, hn::Abs(hn::Load(d, values + i))));
  alignas(64) std::int32_t lanes[kSmallestBlock];
  hn::Store(largest, di, lanes);
  return static_cast<std::uint32_t>(*std::max_element(lanes, lanes + hn::Lanes(di)));
}

template <class V>
HWY_INLINE V scramble_lanes(V x) {
  const BlockBits d;
  x = hn::Mul(hn::Xor(x, hn::ShiftRight<16>(x)), hn::Set(d, 0x7feb352dU));
  x = hn::Mul(hn::Xor(x, hn::ShiftRight<15>(x)), hn::Set(d, 0x846ca68bU));
  return hn::Xor(x, hn::ShiftRight<16>(x));
}

// As random_fraction, of the numbers from `first` on.
HWY_INLINE hn::Vec<BlockTag> random_fractions(std::uint64_t seed, std::uint32_t first) {
  const BlockTag d;
  const BlockBits bits;
  const auto numbers = hn::Iota(bits, first + static_cast<std::uint32_t>(seed));
  const auto mixed =
      scramble_lanes(hn::Xor(scramble_lanes(numbers), hn::Set(bits, static_cast<std::uint32_t>(seed >> 32))));
  const auto high = hn::BitCast(BlockInts(), hn::ShiftRight<8>(mixed));
  return hn::Mul(hn::ConvertTo(d, high), hn::Set(d, 0x1p-24f));
}

// As code_of.
void codes_of(Scratch& block, std::size_t padded, float scale, std::int32_t top, const Rounding& rounding) {
  const BlockTag d;
  const BlockInts di;
  const auto inverse = hn::Set(d, 1 / scale);
  const auto highest = hn::Set(di, top);
  const auto lowest = hn::Set(di, -top);
  for (std::size_t i = 0; i < padded; i += hn::Lanes(d)) {
    const auto quotient = hn::Mul(hn::Load(d, block.values + i), inverse);
    auto code = hn::Zero(di);
    if (rounding.stochastic) {
      const auto below = hn::Floor(quotient);
      const auto fractions = random_fractions(rounding.seed, static_cast<std::uint32_t>(rounding.first + i));
      const auto up = hn::IfThenElseZero(hn::Lt(fractions, hn::Sub(quotient, below)), hn::Set(d, 1.0f));
      code = hn::ConvertTo(di, hn::Add(below, up));
    } else {
      code = hn::NearestInt(quotient);
    }
    code = hn::Max(lowest, hn::Min(highest, code));
    hn::StoreU(hn::DemoteTo(BlockCodes(), code), BlockCodes(), block.codes + i);
  }
}

// Pairs of codes to bytes: the second of each pair moves down beside the first.
void pack_pairs(const std::int8_t* codes, std::size_t padded, std::uint8_t* out) {
  const hn::CappedTag<std::uint16_t, kSmallestBlock / 2> pairs;
  const hn::Rebind<std::uint8_t, decltype(pairs)> bytes;
  for (std::size_t i = 0; i < padded; i += 2 * hn::Lanes(pairs)) {
    const auto both = load_bytes(pairs, reinterpret_cast<const std::uint8_t*>(codes) + i);
    const auto low = hn::And(both, hn::Set(pairs, 0x000f));
    const auto high = hn::And(hn::ShiftRight<4>(both), hn::Set(pairs, 0x00f0));
    const auto packed = hn::BitCast(hn::RebindToSigned<decltype(pairs)>(), hn::Or(low, high));
    store_bytes(bytes, hn::DemoteTo(bytes, packed), out + i / 2);
  }
}

void unpack_pairs(const std::uint8_t* packed, std::size_t padded, std::int8_t* codes) {
  const hn::CappedTag<std::uint16_t, kSmallestBlock / 2> pairs;
  const hn::Rebind<std::uint8_t, decltype(pairs)> bytes;
  const hn::Repartition<std::int8_t, decltype(pairs)> signed_bytes;
  for (std::size_t i = 0; i < padded; i += 2 * hn::Lanes(pairs)) {
    const auto both = hn::PromoteTo(pairs, load_bytes(bytes, packed + i / 2));
    const auto nibbles = hn::And(hn::Or(both, hn::ShiftLeft<4>(both)), hn::Set(pairs, 0x0f0f));
    const auto eight = hn::Set(signed_bytes, 8);
    const auto code = hn::Sub(hn::Xor(hn::BitCast(signed_bytes, nibbles), eight), eight);
    hn::StoreU(code, signed_bytes, codes + i);
  }
}

void encode_block(GradientFormat format, Scratch& block, std::size_t count, std::uint8_t* out,
                  const Rounding& rounding) {
  const std::size_t padded = whole_vectors(count);
  const float scale = scale_of(format.code, largest_bits(block.values, padded));
  store(out, 0, scale);
  const std::int32_t top = top_code(format.code);
  if (is_plain_scale(scale)) {
    codes_of(block, padded, scale, top, rounding);
  } else {
    for (std::size_t i = 0; i < padded; ++i)
      block.codes[i] =
          static_cast<std::int8_t>(std::isinf(scale) ? code_beside_infinity(block.values[i], top) : 0);
  }
  if (format.code == Code::int8) {
    std::memcpy(out + 4, block.codes, count);
  } else {
    std::uint8_t packed[kLargestBlock / 2];
    pack_pairs(block.codes, padded, packed);
    std::memcpy(out + 4, packed, (count + 1) / 2);
  }
}

// Into block.decoded, up to whole vectors.
void decode_block(GradientFormat format, const std::uint8_t* in, std::size_t count, Scratch& block) {
  const std::size_t padded = whole_vectors(count);
  std::uint8_t codes[kLargestBlock];
  std::memset(codes + padded - kSmallestBlock, 0, kSmallestBlock);
  if (format.code == Code::int8) {
    std::memcpy(codes, in + 4, count);
    std::memcpy(block.codes, codes, padded);
  } else {
    std::memset(codes + padded / 2 - kSmallestBlock / 2, 0, kSmallestBlock / 2);
    std::memcpy(codes, in + 4, (count + 1) / 2);
    unpack_pairs(codes, padded, block.codes);
  }
  const float scale = load<float>(in, 0);
  if (std::isinf(scale)) {
    for (std::size_t i = 0; i < padded; ++i) block.decoded[i] = value_of(block.codes[i], scale);
    return;
  }
  const BlockTag d;
  const auto factor = hn::Set(d, scale);
  for (std::size_t i = 0; i < padded; i += hn::Lanes(d)) {
    const auto code = hn::PromoteTo(BlockInts(), hn::LoadU(BlockCodes(), block.codes + i));
    hn::Store(hn::Mul(hn::ConvertTo(d, code), factor), d, block.decoded + i);
  }
}

// Lanes<Half> of a vector of the machine's own width, which a whole vector's worth of padding may not hold:
// the rest of a part goes one by one.
template <typename Half>
void encode_halves(const float* values, std::size_t count, std::uint8_t* out) {
  const Lanes<Half> half;
  std::size_t i = 0;
  for (; i + half.size() <= count; i += half.size()) half.store(hn::LoadU(half.d, values + i), out + 2 * i);
  for (; i < count; ++i) store(out, i, narrow<Half>(values[i]));
}

template <typename Half>
void decode_halves(const std::uint8_t* in, std::size_t count, float* out) {
  const Lanes<Half> half;
  std::size_t i = 0;
  for (; i + half.size() <= count; i += half.size()) hn::StoreU(half.load(in + 2 * i), half.d, out + i);
  for (; i < count; ++i) out[i] = widen(load<Half>(in, i));
}

void encode_part(GradientFormat format, Scratch& part, std::size_t count, std::uint8_t* out,
                 const Rounding& rounding) {
  switch (format.code) {
    case Code::f32:
      std::memcpy(out, part.values, 4 * count);
      break;
    case Code::f16:
      encode_halves<F16>(part.values, count, out);
      break;
    case Code::bf16:
      encode_halves<BF16>(part.values, count, out);
      break;
    case Code::int8:
    case Code::int4:
      encode_block(format, part, count, out, rounding);
  }
}

void decode_part(GradientFormat format, const std::uint8_t* in, std::size_t count, Scratch& part) {
  switch (format.code) {
    case Code::f32:
      std::memcpy(part.decoded, in, 4 * count);
      break;
    case Code::f16:
      decode_halves<F16>(in, count, part.decoded);
      break;
    case Code::bf16:
      decode_halves<BF16>(in, count, part.decoded);
      break;
    case Code::int8:
    case Code::int4:
      decode_block(format, in, count, part);
  }
}

// values[i] op other[i], for whole vectors; `other` lies at any address and has but `count` elements.
template <class Combine>
HWY_INLINE void combine_part(float* values, const std::uint8_t* other, std::size_t count, Combine combine) {
  const BlockTag d;
  std::size_t i = 0;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d))
    hn::Store(combine(hn::Load(d, values + i), load_bytes(d, other + 4 * i)), d, values + i);
  alignas(64) float rest[kSmallestBlock] = {};
  std::memcpy(rest, other + 4 * i, 4 * (count - i));
  if (i < count) hn::Store(combine(hn::Load(d, values + i), hn::Load(d, rest)), d, values + i);
}

// residual = values - decoded where that is finite.
void keep_difference(const Scratch& part, std::size_t count, std::uint8_t* residual) {
  const BlockTag d;
  alignas(64) float kept[kLargestBlock];
  std::memset(kept + whole_vectors(count) - kSmallestBlock, 0, 4 * std::size_t{kSmallestBlock});
  std::memcpy(kept, residual, 4 * count);
  for (std::size_t i = 0; i < count; i += hn::Lanes(d)) {
    const auto difference = hn::Sub(hn::Load(d, part.values + i), hn::Load(d, part.decoded + i));
    hn::Store(hn::IfThenElse(hn::IsFinite(difference), difference, hn::Load(d, kept + i)), d, kept + i);
  }
  std::memcpy(residual, kept, 4 * count);
}

void encode_all(GradientFormat format, const void* values, void* residual, std::size_t count, void* out,
                Rounding rounding) {
  Scratch part;
  const auto* from = static_cast<const std::uint8_t*>(values);
  auto* kept = static_cast<std::uint8_t*>(residual);
  auto* to = static_cast<std::uint8_t*>(out);
  while (count != 0) {
    const std::size_t n = std::min<std::size_t>(format.block, count);
    const std::size_t last = whole_vectors(n) - kSmallestBlock;
    std::memset(part.values + last, 0, 4 * std::size_t{kSmallestBlock});
    std::memset(part.decoded + last, 0, 4 * std::size_t{kSmallestBlock});
    std::memcpy(part.values, from, 4 * n);
    if (kept != nullptr)
      combine_part(part.values, kept, n, [](auto a, auto b) HWY_ATTR { return hn::Add(a, b); });
    encode_part(format, part, n, to, rounding);
    if (kept != nullptr) {
      decode_part(format, to, n, part);
      keep_difference(part, n, kept);
      kept += 4 * n;
    }
    from += 4 * n;
    to += encoded_bytes(format, n);
    rounding.first += n;
    count -= n;
  }
}

void decode_all(GradientFormat format, const void* encoded, std::size_t count, void* out, bool add) {
  Scratch part;
  const auto* from = static_cast<const std::uint8_t*>(encoded);
  auto* to = static_cast<std::uint8_t*>(out);
  while (count != 0) {
    const std::size_t n = std::min<std::size_t>(format.block, count);
    std::memset(part.decoded + whole_vectors(n) - kSmallestBlock, 0, 4 * std::size_t{kSmallestBlock});
    decode_part(format, from, n, part);
    if (add) combine_part(part.decoded, to, n, [](auto a, auto b) HWY_ATTR { return hn::Add(b, a); });
    std::memcpy(to, part.decoded, 4 * n);
    from += encoded_bytes(format, n);
    to += 4 * n;
    count -= n;
  }
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace talweg::kernel
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace talweg::kernel {

HWY_EXPORT(encode_all);
HWY_EXPORT(decode_all);

void encode(GradientFormat format, const void* values, std::size_t count, void* out, Rounding rounding) {
  HWY_DYNAMIC_DISPATCH(encode_all)(format, values, nullptr, count, out, rounding);
}

void encode_with_feedback(GradientFormat format, const void* values, void* residual, std::size_t count,
                          void* out, Rounding rounding) {
  HWY_DYNAMIC_DISPATCH(encode_all)(format, values, residual, count, out, rounding);
}

void decode(GradientFormat format, const void* encoded, std::size_t count, void* out) {
  HWY_DYNAMIC_DISPATCH(decode_all)(format, encoded, count, out, false);
}

void decode_add(GradientFormat format, const void* encoded, std::size_t count, void* out) {
  HWY_DYNAMIC_DISPATCH(decode_all)(format, encoded, count, out, true);
}

}  // namespace talweg::kernel

#endif  // HWY_ONCE
