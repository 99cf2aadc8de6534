#pragma once

#include <string_view>

namespace talweg {

// The text without what is blank at its ends.
constexpr std::string_view trimmed(std::string_view text, std::string_view blank = " \t\r\n") {
  const auto first = text.find_first_not_of(blank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(blank) - first + 1);
}

}  // namespace talweg
