#include "study/choices.h"

#include <gmock/gmock.h>

#include "base/units.h"
#include "forest/planner.h"

namespace talweg::study {
namespace {

using testing::HasSubstr;

TEST(Choices, EachSizeListsCandidatesFromCheapToDear) {
  const auto network = cluster::uniform_star(4, Bandwidth{1e9}, Nanoseconds{30'000});
  const auto list = choices(Collective::all_reduce, network);
  ASSERT_EQ(list.size(), 8u);
  EXPECT_EQ(list.front().bytes, 4096u);
  EXPECT_EQ(list.back().bytes, 64u << 20);
  for (const auto& choice : list) {
    ASSERT_GT(choice.candidates.size(), 1u);
    for (std::size_t i = 1; i < choice.candidates.size(); ++i)
      EXPECT_LE(choice.candidates[i - 1].seconds, choice.candidates[i].seconds);
  }
}

TEST(Choices, TheFirstCandidateIsWhatTheGroupWouldTake) {
  const auto network = cluster::uniform_star(4, Bandwidth{1e9}, Nanoseconds{30'000});
  for (const auto& choice : choices(Collective::all_reduce, network))
    EXPECT_EQ(choice.candidates.front().planner,
              forest::plan_best(request_for(Collective::all_reduce, 4, choice.bytes), network).planner);
}

TEST(Choices, EveryCollectiveHasSomebodyToServeIt) {
  const auto network = cluster::uniform_mesh(4, Bandwidth{1e9}, Nanoseconds{1000});
  for (int i = 0; i < kCollectives; ++i) {
    const auto op = static_cast<Collective>(i);
    for (const auto& choice : choices(op, network)) EXPECT_FALSE(choice.candidates.empty()) << name(op);
  }
}

TEST(Choices, TheTableNamesTheTakenAndTheNextBest) {
  const std::vector<Choice> list = {{4096, {{"one_hop", 1e-5}, {"ring", 4e-5}}}};
  EXPECT_THAT(to_text(Collective::all_reduce, list),
              HasSubstr("       4 KiB  one_hop                       10.0  ring                          40.0"
                        "    4.00x\n"));
}

}  // namespace
}  // namespace talweg::study
