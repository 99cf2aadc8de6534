#include "kernel/reduce.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/divide.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernel/scalar.h"
#if HWY_TARGET != HWY_SCALAR
#include "kernel/lanes-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace talweg::kernel {
namespace HWY_NAMESPACE {

// Integers, everywhere (no processor here divides vectors of them), and what is left of floats after the last
// vector.
template <typename T>
void divide_elements(void* data, std::size_t first, std::size_t count, int divisor) {
  for (std::size_t i = first; i < count; ++i) store(data, i, quotient(load<T>(data, i), divisor));
}

// `count` values of T, which is a floating type.
template <typename T>
void divide_floats(void* data, std::size_t count, int divisor) {
  std::size_t done = 0;
#if HWY_TARGET != HWY_SCALAR
  if constexpr (HasLanes<T>) {
    const Lanes<T> lanes;
    const auto by = hn::Set(lanes.d, static_cast<hn::TFromD<typename Lanes<T>::Tag>>(divisor));
    auto* const bytes = static_cast<std::uint8_t*>(data);
    done = for_each_vector(lanes, count, [&](std::size_t i) HWY_ATTR {
      std::uint8_t* const p = bytes + i * Lanes<T>::kBytes;
      lanes.store(hn::Div(lanes.load(p), by), p);
    });
  }
#endif
  divide_elements<T>(data, done, count, divisor);
}

void divide_all(DataType type, void* data, std::size_t count, int divisor) {
  visit_type(type, [&]<typename T>(T) {
    if constexpr (std::is_integral_v<T>) {
      divide_elements<T>(data, 0, count, divisor);
    } else if constexpr (kIsComplex<T>) {
      divide_floats<decltype(T::real)>(data, 2 * count, divisor);
    } else {
      divide_floats<T>(data, count, divisor);
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace talweg::kernel
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace talweg::kernel {

HWY_EXPORT(divide_all);

void divide(DataType type, void* data, std::size_t count, int divisor) {
  if (type == DataType::boolean || divisor == 1) return;
  HWY_DYNAMIC_DISPATCH(divide_all)(type, data, count, divisor);
}

}  // namespace talweg::kernel

#endif  // HWY_ONCE
