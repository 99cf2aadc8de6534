#include "study/sizes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "talweg/error.h"

namespace talweg::study {
namespace {

using testing::ElementsAre;

TEST(Sizes, AreListsAndRangesThatGrowByAFactor) {
  EXPECT_THAT(parse_sizes("64K,1M", 4), ElementsAre(64 << 10, 1 << 20));
  EXPECT_THAT(parse_sizes("4K..256K", 4), ElementsAre(4 << 10, 16 << 10, 64 << 10, 256 << 10));
  EXPECT_THAT(parse_sizes("4K..16K", 2), ElementsAre(4 << 10, 8 << 10, 16 << 10));
  EXPECT_THAT(parse_sizes("4K..100K", 4), ElementsAre(4 << 10, 16 << 10, 64 << 10, 100 << 10));
  EXPECT_THAT(parse_sizes("1M,4K..64K,16K", 4), ElementsAre(4 << 10, 16 << 10, 64 << 10, 1 << 20));
  EXPECT_THAT(parse_sizes("8..8", 4), ElementsAre(8));
  EXPECT_EQ(parse_sizes("1..9000000000000000000", 4).back(), 9000000000000000000);
  for (const char* bad : {"", "0..4K", "..", "4K..", "..4K", "1M..4K", "4K,,8K", "-4", "nan", "1e400"})
    EXPECT_THROW(parse_sizes(bad, 2), Error) << bad;
  EXPECT_THAT(parse_sizes("4..300", 4, 20), ElementsAre(64, 256, 300));
  EXPECT_THAT(parse_sizes("4,8..16", 4, 20), ElementsAre(4, 16));
}

TEST(Sizes, RanksAreListsAndRangesThatDouble) {
  EXPECT_THAT(parse_ranks("8", 64), ElementsAre(8));
  EXPECT_THAT(parse_ranks("16,2..12", 64), ElementsAre(2, 4, 8, 12, 16));
  for (const char* bad : {"", "0", "1", "65", "2..128", "4..2", "2..", "-4", "2.5", "8 16", "1..8", "many"}) {
    try {
      parse_ranks(bad, 64);
      ADD_FAILURE() << bad;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::StartsWith("--ranks: ")) << bad;
    }
  }
}

TEST(Sizes, MoreThanATableHoldsAreRefused) {
  std::string many;
  for (int i = 0; i < 101; ++i) many += std::to_string(i + 1) + ",";
  EXPECT_THROW(parse_sizes(many, 2), Error);
}

}  // namespace
}  // namespace talweg::study
