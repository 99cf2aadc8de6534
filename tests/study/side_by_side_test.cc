#include "study/side_by_side.h"

#include <gmock/gmock.h>
#include <unistd.h>

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

TEST(SideBySide, NothingIsBegunWithoutTime) {
  const auto results = side_by_side({for_ever, for_ever}, 0);
  EXPECT_EQ(results[0].failure, "not done within 0 s");
  EXPECT_EQ(results.size(), 2u);
}

}  // namespace
}  // namespace talweg::study
