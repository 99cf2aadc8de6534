#include "text/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <span>
#include <string_view>

#include "base/printable.h"

namespace talweg::text {
namespace {

constexpr int kGap = 2;               // blanks between columns
constexpr int kWholeName = 20;        // columns are left out before names get shorter than this,
constexpr int kShortestName = 6;      // and no name gets shorter than that
constexpr int kMostDecimals = 6;      // what is a millionth of its column's unit is shown as nothing
constexpr double kRoundsUp = 0.9995;  // what is shown as 1.00 of a unit is shown in that unit

constexpr Unit kSecondUnits[] = {{1, "s"}, {1e-3, "ms"}, {1e-6, "us"}, {1e-9, "ns"}};
constexpr Unit kRateUnits[] = {
    {1e12, "Tbit/s"}, {1e9, "Gbit/s"}, {1e6, "Mbit/s"}, {1e3, "kbit/s"}, {1, "bit/s"}};
constexpr Unit kShareUnits[] = {{0.01, "%"}};
constexpr Unit kNoUnits[] = {{1, ""}};

// Largest first.
std::span<const Unit> units_of(Quantity of) {
  switch (of) {
    case Quantity::seconds:
      return kSecondUnits;
    case Quantity::bits_per_second:
      return kRateUnits;
    case Quantity::share:
      return kShareUnits;
    case Quantity::text:
    case Quantity::number:
      break;
  }
  return kNoUnits;
}

// Characters of the terminal, near enough: those of UTF-8 that begin one.
int width_of(const std::string& text) {
  return static_cast<int>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

std::string blanks(int count) {
  return std::string(static_cast<std::size_t>(std::max(0, count)), ' ');
}

int total_width(const std::vector<Column>& columns, const std::vector<std::size_t>& kept) {
  int width = 0;
  for (const std::size_t c : kept) width += columns[c].gap + std::abs(columns[c].width);
  return width;
}

// The widest columns of words get narrower until there is room, or none of them is wider than `least`.
void narrow(std::vector<Column>& columns, const std::vector<std::size_t>& kept, int most, int least) {
  for (int excess = total_width(columns, kept) - most; excess > 0; --excess) {
    Column* widest = nullptr;
    for (const std::size_t c : kept)
      if (columns[c].width < -least && (widest == nullptr || columns[c].width < widest->width))
        widest = &columns[c];
    if (widest == nullptr) return;
    ++widest->width;  // words have a width below 0
  }
}

// One column of a table as it is shown: each cell as wide as the others, from its left edge to its point and
// from there on.
struct ShownColumn {
  std::string title;
  std::string unit;
  std::vector<std::string> cells;
};

std::string cell_text(const Cell& cell, const TableColumn& column, const Unit& unit) {
  if (!cell.value) return printable(cell.text);
  return printable(cell.text) + number_text(*cell.value / unit.size, column.digits);
}

ShownColumn shown_words(const TableColumn& column, const std::vector<const Cell*>& cells) {
  ShownColumn shown{printable(column.title), "", {}};
  for (const Cell* cell : cells) shown.cells.push_back(cell_text(*cell, column, kNoUnits[0]));
  return shown;
}

ShownColumn shown_numbers(const TableColumn& column, const std::vector<const Cell*>& cells) {
  std::vector<double> values;
  for (const Cell* cell : cells)
    if (cell->value) values.push_back(*cell->value);
  const Unit unit = column.unit.size > 0 ? column.unit : unit_for(column.of, std::move(values));
  ShownColumn shown{printable(column.title), *unit.name == '\0' ? "" : fmt::format("({})", unit.name), {}};
  int before = 0, behind = 0;  // the point, at most
  std::vector<int> points;
  for (const Cell* cell : cells) {
    shown.cells.push_back(cell_text(*cell, column, unit));
    const std::string& text = shown.cells.back();
    points.push_back(width_of(text.substr(0, text.find('.'))));
    before = std::max(before, points.back());
    behind = std::max(behind, width_of(text) - points.back());
  }
  for (std::size_t i = 0; i < cells.size(); ++i) {
    std::string& text = shown.cells[i];
    const int missing = behind - (width_of(text) - points[i]);
    text = blanks(before - points[i]) + text + blanks(missing);
  }
  return shown;
}

int width_of(const ShownColumn& column) {
  int width = std::max(width_of(column.title), width_of(column.unit));
  for (const std::string& cell : column.cells) width = std::max(width, width_of(cell));
  return width;
}

}  // namespace

Unit unit_for(Quantity of, std::vector<double> values) {
  for (double& value : values) value = std::abs(value);
  std::erase_if(values, [](double value) { return !std::isfinite(value) || value == 0; });
  const std::span<const Unit> units = units_of(of);
  if (values.empty()) return units.front();
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  for (const Unit& unit : units)
    if (*middle >= kRoundsUp * unit.size) return unit;
  return units.back();
}

std::string number_text(double value, int digits) {
  if (std::isnan(value)) return "-";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  if (value == 0) return "0";
  // 9.996 is 10.0 in three digits.
  const double rounded = std::abs(value) / (1 - 0.5 * std::pow(10.0, -digits));
  const int magnitude = static_cast<int>(std::floor(std::log10(rounded)));
  return fmt::format("{:.{}f}", value, std::clamp(digits - 1 - magnitude, 0, kMostDecimals));
}

std::string shortened(const std::string& text, int most) {
  std::vector<std::size_t> begins;  // of its characters
  for (std::size_t at = 0; at < text.size();) {
    begins.push_back(at);
    at += std::max<std::size_t>(1, utf8_length(std::string_view(text).substr(at)));
  }
  const auto room = static_cast<std::size_t>(std::max(1, most));
  if (begins.size() <= room) return text;
  const std::size_t head = room / 2, tail = room - 1 - head;
  begins.push_back(text.size());
  return text.substr(0, begins[head]) + "\u2026" + text.substr(begins[begins.size() - 1 - tail]);
}

std::vector<std::string> wrapped(const std::string& text, int most) {
  std::vector<std::string> lines(1);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, end - at);
    if (!lines.back().empty() && width_of(lines.back()) + 1 + width_of(word) > most) lines.emplace_back();
    lines.back() += (lines.back().empty() ? "" : " ") + word;
    at = end + 1;
  }
  return lines;
}

std::string in_lines(const std::string& sentences, bool wide) {
  return fact("", sentences, 0, wide);
}

std::string fact(const std::string& name, const std::string& sentences, int width, bool wide) {
  std::string text;
  for (const std::string& line : wide ? std::vector{sentences} : wrapped(sentences, kTableWidth - width))
    text += fmt::format("{:<{}}{}\n", text.empty() ? name : "", width, line);
  return text;
}

std::string Table::text(bool wide, const std::string& comment) const {
  static const Cell kNothing("");
  std::vector<ShownColumn> shown;
  std::vector<Column> columns;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    std::vector<const Cell*> cells;
    for (const auto& row : rows_) cells.push_back(c < row.size() ? &row[c] : &kNothing);
    const bool words = columns_[c].of == Quantity::text;
    shown.push_back(words ? shown_words(columns_[c], cells) : shown_numbers(columns_[c], cells));
    const int width = width_of(shown.back());
    columns.push_back({"", words ? -width : width, c == 0 ? 0 : kGap, columns_[c].drop});
  }

  const std::string lead = comment.empty() ? "" : comment + " ";
  const int most = kTableWidth - width_of(lead);
  std::vector<std::size_t> kept(columns.size());
  std::iota(kept.begin(), kept.end(), std::size_t{0});
  if (!wide) {
    narrow(columns, kept, most, kWholeName);
    kept = fitting(columns, most);
    narrow(columns, kept, most, kShortestName);
  }

  std::vector<Column> layout;
  bool cut = false, with_units = false;
  for (const std::size_t c : kept) {
    layout.push_back(columns[c]);
    cut = cut || std::abs(columns[c].width) < width_of(shown[c]);
    with_units = with_units || !shown[c].unit.empty();
  }
  const Columns lines(std::move(layout));
  const auto line_of = [&](auto&& text_of) {
    std::vector<std::string> cells;
    for (const std::size_t c : kept)
      cells.push_back(shortened(text_of(shown[c]), std::abs(columns[c].width)));
    return lines.line(cells);
  };
  std::string all = lead + line_of([](const ShownColumn& column) { return column.title; });
  if (with_units) all += lead + line_of([](const ShownColumn& column) { return column.unit; });
  for (std::size_t row = 0; row < rows_.size(); ++row)
    all += blanks(width_of(lead)) + line_of([row](const ShownColumn& column) { return column.cells[row]; });
  if (const std::string hint = wide_hint(columns.size() - kept.size(), cut); !hint.empty())
    all += lead + hint + "\n";
  return all;
}

std::string wide_hint(std::size_t left_out, bool cut) {
  if (left_out == 0) return cut ? "--wide shows whole names" : "";
  return fmt::format("--wide shows {} more {}{}", left_out, left_out == 1 ? "column" : "columns",
                     cut ? " and whole names" : "");
}

std::vector<std::size_t> fitting(const std::vector<Column>& columns, int most) {
  std::vector<std::size_t> kept(columns.size());
  std::iota(kept.begin(), kept.end(), std::size_t{0});
  while (!kept.empty() && total_width(columns, kept) > most) {
    auto least = kept.begin();
    for (auto it = kept.begin(); it != kept.end(); ++it)
      if (columns[*it].drop >= columns[*least].drop) least = it;
    if (columns[*least].drop == 0) break;
    kept.erase(least);
  }
  return kept;
}

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
    const std::string missing = blanks(std::abs(column.width) - width_of(cell));
    const std::string before = blanks(column.gap) + (column.width < 0 ? "" : missing);
    if (before.empty() && !text.empty() && text.back() != ' ') text += ' ';
    text += before + cell + (column.width < 0 ? missing : "");
  }
  text.erase(text.find_last_not_of(' ') + 1);
  return text + "\n";
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
