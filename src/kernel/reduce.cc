#include "kernel/reduce.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/reduce.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernel/scalar.h"
#if HWY_TARGET != HWY_SCALAR
#include "kernel/lanes-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace talweg::kernel {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR

// A processor without any instruction set that we know.
template <ReduceOp op, typename T>
constexpr ReduceFunction loop_for() {
  if constexpr (has_meaning<T>(op)) {
    return &reduce_elements<op, T>;
  } else {
    return nullptr;
  }
}

#else

// (ar + i ai)(br + i bi): even lanes ar br - ai bi, odd lanes ar bi + ai br.
template <class D, class V>
HWY_INLINE V complex_product(D d, V a, V b) {
  const V direct = hn::Mul(hn::DupEven(a), b);
  const V crossed = hn::Mul(hn::DupOdd(a), hn::Reverse2(d, b));
  return hn::OddEven(hn::Add(direct, crossed), hn::Sub(direct, crossed));
}

// There is no multiplication of bytes: even and odd ones are done as 16-bit products, of which the low half
// is kept.
template <class D, class V>
HWY_INLINE V byte_product(D d, V a, V b) {
  const hn::RepartitionToWide<D> wide;
  const auto even = hn::Mul(hn::BitCast(wide, a), hn::BitCast(wide, b));
  const auto odd = hn::Mul(hn::ShiftRight<8>(hn::BitCast(wide, a)), hn::ShiftRight<8>(hn::BitCast(wide, b)));
  return hn::OddEven(hn::BitCast(d, hn::ShiftLeft<8>(odd)), hn::BitCast(d, even));
}

template <ReduceOp op, typename T, class D, class V>
HWY_INLINE V combine_lanes([[maybe_unused]] D d, V a, V b) {
  if constexpr (op == ReduceOp::sum) {
    return hn::Add(a, b);
  } else if constexpr (op == ReduceOp::product) {
    if constexpr (kIsComplex<T>) {
      return complex_product(d, a, b);
    } else if constexpr (sizeof(T) == 1) {
      return byte_product(d, a, b);
    } else {
      return hn::Mul(a, b);
    }
  } else if constexpr (op == ReduceOp::bit_and) {
    return hn::And(a, b);
  } else if constexpr (op == ReduceOp::bit_or) {
    return hn::Or(a, b);
  } else if constexpr (op == ReduceOp::bit_xor) {
    return hn::Xor(a, b);
  } else if constexpr (std::is_integral_v<T>) {
    return op == ReduceOp::min ? hn::Min(a, b) : hn::Max(a, b);
  } else {
    // Not hn::Min: which operand it takes when they are unordered, or are +0 and -0, differs from machine to
    // machine.
    const auto takes_a = op == ReduceOp::min ? hn::Lt(a, b) : hn::Gt(a, b);
    return hn::IfThenElse(hn::Or(takes_a, hn::IsNaN(a)), a, b);
  }
}

// A ReduceFunction over elements of which each is `parts` values of type T.
template <ReduceOp op, typename T, std::size_t parts = 1>
void reduce_vectors(void* out, const void* a, const void* b, std::size_t count) {
  const Lanes<T> lanes;
  constexpr std::size_t kBytes = Lanes<T>::kBytes;
  const auto combine_at = [&](std::uint8_t* r, const std::uint8_t* x, const std::uint8_t* y) HWY_ATTR {
    lanes.store(combine_lanes<op, T>(lanes.d, lanes.load(x), lanes.load(y)), r);
  };
  auto* const r = static_cast<std::uint8_t*>(out);
  const auto* const x = static_cast<const std::uint8_t*>(a);
  const auto* const y = static_cast<const std::uint8_t*>(b);
  const std::size_t values = count * parts;
  const std::size_t done = for_each_vector(lanes, values, [&](std::size_t i) HWY_ATTR {
    combine_at(r + i * kBytes, x + i * kBytes, y + i * kBytes);
  });
  if (done == values) return;
  // The rest goes through a vector's worth of stack, so that every element takes the same path.
  std::uint8_t rest_x[HWY_MAX_BYTES] = {}, rest_y[HWY_MAX_BYTES] = {};
  const std::size_t rest = (values - done) * kBytes;
  std::memcpy(rest_x, x + done * kBytes, rest);
  std::memcpy(rest_y, y + done * kBytes, rest);
  combine_at(rest_x, rest_x, rest_y);
  std::memcpy(r + done * kBytes, rest_x, rest);
}

// Fewer loops do: sign does not matter to wrapping sums and products, nor width to bitwise operations, and a
// complex sum is a sum of twice as many reals.
template <ReduceOp op, typename T>
constexpr ReduceFunction loop_for() {
  if constexpr (!has_meaning<T>(op)) {
    return nullptr;
  } else if constexpr (op == ReduceOp::bit_and || op == ReduceOp::bit_or || op == ReduceOp::bit_xor) {
    return &reduce_vectors<op, std::uint8_t, sizeof(T)>;
  } else if constexpr (std::is_integral_v<T> && (op == ReduceOp::sum || op == ReduceOp::product)) {
    return &reduce_vectors<op, std::make_unsigned_t<T> >;
  } else if constexpr (kIsComplex<T> && op == ReduceOp::sum) {
    return &reduce_vectors<op, decltype(T::real), 2>;
  } else if constexpr (HasLanes<T>) {
    return &reduce_vectors<op, T>;
  } else {
    return &reduce_elements<op, T>;
  }
}

#endif

ReduceFunction select_loop(DataType type, ReduceOp op) {
  return visit_type(type, [&]<typename T>(T) {
    return visit_op(effective_op(type, op), []<ReduceOp effective>() { return loop_for<effective, T>(); });
  });
}

const char* select_name() {
  return hwy::TargetName(HWY_TARGET);
}

}  // namespace HWY_NAMESPACE
}  // namespace talweg::kernel
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace talweg::kernel {

HWY_EXPORT(select_loop);
HWY_EXPORT(select_name);

ReduceFunction reduce_function(DataType type, ReduceOp op) {
  return HWY_DYNAMIC_DISPATCH(select_loop)(type, op);
}

const char* target_name() {
  return HWY_DYNAMIC_DISPATCH(select_name)();
}

}  // namespace talweg::kernel

#endif  // HWY_ONCE
