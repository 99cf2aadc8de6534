// Ratio: an exact fraction, for bounds that are to be stated without rounding.
#pragma once

#include <cstdint>
#include <numeric>
#include <string>

namespace talweg::forest {

// In lowest terms; the denominator is at least 0, and 0 for infinity.
struct Ratio {
  constexpr Ratio() = default;
  // Not both 0; the denominator is not negative.
  constexpr Ratio(std::int64_t over, std::int64_t under) {
    const std::int64_t common = std::gcd(over, under);
    numerator = over / common;
    denominator = under / common;
  }
  double value() const { return static_cast<double>(numerator) / static_cast<double>(denominator); }
  constexpr bool operator==(const Ratio&) const = default;

  std::int64_t numerator = 0;
  std::int64_t denominator = 1;
};

// "1200/7", or "25".
std::string to_string(const Ratio& ratio);

}  // namespace talweg::forest
