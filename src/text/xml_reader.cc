#include "text/xml_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <utility>

#include "base/fail.h"
#include "text/yaml_reader.h"

namespace talweg::text {

XmlDocument::XmlDocument(const std::string& text, std::string origin) : origin_(std::move(origin)) {
  require_utf8(text, origin_);
  line_starts_.push_back(0);
  for (std::size_t i = 0; i < text.size(); ++i)
    if (text[i] == '\n') line_starts_.push_back(static_cast<std::ptrdiff_t>(i) + 1);
  // With the encoding given nothing is converted, and offsets are those of the text.
  const auto result =
      document_.load_buffer(text.data(), text.size(), pugi::parse_default, pugi::encoding_utf8);
  if (!result)
    throw_error(ErrorCode::bad_file, "{}:{}: expected XML: {}", origin_, line_at(result.offset),
                result.description());
}

int XmlDocument::line_at(std::ptrdiff_t offset) const {
  const auto after = std::ranges::upper_bound(line_starts_, offset);
  return std::max(1, static_cast<int>(after - line_starts_.begin()));
}

int XmlReader::line() const {
  return document_->line_at(node_.offset_debug());
}

void XmlReader::fail(const std::string& text) const {
  throw_error(ErrorCode::bad_file, "{}:{}: <{}>: {}", document_->origin(), line(), node_.name(), text);
}

void XmlReader::expected(const char* attribute, const std::string& what) const {
  fail(has(attribute)
           ? fmt::format("{}: expected {}, got \"{}\"", attribute, what, node_.attribute(attribute).value())
           : fmt::format("expected an attribute \"{}\": {}", attribute, what));
}

std::vector<XmlReader> XmlReader::children(std::initializer_list<const char*> names) const {
  std::vector<XmlReader> result;
  for (const pugi::xml_node child : node_.children()) {
    if (child.type() != pugi::node_element) continue;
    result.emplace_back(*document_, child);
    const bool known =
        std::ranges::any_of(names, [&](const char* name) { return std::strcmp(name, child.name()) == 0; });
    if (!known)
      result.back().fail(
          fmt::format("not understood in <{}>: expected {}", name(),
                      names.size() == 0 ? "nothing" : fmt::format("<{}>", fmt::join(names, ">, <"))));
  }
  return result;
}

std::string XmlReader::text(const char* attribute) const {
  if (!has(attribute)) expected(attribute, "a word");
  return node_.attribute(attribute).value();
}

std::string XmlReader::text(const char* attribute, const std::string& otherwise) const {
  return has(attribute) ? node_.attribute(attribute).value() : otherwise;
}

double XmlReader::at_least_zero(const char* attribute, double otherwise) const {
  if (!has(attribute)) return otherwise;
  const auto value = read_number(text(attribute));
  if (!value || *value < 0) expected(attribute, "a number, at least 0");
  return *value;
}

double XmlReader::above_zero(const char* attribute) const {
  const auto value = read_number(text(attribute, ""));
  if (!value || *value <= 0) expected(attribute, "a number above 0");
  return *value;
}

std::int64_t XmlReader::integer(const char* attribute, std::int64_t least, std::int64_t most) const {
  const std::string digits = text(attribute, "");
  std::int64_t value = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, value);
  if (error != std::errc{} || stop != end || value < least || value > most)
    expected(attribute, fmt::format("an integer from {} to {}", least, most));
  return value;
}

}  // namespace talweg::text
