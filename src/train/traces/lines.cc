#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/fail.h"
#include "base/trim.h"
#include "train/traces/importers.h"

namespace talweg::train {

bool Lines::next(std::string_view& line) {
  if (rest_.empty()) return false;
  const auto end = std::min(rest_.find('\n'), rest_.size());
  line = rest_.substr(0, end);
  if (line.ends_with('\r')) line.remove_suffix(1);
  rest_.remove_prefix(std::min(end + 1, rest_.size()));
  ++number_;
  if (line.find('\0') != std::string_view::npos) fail("expected no NUL bytes: the file is damaged");
  return true;
}

void Lines::fail(const std::string& text) const {
  throw_error(ErrorCode::bad_file, "{}:{}: {}", origin_, number_, text);
}

std::vector<std::string_view> split(std::string_view line, std::string_view separators) {
  std::vector<std::string_view> fields;
  while (true) {
    const auto end = line.find_first_of(separators);
    fields.push_back(trimmed(line.substr(0, end)));
    if (end == std::string_view::npos) return fields;
    line.remove_prefix(end + 1);
  }
}

std::vector<std::string_view> words_of(std::string_view line) {
  auto fields = split(line, " \t");
  std::erase_if(fields, [](std::string_view field) { return field.empty(); });
  return fields;
}

std::int64_t whole_number(const Lines& lines, std::string_view text, const char* what, std::int64_t most) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0 || value > most)
    lines.fail(fmt::format("{}: expected a whole number from 0 to {}, got \"{}\"", what, most, text));
  return value;
}

Nanoseconds duration_of(const Lines& lines, std::string_view text, const char* what,
                        double nanoseconds_each) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const double time = value * nanoseconds_each;
  if (error != std::errc() || end != text.data() + text.size() || !(time >= 0) ||
      time > static_cast<double>(kLongest.value))
    lines.fail(fmt::format("{}: expected a time of at least 0 and at most an hour, got \"{}\"", what, text));
  return {std::llround(time)};
}

}  // namespace talweg::train
