#include "kernel/half.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "base/random.h"

namespace talweg::kernel {
namespace {

// The value of a binary16 or bfloat16 from its definition, in double, which holds all of them exactly.
double defined_value(std::uint32_t bits, int exponent_bits, int mantissa_bits) {
  const double sign = (bits >> 15) ? -1 : 1;
  const int all_ones = (1 << exponent_bits) - 1;
  const int bias = all_ones / 2;
  const int exponent = static_cast<int>(bits >> mantissa_bits) & all_ones;
  const int mantissa = static_cast<int>(bits) & ((1 << mantissa_bits) - 1);
  if (exponent == all_ones) {
    return mantissa ? std::numeric_limits<double>::quiet_NaN()
                    : sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

struct Format {
  const char* name;
  float (*widen)(std::uint16_t);
  std::uint16_t (*narrow)(float);
  int exponent_bits;
  int mantissa_bits;
  std::uint16_t infinity;
};

class HalfFormat : public testing::TestWithParam<Format> {};

INSTANTIATE_TEST_SUITE_P(All, HalfFormat,
                         testing::Values(Format{"f16", f16_to_f32, f32_to_f16, 5, 10, 0x7c00},
                                         Format{"bf16", bf16_to_f32, f32_to_bf16, 8, 7, 0x7f80}),
                         [](const auto& instance) { return instance.param.name; });

TEST_P(HalfFormat, WidensEveryValueToWhatItsBitsMean) {
  const Format format = GetParam();
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const double expected = defined_value(bits, format.exponent_bits, format.mantissa_bits);
    const double actual = format.widen(static_cast<std::uint16_t>(bits));
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(actual)) << bits;
    } else {
      ASSERT_EQ(std::bit_cast<std::uint64_t>(actual), std::bit_cast<std::uint64_t>(expected)) << bits;
    }
  }
}

TEST_P(HalfFormat, ReturnsEveryValueUnchangedFromARoundTrip) {
  const Format format = GetParam();
  const auto quiet = static_cast<std::uint16_t>(1 << (format.mantissa_bits - 1));
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    const bool is_nan = (bits & 0x7fff) > format.infinity;
    const std::uint16_t back = format.narrow(format.widen(bits));
    ASSERT_EQ(back, is_nan ? bits | quiet : bits);
  }
}

TEST_P(HalfFormat, RoundsToNearestAndTiesToEvenBetweenAllNeighbours) {
  const Format format = GetParam();
  for (std::uint16_t low = 0; low + 1 < format.infinity; ++low) {
    const auto high = static_cast<std::uint16_t>(low + 1);
    // The middle of two neighbours has one bit more, so float32 holds it exactly.
    const auto middle = static_cast<float>((static_cast<double>(format.widen(low)) + format.widen(high)) / 2);
    ASSERT_EQ(format.narrow(middle), (low & 1) ? high : low) << low;
    ASSERT_EQ(format.narrow(std::nextafter(middle, 0.0f)), low);
    ASSERT_EQ(format.narrow(std::nextafter(middle, INFINITY)), high);
    ASSERT_EQ(format.narrow(-middle), 0x8000 | ((low & 1) ? high : low));
  }
}

TEST_P(HalfFormat, OverflowsToInfinityFromHalfAStepAboveTheLargestValue) {
  const Format format = GetParam();
  const auto largest = static_cast<std::uint16_t>(format.infinity - 1);
  const double step =
      static_cast<double>(format.widen(largest)) - format.widen(static_cast<std::uint16_t>(largest - 1));
  const auto limit = static_cast<float>(format.widen(largest) + step / 2);
  EXPECT_EQ(format.narrow(limit), format.infinity);
  EXPECT_EQ(format.narrow(std::nextafter(limit, 0.0f)), largest);
  EXPECT_EQ(format.narrow(-limit), 0x8000 | format.infinity);
  EXPECT_EQ(format.narrow(std::numeric_limits<float>::infinity()), format.infinity);
}

}  // namespace
}  // namespace talweg::kernel
