// How a tensor is dealt out to lanes, and how its floats become integers of a common exponent and back.
#include "protocol/aggregation/tensor.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace talweg::protocol {
namespace {

TEST(SummedTensor, IsDealtOutToLanesWithoutAGapWhateverItsLength) {
  for (const std::size_t count : {0, 3, 4, 37, 40})
    for (const bool sparse : {false, true}) {
      std::vector<float> in(count), out(count, -1.0F);
      for (std::size_t i = 0; i < count; ++i) in[i] = i / 4 % 4 == 1 ? 0.0F : static_cast<float>(i + 1);
      for (std::uint16_t lane = 0; lane < 3; ++lane) {
        SummedTensor tensor;
        Sum sum{reinterpret_cast<const std::byte*>(in.data()), reinterpret_cast<std::byte*>(out.data()),
                count};
        sum.block = 4;
        sum.sparse = sparse;
        sum.lane = lane;
        sum.lanes = 3;
        tensor.reset(sum, 1);
        for (std::uint64_t b = 0; b < tensor.blocks(); ++b) {
          EXPECT_EQ(tensor.owns(b), !sparse || (lane + 3 * b) % 4 != 1) << lane << ' ' << b;
          std::vector<std::byte> data(tensor.count_of(b) * sizeof(float));
          if (tensor.owns(b)) tensor.write(b, 0, data.data());
          tensor.accept(b, 0, data);
        }
      }
      EXPECT_EQ(out, in) << count;
    }
}

// Of any number of workers, powers of two or not, the largest possible values: no sum wraps, and each is
// within the bound.
TEST(Scaling, NoSumWrapsAndEachIsWithinItsBound) {
  for (const std::uint32_t workers :
       {1U, 2U, 3U, 5U, 6U, 7U, 8U, 100U, 127U, 128U, 129U, 255U, 256U, 1000U, 65535U}) {
    for (const int exponent : {-60, 0, 1, 100, 128}) {
      const BlockScale scale = scale_of(static_cast<std::int16_t>(exponent), workers);
      ASSERT_EQ(scale.kind, BlockScale::Kind::scaled);
      EXPECT_EQ(scale.to_integer * scale.to_float, 1);
      const float largest = std::ldexp(std::nextafter(1.0F, 0.0F), exponent);
      EXPECT_EQ(exponent_of(std::bit_cast<std::uint32_t>(largest)), exponent);
      const double integer = std::min<double>(
          std::nearbyint(static_cast<double>(largest) * static_cast<double>(scale.to_integer)), scale.limit);
      EXPECT_LE(integer * workers, std::numeric_limits<std::int32_t>::max()) << workers << " workers";
      const double sum = integer * workers * static_cast<double>(scale.to_float);
      EXPECT_LE(std::abs(sum - static_cast<double>(largest) * workers),
                2 * error_bound(static_cast<std::int16_t>(exponent), workers))
          << workers << " workers";
    }
  }
}

TEST(Scaling, ExponentsOrderAsTheLargestValuesDo) {
  const float ascending[] = {0, 1e-45F, 1e-38F, 0.4F, 0.5F, 1, 2, 3e38F, INFINITY};
  std::int16_t before = std::numeric_limits<std::int16_t>::min();
  for (const float v : ascending) {
    const std::int16_t e = exponent_of(std::bit_cast<std::uint32_t>(v));
    EXPECT_GE(e, before);
    before = e;
    if (v > 1e-37F && std::isfinite(v)) {
      EXPECT_GT(std::ldexp(1.0, e), static_cast<double>(v));
      EXPECT_LE(std::ldexp(0.5, e), static_cast<double>(v));
    }
  }
  EXPECT_EQ(exponent_of(0), wire::kZeroExponent);
  EXPECT_EQ(exponent_of(std::bit_cast<std::uint32_t>(NAN) & 0x7fffffffU), wire::kNotFiniteExponent);
}

}  // namespace
}  // namespace talweg::protocol
