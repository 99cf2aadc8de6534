// Arrays of elements of a type known at run time, at any misalignment, and how two of them are held equal.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/random.h"
#include "kernel/scalar.h"

namespace talweg::kernel {

inline std::vector<DataType> all_types() {
  std::vector<DataType> types;
  for (int i = 0; i < kDataTypes; ++i) types.push_back(static_cast<DataType>(i));
  return types;
}

inline std::vector<ReduceOp> all_ops() {
  std::vector<ReduceOp> ops;
  for (int i = 0; i < kReduceOps; ++i) ops.push_back(static_cast<ReduceOp>(i));
  return ops;
}

// `count` elements that start `offset` bytes into an allocation of exactly that size, so that a sanitizer
// sees any step beyond either end.
class Array {
 public:
  Array(DataType type, std::size_t count, std::size_t offset)
      : type_(type), count_(count), offset_(offset), bytes_(offset + count * size_of(type)) {}

  void* data() { return bytes_.data() + offset_; }
  const void* data() const { return bytes_.data() + offset_; }
  std::size_t count() const { return count_; }
  DataType type() const { return type_; }

  // Half of the values are moderate numbers, half are any bits at all: NaN, infinities, subnormals, extremes.
  void fill(Random& random) {
    visit_type(type_, [&]<typename T>(T) {
      for (std::size_t i = 0; i < count_; ++i) store(data(), i, random_element<T>(random));
    });
  }

 private:
  template <typename T>
  T random_element(Random& random) const {
    if constexpr (kIsComplex<T>) {
      using Real = decltype(T::real);
      return {random_element<Real>(random), random_element<Real>(random)};
    } else {
      if (type_ == DataType::boolean) return narrow_bits<T>(random.below(2));
      if constexpr (!std::is_integral_v<T>) {
        const auto moderate = static_cast<decltype(widen(T{}))>(random.uniform() * 200 - 100);
        if (random.below(2) == 0) return narrow<T>(moderate);
        if (random.below(8) == 0) return narrow<T>(random.below(2) == 0 ? 0 * moderate : moderate / 0);
      }
      return narrow_bits<T>(random.next());
    }
  }

  template <typename T>
  static T narrow_bits(std::uint64_t bits) {
    T value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }

  DataType type_;
  std::size_t count_;
  std::size_t offset_;
  std::vector<std::uint8_t> bytes_;
};

template <typename T>
bool same(T a, T b) {
  if constexpr (kIsComplex<T>) {
    return same(a.real, b.real) && same(a.imaginary, b.imaginary);
  } else {
    const auto x = widen(a), y = widen(b);
    if (x != x && y != y) return true;
    return std::memcmp(&a, &b, sizeof a) == 0;
  }
}

// Bit for bit, except that one NaN is as good as another.
inline testing::AssertionResult same_elements(const Array& actual, const Array& expected) {
  return visit_type(actual.type(), [&]<typename T>(T) -> testing::AssertionResult {
    for (std::size_t i = 0; i < expected.count(); ++i) {
      if (!same(load<T>(actual.data(), i), load<T>(expected.data(), i))) {
        return testing::AssertionFailure() << "element " << i << " of " << expected.count() << " differs";
      }
    }
    return testing::AssertionSuccess();
  });
}

}  // namespace talweg::kernel
