#include "fabric/line_prefixer.h"

#include <gtest/gtest.h>

namespace talweg::fabric {
namespace {

TEST(LinePrefixer, HoldsALineBackUntilItIsWhole) {
  LinePrefixer lines("[3] ");
  EXPECT_EQ(lines.feed("half"), "");
  EXPECT_EQ(lines.feed(" a line\nnext"), "[3] half a line\n");
  EXPECT_EQ(lines.finish(), "[3] next\n");
  EXPECT_EQ(lines.finish(), "");
}

TEST(LinePrefixer, PrefixesEveryLineOfOneRead) {
  LinePrefixer lines("[0] ");
  EXPECT_EQ(lines.feed("a\n\nb\n"), "[0] a\n[0] \n[0] b\n");
}

TEST(LinePrefixer, PassesAnEndlessLineOnInPieces) {
  LinePrefixer lines("[0] ");
  const std::string piece(kMaxLineBytes, 'x');
  EXPECT_EQ(lines.feed(piece), "");
  EXPECT_EQ(lines.feed("y"), "[0] " + piece + "\n");
  EXPECT_EQ(lines.finish(), "[0] y\n");
}

TEST(LinePrefixer, KeepsALineOfExactlyTheLongestLengthWhole) {
  LinePrefixer lines("");
  const std::string piece(kMaxLineBytes, 'x');
  EXPECT_EQ(lines.feed(piece), "");
  EXPECT_EQ(lines.feed("\n"), piece + "\n");
}

}  // namespace
}  // namespace talweg::fabric
