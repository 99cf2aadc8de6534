#include "kernel/reduce.h"
#include "kernel/scalar.h"

namespace talweg::kernel {
namespace {

template <typename T>
T quotient(T value, int divisor) {
  if constexpr (std::is_same_v<T, F16> || std::is_same_v<T, BF16>) {
    return narrow<T>(widen(value) / static_cast<float>(divisor));
  } else if constexpr (kIsComplex<T>) {
    return {quotient(value.real, divisor), quotient(value.imaginary, divisor)};
  } else if constexpr (std::is_unsigned_v<T>) {
    // The divisor is a number of ranks, so it is positive and the conversion keeps it.
    return static_cast<T>(value / static_cast<Wrapping<T>>(divisor));
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(value / divisor);
  } else {
    return value / static_cast<T>(divisor);
  }
}

}  // namespace

void divide(DataType type, void* data, std::size_t count, int divisor) {
  if (type == DataType::boolean || divisor == 1) return;
  visit_type(type, [&]<typename T>(T) {
    for (std::size_t i = 0; i < count; ++i) store(data, i, quotient(load<T>(data, i), divisor));
  });
}

}  // namespace talweg::kernel
