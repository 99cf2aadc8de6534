// One vector of elements: how it is loaded from any address, in which type it is computed, how it is stored.
// Included once per instruction set by Highway's foreach_target, hence no #pragma once: the guard toggles.
//
//   const Lanes<F16> lanes;
//   lanes.store(lanes.load(p) + lanes.load(q), r);     // lanes.size() elements, computed in float32
#if defined(TALWEG_KERNEL_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TALWEG_KERNEL_LANES_INL_H_
#undef TALWEG_KERNEL_LANES_INL_H_
#else
#define TALWEG_KERNEL_LANES_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "kernel/scalar.h"

#if HWY_TARGET == HWY_SCALAR
#error "one lane is no vector: the plain loops of scalar.h serve this target"
#endif

HWY_BEFORE_NAMESPACE();
namespace talweg::kernel {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Loads and stores go through bytes: the caller's address may not even be a multiple of the element.
template <class D>
HWY_INLINE hn::Vec<D> load_bytes(D d, const std::uint8_t* p) {
  return hn::BitCast(d, hn::LoadU(hn::Repartition<std::uint8_t, D>(), p));
}

template <class D>
HWY_INLINE void store_bytes(D, hn::Vec<D> v, std::uint8_t* p) {
  const hn::Repartition<std::uint8_t, D> bytes;
  hn::StoreU(hn::BitCast(bytes, v), bytes, p);
}

// Nothing here for other types: their plain loops serve.
template <typename T>
struct Lanes;
template <typename T>
concept HasLanes = requires {
  Lanes<T>::kBytes;
};

template <typename T>
requires std::is_arithmetic_v<T>
struct Lanes<T> {
  using Tag = hn::ScalableTag<T>;
  static constexpr std::size_t kBytes = sizeof(T);
  Tag d;  // of the values as computed

  std::size_t size() const { return hn::Lanes(d); }
  HWY_INLINE hn::Vec<Tag> load(const std::uint8_t* p) const { return load_bytes(d, p); }
  HWY_INLINE void store(hn::Vec<Tag> v, std::uint8_t* p) const { store_bytes(d, v, p); }
};

using TagF32 = hn::ScalableTag<float>;
using TagU32 = hn::RebindToUnsigned<TagF32>;
using TagI32 = hn::RebindToSigned<TagF32>;
using TagU16 = hn::Rebind<std::uint16_t, TagF32>;  // as many half-width lanes as there are floats in a vector

template <class V32>
HWY_INLINE hn::Vec<TagU16> low_halves(V32 bits) {
  return hn::DemoteTo(TagU16(), hn::BitCast(TagI32(), bits));
}

template <>
struct Lanes<BF16> {
  using Tag = TagF32;
  static constexpr std::size_t kBytes = 2;
  Tag d;

  std::size_t size() const { return hn::Lanes(d); }

  HWY_INLINE hn::Vec<Tag> load(const std::uint8_t* p) const {
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(TagU32(), load_bytes(TagU16(), p))));
  }

  // As f32_to_bf16. (The processors' own conversion flushes subnormals to zero.)
  HWY_INLINE void store(hn::Vec<Tag> v, std::uint8_t* p) const {
    const TagU32 du;
    const auto bits = hn::BitCast(du, v);
    const auto high = hn::ShiftRight<16>(bits);
    const auto odd = hn::And(high, hn::Set(du, 1));
    const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(du, 0x7fff)), odd));
    const auto quiet = hn::Or(high, hn::Set(du, 0x40));
    const auto is_nan = hn::RebindMask(du, hn::IsNaN(v));
    store_bytes(TagU16(), low_halves(hn::IfThenElse(is_nan, quiet, rounded)), p);
  }
};

template <>
struct Lanes<F16> {
  using Tag = TagF32;
  static constexpr std::size_t kBytes = 2;
  Tag d;

  std::size_t size() const { return hn::Lanes(d); }

// Highway's emulations of the conversions, where the processor lacks them, lose infinities and NaN: ours do
// not.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  HWY_INLINE hn::Vec<Tag> load(const std::uint8_t* p) const {
    const hn::Rebind<hwy::float16_t, TagF32> half;
    return hn::PromoteTo(d, hn::BitCast(half, load_bytes(TagU16(), p)));
  }

  HWY_INLINE void store(hn::Vec<Tag> v, std::uint8_t* p) const {
    const hn::Rebind<hwy::float16_t, TagF32> half;
    store_bytes(TagU16(), hn::BitCast(TagU16(), hn::DemoteTo(half, v)), p);
  }
#else
  // As f16_to_f32.
  HWY_INLINE hn::Vec<Tag> load(const std::uint8_t* p) const {
    const TagU32 du;
    const auto bits = hn::PromoteTo(du, load_bytes(TagU16(), p));
    const auto magnitude = hn::And(bits, hn::Set(du, 0x7fff));
    const auto sign = hn::ShiftLeft<16>(hn::Xor(bits, magnitude));
    const auto shifted = hn::ShiftLeft<13>(magnitude);
    const auto normal = hn::Add(shifted, hn::Set(du, 112u << 23));
    const auto subnormal =
        hn::BitCast(du, hn::Mul(hn::ConvertTo(d, hn::BitCast(TagI32(), magnitude)), hn::Set(d, 0x1p-24f)));
    const auto infinite = hn::Or(shifted, hn::Set(du, 0x7f800000));
    const auto quiet = hn::Or(infinite, hn::Set(du, 0x400000));
    auto result = hn::IfThenElse(hn::Lt(magnitude, hn::Set(du, 0x400)), subnormal, normal);
    result = hn::IfThenElse(hn::Eq(magnitude, hn::Set(du, 0x7c00)), infinite, result);
    result = hn::IfThenElse(hn::Gt(magnitude, hn::Set(du, 0x7c00)), quiet, result);
    return hn::BitCast(d, hn::Or(result, sign));
  }

  // As f32_to_f16.
  HWY_INLINE void store(hn::Vec<Tag> v, std::uint8_t* p) const {
    const TagU32 du;
    const auto bits = hn::BitCast(du, v);
    const auto magnitude = hn::And(bits, hn::Set(du, 0x7fffffff));
    const auto sign = hn::ShiftRight<16>(hn::Xor(bits, magnitude));
    const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1));
    const auto biased = hn::Sub(magnitude, hn::Set(du, 0x38000000 - 0xfff));
    const auto normal = hn::ShiftRight<13>(hn::Add(biased, odd));
    const auto subnormal = hn::Sub(hn::BitCast(du, hn::Add(hn::BitCast(d, magnitude), hn::Set(d, 0.5f))),
                                   hn::Set(du, 0x3f000000));
    const auto payload = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 0x3ff));
    const auto quiet = hn::Or(payload, hn::Set(du, 0x7e00));
    auto half = hn::IfThenElse(hn::Lt(magnitude, hn::Set(du, 0x38800000)), subnormal, normal);
    half = hn::IfThenElse(hn::Gt(magnitude, hn::Set(du, 0x477fefff)), hn::Set(du, 0x7c00), half);
    half = hn::IfThenElse(hn::Gt(magnitude, hn::Set(du, 0x7f800000)), quiet, half);
    store_bytes(TagU16(), low_halves(hn::Or(half, sign)), p);
  }
#endif
};

// A vector of complex numbers is a vector of reals, real parts in even lanes.
template <typename Real>
struct Lanes<Complex<Real>> {
  using Tag = hn::ScalableTag<Real>;
  static constexpr std::size_t kBytes = 2 * sizeof(Real);
  Tag d;

  std::size_t size() const { return hn::Lanes(d) / 2; }
  HWY_INLINE hn::Vec<Tag> load(const std::uint8_t* p) const { return load_bytes(d, p); }
  HWY_INLINE void store(hn::Vec<Tag> v, std::uint8_t* p) const { store_bytes(d, v, p); }
};

// `vector(i)` is called for i = 0, n, 2n, ... while whole vectors of n = lanes.size() elements are left, four
// to a turn so that the loads of one hide the arithmetic of another. Returns the first element that was not
// covered.
template <class L, class Vector>
HWY_INLINE std::size_t for_each_vector(L lanes, std::size_t count, Vector vector) {
  const std::size_t n = lanes.size();
  std::size_t i = 0;
  for (; i + 4 * n <= count; i += 4 * n) {
    vector(i);
    vector(i + n);
    vector(i + 2 * n);
    vector(i + 3 * n);
  }
  for (; i + n <= count; i += n) vector(i);
  return i;
}

}  // namespace HWY_NAMESPACE
}  // namespace talweg::kernel
HWY_AFTER_NAMESPACE();

#endif
