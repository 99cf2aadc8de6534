#include "study/side_by_side.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <stdexcept>

namespace talweg::study {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

void for_ever(const HandOver&) {
  for (;;) pause();
}

TEST(SideBySide, EveryPieceHandsOverItsOwnLines) {
  std::vector<Work> pieces;
  for (int i = 0; i < 20; ++i)
    pieces.emplace_back([i](const HandOver& hand_over) {
      hand_over(std::to_string(i));
      hand_over("");
      hand_over(std::string(200'000, 'x'));  // more than a pipe holds
    });
  const auto results = side_by_side(pieces, 300);
  ASSERT_EQ(results.size(), 20u);
  for (std::size_t i = 0; i < 20; ++i) {
    EXPECT_EQ(results[i].failure, "");
    EXPECT_THAT(results[i].lines, ElementsAre(std::to_string(i), "", std::string(200'000, 'x')));
  }
}

TEST(SideBySide, OneThatHangsIsEndedAndKeepsWhatItHandedOver) {
  const auto results = side_by_side({[](const HandOver& hand_over) {
                                       hand_over("begun");
                                       for_ever(hand_over);
                                     },
                                     [](const HandOver& hand_over) { hand_over("done"); }},
                                    5);
  EXPECT_EQ(results[0].failure, "not done within 5 s");
  EXPECT_THAT(results[0].lines, ElementsAre("begun"));
  EXPECT_EQ(results[1].failure, "");
  EXPECT_THAT(results[1].lines, ElementsAre("done"));
}

TEST(SideBySide, SaysWhatAPieceThrewAndWhatEndedIt) {
  const auto results = side_by_side({[](const HandOver& hand_over) {
                                       hand_over("first");
                                       throw std::runtime_error("no\nway");
                                     },
                                     [](const HandOver&) { raise(SIGKILL); }},
                                    300);
  EXPECT_EQ(results[0].failure, "no way");
  EXPECT_THAT(results[0].lines, ElementsAre("first"));
  EXPECT_THAT(results[1].failure, HasSubstr("ended by signal 9"));
  EXPECT_THAT(results[1].lines, IsEmpty());
}

TEST(SideBySide, WhoLooksSeesWhatAPieceHasHandedOverBeforeItHasEnded) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const Work waits = [&](const HandOver& hand_over) {
    hand_over("a");
    hand_over("b");
    char seen = 0;
    if (::read(ends[0], &seen, 1) == 1) hand_over("c");
  };
  int told = 0;
  std::vector<WorkState> last;
  const auto look = [&](const std::vector<WorkState>& states) {
    last = states;
    const bool both = states.at(0).lines == 2 && !states.at(0).ended;
    if (both && states.at(1).ended && told++ == 0) {
      EXPECT_EQ(::write(ends[1], "!", 1), 1);
    }
  };
  const Work ends_soon = [](const HandOver& hand_over) { hand_over("d"); };
  const auto results =
      side_by_side({waits, ends_soon}, 300, std::chrono::steady_clock::now(), SIZE_MAX, look);
  EXPECT_GT(told, 0);
  EXPECT_EQ(results[0].failure, "") << "nobody saw two lines of it";
  EXPECT_THAT(results[0].lines, ElementsAre("a", "b", "c"));
  ASSERT_EQ(last.size(), 2U);
  EXPECT_EQ(last[1].lines, 1U) << "that it is done is no line of its own";
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(SideBySide, NothingIsBegunWithoutTime) {
  const auto results = side_by_side({for_ever, for_ever}, 0);
  EXPECT_EQ(results[0].failure, "not done within 0 s");
  EXPECT_EQ(results.size(), 2u);
}

}  // namespace
}  // namespace talweg::study
