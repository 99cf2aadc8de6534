#include <gtest/gtest.h>

#include <array>

#include "kernel/arrays.h"
#include "kernel/instruction_sets.h"
#include "kernel/reduce.h"

namespace talweg::kernel {
namespace {

class EveryType : public testing::TestWithParam<DataType> {};

INSTANTIATE_TEST_SUITE_P(All, EveryType, testing::ValuesIn(all_types()),
                         [](const auto& instance) { return name(instance.param); });

// The parts of a complex number divide one by one.
template <typename T>
T expected_quotient(T value, int divisor) {
  if constexpr (kIsComplex<T>) {
    return {quotient(value.real, divisor), quotient(value.imaginary, divisor)};
  } else {
    return quotient(value, divisor);
  }
}

TEST_P(EveryType, DividesEachElementAtEveryLengthAndMisalignment) {
  const DataType type = GetParam();
  Random random(23);
  with_every_instruction_set([&] {
    for (std::size_t count = 0; count <= 150; ++count) {
      for (const int divisor : {1, 2, 3, 7, 1000}) {
        Array array(type, count, count % 8);
        array.fill(random);
        Array expected = array;
        if (type != DataType::boolean) {
          visit_type(type, [&]<typename T>(T) {
            for (std::size_t i = 0; i < count; ++i) {
              store(expected.data(), i, expected_quotient(load<T>(expected.data(), i), divisor));
            }
          });
        }
        divide(type, array.data(), count, divisor);
        ASSERT_TRUE(same_elements(array, expected)) << "by " << divisor;
      }
    }
  });
}

TEST(Divide, TruncatesIntegersTowardZero) {
  std::array<std::int32_t, 4> data{7, -7, 8, -1};
  divide(DataType::i32, data.data(), data.size(), 2);
  EXPECT_EQ(data, (std::array<std::int32_t, 4>{3, -3, 4, 0}));
}

TEST(Divide, DividesSmallTypesByMoreThanTheyHold) {
  std::array<std::uint8_t, 2> data{255, 1};
  divide(DataType::u8, data.data(), data.size(), 1000);
  EXPECT_EQ(data, (std::array<std::uint8_t, 2>{0, 0}));
}

TEST(Divide, RoundsFloatsCorrectlyRatherThanMultiplyingByAReciprocal) {
  std::array<float, 40> data{};
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(i) + 5;
  divide(DataType::f32, data.data(), data.size(), 49);
  for (std::size_t i = 0; i < data.size(); ++i) EXPECT_EQ(data[i], (static_cast<float>(i) + 5) / 49.0f);
}

TEST(Divide, LeavesBooleansAlone) {
  std::array<std::uint8_t, 3> data{0, 1, 1};
  divide(DataType::boolean, data.data(), data.size(), 2);
  EXPECT_EQ(data, (std::array<std::uint8_t, 3>{0, 1, 1}));
}

}  // namespace
}  // namespace talweg::kernel
