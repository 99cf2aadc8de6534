#include "text/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "base/printable.h"

namespace talweg::text {
namespace {

// Characters of the terminal, near enough: those of UTF-8 that begin one.
int width_of(const std::string& text) {
  return static_cast<int>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

}  // namespace

std::string Columns::head() const {
  std::vector<std::string> titles;
  for (const Column& column : columns_) titles.push_back(column.title);
  return line(titles);
}

std::string Columns::line(const std::vector<std::string>& cells) const {
  std::string text;
  for (std::size_t i = 0; i < std::min(cells.size(), columns_.size()); ++i) {
    const Column& column = columns_[i];
    const std::string cell = printable(cells[i]);
    const auto missing = static_cast<std::size_t>(std::max(0, std::abs(column.width) - width_of(cell)));
    text.append(static_cast<std::size_t>(column.gap), ' ');
    if (column.width >= 0) text.append(missing, ' ');
    text += cell;
    if (column.width < 0) text.append(missing, ' ');
  }
  text.erase(text.find_last_not_of(' ') + 1);
  return text + "\n";
}

std::string table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<Column> columns(rows.empty() ? 0 : rows[0].size());
  for (const auto& row : rows)
    for (std::size_t c = 0; c < row.size(); ++c)
      columns[c] = {"", std::max(columns[c].width, width_of(printable(row[c]))), c == 0 ? 0 : 2};
  if (!columns.empty()) columns.back().width = 0;
  const Columns all(std::move(columns));
  std::string text;
  for (const auto& row : rows) text += all.line(row);
  return text;
}

std::string csv_line(const std::vector<std::string>& cells) {
  std::string text;
  for (std::string cell : cells) {
    cell = printable_lines(cell);
    const bool quoted = cell.find_first_of(",\"\n") != std::string::npos;
    for (std::size_t at = 0; quoted && (at = cell.find('"', at)) != std::string::npos; at += 2)
      cell.insert(at, 1, '"');
    text += (quoted ? "\"" + cell + "\"" : cell) + ",";
  }
  if (!text.empty()) text.pop_back();
  return text + "\n";
}

std::string csv(const std::vector<std::vector<std::string>>& rows) {
  std::string text;
  for (const auto& row : rows) text += csv_line(row);
  return text;
}

}  // namespace talweg::text
