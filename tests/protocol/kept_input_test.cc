// The input of a sum in place comes back, whatever of it was overwritten before and in whichever order.
#include "protocol/aggregation/kept_input.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/random.h"

namespace talweg::protocol {
namespace {

std::vector<std::byte> counted(std::size_t size) {
  std::vector<std::byte> data(size);
  for (std::size_t i = 0; i < size; ++i) data[i] = static_cast<std::byte>(i * 7 + i / 251);
  return data;
}

TEST(KeptInput, HasWhatWasThereBeforeTheFirstTimeItWasOverwritten) {
  Random random(3);
  for (const std::size_t size : {1U, 4095U, 4096U, 4097U, 100'000U}) {
    const std::vector<std::byte> before = counted(size);
    std::vector<std::byte> data = before;
    KeptInput kept;
    ASSERT_TRUE(kept.reset(data.data(), size));
    for (int i = 0; i < 200; ++i) {
      const std::size_t first = random.below(size),
                        count = random.below(std::min<std::size_t>(size - first, 3000) + 1);
      kept.keep(first, count);
      std::fill_n(data.begin() + static_cast<std::ptrdiff_t>(first), count, static_cast<std::byte>(i));
    }
    EXPECT_NE(data, before);
    kept.give_back();
    EXPECT_EQ(data, before) << size;
  }
}

TEST(KeptInput, WhatWasNotOverwrittenIsLeftAlone) {
  std::vector<std::byte> data = counted(20'000);
  KeptInput kept;
  ASSERT_TRUE(kept.reset(data.data(), data.size()));
  kept.keep(5000, 100);
  kept.keep(9000, 0);
  data[19'000] = static_cast<std::byte>(data[19'000] ^ std::byte{1});  // its owner's, meanwhile
  const std::vector<std::byte> now = data;
  kept.give_back();
  EXPECT_EQ(data, now);
}

TEST(KeptInput, IsOfTheVectorThatWasResetLast) {
  std::vector<std::byte> first = counted(10'000), second = counted(30'000);
  const std::vector<std::byte> before = second;
  KeptInput kept;
  kept.keep(0, 100);  // nothing has been reset
  kept.give_back();
  ASSERT_TRUE(kept.reset(first.data(), first.size()));
  kept.keep(0, first.size());
  ASSERT_TRUE(kept.reset(second.data(), second.size()));
  first.assign(first.size(), std::byte{1});
  kept.keep(8000, 12'000);
  std::fill_n(second.begin() + 8000, 12'000, std::byte{2});
  kept.give_back();
  EXPECT_EQ(second, before);
  EXPECT_EQ(first, std::vector<std::byte>(first.size(), std::byte{1}));
}

}  // namespace
}  // namespace talweg::protocol
