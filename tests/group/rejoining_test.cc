// When a group tries again to join a switch.
#include "group/rejoining.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

namespace talweg::group {
namespace {

TEST(Rejoining, PausesTwiceAsLongAfterEachRefusalUpToHalfAMinute) {
  for (std::uint64_t seed = 0; seed < 50; ++seed)
    for (const bool part : {false, true}) {
      Rejoining rejoining(part, seed);
      const auto first = part ? Rejoining::kFirstOfPart : Rejoining::kFirst;
      for (int round = 0; round < 2; ++round) {
        auto whole = first;
        for (int i = 0; i < 20; ++i, whole = std::min(2 * whole, Rejoining::kLongest)) {
          const auto pause = rejoining.refused();
          EXPECT_LE(pause, whole);
          EXPECT_GE(pause, whole / 2);
          EXPECT_EQ(rejoining.failed(), first) << "what is lost is looked for as often as ever";
        }
        EXPECT_EQ(whole, Rejoining::kLongest);
        rejoining.joined();
      }
    }
}

TEST(Rejoining, HasPausesThatDifferFromGroupToGroup) {
  const auto sum_of_eight = [](std::uint64_t seed) {
    Rejoining rejoining(false, seed);
    Rejoining::Pause all{0};
    for (int i = 0; i < 8; ++i) all += rejoining.refused();
    return all;
  };
  EXPECT_NE(sum_of_eight(1), sum_of_eight(2));
}

// However often each was refused before: the one that has its place is still there at the other's next try,
// or comes back before the other has left.
TEST(Rejoining, RanksThatWereRefusedMeet) {
  for (const bool part : {false, true}) {
    const auto longest_pause = Rejoining::kLongest;
    Rejoining often(part, 1), once(part, 2), never(part, 3);
    for (int i = 0; i < 30; ++i) often.refused();
    once.refused();
    EXPECT_GT(once.window(), longest_pause);
    EXPECT_GT(often.window(), longest_pause);
    EXPECT_GT(often.window(), never.failed());
    EXPECT_EQ(never.window(), Rejoining::kWindow);
    EXPECT_GT(never.window(), never.failed());
    often.joined();
    EXPECT_EQ(often.window(), Rejoining::kWindow);
  }
}

TEST(Rejoining, OfThePartsOfAGroupIsLaterThanItsOwn) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Rejoining whole(false, seed), part(true, seed + 1);
    EXPECT_LT(whole.failed() + whole.refused(), part.failed());
    EXPECT_LT(Rejoining(false, seed).refused(), Rejoining(true, seed + 1).refused());
  }
}

}  // namespace
}  // namespace talweg::group
