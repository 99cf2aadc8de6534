#include "kernel/blocks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/blocks.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/data_types.h"
#include "kernel/scalar.h"
#if HWY_TARGET != HWY_SCALAR
#include "kernel/lanes-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace talweg::kernel {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR

std::size_t zero_vectors(const std::uint8_t*, std::size_t, std::uint64_t, bool&) {
  return 0;
}
std::size_t nonzero_vectors(const std::uint8_t*, std::size_t, std::uint64_t&) {
  return 0;
}
std::size_t largest_vectors(const std::uint8_t*, std::size_t, std::uint32_t&) {
  return 0;
}
std::size_t quantise_vectors(std::uint8_t*, const std::uint8_t*, std::size_t, float, float) {
  return 0;
}
std::size_t dequantise_vectors(std::uint8_t*, const std::uint8_t*, std::size_t, float) {
  return 0;
}
std::size_t swap_vectors(std::uint8_t*, const std::uint8_t*, std::size_t) {
  return 0;
}

#else

// Each of these does the whole vectors at the front and says where it stopped.

std::size_t zero_vectors(const std::uint8_t* p, std::size_t bytes, std::uint64_t mask, bool& zero) {
  const hn::ScalableTag<std::uint64_t> d;
  const std::size_t step = hn::Lanes(d) * 8;
  const auto counted = hn::Set(d, mask);
  const auto none = hn::Zero(d);
  std::size_t i = 0;
  // A test per vector costs more than its load; one per four does not.
  for (; i + 4 * step <= bytes; i += 4 * step) {
    const auto a = hn::Or(load_bytes(d, p + i), load_bytes(d, p + i + step));
    const auto b = hn::Or(load_bytes(d, p + i + 2 * step), load_bytes(d, p + i + 3 * step));
    if (!hn::AllTrue(d, hn::Eq(hn::And(hn::Or(a, b), counted), none))) {
      zero = false;
      return i;
    }
  }
  for (; i + step <= bytes; i += step) {
    if (!hn::AllTrue(d, hn::Eq(hn::And(load_bytes(d, p + i), counted), none))) {
      zero = false;
      return i;
    }
  }
  return i;
}

std::size_t nonzero_vectors(const std::uint8_t* p, std::size_t count, std::uint64_t& elements) {
  const Lanes<std::int32_t> lanes;
  const auto magnitude = hn::Set(lanes.d, 0x7fffffff);
  const auto none = hn::Zero(lanes.d);
  return for_each_vector(lanes, count, [&](std::size_t i) HWY_ATTR {
    std::uint64_t bits = 0;
    hn::StoreMaskBits(lanes.d, hn::Ne(hn::And(lanes.load(p + i * 4), magnitude), none),
                      reinterpret_cast<std::uint8_t*>(&bits));
    elements |= bits << i;
  });
}

std::size_t largest_vectors(const std::uint8_t* p, std::size_t count, std::uint32_t& largest) {
  const Lanes<std::int32_t> lanes;
  const auto magnitude = hn::Set(lanes.d, 0x7fffffff);
  auto most = hn::Zero(lanes.d);
  const std::size_t done = for_each_vector(lanes, count, [&](std::size_t i) HWY_ATTR {
    most = hn::Max(most, hn::And(lanes.load(p + i * 4), magnitude));
  });
  largest = static_cast<std::uint32_t>(hn::GetLane(hn::MaxOfLanes(lanes.d, most)));
  return done;
}

std::size_t quantise_vectors(std::uint8_t* out, const std::uint8_t* in, std::size_t count, float scale,
                             float limit) {
  const Lanes<float> lanes;
  const Lanes<std::int32_t> ints;
  const auto by = hn::Set(lanes.d, scale), most = hn::Set(lanes.d, limit), least = hn::Set(lanes.d, -limit);
  return for_each_vector(lanes, count, [&](std::size_t i) HWY_ATTR {
    const auto scaled = hn::Mul(lanes.load(in + i * 4), by);
    ints.store(hn::NearestInt(hn::Min(hn::Max(scaled, least), most)), out + i * 4);
  });
}

std::size_t dequantise_vectors(std::uint8_t* out, const std::uint8_t* in, std::size_t count, float scale) {
  const Lanes<float> lanes;
  const Lanes<std::int32_t> ints;
  const auto by = hn::Set(lanes.d, scale);
  return for_each_vector(lanes, count, [&](std::size_t i) HWY_ATTR {
    lanes.store(hn::Mul(hn::ConvertTo(lanes.d, ints.load(in + i * 4)), by), out + i * 4);
  });
}

std::size_t swap_vectors(std::uint8_t* out, const std::uint8_t* in, std::size_t count) {
  const Lanes<std::uint32_t> lanes;
  const auto low = hn::Set(lanes.d, 0xff00U);
  return for_each_vector(lanes, count, [&](std::size_t i) HWY_ATTR {
    const auto v = lanes.load(in + i * 4);
    const auto outer = hn::Or(hn::ShiftLeft<24>(v), hn::ShiftRight<24>(v));
    const auto inner = hn::Or(hn::ShiftLeft<8>(hn::And(v, low)), hn::And(hn::ShiftRight<8>(v), low));
    lanes.store(hn::Or(outer, inner), out + i * 4);
  });
}

#endif

bool zero_bytes(const std::uint8_t* p, std::size_t bytes, std::uint64_t mask) {
  bool zero = true;
  std::size_t i = zero_vectors(p, bytes, mask, zero);
  if (!zero) return false;
  for (; i < bytes; i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, p + i, std::min<std::size_t>(8, bytes - i));
    if ((word & mask) != 0) return false;
  }
  return true;
}

void nonzero_bits(const std::uint8_t* p, std::size_t bytes, std::size_t block, std::uint64_t mask,
                  std::uint64_t* bitmap) {
  const std::size_t blocks = (bytes + block - 1) / block;
  for (std::size_t b = 0; b < blocks; b += 64) {
    std::uint64_t word = 0;
    for (std::size_t i = b; i < std::min(b + 64, blocks); ++i) {
      const bool zero = zero_bytes(p + i * block, std::min(block, bytes - i * block), mask);
      word |= std::uint64_t{!zero} << (i - b);
    }
    bitmap[b / 64] = word;
  }
}

std::uint64_t nonzero_of(const std::uint8_t* p, std::size_t count) {
  std::uint64_t elements = 0;
  for (std::size_t i = nonzero_vectors(p, count, elements); i < count; ++i)
    elements |= std::uint64_t{(load<std::uint32_t>(p, i) & 0x7fffffffU) != 0} << i;
  return elements;
}

std::uint32_t largest_bits(const std::uint8_t* p, std::size_t count) {
  std::uint32_t largest = 0;
  for (std::size_t i = largest_vectors(p, count, largest); i < count; ++i)
    largest = std::max(largest, load<std::uint32_t>(p, i) & 0x7fffffffU);
  return largest;
}

void quantise_all(std::uint8_t* out, const std::uint8_t* in, std::size_t count, float scale, float limit) {
  for (std::size_t i = quantise_vectors(out, in, count, scale, limit); i < count; ++i) {
    const float scaled = std::min(std::max(load<float>(in, i) * scale, -limit), limit);
    store(out, i, static_cast<std::int32_t>(std::nearbyint(scaled)));
  }
}

void dequantise_all(std::uint8_t* out, const std::uint8_t* in, std::size_t count, float scale) {
  for (std::size_t i = dequantise_vectors(out, in, count, scale); i < count; ++i)
    store(out, i, static_cast<float>(load<std::int32_t>(in, i)) * scale);
}

void swap_all(std::uint8_t* out, const std::uint8_t* in, std::size_t count) {
  for (std::size_t i = swap_vectors(out, in, count); i < count; ++i)
    store(out, i, __builtin_bswap32(load<std::uint32_t>(in, i)));
}

enum class Widening : std::uint8_t { set, add };
template <Widening how, typename T>
void widen_values(std::uint8_t* out, const std::uint8_t* in, std::size_t count) {
  std::size_t done = 0;
#if HWY_TARGET != HWY_SCALAR
  const Lanes<T> lanes;
  const Lanes<float> sums;
  done = for_each_vector(lanes, count, [&](std::size_t i) HWY_ATTR {
    auto value = lanes.load(in + i * Lanes<T>::kBytes);
    if constexpr (how == Widening::add) value = hn::Add(sums.load(out + i * 4), value);
    sums.store(value, out + i * 4);
  });
#endif
  for (std::size_t i = done; i < count; ++i) {
    const float value = kernel::widen(load<T>(in, i));
    store(out, i, how == Widening::add ? load<float>(out, i) + value : value);
  }
}

template <typename T>
void narrow_values(std::uint8_t* out, const std::uint8_t* in, std::size_t count) {
  std::size_t done = 0;
#if HWY_TARGET != HWY_SCALAR
  const Lanes<T> lanes;
  const Lanes<float> values;
  done = for_each_vector(lanes, count, [&](std::size_t i) HWY_ATTR {
    lanes.store(values.load(in + i * 4), out + i * Lanes<T>::kBytes);
  });
#endif
  for (std::size_t i = done; i < count; ++i) store(out, i, kernel::narrow<T>(load<float>(in, i)));
}

void widen_all(DataType type, bool add, std::uint8_t* out, const std::uint8_t* in, std::size_t count) {
  visit_type(type, [&]<typename T>(T) {
    if constexpr (std::is_same_v<T, F16> || std::is_same_v<T, BF16> || std::is_same_v<T, float>) {
      add ? widen_values<Widening::add, T>(out, in, count) : widen_values<Widening::set, T>(out, in, count);
    }
  });
}
void narrow_all(DataType type, std::uint8_t* out, const std::uint8_t* in, std::size_t count) {
  visit_type(type, [&]<typename T>(T) {
    if constexpr (std::is_same_v<T, F16> || std::is_same_v<T, BF16> || std::is_same_v<T, float>)
      narrow_values<T>(out, in, count);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace talweg::kernel
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace talweg::kernel {

HWY_EXPORT(zero_bytes);
HWY_EXPORT(nonzero_bits);
HWY_EXPORT(nonzero_of);
HWY_EXPORT(largest_bits);
HWY_EXPORT(quantise_all);
HWY_EXPORT(dequantise_all);
HWY_EXPORT(swap_all);
HWY_EXPORT(widen_all);
HWY_EXPORT(narrow_all);

namespace {

// The bits that tell a value from zero, of as many elements as fill a word: all but the sign of floats.
std::uint64_t counted_bits(DataType type) {
  const DataTypeFacts& f = facts(type);
  if (f.kind != NumberKind::floating && f.kind != NumberKind::complex) return ~std::uint64_t{0};
  switch (f.kind == NumberKind::complex ? f.bytes / 2 : f.bytes) {
    case 2:
      return 0x7fff7fff7fff7fff;
    case 4:
      return 0x7fffffff7fffffff;
    default:
      return 0x7fffffffffffffff;
  }
}

const std::uint8_t* octets(const void* p) {
  return static_cast<const std::uint8_t*>(p);
}
std::uint8_t* octets(void* p) {
  return static_cast<std::uint8_t*>(p);
}

float largest_float_below(std::int32_t limit) {
  const auto near = static_cast<float>(limit);
  return static_cast<double>(near) > static_cast<double>(limit) ? std::nextafter(near, 0.0F) : near;
}

}  // namespace

bool is_zero(DataType type, const void* data, std::size_t count) {
  return HWY_DYNAMIC_DISPATCH(zero_bytes)(octets(data), count * size_of(type), counted_bits(type));
}
void nonzero_blocks(DataType type, const void* data, std::size_t count, std::size_t block,
                    std::uint64_t* bitmap) {
  HWY_DYNAMIC_DISPATCH(nonzero_bits)
  (octets(data), count * size_of(type), block * size_of(type), counted_bits(type), bitmap);
}
std::uint64_t nonzero_elements(const void* data, std::size_t count) {
  return HWY_DYNAMIC_DISPATCH(nonzero_of)(octets(data), count);
}
std::uint32_t max_magnitude(const void* data, std::size_t count) {
  return HWY_DYNAMIC_DISPATCH(largest_bits)(octets(data), count);
}
void quantise(void* ints, const void* data, std::size_t count, float scale, std::int32_t limit) {
  HWY_DYNAMIC_DISPATCH(quantise_all)(octets(ints), octets(data), count, scale, largest_float_below(limit));
}
void dequantise(void* data, const void* ints, std::size_t count, float scale) {
  HWY_DYNAMIC_DISPATCH(dequantise_all)(octets(data), octets(ints), count, scale);
}
void swap_words(void* out, const void* in, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(swap_all)(octets(out), octets(in), count);
}
void widen(DataType type, float* out, const void* in, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(widen_all)(type, false, octets(out), octets(in), count);
}
void add_widened(DataType type, float* sums, const void* in, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(widen_all)(type, true, octets(sums), octets(in), count);
}
void narrow(DataType type, void* out, const float* in, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(narrow_all)(type, octets(out), octets(in), count);
}

}  // namespace talweg::kernel

#endif  // HWY_ONCE
