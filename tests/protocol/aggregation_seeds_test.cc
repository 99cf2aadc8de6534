// Streaming aggregation over a network that loses, repeats, delays and overtakes, from thousands of seeds.
#include <gtest/gtest.h>

#include "protocol/aggregation_world.h"
#include "sanitized.h"

namespace talweg::protocol {
namespace {

AggregationMarks marks_of_seeds(std::uint64_t first, std::uint64_t seeds) {
  AggregationMarks marks{};
  for (std::uint64_t seed = first; seed < first + seeds; ++seed) {
    AggregationWorld world(seed, AggregationMutation::none);
    world.run();
    for (std::size_t m = 0; m < marks.size(); ++m) marks[m] += world.marks()[m];
    if (!world.problems().empty()) {
      ADD_FAILURE() << world.problems().front() << "\n" << world.describe();
      break;
    }
  }
  return marks;
}

TEST(AggregationSeeds, EverySumIsRightAndEveryRecoveryIsTaken) {
  const AggregationMarks marks = marks_of_seeds(1, kSanitized ? 200 : 2000);
  for (std::size_t m = 0; m < marks.size() && !kSanitized; ++m)
    EXPECT_GT(marks[m], 0U) << kAggregationMarkTexts[m].name << ": " << kAggregationMarkTexts[m].text;
}

TEST(AggregationSeeds, EverySumIsRightForManyMoreSeeds) {
  marks_of_seeds(1'000'001, kSanitized ? 200 : 40'000);
}

// The switch above took the same of three racks' datagrams each time they were sent again, and never the
// rest.
TEST(AggregationSeeds, RacksThatTheSwitchAboveIsTooBusyForAllHaveTheirTurn) {
  marks_of_seeds(2'062'991, 1);
}

void expect_caught(AggregationMutation mutation) {
  constexpr std::uint64_t kMostTries = 400;
  for (std::uint64_t seed = 1; seed <= kMostTries; ++seed) {
    AggregationWorld world(seed, mutation);
    world.run();
    if (!world.problems().empty()) return;
  }
  FAIL() << "not noticed in " << kMostTries << " seeds";
}

TEST(AggregationMutation, EachWayToBreakTheProtocolIsNoticed) {
  for (std::size_t m = 1; m < kAggregationMutations; ++m) {
    SCOPED_TRACE(m);
    expect_caught(static_cast<AggregationMutation>(m));
  }
}

}  // namespace
}  // namespace talweg::protocol
