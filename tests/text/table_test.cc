#include "text/table.h"

#include <gtest/gtest.h>

namespace talweg::text {
namespace {

TEST(Table, CellsStandUnderTheirTitles) {
  const Columns columns{{"size", 6}, {"taken", -8, 2}, {"us", 5}};
  EXPECT_EQ(columns.head(), "  size  taken      us\n");
  EXPECT_EQ(columns.line({"4 KiB", "ring", "1.5"}), " 4 KiB  ring      1.5\n");
  EXPECT_EQ(columns.line({"64 KiB", "star"}), "64 KiB  star\n");  // nothing stands in front of the end
  EXPECT_EQ(columns.line({"1234567", "x", "2"}),
            "1234567  x           2\n");  // what is too wide moves the rest
}

TEST(Table, IsAsWideAsWhatItHoldsInCharacters) {
  EXPECT_EQ(table({{"host", "up"}, {"größe", "1"}, {"a", "22"}}), " host  up\ngröße  1\n    a  22\n");
  EXPECT_EQ(table({}), "");
}

TEST(Table, ACellCannotSteerTheTerminal) {
  EXPECT_EQ((Columns{{"", 0}}).line({"\x1b[2Jh\n"}), "\\x1b[2Jh\\n\n");
  EXPECT_EQ(table({{"\x1b", "1"}, {"ab", "2"}}), "\\x1b  1\n  ab  2\n") << "as wide as what is shown";
}

TEST(Csv, QuotesWhatWouldBeReadOtherwise) {
  EXPECT_EQ(csv({{"a", "b,c"}, {"say \"x\"", ""}, {"two\nlines", "1"}}),
            "a,\"b,c\"\n\"say \"\"x\"\"\",\n\"two\nlines\",1\n");
}

TEST(Csv, ACellCannotSteerTheTerminal) {
  EXPECT_EQ(csv_line({"\x1b[2Jh\r", "a\u202eb"}), "\\x1b[2Jh\\x0d,a\\u202eb\n");
}

}  // namespace
}  // namespace talweg::text
