#include "study/field.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>

#include "talweg/error.h"
#include "text/yaml_reader.h"

namespace talweg::study {

std::string whole_number_complaint(std::string_view text, std::uint64_t least, std::uint64_t most) {
  std::uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  const bool plain = error == std::errc{} && stop == end && (text[0] != '0' || text.size() == 1);
  if (plain && value >= least && value <= most) return {};
  return fmt::format("expected a whole number from {} to {}, got \"{}\"", least, most, text);
}

std::string real_number_complaint(std::string_view text, double least, double most) {
  const auto value = text::read_number(std::string(text));
  if (value && *value >= least && *value <= most) return {};
  return fmt::format("expected a number from {} to {}, got \"{}\"", least, most, text);
}

std::string word_complaint(std::string_view text, std::string_view words) {
  const std::string list = fmt::format(",{},", words);
  if (text.find(',') == text.npos && list.find(fmt::format(",{},", text)) != list.npos) return {};
  return fmt::format("expected one of {}, got \"{}\"", words, text);
}

namespace internal {

void refuse_field(const char* name, const std::string& complaint) {
  throw Error(ErrorCode::invalid_argument, fmt::format("--{}: {}", name, complaint));
}

namespace {

template <class Number>
void read_whole(std::string_view text, Number& into) {
  std::from_chars(text.data(), text.data() + text.size(), into);
}

}  // namespace

void read(std::string_view text, std::string& into) {
  into = text;
}
void read(std::string_view text, bool& into) {
  into = text != "false" && text != "0";
}
void read(std::string_view text, int& into) {
  read_whole(text, into);
}
void read(std::string_view text, std::uint64_t& into) {
  read_whole(text, into);
}
void read(std::string_view text, double& into) {
  read_whole(text, into);
}
void read(std::string_view text, std::vector<std::string>& into) {
  into.emplace_back(text);
}

std::string text_of(const std::string& value) {
  return value;
}
std::string text_of(bool value) {
  return value ? "true" : "false";
}
std::string text_of(int value) {
  return std::to_string(value);
}
std::string text_of(std::uint64_t value) {
  return std::to_string(value);
}
std::string text_of(double value) {
  return fmt::format("{}", value);
}
std::string text_of(const std::vector<std::string>& value) {
  return fmt::format("{}", fmt::join(value, " "));
}

}  // namespace internal

}  // namespace talweg::study
