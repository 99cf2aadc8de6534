// Bounded-loss transfers over a way that loses, repeats, damages, delays and overtakes, from many seeds.
#include <gtest/gtest.h>

#include "protocol/bounded/world.h"
#include "sanitized.h"

namespace talweg::protocol {
namespace {

BoundedMarks bounded_marks_of(std::uint64_t first, std::uint64_t seeds) {
  BoundedMarks marks{};
  for (std::uint64_t seed = first; seed < first + seeds; ++seed) {
    BoundedWorld world(seed, BoundedMutation::none);
    world.run();
    for (std::size_t m = 0; m < marks.size(); ++m) marks[m] += world.marks()[m];
    if (!world.problems().empty()) {
      ADD_FAILURE() << world.problems().front() << "\n" << world.describe();
      break;
    }
  }
  return marks;
}

TEST(BoundedSeeds, EveryPromiseIsKeptAndEveryRecoveryIsTaken) {
  const BoundedMarks marks = bounded_marks_of(1, kSanitized ? 40 : 300);
  for (std::size_t m = 0; m < marks.size() && !kSanitized; ++m)
    EXPECT_GT(marks[m], 0U) << kBoundedMarkTexts[m];
}

TEST(BoundedSeeds, EveryPromiseIsKeptForTenThousandSeeds) {
  bounded_marks_of(1'000'001, fewer(fewer(10'000)));
}

void expect_noticed(BoundedMutation mutation) {
  constexpr std::uint64_t kMostTries = 300;
  for (std::uint64_t seed = 1; seed <= kMostTries; ++seed) {
    BoundedWorld world(seed, mutation);
    world.run();
    if (!world.problems().empty()) return;
  }
  FAIL() << "not noticed in " << kMostTries << " seeds";
}

TEST(BoundedSeeds, EachWayToBreakTheProtocolIsNoticed) {
  for (std::size_t m = 1; m < static_cast<std::size_t>(BoundedMutation::count_); ++m) {
    SCOPED_TRACE(m);
    expect_noticed(static_cast<BoundedMutation>(m));
  }
}

}  // namespace
}  // namespace talweg::protocol
