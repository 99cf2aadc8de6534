#include "kernel/merge.h"

#include <gtest/gtest.h>

#include <map>

#include "kernel/arrays.h"

namespace talweg::kernel {
namespace {

using Keys = std::vector<std::int64_t>;

TEST(Merge, SumsRowsOfOneKeyInTheOrderOfTheStreams) {
  Random random(51);
  for (int round = 0; round < 200; ++round) {
    const std::size_t width = 1 + random.below(5);
    std::vector<Keys> keys(1 + random.below(5));
    std::vector<std::vector<float>> rows(keys.size());
    std::map<std::int64_t, std::vector<float>> expected;
    std::size_t most = 0;
    for (std::size_t s = 0; s < keys.size(); ++s) {
      for (std::int64_t key = 0; key < 40; ++key) {
        if (random.below(3) != 0) continue;
        keys[s].push_back(key);
        auto& sum = expected[key];
        sum.resize(width, -0.0f);
        for (std::size_t i = 0; i < width; ++i) {
          rows[s].push_back(static_cast<float>(random.uniform() - 0.5));
          sum[i] += rows[s].back();
        }
      }
      most += keys[s].size();
    }
    std::vector<KeyedRows> streams;
    for (std::size_t s = 0; s < keys.size(); ++s)
      streams.push_back({keys[s].data(), rows[s].data(), keys[s].size()});
    Keys merged(most);
    std::vector<float> sums(most * width);
    const std::size_t n = merge_rows(streams, DataType::f32, width, merged.data(), sums.data());
    ASSERT_EQ(n, expected.size());
    std::size_t at = 0;
    for (const auto& [key, sum] : expected) {
      ASSERT_EQ(merged[at], key);
      for (std::size_t i = 0; i < width; ++i) ASSERT_EQ(sums[at * width + i], sum[i]);
      ++at;
    }
  }
}

TEST(Merge, OfNothingIsNothing) {
  std::vector<KeyedRows> streams(3);
  EXPECT_EQ(merge_rows(streams, DataType::f64, 4, nullptr, nullptr), 0u);
}

TEST(Merge, KnowsKeysThatAreNone) {
  EXPECT_TRUE(are_keys(Keys{}, 0));
  EXPECT_TRUE(are_keys(Keys{0, 3, 9}, 10));
  EXPECT_FALSE(are_keys(Keys{0, 3, 10}, 10));
  EXPECT_FALSE(are_keys(Keys{3, 3}, 10));
  EXPECT_FALSE(are_keys(Keys{-1, 3}, 10));
  EXPECT_FALSE(are_keys(Keys{5, 3}, 10));
}

}  // namespace
}  // namespace talweg::kernel
