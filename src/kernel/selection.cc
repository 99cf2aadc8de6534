#include "kernel/selection.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/selection.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernel/gradient_block.h"
#include "kernel/scalar.h"
#if HWY_TARGET != HWY_SCALAR
#include "kernel/lanes-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace talweg::kernel {
namespace HWY_NAMESPACE {

// Calls found(i, magnitude) of every element whose magnitude's bits are lowest to highest, in order. Few of
// many are expected to be.
template <class Found>
HWY_INLINE void for_each_between(const std::uint8_t* values, std::size_t count, std::uint32_t lowest,
                                 std::uint32_t highest, Found found) {
  const auto look = [&](std::size_t i) HWY_ATTR {
    const std::uint32_t magnitude = magnitude_bits(load<float>(values, i));
    if (magnitude >= lowest && magnitude <= highest) found(i, magnitude);
  };
  std::size_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const TagF32 d;
  const TagI32 di;  // magnitudes fit, and every machine compares them
  const auto low = hn::Set(di, static_cast<std::int32_t>(lowest));
  const auto high = hn::Set(di, static_cast<std::int32_t>(highest));
  const std::size_t n = hn::Lanes(d);
  for (; i + n <= count; i += n) {
    const auto magnitude = hn::BitCast(di, hn::Abs(load_bytes(d, values + 4 * i)));
    const auto outside = hn::Or(hn::Lt(magnitude, low), hn::Gt(magnitude, high));
    if (hn::AllTrue(di, outside)) continue;
    for (std::size_t j = i; j < i + n; ++j) look(j);
  }
#endif
  for (; i < count; ++i) look(i);
}

std::size_t find_at_least(const void* values, std::size_t count, float least, std::uint32_t* indices) {
  std::size_t found = 0;
  for_each_between(static_cast<const std::uint8_t*>(values), count, magnitude_bits(least), 0x7fffffff,
                   [&](std::size_t i, std::uint32_t) HWY_ATTR {
                     if (indices != nullptr) indices[found] = static_cast<std::uint32_t>(i);
                     ++found;
                   });
  return found;
}

// The digit of a histogram in which the k-th largest is; `k` is then its place within that digit.
template <std::size_t size>
std::uint32_t digit_of(const std::uint32_t (&histogram)[size], std::size_t& k) {
  std::size_t digit = size - 1;
  while (histogram[digit] < k) k -= histogram[digit--];
  return static_cast<std::uint32_t>(digit);
}

// The k-th largest magnitude, by its digits of 11, 11 and 9 bits, the highest first: what shares the digits
// found so far is looked at again. `k` is then how many of the elements of just that magnitude belong.
std::uint32_t kth_largest(const std::uint8_t* values, std::size_t count, std::size_t& k) {
  std::uint32_t high[1 << 11] = {};
  for (std::size_t i = 0; i < count; ++i) ++high[magnitude_bits(load<float>(values, i)) >> 20];
  std::uint32_t prefix = digit_of(high, k) << 20;

  std::uint32_t middle[1 << 11] = {};
  for_each_between(values, count, prefix, prefix + (1 << 20) - 1,
                   [&](std::size_t, std::uint32_t magnitude)
                       HWY_ATTR { ++middle[(magnitude >> 9) & 0x7ff]; });
  prefix += digit_of(middle, k) << 9;

  std::uint32_t low[1 << 9] = {};
  for_each_between(values, count, prefix, prefix + (1 << 9) - 1,
                   [&](std::size_t, std::uint32_t magnitude) HWY_ATTR { ++low[magnitude & 0x1ff]; });
  return prefix + digit_of(low, k);
}

void find_top_k(const void* values, std::size_t count, std::size_t k, std::uint32_t* indices) {
  if (k == 0) return;
  const auto* const bytes = static_cast<const std::uint8_t*>(values);
  std::size_t equal_left = k;
  const std::uint32_t least = kth_largest(bytes, count, equal_left);
  for_each_between(bytes, count, least, 0x7fffffff, [&](std::size_t i, std::uint32_t magnitude) HWY_ATTR {
    if (magnitude == least) {
      if (equal_left == 0) return;
      --equal_left;
    }
    *indices++ = static_cast<std::uint32_t>(i);
  });
}

void sum_squares(const void* values, std::size_t count, std::size_t block, float* norms) {
#if HWY_TARGET == HWY_SCALAR
  block_norms_scalar(values, count, block, norms);
#else
  // Four lanes everywhere: sums of floats depend on how they are grouped.
  const hn::FixedTag<float, 4> d;
  const auto* from = static_cast<const std::uint8_t*>(values);
  for (std::size_t begin = 0; begin < count; begin += block) {
    const std::size_t n = std::min(block, count - begin);
    auto a = hn::Zero(d), b = a, c = a, e = a;
    const auto add = [&](const std::uint8_t* p) HWY_ATTR {
      const auto square = [&](std::size_t i) HWY_ATTR {
        const auto v = load_bytes(d, p + 16 * i);
        return hn::Mul(v, v);
      };
      a = hn::Add(a, square(0));
      b = hn::Add(b, square(1));
      c = hn::Add(c, square(2));
      e = hn::Add(e, square(3));
    };
    std::size_t i = 0;
    for (; i + 16 <= n; i += 16) add(from + 4 * i);
    if (i < n) {
      std::uint8_t rest[64] = {};
      std::memcpy(rest, from + 4 * i, 4 * (n - i));
      add(rest);
    }
    // As the reference: 8 and 8, then 4 and 4, 2 and 2, 1 and 1.
    a = hn::Add(hn::Add(a, c), hn::Add(b, e));
    alignas(16) float sums[4];
    hn::Store(a, d, sums);
    norms[begin / block] = (sums[0] + sums[2]) + (sums[1] + sums[3]);
    from += 4 * n;
  }
#endif
}

void keep_finite_values(const void* values, void* residual, std::size_t count) {
  const auto* const from = static_cast<const std::uint8_t*>(values);
  auto* const to = static_cast<std::uint8_t*>(residual);
  std::size_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const TagF32 d;
  for (const std::size_t n = hn::Lanes(d); i + n <= count; i += n) {
    const auto value = load_bytes(d, from + 4 * i);
    store_bytes(d, hn::IfThenElse(hn::IsFinite(value), value, load_bytes(d, to + 4 * i)), to + 4 * i);
  }
#endif
  for (; i < count; ++i) {
    const auto value = load<float>(from, i);
    if (std::isfinite(value)) store(to, i, value);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace talweg::kernel
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace talweg::kernel {

HWY_EXPORT(find_top_k);
HWY_EXPORT(find_at_least);
HWY_EXPORT(sum_squares);
HWY_EXPORT(keep_finite_values);

void top_k(const void* values, std::size_t count, std::size_t k, std::uint32_t* indices) {
  HWY_DYNAMIC_DISPATCH(find_top_k)(values, count, k, indices);
}

std::size_t at_least(const void* values, std::size_t count, float least, std::uint32_t* indices) {
  return HWY_DYNAMIC_DISPATCH(find_at_least)(values, count, least, indices);
}

void block_norms(const void* values, std::size_t count, std::size_t block, float* norms) {
  HWY_DYNAMIC_DISPATCH(sum_squares)(values, count, block, norms);
}

void keep_finite(const void* values, void* residual, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(keep_finite_values)(values, residual, count);
}

}  // namespace talweg::kernel

#endif  // HWY_ONCE
