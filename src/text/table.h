// Tables for people, at most 120 characters wide: numbers stand under each other at their points, each column
// in one unit that its head names. Where there is no room, long names lose their middle and then columns are
// left out, in the order that they declare; a line below says what --wide shows. What cells quote of a file
// cannot steer the terminal.
//
//   Table table{{"size"}, {"taken"}, {.title = "time", .of = Quantity::seconds, .drop = 1}};
//   table.add({"4 KiB", "ring", 0.00025});
//   std::string text = table.text(false);
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace talweg::text {

inline constexpr int kTableWidth = 120;  // characters

// What the numbers of a column are; `share`: parts of a whole, shown in percent.
enum class Quantity { text, number, seconds, bits_per_second, share };

struct Unit {
  double size = 0;  // in seconds, bit/s ...; 0: not chosen yet
  const char* name = "";
};
// The one for all of these, by their median; those that are 0 or not finite have no say.
Unit unit_for(Quantity of, std::vector<double> values);

// With so many significant digits, but all in front of the point; "-" for what is no number.
std::string number_text(double value, int digits);

// At most so many characters: the middle of a longer text gives way to an ellipsis.
std::string shortened(const std::string& text, int most);

// Lines of at most so many characters, broken at blanks where there are any.
std::vector<std::string> wrapped(const std::string& text, int most);

// Sentences over as many lines of kTableWidth as they need, each with its end; `wide`: on one.
std::string in_lines(const std::string& sentences, bool wide);
// The same beside a name, which takes `width` characters of the first line.
std::string fact(const std::string& name, const std::string& sentences, int width, bool wide);

struct TableColumn {
  std::string title;
  Quantity of = Quantity::text;
  int drop = 0;    // where there is no room, what has most is left out first, of several the last; 0: never
  Unit unit{};     // for all numbers; not chosen: unit_for() chooses it
  int digits = 3;  // of numbers
};

// Words, or a number in its quantity's own unit (seconds, bit/s) with a mark in front.
struct Cell {
  Cell(const char* words) : text(words) {}
  Cell(std::string words) : text(std::move(words)) {}
  Cell(double number, std::string mark = {}) : text(std::move(mark)), value(number) {}
  Cell(const std::optional<double>& number) : text(number ? "" : "-"), value(number) {}

  std::string text;
  std::optional<double> value;
};

class Table {
 public:
  Table(std::initializer_list<TableColumn> columns) : columns_(columns) {}
  explicit Table(std::vector<TableColumn> columns) : columns_(std::move(columns)) {}

  // There may be fewer cells than columns.
  void add(std::vector<Cell> row) { rows_.push_back(std::move(row)); }
  bool empty() const { return rows_.empty(); }
  // `wide`: all columns and whole names, however wide. `comment`, such as "#", begins lines that are no rows.
  std::string text(bool wide, const std::string& comment = "") const;

 private:
  std::vector<TableColumn> columns_;
  std::vector<std::vector<Cell>> rows_;
};
// "--wide shows 2 more columns and whole names"; empty where it shows no more.
std::string wide_hint(std::size_t left_out, bool cut);

// Columns of widths that are known before the first line.
struct Column {
  std::string title;
  int width = 0;  // characters at least; below 0: the cells begin at its left edge
  int gap = 0;    // blanks in front of it
  int drop = 0;   // as a TableColumn's
};

// Which columns stay where they may have so many characters.
std::vector<std::size_t> fitting(const std::vector<Column>& columns, int most);

class Columns {
 public:
  Columns(std::initializer_list<Column> columns) : columns_(columns) {}
  explicit Columns(std::vector<Column> columns) : columns_(std::move(columns)) {}

  std::string head() const;
  // One line of cells, with its end. There may be fewer than columns. No blanks stand in front of the line's
  // end, and at least one between cells that are too wide.
  std::string line(const std::vector<std::string>& cells) const;

 private:
  std::vector<Column> columns_;
};

// Columns parted by commas, for programs (RFC 4180).
std::string csv_line(const std::vector<std::string>& cells);
std::string csv(const std::vector<std::vector<std::string>>& rows);

}  // namespace talweg::text
