#include "text/table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <sstream>

namespace talweg::text {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream input(text);
  for (std::string line; std::getline(input, line);) lines.push_back(line);
  return lines;
}

TEST(Columns, CellsStandUnderTheirTitles) {
  const Columns columns{{"size", 6}, {"taken", -8, 2}, {"us", 5}};
  EXPECT_EQ(columns.head(), "  size  taken      us\n");
  EXPECT_EQ(columns.line({"4 KiB", "ring", "1.5"}), " 4 KiB  ring      1.5\n");
  EXPECT_EQ(columns.line({"64 KiB", "star"}), "64 KiB  star\n");  // nothing stands in front of the end
  EXPECT_EQ(columns.line({"1234567", "x", "2"}),
            "1234567  x           2\n");  // what is too wide moves the rest
  EXPECT_EQ((Columns{{"a", 3}, {"b", 3}, {"c", 3}}.line({"1234", "567", "89"})), "1234 567 89\n");
}

TEST(Columns, WhatHasMostToDropGoesFirstAndOfSeveralTheLast) {
  const std::vector<Column> columns{{"a", 10}, {"b", 10, 0, 1}, {"c", -10, 0, 2}, {"d", 8, 2, 2}};
  EXPECT_EQ(fitting(columns, 40), (std::vector<std::size_t>{0, 1, 2, 3}));
  EXPECT_EQ(fitting(columns, 39), (std::vector<std::size_t>{0, 1, 2}));
  EXPECT_EQ(fitting(columns, 29), (std::vector<std::size_t>{0, 1}));
  EXPECT_EQ(fitting(columns, 3), (std::vector<std::size_t>{0})) << "without a number it stays";
}

TEST(Table, NumbersStandUnderEachOtherAtTheirPointsInTheUnitOfTheirMedian) {
  Table table{{"size"}, {.title = "time", .of = Quantity::seconds}, {"taken"}};
  table.add({"4 KiB", Cell(2.897e-4, "*"), "one_hop"});
  table.add({"1 MiB", 0.0447, "star"});
  table.add({"64 MiB", 2.8113, "packed"});
  table.add({"1 GiB", "-"});
  EXPECT_EQ(table.text(false),
            "size        time  taken\n"
            "            (ms)\n"
            "4 KiB     *0.290  one_hop\n"
            "1 MiB     44.7    star\n"
            "64 MiB  2811      packed\n"
            "1 GiB      -\n");
}

TEST(Table, AUnitThatIsGivenIsKeptAndOneOfAColumnWithoutIsNotShown) {
  Table table{{"what"},
              {.title = "A", .of = Quantity::seconds, .unit = {1, "s"}},
              {.title = "n", .of = Quantity::number}};
  table.add({"x", 0.001, "12"});
  EXPECT_EQ(table.text(false), "what        A   n\n          (s)\nx     0.00100  12\n");
}

TEST(Table, EachRateAndShareHasAUnitOfItsOwn) {
  EXPECT_STREQ(unit_for(Quantity::bits_per_second, {2e8, 1e9, 4e8}).name, "Mbit/s");
  EXPECT_STREQ(unit_for(Quantity::bits_per_second, {1e11}).name, "Gbit/s");
  EXPECT_STREQ(unit_for(Quantity::seconds, {0.9996e-3}).name, "ms") << "it is shown as 1.00";
  EXPECT_STREQ(unit_for(Quantity::seconds, {0.9994e-3}).name, "us");
  EXPECT_STREQ(unit_for(Quantity::seconds, {1e-15}).name, "ns");
  EXPECT_STREQ(unit_for(Quantity::share, {0.5}).name, "%");
  EXPECT_STREQ(unit_for(Quantity::number, {5e9}).name, "");
}

TEST(Table, WhatIsNoNumberHasNoSayInTheUnit) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  EXPECT_STREQ(unit_for(Quantity::seconds, {nan, 0, 0, 3e-6, inf, inf}).name, "us");
  EXPECT_STREQ(unit_for(Quantity::seconds, {}).name, "s");
  EXPECT_EQ(number_text(nan, 3), "-");
  EXPECT_EQ(number_text(-inf, 3), "-inf");
  Table table{{"a"}, {.title = "t", .of = Quantity::seconds}};
  table.add({"x", nan});
  table.add({"y", std::optional<double>()});
  EXPECT_EQ(table.text(false), "a    t\n   (s)\nx    -\ny    -\n");
}

TEST(Table, SoManyDigitsCountAndNoneInFrontOfThePointIsLost) {
  EXPECT_EQ(number_text(0.0141421, 3), "0.0141");
  EXPECT_EQ(number_text(0.0141421, 4), "0.01414");
  EXPECT_EQ(number_text(44.68, 3), "44.7");
  EXPECT_EQ(number_text(45678.9, 3), "45679");
  EXPECT_EQ(number_text(-9.996, 3), "-10.0") << "not 10.00";
  EXPECT_EQ(number_text(9.994, 3), "9.99");
  EXPECT_EQ(number_text(0, 3), "0");
  EXPECT_EQ(number_text(1e-9, 3), "0.000000");
}

TEST(Table, NamesLoseTheirMiddleBeforeColumnsAreLeftOut) {
  EXPECT_EQ(shortened("abcdefghij", 10), "abcdefghij");
  EXPECT_EQ(shortened("abcdefghij", 7), "abc\u2026hij");
  EXPECT_EQ(shortened("größe und gewicht", 6), "grö\u2026ht") << "characters, not bytes";
  EXPECT_EQ(shortened("abc", 1), "\u2026");
  const std::string name = std::string(60, 'a') + std::string(60, 'b');
  Table table{{"name"}, {.title = "more", .of = Quantity::number, .drop = 1}};
  table.add({name, "1"});
  const auto lines = lines_of(table.text(false));
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[1], std::string(57, 'a') + "\u2026" + std::string(56, 'b') + "     1") << "no further";
  EXPECT_EQ(lines[2], "--wide shows whole names");
  EXPECT_EQ(lines_of(table.text(true)),
            (std::vector<std::string>{"name" + std::string(118, ' ') + "more", name + "     1"}));
}

TEST(Table, WhereThereIsNoRoomColumnsAreLeftOutAndALineSaysHowMany) {
  std::vector<TableColumn> columns{{"planner"}};
  std::vector<Cell> cells{"halving_doubling"};
  for (int c = 0; c < 20; ++c) {
    columns.push_back({.title = "column" + std::to_string(c), .of = Quantity::number, .drop = 20 - c % 2});
    cells.emplace_back(std::to_string(c));
  }
  Table table(columns);
  table.add(cells);
  const auto lines = lines_of(table.text(false, "#"));
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0],
            "# planner           column1  column3  column5  column7  column9  column11  column13  column15  "
            "column17  column19");
  EXPECT_EQ(lines[1].substr(0, 28), "  halving_doubling        1 ");
  EXPECT_EQ(lines[2], "# --wide shows 10 more columns");
  EXPECT_EQ(lines_of(table.text(true)).size(), 2U);
  EXPECT_GT(table.text(true).find('\n'), 120U);
}

TEST(Table, NoLineIsWiderThanATableMayBe) {
  std::vector<TableColumn> columns;
  std::vector<Cell> cells;
  for (int c = 0; c < 12; ++c) {
    columns.push_back({std::string(30, 'T')});
    cells.emplace_back(std::string(30, 'x'));
  }
  Table table(columns);
  table.add(cells);
  for (const std::string& line : lines_of(table.text(false, "#"))) {
    const auto begins = [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; };
    EXPECT_LE(std::count_if(line.begin(), line.end(), begins), kTableWidth) << line;
  }
}

TEST(Table, IsAsWideAsWhatItHoldsInCharacters) {
  Table table{{"host"}, {.title = "up", .of = Quantity::number}};
  EXPECT_TRUE(table.empty());
  table.add({"größe", "1"});
  table.add({"a", "22.5"});
  EXPECT_EQ(table.text(false), "host     up\ngröße   1\na      22.5\n");
}

TEST(Table, ACellCannotSteerTheTerminal) {
  EXPECT_EQ((Columns{{"", 0}}).line({"\x1b[2Jh\n"}), "\\x1b[2Jh\\n\n");
  Table table{{"a\x1b"}, {.title = "n", .of = Quantity::number}};
  table.add({"\x1b", "1\n"});
  EXPECT_EQ(table.text(true), "a\\x1b    n\n\\x1b   1\\n\n");
}

TEST(Wrapped, LinesBreakAtBlanksAndAWordIsNeverBroken) {
  EXPECT_EQ(wrapped("one two three", 7), (std::vector<std::string>{"one two", "three"}));
  EXPECT_EQ(wrapped("one two three", 6), (std::vector<std::string>{"one", "two", "three"}));
  EXPECT_EQ(wrapped("unbreakable it is", 4), (std::vector<std::string>{"unbreakable", "it", "is"}));
  EXPECT_EQ(wrapped("", 4), (std::vector<std::string>{""}));
}

TEST(Wrapped, SentencesStandBesideWhatTheyAreAbout) {
  const std::string half(kTableWidth / 2 - 3, 'x'), both = half + " " + half;
  EXPECT_EQ(fact("note", both, 6, false), "note  " + half + "\n      " + half + "\n");
  EXPECT_EQ(fact("note", both, 6, true), "note  " + both + "\n");
  EXPECT_EQ(in_lines(both, false), both + "\n");
  EXPECT_EQ(in_lines(both + " " + half, false), both + "\n" + half + "\n");
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
