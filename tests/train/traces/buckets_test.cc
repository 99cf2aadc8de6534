#include "train/traces/buckets.h"

#include <gtest/gtest.h>

#include "base/random.h"

namespace talweg::train {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

Groups groups_of(const std::vector<Bytes>& sizes, Bytes first_cap, Bytes cap) {
  std::vector<Arrival> arrivals;
  for (const Bytes size : sizes) arrivals.push_back({0, static_cast<double>(size.value)});
  return merge_by_size(arrivals, first_cap, cap);
}

TEST(DdpBuckets, AreMatchedOnlyWhereTheyAddUp) {
  const std::vector<std::int64_t> elements = {1, 2, 3, 4};
  EXPECT_EQ(match_buckets(elements, std::vector<std::int64_t>{3, 7}), (Groups{2, 4}));
  EXPECT_EQ(match_buckets(elements, std::vector<std::int64_t>{4, 6}), std::nullopt);
  EXPECT_EQ(match_buckets(elements, std::vector<std::int64_t>{3}), std::nullopt);
  EXPECT_EQ(match_buckets(elements, std::vector<std::int64_t>{3, 7, 1}), (Groups{2, 4, 4}));
  EXPECT_EQ(match_buckets(std::vector<std::int64_t>{-1, 2}, std::vector<std::int64_t>{1}), std::nullopt);
}

TEST(DdpBuckets, AreFoundAmongTransfersOfSomethingElse) {
  const std::vector<std::int64_t> elements = {5, 2, 3, 4};
  EXPECT_EQ(match_buckets(elements, std::vector<std::int64_t>{1, 7, 6, 7, 1}), (Groups{0, 2, 2, 4, 4}));
  EXPECT_EQ(match_buckets(elements, std::vector<std::int64_t>{7, 7}), (Groups{2, 4}));
  EXPECT_EQ(match_buckets(elements, std::vector<std::int64_t>{1, 7}), std::nullopt);
  EXPECT_EQ(match_buckets(elements, std::vector<std::int64_t>{8, 6}), std::nullopt);
}

TEST(DdpBuckets, TellTheCapsThatMadeThem) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Random random(seed);
    std::vector<Bytes> sizes;
    for (std::uint64_t i = 0; i < 20 + random.below(100); ++i)
      sizes.push_back({4 * static_cast<std::int64_t>(1 + random.below(3'000'000))});
    const Bytes cap{kMiB * static_cast<std::int64_t>(1 + random.below(60))};
    const Groups groups = groups_of(sizes, kFirstBucketCap, cap);
    const auto caps = caps_of(sizes, groups);
    ASSERT_TRUE(caps) << seed;
    EXPECT_EQ(groups_of(sizes, caps->first, caps->others), groups) << seed;
  }
}

TEST(DdpBuckets, ThatNoCapMakesHaveNone) {
  const std::vector<Bytes> sizes = {{2 * kMiB}, {kMiB}, {kMiB}, {9 * kMiB}, {kMiB}, {kMiB}};
  EXPECT_EQ(caps_of(sizes, Groups{1, 2, 5, 6}), std::nullopt);
}

}  // namespace
}  // namespace talweg::train
