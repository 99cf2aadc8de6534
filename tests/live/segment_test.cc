#include "live/shared/segment.h"

#include <gtest/gtest.h>

#include <set>

namespace talweg::live {
namespace {

class Pool : public ::testing::Test {
 protected:
  Segment segment{Segment::create(2), 2};
  BlockPool pool{segment};
};

TEST_F(Pool, HandsOutEveryLargeBlockOnceAndThenSaysNo) {
  std::set<std::uint32_t> taken;
  for (std::uint32_t i = 0; i < kLarge.blocks; ++i) taken.insert(pool.take(kLarge.bytes));
  EXPECT_EQ(taken.size(), kLarge.blocks);
  EXPECT_FALSE(taken.contains(kNoBlock));
  EXPECT_EQ(pool.take(kLarge.bytes), kNoBlock);
  EXPECT_NE(pool.take(kSmall.bytes), kNoBlock) << "small ones are kept apart";
}

TEST_F(Pool, ReusesABlockOnlyWhenItsLastReaderHasGone) {
  for (std::uint32_t i = 0; i < kLarge.blocks; ++i) {
    const std::uint32_t block = pool.take(kLarge.bytes);
    segment.readers(block).store(2);
    pool.lend(block);
  }
  EXPECT_EQ(pool.take(kLarge.bytes), kNoBlock);
  segment.readers(kSmall.blocks + 3).fetch_sub(1);
  EXPECT_EQ(pool.take(kLarge.bytes), kNoBlock);
  segment.readers(kSmall.blocks + 3).fetch_sub(1);
  EXPECT_EQ(pool.take(kLarge.bytes), kSmall.blocks + 3);
}

TEST_F(Pool, LendsAReaderNoMoreThanItLeavesToTheOthers) {
  std::size_t held = 0;
  while (pool.may_lend(kLarge.bytes, held)) {
    const std::uint32_t block = pool.take(kLarge.bytes);
    segment.readers(block).store(1);
    pool.lend(block);
    ++held;
  }
  EXPECT_EQ(held, kLarge.blocks * 3 / 4);
  EXPECT_TRUE(pool.may_lend(kLarge.bytes, 0)) << "to another reader";
  EXPECT_TRUE(pool.may_lend(kSmall.bytes, 0)) << "small ones are kept apart";
  segment.readers(kSmall.blocks).store(0);
  EXPECT_TRUE(pool.may_lend(kLarge.bytes, held - 1)) << "one was given back";
}

TEST_F(Pool, BlocksDoNotOverlap) {
  for (std::uint32_t b = 0; b + 1 < kBlocks; ++b)
    EXPECT_GE(segment.block(b + 1), segment.block(b) + Segment::block_bytes(b));
  EXPECT_EQ(pool.take(kLarge.bytes + 1), kNoBlock);
}

TEST(Segment, IsSeenByEveryoneWhoMapsIt) {
  const FileDescriptor file = Segment::create(3);
  const Segment a(file, 3);
  const Segment b(file, 3);
  a.ring(2)[5].stamp.store(77);
  a.block(kBlocks - 1)[kLarge.bytes - 1] = std::byte{9};
  EXPECT_EQ(b.ring(2)[5].stamp.load(), 77U);
  EXPECT_EQ(b.block(kBlocks - 1)[kLarge.bytes - 1], std::byte{9});
}

}  // namespace
}  // namespace talweg::live
