// A bucket lets through what its rate allows, and its waits stay numbers at any rate.
#include "protocol/aggregation/token_bucket.h"

#include <gtest/gtest.h>

namespace talweg::protocol {
namespace {

TEST(TokenBucket, TakesABurstAndThenAsFastAsItsRate) {
  TokenBucket bucket(1000, 500);
  EXPECT_EQ(bucket.take(600, 0), 0);  // what is too much is owed
  const std::int64_t wait_ns = bucket.take(10, 0);
  EXPECT_NEAR(static_cast<double>(wait_ns), 0.1e9, 10);
  // Who comes next comes behind that one.
  EXPECT_NEAR(static_cast<double>(bucket.take(10, 0)), 0.11e9, 10);
  EXPECT_EQ(bucket.take(10, wait_ns + 1'000'000), 0);
}

TEST(TokenBucket, WhatIsChargedIsOwed) {
  TokenBucket bucket(1000, 500);
  bucket.charge(600);
  EXPECT_NEAR(static_cast<double>(bucket.take(10, 0)), 0.1e9, 10);
}

TEST(TokenBucket, SaysWhenSomethingIsLeft) {
  TokenBucket bucket(1000, 500);
  EXPECT_EQ(bucket.ready_ns(), 0);
  bucket.charge(600);
  EXPECT_NEAR(static_cast<double>(bucket.ready_ns()), 0.1e9, 10);
  bucket.charge(500);
  bucket.fill(200'000'000);
  EXPECT_NEAR(static_cast<double>(bucket.ready_ns()), 0.6e9, 10);
  bucket.fill(700'000'000);
  EXPECT_EQ(bucket.ready_ns(), 700'000'000);
  EXPECT_NEAR(static_cast<double>(bucket.duration_ns(100)), 0.1e9, 10);
}

TEST(TokenBucket, HasWaitsAboveZeroAtTheLowestOfRates) {
  for (const double rate : {1e-3, 1e-12, 5e-324}) {
    TokenBucket bucket(rate, 1);
    EXPECT_EQ(bucket.take(1e9, 0), 0);
    for (int i = 0; i < 3; ++i) {
      const std::int64_t wait_ns = bucket.take(1e9, 1'000'000);
      EXPECT_GT(wait_ns, 1'000'000'000'000) << rate;
      EXPECT_LT(wait_ns, 10'000'000'000'000) << rate;
    }
  }
}

}  // namespace
}  // namespace talweg::protocol
