#include "protocol/session/mailbox.h"

#include <gtest/gtest.h>

namespace talweg::protocol {
namespace {

Envelope message(int source, std::uint32_t tag, std::uint64_t number) {
  return {source, tag, number, {}};
}

TEST(Mailbox, MatchesByTagAndSourceInTheOrderOfArrival) {
  Mailbox box;
  bool full = false;
  EXPECT_FALSE(box.announce(message(1, 5, 100), full));
  EXPECT_FALSE(box.announce(message(1, 5, 101), full));
  EXPECT_FALSE(box.announce(message(2, 5, 200), full));
  EXPECT_FALSE(box.post(7, 1, 6));
  EXPECT_EQ(box.post(8, 2, 5)->number, 200U);
  EXPECT_EQ(box.post(9, kAnySource, 5)->number, 100U);
  EXPECT_EQ(box.post(10, 1, 5)->number, 101U);
  EXPECT_FALSE(box.post(11, 1, 5));
}

TEST(Mailbox, AReceiveThatWaitsGetsTheFirstMessageThatFits) {
  Mailbox box;
  bool full = false;
  EXPECT_FALSE(box.post(1, 3, 0));
  EXPECT_FALSE(box.post(2, kAnySource, 0));
  EXPECT_EQ(*box.announce(message(4, 0, 1), full), 2U);
  EXPECT_EQ(*box.announce(message(3, 0, 1), full), 1U);
}

TEST(Mailbox, AWithdrawnReceiveTakesNothing) {
  Mailbox box;
  bool full = false;
  EXPECT_FALSE(box.post(1, 0, 0));
  box.withdraw(1);
  EXPECT_FALSE(box.announce(message(0, 0, 1), full));
}

TEST(Mailbox, SaysWhenItIsFullInsteadOfGrowing) {
  Mailbox box;
  bool full = false;
  for (std::size_t i = 0; i < Mailbox::kMaxWaiting; ++i) box.announce(message(0, 0, i), full);
  EXPECT_FALSE(full);
  box.announce(message(0, 0, 0), full);
  EXPECT_TRUE(full);
}

}  // namespace
}  // namespace talweg::protocol
