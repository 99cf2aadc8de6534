#include "kernel/selection.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "kernel/arrays.h"
#include "kernel/gradient_block.h"
#include "kernel/instruction_sets.h"

namespace talweg::kernel {
namespace {

using Indices = std::vector<std::uint32_t>;

// By sorting: the definition.
Indices sorted_top_k(const Array& values, std::size_t k) {
  Indices order(values.count());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return magnitude_bits(load<float>(values.data(), a)) > magnitude_bits(load<float>(values.data(), b));
  });
  order.resize(k);
  std::sort(order.begin(), order.end());
  return order;
}

// Few different values, so that many are equal, or any bits at all.
void fill_with_ties(Array& array, Random& random) {
  if (random.below(2) == 0) return array.fill(random);
  for (std::size_t i = 0; i < array.count(); ++i)
    store(array.data(), i, static_cast<float>(static_cast<int>(random.below(9)) - 4));
}

TEST(TopK, IsExactWithTiesByIndexAtEveryLengthAndMisalignment) {
  Random random(41);
  with_every_instruction_set([&] {
    for (std::size_t count = 0; count < 400; count += 1 + random.below(5)) {
      Array values(DataType::f32, count, random.below(8));
      fill_with_ties(values, random);
      for (const std::size_t k : {std::size_t{0}, count / 100, count / 3, count}) {
        Indices found(k);
        top_k(values.data(), count, k, found.data());
        ASSERT_EQ(found, sorted_top_k(values, k)) << k << " of " << count;
      }
    }
  });
}

TEST(TopK, TellsValuesApartThatDifferInTheirLastBit) {
  std::vector<float> values(3000, 1.0f);
  values[1234] = std::nextafter(1.0f, 2.0f);
  values[77] = -values[1234];
  Indices found(3);
  top_k(values.data(), values.size(), 3, found.data());
  EXPECT_EQ(found, (Indices{0, 77, 1234}));
}

TEST(TopK, TakesNaNFirstThenInfinities) {
  std::vector<float> values{1e30f, -std::numeric_limits<float>::infinity(), 3, std::nanf(""), 4};
  Indices found(2);
  top_k(values.data(), values.size(), 2, found.data());
  EXPECT_EQ(found, (Indices{1, 3}));
}

TEST(AtLeast, FindsAsThePlainLoopAtEveryLengthAndMisalignment) {
  Random random(42);
  with_every_instruction_set([&] {
    for (std::size_t count = 0; count < 300; ++count) {
      Array values(DataType::f32, count, count % 8);
      fill_with_ties(values, random);
      for (const float least : {0.0f, std::numeric_limits<float>::denorm_min(), 2.0f, 50.0f}) {
        Indices found(count), expected(count);
        const std::size_t n = at_least(values.data(), count, least, found.data());
        ASSERT_EQ(n, at_least_scalar(values.data(), count, least, expected.data()));
        ASSERT_EQ(at_least(values.data(), count, least, nullptr), n);
        ASSERT_EQ(found, expected);
      }
    }
  });
}

TEST(RandomK, TakesEachElementEquallyOftenAndNoneTwice) {
  constexpr std::size_t kCount = 130, kTaken = 40, kDraws = 4000;
  std::vector<std::uint64_t> marks(words_of_marks(kCount));
  std::vector<int> times(kCount);
  for (std::uint64_t seed = 0; seed < kDraws; ++seed) {
    Indices found(kTaken);
    random_k(kCount, kTaken, seed, marks.data(), found.data());
    ASSERT_TRUE(std::is_sorted(found.begin(), found.end(), std::less_equal<>()));
    for (const std::uint32_t i : found) ++times.at(i);
  }
  // Binomial: mean 1231, standard deviation 29; five of them.
  for (const int n : times) EXPECT_NEAR(n, 1231, 146);
}

TEST(RandomK, IsTheSameForASeedAndTakesAllWhereAskedTo) {
  std::vector<std::uint64_t> marks(words_of_marks(100));
  Indices a(10), b(10), other(10), all(100);
  random_k(100, 10, 7, marks.data(), a.data());
  random_k(100, 10, 7, marks.data(), b.data());
  random_k(100, 10, 8, marks.data(), other.data());
  random_k(100, 100, 7, marks.data(), all.data());
  EXPECT_EQ(a, b);
  EXPECT_NE(a, other);
  EXPECT_EQ(all, sorted_top_k(Array(DataType::f32, 100, 0), 100));
}

TEST(BlockNorms, AreThoseOfThePlainLoopAtEveryLengthAndMisalignment) {
  Random random(43);
  with_every_instruction_set([&] {
    for (const std::size_t block : {1u, 3u, 16u, 64u, 100u}) {
      for (std::size_t count = 0; count < 300; count += 1 + random.below(7)) {
        Array values(DataType::f32, count, random.below(8));
        fill_with_ties(values, random);
        const std::size_t blocks = (count + block - 1) / block;
        Array norms(DataType::f32, blocks, 0), expected(DataType::f32, blocks, 0);
        block_norms(values.data(), count, block, static_cast<float*>(norms.data()));
        block_norms_scalar(values.data(), count, block, static_cast<float*>(expected.data()));
        ASSERT_TRUE(same_elements(norms, expected)) << count << " in blocks of " << block;
      }
    }
  });
}

TEST(BlockNorms, AreSumsOfSquares) {
  std::vector<float> values(20, 2.0f), norms(2);
  block_norms(values.data(), values.size(), 16, norms.data());
  EXPECT_EQ(norms, (std::vector<float>{64, 16}));
}

TEST(KeepFinite, TakesWhatIsFiniteAtEveryLengthAndMisalignment) {
  Random random(44);
  with_every_instruction_set([&] {
    for (std::size_t count = 0; count < 150; ++count) {
      Array values(DataType::f32, count, count % 8), residual(DataType::f32, count, count % 5);
      values.fill(random);
      residual.fill(random);
      Array expected = residual;
      for (std::size_t i = 0; i < count; ++i) {
        const auto value = load<float>(values.data(), i);
        if (magnitude_bits(value) < kInfinityBits) store(expected.data(), i, value);
      }
      keep_finite(values.data(), residual.data(), count);
      ASSERT_TRUE(same_elements(residual, expected));
    }
  });
}

}  // namespace
}  // namespace talweg::kernel
