#include "kernel/blocks.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "kernel/arrays.h"
#include "kernel/instruction_sets.h"

namespace talweg::kernel {
namespace {

constexpr std::size_t kLongest = 150;

bool zero_by_value(const Array& array, std::size_t first, std::size_t count) {
  return visit_type(array.type(), [&]<typename T>(T) {
    for (std::size_t i = first; i < first + count; ++i) {
      const T value = load<T>(array.data(), i);
      if constexpr (kIsComplex<T>) {
        if (value.real != 0 || value.imaginary != 0) return false;
      } else if (widen(value) != 0) {
        return false;
      }
    }
    return true;
  });
}

template <typename T>
void set_value(Array& array, std::size_t i, double value) {
  if constexpr (kIsComplex<T>)
    store(array.data(), i, T{0, static_cast<decltype(T::real)>(value)});
  else
    store(array.data(), i, narrow<T>(static_cast<decltype(widen(T{}))>(value)));
}

TEST(Blocks, AreZeroExactlyWhereEveryValueIsZeroOfEitherSign) {
  with_every_instruction_set([] {
    Random random(31);
    for (const DataType type : all_types()) {
      for (std::size_t count = 0; count < kLongest; ++count) {
        Array array(type, count, count % 5);
        const std::size_t block = 1 + random.below(40);
        for (std::size_t i = 0; i < count; ++i)
          visit_type(type,
                     [&]<typename T>(T) { set_value<T>(array, i, random.below(2 * block) == 0 ? 1 : -0.0); });
        EXPECT_EQ(is_zero(type, array.data(), count), zero_by_value(array, 0, count)) << name(type);
        const std::size_t blocks = (count + block - 1) / block;
        std::vector<std::uint64_t> bitmap(bitmap_words(blocks) + 1, ~std::uint64_t{0});
        nonzero_blocks(type, array.data(), count, block, bitmap.data());
        for (std::size_t b = 0; b < bitmap_words(blocks) * 64; ++b) {
          const bool zero =
              b >= blocks || zero_by_value(array, b * block, std::min(block, count - b * block));
          ASSERT_EQ(bitmap[b / 64] >> (b % 64) & 1, zero ? 0U : 1U)
              << name(type) << " block " << b << " of " << blocks;
        }
        EXPECT_EQ(bitmap.back(), ~std::uint64_t{0}) << "what lies behind the bitmap was touched";
      }
    }
  });
}

TEST(Blocks, ANumberAnywhereIsFoundHoweverSmall) {
  with_every_instruction_set([] {
    for (std::size_t count = 1; count < kLongest; ++count) {
      for (std::size_t at = 0; at < count; ++at) {
        std::vector<float> data(count, -0.0F);
        EXPECT_TRUE(is_zero(DataType::f32, data.data(), count));
        data[at] = std::numeric_limits<float>::denorm_min();
        ASSERT_FALSE(is_zero(DataType::f32, data.data(), count)) << at << " of " << count;
        ASSERT_EQ(max_magnitude(data.data(), count), 1U);
      }
    }
  });
}

TEST(Blocks, EachElementThatIsNotZeroIsFound) {
  with_every_instruction_set([] {
    Random random(33);
    for (std::size_t count = 0; count <= 64; ++count) {
      Array array(DataType::f32, count, count % 4);
      std::uint64_t expected = 0;
      for (std::size_t i = 0; i < count; ++i) {
        constexpr float kNumbers[] = {std::numeric_limits<float>::denorm_min(), -1,
                                      std::numeric_limits<float>::quiet_NaN(), 0.0F, -0.0F};
        const std::size_t which = random.below(5);
        store(array.data(), i, kNumbers[which]);
        expected |= std::uint64_t{which < 3} << i;
      }
      EXPECT_EQ(nonzero_elements(array.data(), count), expected) << count;
    }
  });
}

TEST(Blocks, TheLargestMagnitudeIsFoundAndNoNumberIsLargerThanAll) {
  with_every_instruction_set([] {
    Random random(32);
    for (std::size_t count = 0; count < kLongest; ++count) {
      Array array(DataType::f32, count, count % 4);
      array.fill(random);
      std::uint32_t largest = 0;
      for (std::size_t i = 0; i < count; ++i)
        largest = std::max(largest, load<std::uint32_t>(array.data(), i) & 0x7fffffffU);
      EXPECT_EQ(max_magnitude(array.data(), count), largest);
    }
    const float infinite[] = {1, -std::numeric_limits<float>::infinity()};
    EXPECT_EQ(max_magnitude(infinite, 2), kNotFiniteBits);
    const float nan[] = {std::nanf(""), std::numeric_limits<float>::infinity()};
    EXPECT_GT(max_magnitude(nan, 2), kNotFiniteBits);
  });
}

TEST(Blocks, IntegersAreRoundedToNearestEvenAndHeldWithinTheLimit) {
  with_every_instruction_set([] {
    Random random(33);
    for (std::size_t count = 0; count < kLongest; ++count) {
      Array in(DataType::f32, count, count % 3), ints(DataType::i32, count, count % 4);
      for (std::size_t i = 0; i < count; ++i) {
        double value = (random.uniform() * 2 - 1) * 1000;
        if (random.below(3) == 0) value = std::floor(value) + 0.5;
        store(in.data(), i, static_cast<float>(value));
      }
      quantise(ints.data(), in.data(), count, 4, 3000);
      for (std::size_t i = 0; i < count; ++i) {
        const double scaled = static_cast<double>(load<float>(in.data(), i)) * 4;
        const double expected = std::min(std::max(std::nearbyint(scaled), -3000.0), 3000.0);
        ASSERT_EQ(load<std::int32_t>(ints.data(), i), static_cast<std::int32_t>(expected)) << scaled;
      }
    }
  });
}

// Of 2^31 - 1 no float is left: the next one is 2^31, whose integer would wrap.
TEST(Blocks, AValueAtTheLimitDoesNotWrap) {
  with_every_instruction_set([] {
    for (const std::int32_t limit : {std::numeric_limits<std::int32_t>::max(), (1 << 30) - 1, 715827882}) {
      std::vector<float> data(37, 0x1p31F);
      data[5] = -0x1p31F;
      std::vector<std::int32_t> ints(37);
      quantise(ints.data(), data.data(), data.size(), 1, limit);
      for (const std::int32_t i : ints) {
        EXPECT_LE(std::abs(static_cast<std::int64_t>(i)), limit);
        EXPECT_GT(std::abs(static_cast<std::int64_t>(i)), limit - 128);
      }
      EXPECT_EQ(ints[5], -ints[0]);
    }
  });
}

TEST(Blocks, IntegersComeBackAsTheNearestFloatTimesTheScale) {
  with_every_instruction_set([] {
    Random random(34);
    for (std::size_t count = 0; count < kLongest; ++count) {
      Array ints(DataType::i32, count, count % 3), out(DataType::f32, count, count % 4);
      ints.fill(random);
      dequantise(out.data(), ints.data(), count, 0x1p-126F);
      for (std::size_t i = 0; i < count; ++i)
        ASSERT_EQ(load<float>(out.data(), i),
                  static_cast<float>(load<std::int32_t>(ints.data(), i)) * 0x1p-126F);
    }
  });
}

TEST(Blocks, WordsAreSwappedAlsoInPlace) {
  with_every_instruction_set([] {
    Random random(35);
    for (std::size_t count = 0; count < kLongest; ++count) {
      Array in(DataType::u32, count, count % 3), out(DataType::u32, count, count % 4);
      in.fill(random);
      swap_words(out.data(), in.data(), count);
      for (std::size_t i = 0; i < count; ++i)
        ASSERT_EQ(load<std::uint32_t>(out.data(), i), __builtin_bswap32(load<std::uint32_t>(in.data(), i)));
      swap_words(out.data(), out.data(), count);
      ASSERT_TRUE(same_elements(out, in));
    }
  });
}

TEST(Blocks, SixteenBitFloatsAreSummedInFloat32) {
  with_every_instruction_set([] {
    Random random(36);
    for (const DataType type : {DataType::f16, DataType::bf16, DataType::f32}) {
      for (std::size_t count = 0; count < kLongest; ++count) {
        Array a(type, count, 1), b(type, count, 0), expected(type, count, 0), out(type, count, 3);
        a.fill(random);
        b.fill(random);
        std::vector<float> sums(count);
        widen(type, sums.data(), a.data(), count);
        add_widened(type, sums.data(), b.data(), count);
        narrow(type, out.data(), sums.data(), count);
        reduce_scalar(type, ReduceOp::sum, expected.data(), a.data(), b.data(), count);
        ASSERT_TRUE(same_elements(out, expected)) << name(type) << " count " << count;
      }
    }
  });
}

}  // namespace
}  // namespace talweg::kernel
