#include "base/random.h"

#include <gtest/gtest.h>

#include <array>

namespace talweg {
namespace {

TEST(Random, RepeatsItselfForTheSameSeedAndStream) {
  Random a(1, 2), b(1, 2);
  for (int i = 0; i < 100; ++i) ASSERT_EQ(a.next(), b.next());
}

TEST(Random, DiffersBetweenSeedsAndBetweenStreams) {
  Random a(1), b(2), c(1, 1);
  const std::uint64_t first = a.next();
  EXPECT_NE(first, b.next());
  EXPECT_NE(first, c.next());
}

TEST(Random, StaysBelowItsBoundAndReachesEveryValueAboutEquallyOften) {
  Random random(3);
  std::array<int, 7> counts{};
  for (int i = 0; i < 70'000; ++i) {
    const std::uint64_t value = random.below(7);
    ASSERT_LT(value, 7u);
    ++counts[value];
  }
  // 5 standard deviations of a binomial with p = 1/7; the seed is fixed, so this either always passes or
  // never.
  for (const int count : counts) EXPECT_NEAR(count, 10'000, 463);
}

TEST(Random, IsUniformBetweenZeroAndOne) {
  Random random(4);
  double sum = 0;
  for (int i = 0; i < 100'000; ++i) {
    const double value = random.uniform();
    ASSERT_GE(value, 0.0);
    ASSERT_LT(value, 1.0);
    sum += value;
  }
  EXPECT_NEAR(sum / 100'000, 0.5, 0.005);
}

}  // namespace
}  // namespace talweg
