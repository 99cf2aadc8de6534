// Numbers that have not come are named, whatever overtakes whatever.
#include "protocol/aggregation/gaps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "base/random.h"
#include "wire/aggregation.h"

namespace talweg::protocol {
namespace {

using ::testing::SizeIs;

// Losses, runs of them, what is overtaken by up to a hundred others, and copies that come late.
TEST(Gaps, AreSaidOnceAndAsSoonAsOneThatIsThreeNumbersOnHasCome) {
  EXPECT_LE(std::size_t{Gaps::kMost}, wire::kMaxMissingWorkers) << "all of them fit into one message";
  Random random(1);
  for (int turn = 0; turn < 300; ++turn) {
    Gaps gaps{};
    const int before = static_cast<int>(random.below(0x10000));  // and on over the end of 16 bits
    gaps.newest = static_cast<std::uint16_t>(before);
    std::vector<std::pair<std::uint64_t, int>> arrivals;  // by when
    for (int i = 1, silent = 0; i <= 300; ++i) {
      if (random.uniform() < 0.01) silent = static_cast<int>(random.below(120));
      if (silent-- > 0 || random.uniform() < 0.05) continue;
      const auto when = [&] {
        return 10U * static_cast<unsigned>(i) + random.below(random.below(4) == 0 ? 1000 : 15);
      };
      arrivals.emplace_back(when(), before + i);
      if (random.uniform() < 0.1) arrivals.emplace_back(when() + random.below(2000), before + i);
    }
    std::sort(arrivals.begin(), arrivals.end());
    std::set<int> came;
    int newest = before, told = before - 3;  // nothing is said of what was before
    for (const auto& [when, number] : arrivals) {
      std::vector<std::uint16_t> said, expected;
      gaps.came(static_cast<std::uint16_t>(number), [&](std::uint16_t gap) { said.push_back(gap); });
      came.insert(number);
      newest = std::max(newest, number);
      for (; told < newest - 3; ++told)
        if (told + 1 > before && !came.contains(told + 1))
          expected.push_back(static_cast<std::uint16_t>(told + 1));
      ASSERT_EQ(said, expected) << turn << ", number " << number - before;
    }
  }
}

TEST(Gaps, OfALongSilenceTheEndIsNamed) {
  Gaps gaps{};
  std::vector<std::uint16_t> said;
  const auto note = [&](std::uint16_t gap) { said.push_back(gap); };
  gaps.came(1, note);
  gaps.came(1001, note);
  ASSERT_THAT(said, SizeIs(Gaps::kMost));
  EXPECT_EQ(said.front(), 998 - Gaps::kMost + 1);
  EXPECT_EQ(said.back(), 998);
  gaps.came(1002, note);
  EXPECT_EQ(said.back(), 999);
  EXPECT_THAT(said, SizeIs(Gaps::kMost + 1));
}

}  // namespace
}  // namespace talweg::protocol
