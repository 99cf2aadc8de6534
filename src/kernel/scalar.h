// One element: load it as the type that it is computed in, combine two, divide one, store it. These few
// functions say what each element type and reduction means; the plain loops are made of them and the vector
// loops must agree.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernel/half.h"
#include "talweg/types.h"

namespace talweg::kernel {

struct F16 {
  std::uint16_t bits;
};
struct BF16 {
  std::uint16_t bits;
};
template <typename Real>
struct Complex {
  Real real;
  Real imaginary;
};

template <typename T>
struct IsComplex : std::false_type {};
template <typename Real>
struct IsComplex<Complex<Real>> : std::true_type {};
template <typename T>
inline constexpr bool kIsComplex = IsComplex<T>::value;

// Calls visit with a value of the C++ type that holds one element. boolean is u8 here: see `effective_op`.
template <typename Visitor>
constexpr auto visit_type(DataType type, Visitor visit) {
  switch (type) {
    case DataType::u8:
    case DataType::boolean:
      return visit(std::uint8_t{});
    case DataType::i8:
      return visit(std::int8_t{});
    case DataType::u16:
      return visit(std::uint16_t{});
    case DataType::i16:
      return visit(std::int16_t{});
    case DataType::u32:
      return visit(std::uint32_t{});
    case DataType::i32:
      return visit(std::int32_t{});
    case DataType::u64:
      return visit(std::uint64_t{});
    case DataType::i64:
      return visit(std::int64_t{});
    case DataType::f16:
      return visit(F16{});
    case DataType::bf16:
      return visit(BF16{});
    case DataType::f32:
      return visit(float{});
    case DataType::f64:
      return visit(double{});
    case DataType::c64:
      return visit(Complex<float>{});
    case DataType::c128:
      break;
  }
  return visit(Complex<double>{});
}

// What a reduction amounts to for a type: avg is sum, and on bytes that are 0 or 1, sum and max are OR,
// product and min are AND.
constexpr ReduceOp effective_op(DataType type, ReduceOp op) {
  if (type == DataType::boolean) {
    if (op == ReduceOp::sum || op == ReduceOp::max || op == ReduceOp::avg) return ReduceOp::bit_or;
    if (op == ReduceOp::product || op == ReduceOp::min) return ReduceOp::bit_and;
  }
  return op == ReduceOp::avg ? ReduceOp::sum : op;
}

template <typename T>
constexpr bool has_meaning(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::product:
      return true;
    case ReduceOp::min:
    case ReduceOp::max:
      return !kIsComplex<T>;
    case ReduceOp::bit_and:
    case ReduceOp::bit_or:
    case ReduceOp::bit_xor:
      return std::is_integral_v<T>;
    case ReduceOp::avg:
      break;
  }
  return false;
}

// Calls visit with the reduction as a template argument: visit.template operator()<op>(). `op` is an
// effective one.
template <typename Visitor>
constexpr auto visit_op(ReduceOp op, Visitor visit) {
  switch (op) {
    case ReduceOp::product:
      return visit.template operator()<ReduceOp::product>();
    case ReduceOp::min:
      return visit.template operator()<ReduceOp::min>();
    case ReduceOp::max:
      return visit.template operator()<ReduceOp::max>();
    case ReduceOp::bit_and:
      return visit.template operator()<ReduceOp::bit_and>();
    case ReduceOp::bit_or:
      return visit.template operator()<ReduceOp::bit_or>();
    case ReduceOp::bit_xor:
      return visit.template operator()<ReduceOp::bit_xor>();
    case ReduceOp::sum:
    case ReduceOp::avg:
      break;
  }
  return visit.template operator()<ReduceOp::sum>();
}

// The type that T is computed in.
inline float widen(F16 value) {
  return f16_to_f32(value.bits);
}
inline float widen(BF16 value) {
  return bf16_to_f32(value.bits);
}
template <typename T>
T widen(T value) {
  return value;
}

template <typename T, typename Wide>
T narrow(Wide value) {
  if constexpr (std::is_same_v<T, F16>) {
    return F16{f32_to_f16(value)};
  } else if constexpr (std::is_same_v<T, BF16>) {
    return BF16{f32_to_bf16(value)};
  } else {
    return value;
  }
}

// Integers wrap, also the signed ones: computed as unsigned, and wide enough that u16 is not promoted to int.
template <typename T>
using Wrapping = std::conditional_t<sizeof(T) <= 4, std::uint32_t, std::uint64_t>;

template <ReduceOp op, typename T>
T combine(T a, T b) {
  static_assert(has_meaning<T>(op));
  if constexpr (kIsComplex<T>) {
    if constexpr (op == ReduceOp::sum) return {a.real + b.real, a.imaginary + b.imaginary};
    return {a.real * b.real - a.imaginary * b.imaginary, a.real * b.imaginary + a.imaginary * b.real};
  } else if constexpr (op == ReduceOp::sum || op == ReduceOp::product) {
    if constexpr (std::is_integral_v<T>) {
      const auto x = static_cast<Wrapping<T>>(a), y = static_cast<Wrapping<T>>(b);
      return static_cast<T>(op == ReduceOp::sum ? x + y : x * y);
    } else {
      return op == ReduceOp::sum ? a + b : a * b;
    }
  } else if constexpr (op == ReduceOp::min || op == ReduceOp::max) {
    // A NaN in b fails the comparison and is taken; one in a is asked for.
    if (a != a) return a;
    return (op == ReduceOp::min ? a < b : a > b) ? a : b;
  } else if constexpr (op == ReduceOp::bit_and) {
    return static_cast<T>(a & b);
  } else if constexpr (op == ReduceOp::bit_or) {
    return static_cast<T>(a | b);
  } else {
    return static_cast<T>(a ^ b);
  }
}

// The divisor is a number of ranks: positive, so that converting it to an unsigned type keeps it.
template <typename T>
T quotient(T value, int divisor) {
  if constexpr (std::is_same_v<T, F16> || std::is_same_v<T, BF16>) {
    return narrow<T>(widen(value) / static_cast<float>(divisor));
  } else if constexpr (std::is_integral_v<T>) {
    using Wide = std::conditional_t<std::is_unsigned_v<T>, std::uint64_t, std::int64_t>;
    return static_cast<T>(static_cast<Wide>(value) / static_cast<Wide>(divisor));
  } else {
    return value / static_cast<T>(divisor);
  }
}

// Element i of an array that may lie at any address.
template <typename T>
T load(const void* data, std::size_t i) {
  T value;
  std::memcpy(&value, static_cast<const char*>(data) + i * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
void store(void* data, std::size_t i, T value) {
  std::memcpy(static_cast<char*>(data) + i * sizeof(T), &value, sizeof(T));
}

// The plain loop, as a ReduceFunction.
template <ReduceOp op, typename T>
void reduce_elements(void* out, const void* a, const void* b, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    store(out, i, narrow<T>(combine<op>(widen(load<T>(a, i)), widen(load<T>(b, i)))));
  }
}

}  // namespace talweg::kernel
