#include "text/escape.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/printable.h"

namespace talweg::text {
namespace {

// Every character of `special` gets its own replacement; the others stay.
template <class Replacement>
std::string replaced(std::string_view text, Replacement&& replacement) {
  std::string result;
  for (const char c : text)
    if (const char* instead = replacement(c))
      result += instead;
    else
      result += c;
  return result;
}

}  // namespace

std::string json_escaped(std::string_view text) {
  const std::string quoted =
      nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return json_unsteered(quoted.substr(1, quoted.size() - 2));
}

std::string json_unsteered(std::string_view json) {
  std::string result;
  for (std::size_t i = 0; i < json.size();) {
    const std::size_t length = std::max<std::size_t>(1, utf8_length(json.substr(i)));
    const std::string_view character = json.substr(i, length);
    const char32_t c = decoded(character);
    if (c != '\n' && steers(c))
      fmt::format_to(std::back_inserter(result), "\\u{:04x}", static_cast<unsigned>(c));
    else
      result += character;
    i += length;
  }
  return result;
}

std::string json_document(const nlohmann::json& document) {
  return json_unsteered(document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace)) + "\n";
}

std::string xml_escaped(std::string_view text) {
  return replaced(printable_lines(text), [](char c) -> const char* {
    switch (c) {
      case '&':
        return "&amp;";
      case '<':
        return "&lt;";
      case '>':
        return "&gt;";
      case '"':
        return "&quot;";
      default:
        return nullptr;
    }
  });
}

std::string backslashed(std::string_view text) {
  return replaced(printable_lines(text), [](char c) {
    return c == '\\' ? "\\\\" : c == '"' ? "\\\"" : c == '\n' ? "\\n" : nullptr;
  });
}

std::string shell_quoted(std::string_view text) {
  return "'" + replaced(text, [](char c) { return c == '\'' ? "'\\''" : nullptr; }) + "'";
}

}  // namespace talweg::text
