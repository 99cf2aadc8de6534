// Tables of words for people: columns stand under each other. What cells quote of a file cannot steer the
// terminal.
//
//   const Columns columns{{"size", 12}, {"taken", -20, 2}, {"GB/s", 9}};
//   std::string text = columns.head() + columns.line({"4 KiB", "ring", "0.12"});
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

namespace talweg::text {

struct Column {
  std::string title;
  int width = 0;  // characters at least; below 0: the cells begin at its left edge
  int gap = 0;    // blanks in front of it
};

class Columns {
 public:
  Columns(std::initializer_list<Column> columns) : columns_(columns) {}
  explicit Columns(std::vector<Column> columns) : columns_(std::move(columns)) {}

  std::string head() const;
  // One line of cells, with its end. There may be fewer than columns. No blanks stand in front of the line's
  // end.
  std::string line(const std::vector<std::string>& cells) const;

 private:
  std::vector<Column> columns_;
};

// As wide as what they hold: the first row is the head, and all have as many cells.
std::string table(const std::vector<std::vector<std::string>>& rows);

// Columns parted by commas, for programs (RFC 4180).
std::string csv_line(const std::vector<std::string>& cells);
std::string csv(const std::vector<std::vector<std::string>>& rows);

}  // namespace talweg::text
