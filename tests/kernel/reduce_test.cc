#include "kernel/reduce.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "kernel/arrays.h"
#include "kernel/instruction_sets.h"
#include "sanitized.h"

namespace talweg::kernel {
namespace {

using testing::ElementsAre;

template <typename T, std::size_t n>
std::array<T, n> reduced(DataType type, ReduceOp op, const std::array<T, n>& a, const std::array<T, n>& b,
                         std::size_t count = n) {
  std::array<T, n> out{};
  reduce_function(type, op)(out.data(), a.data(), b.data(), count);
  return out;
}

using Reduction = std::tuple<DataType, ReduceOp>;

bool has_meaning(DataType type, ReduceOp op) {
  const bool floating =
      type == DataType::f16 || type == DataType::bf16 || type == DataType::f32 || type == DataType::f64;
  const bool complex = type == DataType::c64 || type == DataType::c128;
  const bool bitwise = op == ReduceOp::bit_and || op == ReduceOp::bit_or || op == ReduceOp::bit_xor;
  const bool ordering = op == ReduceOp::min || op == ReduceOp::max;
  return !(bitwise && (floating || complex)) && !(ordering && complex);
}

std::vector<Reduction> reductions_with_meaning() {
  std::vector<Reduction> result;
  for (const DataType type : all_types())
    for (const ReduceOp op : all_ops())
      if (has_meaning(type, op)) result.emplace_back(type, op);
  return result;
}

TEST(Reduce, ExistsExactlyWhereItHasAMeaning) {
  for (const DataType type : all_types())
    for (const ReduceOp op : all_ops())
      EXPECT_EQ(reduce_function(type, op) != nullptr, has_meaning(type, op)) << name(type) << ' ' << name(op);
}

class EveryReduction : public testing::TestWithParam<Reduction> {
 protected:
  DataType type() const { return std::get<0>(GetParam()); }
  ReduceOp op() const { return std::get<1>(GetParam()); }
  ReduceFunction function() const { return reduce_function(type(), op()); }
};

INSTANTIATE_TEST_SUITE_P(All, EveryReduction, testing::ValuesIn(reductions_with_meaning()),
                         [](const auto& instance) {
                           return std::string(name(std::get<0>(instance.param))) + "_" +
                                  name(std::get<1>(instance.param));
                         });

TEST_P(EveryReduction, MatchesThePlainLoopAtEveryLengthAndMisalignment) {
  with_every_instruction_set([this] {
    Random random(17);
    for (std::size_t count = 0; count <= 300; count += (count < 67 ? 1 : 29)) {
      for (const std::size_t offset : {0, 1, 3, 7}) {
        Array a(type(), count, offset), b(type(), count, (offset * 3) % 8),
            out(type(), count, (offset * 5) % 8);
        Array expected(type(), count, 0);
        a.fill(random);
        b.fill(random);
        reduce_scalar(type(), op(), expected.data(), a.data(), b.data(), count);
        function()(out.data(), a.data(), b.data(), count);
        ASSERT_TRUE(same_elements(out, expected)) << "offset " << offset;
      }
    }
  });
}

TEST_P(EveryReduction, MayWriteOverEitherOperand) {
  with_every_instruction_set([this] {
    Random random(18);
    for (std::size_t count = 0; count <= 150; ++count) {
      Array a(type(), count, 1), b(type(), count, 0), expected(type(), count, 0);
      a.fill(random);
      b.fill(random);
      reduce_scalar(type(), op(), expected.data(), a.data(), b.data(), count);
      Array over_a = a, over_b = b;
      function()(over_a.data(), over_a.data(), b.data(), count);
      function()(over_b.data(), a.data(), over_b.data(), count);
      ASSERT_TRUE(same_elements(over_a, expected));
      ASSERT_TRUE(same_elements(over_b, expected));
    }
  });
}

TEST_P(EveryReduction, LeavesWhatFollowsTheLastElementAlone) {
  with_every_instruction_set([this] {
    const std::size_t bytes = size_of(type());
    for (std::size_t count = 0; count <= 67; ++count) {
      const std::vector<std::uint8_t> ones((count + 1) * bytes, 1);
      std::vector<std::uint8_t> out((count + 1) * bytes, 0xab);
      function()(out.data(), ones.data(), ones.data(), count);
      for (std::size_t i = count * bytes; i < out.size(); ++i) ASSERT_EQ(out[i], 0xab) << count;
    }
  });
}

TEST(Reduce, SumsWrapInIntegers) {
  EXPECT_THAT((reduced<std::int8_t, 2>(DataType::i8, ReduceOp::sum, {127, -128}, {1, -1})),
              ElementsAre(-128, 127));
  EXPECT_THAT((reduced<std::uint16_t, 2>(DataType::u16, ReduceOp::product, {65535, 256}, {65535, 256})),
              ElementsAre(1, 0));
}

TEST(Reduce, MultipliesBytesWithoutMixingNeighbours) {
  EXPECT_THAT((reduced<std::int8_t, 4>(DataType::i8, ReduceOp::product, {-3, 100, 16, -1}, {5, 2, 16, -128})),
              ElementsAre(-15, -56, 0, -128));
}

TEST(Reduce, ComparesIntegersWithTheirSign) {
  EXPECT_THAT((reduced<std::uint64_t, 2>(DataType::u64, ReduceOp::max, {~0ull, 1}, {1, 2})),
              ElementsAre(~0ull, 2));
  EXPECT_THAT((reduced<std::int64_t, 2>(DataType::i64, ReduceOp::max, {-1, 1}, {1, 2})), ElementsAre(1, 2));
  EXPECT_THAT((reduced<std::uint8_t, 2>(DataType::u8, ReduceOp::min, {200, 1}, {100, 2})),
              ElementsAre(100, 1));
}

TEST(Reduce, MultipliesComplexNumbers) {
  // (1 + 2i)(3 + 4i) = -5 + 10i; i * i = -1
  EXPECT_THAT((reduced<float, 4>(DataType::c64, ReduceOp::product, {1, 2, 0, 1}, {3, 4, 0, 1}, 2)),
              ElementsAre(-5, 10, -1, 0));
  EXPECT_THAT((reduced<double, 4>(DataType::c128, ReduceOp::product, {1, 2, 0, 1}, {3, 4, 0, 1}, 2)),
              ElementsAre(-5, 10, -1, 0));
}

TEST(Reduce, TreatsBooleansAsLogic) {
  const std::array<std::uint8_t, 4> a{0, 0, 1, 1}, b{0, 1, 0, 1};
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max, ReduceOp::avg, ReduceOp::bit_or}) {
    EXPECT_THAT(reduced(DataType::boolean, op, a, b), ElementsAre(0, 1, 1, 1)) << name(op);
  }
  for (const ReduceOp op : {ReduceOp::product, ReduceOp::min, ReduceOp::bit_and}) {
    EXPECT_THAT(reduced(DataType::boolean, op, a, b), ElementsAre(0, 0, 0, 1)) << name(op);
  }
  EXPECT_THAT(reduced(DataType::boolean, ReduceOp::bit_xor, a, b), ElementsAre(0, 1, 1, 0));
}

TEST(Reduce, AnswersNaNWhenEitherSideOfMinOrMaxIsNaN) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::array<float, 4> a{nan, 1, nan, 2}, b{1, nan, nan, 3};
  for (const ReduceOp op : {ReduceOp::min, ReduceOp::max}) {
    const auto out = reduced(DataType::f32, op, a, b);
    EXPECT_TRUE(std::isnan(out[0]) && std::isnan(out[1]) && std::isnan(out[2])) << name(op);
    EXPECT_EQ(out[3], op == ReduceOp::min ? 2 : 3);
  }
}

TEST(Reduce, AveragesWithTheSameLoopAsSums) {
  for (const DataType type : all_types()) {
    EXPECT_EQ(reduce_function(type, ReduceOp::avg), reduce_function(type, ReduceOp::sum)) << name(type);
  }
}

// Runs all 65536 values against `partner` through the vector loop and the definition.
void expect_half_arithmetic(DataType type, float (*widen)(std::uint16_t), std::uint16_t (*narrow)(float),
                            std::uint16_t partner) {
  std::vector<std::uint16_t> all(65536), partners(65536, partner), out(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::product}) {
    reduce_function(type, op)(out.data(), all.data(), partners.data(), all.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      const float x = widen(all[i]), y = widen(partner);
      const float exact = op == ReduceOp::sum ? x + y : x * y;
      if (std::isnan(exact)) {
        ASSERT_TRUE(std::isnan(widen(out[i]))) << name(type) << " " << i << " " << partner;
      } else {
        ASSERT_EQ(out[i], narrow(exact)) << name(type) << " " << i << " " << partner;
      }
    }
  }
}

TEST(Reduce, ComputesHalvesAsFloatsForEveryValueAgainstManyPartners) {
  Random random(19);
  // Zeros, smallest subnormal, one, largest finite, infinity, NaN of either format; then any.
  std::vector<std::uint16_t> partners{0x0000, 0x8000, 0x0001, 0x3c00, 0x3f80, 0x7bff,
                                      0x7f7f, 0x7c00, 0x7f80, 0xff80, 0x7e00};
  for (int i = 0; i < fewer(20); ++i) partners.push_back(static_cast<std::uint16_t>(random.next()));
  with_every_instruction_set([&] {
    for (const std::uint16_t partner : partners) {
      expect_half_arithmetic(DataType::f16, f16_to_f32, f32_to_f16, partner);
      expect_half_arithmetic(DataType::bf16, bf16_to_f32, f32_to_bf16, partner);
    }
  });
}

TEST(Reduce, NamesTheInstructionSetInUse) {
  std::set<std::string> names;
  with_every_instruction_set([&] { names.insert(target_name()); });
  EXPECT_FALSE(names.contains(""));
#if defined(__x86_64__)
  EXPECT_TRUE(names.contains("SSE4"));  // every processor that this is tested on
#endif
}

}  // namespace
}  // namespace talweg::kernel
