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

using ::testing::ElementsAre;
using ::testing::SizeIs;

// Losses, runs of them, what is overtaken by up to a hundred others, and copies that come late.
TEST(Gaps, AreSaidOnceAndAsSoonAsOneFurtherOnHasComeThanAnyWasOvertakenBy) {
  EXPECT_LE(std::size_t{Gaps::kMost}, wire::kMaxNames) << "all of them fit into one message";
  Random random(1);
  int learnt = 0;
  for (int turn = 0; turn < 400; ++turn) {
    Gaps gaps{};
    const int before = static_cast<int>(random.below(0x10000));  // and on over the end of 16 bits
    gaps.newest = gaps.judged = static_cast<std::uint16_t>(before);
    const unsigned late = turn % 2 == 0 ? 1000 : 200;     // ten times what it is overtaken by
    std::vector<std::pair<std::uint64_t, int>> arrivals;  // by when
    for (int i = 1, silent = 0; i <= 300; ++i) {
      if (random.uniform() < 0.01) silent = static_cast<int>(random.below(120));
      if (silent-- > 0 || random.uniform() < 0.05) continue;
      const auto when = [&] {
        return 10U * static_cast<unsigned>(i) +
               random.below(random.below(turn % 4 < 2 ? 4 : 20) == 0 ? late : 15);
      };
      arrivals.emplace_back(when(), before + i);
      if (random.uniform() < 0.1) arrivals.emplace_back(when() + random.below(2000), before + i);
    }
    std::sort(arrivals.begin(), arrivals.end());
    std::set<int> came;
    int newest = before, judged = before, overtaken = 0;
    for (const auto& [when, number] : arrivals) {
      std::vector<std::uint16_t> said, expected;
      gaps.came(static_cast<std::uint16_t>(number), [&](std::uint16_t gap) { said.push_back(gap); });
      const bool news = came.insert(number).second;
      if (news && number <= judged && newest - number <= 62) overtaken = std::max(overtaken, newest - number);
      if (number > newest && (number ^ newest) >= int{Gaps::kForget} && overtaken > 0) --overtaken;
      newest = std::max(newest, number);
      const int patience = std::max(3, overtaken + 1);
      learnt = std::max(learnt, patience);
      for (; judged < newest - patience; ++judged)
        if (!came.contains(judged + 1)) expected.push_back(static_cast<std::uint16_t>(judged + 1));
      ASSERT_EQ(said, expected) << turn << ", number " << number - before;
    }
  }
  EXPECT_EQ(learnt, 63) << "as far back as numbers are remembered";
}

TEST(Gaps, WhatIsFilledFromElsewhereIsNotMissedAndSaysNothingOfOthers) {
  Gaps gaps{};
  std::vector<std::uint16_t> said;
  const auto note = [&](std::uint16_t gap) { said.push_back(gap); };
  gaps.came(1, note);
  gaps.came(4, note);
  EXPECT_TRUE(gaps.fill(2));
  EXPECT_FALSE(gaps.fill(2));
  EXPECT_FALSE(gaps.fill(40000)) << "far ahead";
  for (const std::uint16_t number : std::vector<std::uint16_t>{5, 6, 7, 8}) gaps.came(number, note);
  EXPECT_THAT(said, ElementsAre(3));
  EXPECT_TRUE(gaps.fill(3));
  EXPECT_EQ(gaps.overtaken, 0) << "it was sent again";
}

TEST(Gaps, WhatWasOvertakenOnceDoesNotDelayOthersForEver) {
  Gaps gaps{};
  std::vector<std::uint16_t> said;
  unsigned number = 0;
  const auto came = [&](unsigned n) {
    gaps.came(static_cast<std::uint16_t>(n), [&](std::uint16_t gap) { said.push_back(gap); });
  };
  // How many come before the one that does not is missed.
  const auto patience = [&] {
    said.clear();
    number += 2;
    unsigned others = 0;
    while (said.empty() && others < 100) came(number + others++);
    number += others - 1;
    return others;
  };
  EXPECT_EQ(patience(), 3U);
  for (int i = 0; i < 50; ++i) came(++number + 1);
  came(number - 49);
  ++number;
  EXPECT_GT(patience(), 40U);
  for (int i = 0; i < 0x10000; ++i) came(++number);
  EXPECT_EQ(patience(), 3U);
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
