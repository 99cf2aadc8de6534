#include "sim/link_turns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace talweg::sim {
namespace {

using ::testing::ElementsAre;

std::vector<int> all_of(LinkTurns<int>& turns) {
  std::vector<int> items;
  while (!turns.empty()) items.push_back(turns.pop());
  return items;
}

TEST(LinkTurns, FlowsTakeTurnsAndEachKeepsItsOrder) {
  LinkTurns<int> turns;
  for (const int item : {10, 11, 12, 13}) turns.push(1, 4, item);
  turns.push(2, 4, 20);
  for (const int item : {30, 31}) turns.push(3, 4, item);
  EXPECT_THAT(all_of(turns), ElementsAre(10, 20, 30, 11, 31, 12, 13));
}

TEST(LinkTurns, WhoHasJustBegunDoesNotWaitForAllThatOthersHave) {
  LinkTurns<int> turns;
  for (const int item : {10, 11, 12}) turns.push(1, 4, item);
  EXPECT_EQ(turns.pop(), 10);
  turns.push(2, 4, 20);
  EXPECT_THAT(all_of(turns), ElementsAre(11, 20, 12));
  turns.push(2, 4, 21);
  EXPECT_THAT(all_of(turns), ElementsAre(21));
}

TEST(LinkTurns, TheMostUrgentClassGoesFirst) {
  LinkTurns<int> turns;
  for (const int item : {10, 11}) turns.push(1, 4, item);
  for (const int item : {12, 13}) turns.push(1, 0, item);
  turns.push(2, 7, 20);
  turns.push(3, 0, 30);
  EXPECT_THAT(all_of(turns), ElementsAre(12, 30, 13, 10, 11, 20));
}

}  // namespace
}  // namespace talweg::sim
