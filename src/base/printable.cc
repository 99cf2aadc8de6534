#include "base/printable.h"

#include <fmt/format.h>

#include <iterator>

namespace talweg {
bool steers(char32_t c) {
  const bool control = c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x2028 || c == 0x2029;
  const bool turns = c == 0x61c || c == 0x200e || c == 0x200f || (c >= 0x202a && c <= 0x202e) ||
                     (c >= 0x2066 && c <= 0x2069);
  return control || turns || c == 0xfeff;
}

char32_t decoded(std::string_view character) {
  if (character.size() == 1) return static_cast<unsigned char>(character[0]);
  char32_t c = static_cast<unsigned char>(character[0]) & (0x7fU >> character.size());
  for (const char next : character.substr(1)) c = c << 6 | (static_cast<unsigned char>(next) & 0x3f);
  return c;
}

std::string printable(std::string_view text) {
  std::string shown;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = utf8_length(text.substr(i));
    const std::string_view character = text.substr(i, length == 0 ? 1 : length);
    const char32_t c = decoded(character);
    i += character.size();
    if (c == '\n')
      shown += "\\n";
    else if (length == 0 || (steers(c) && c < 0x80))
      fmt::format_to(std::back_inserter(shown), "\\x{:02x}", static_cast<unsigned>(c));
    else if (steers(c))
      fmt::format_to(std::back_inserter(shown), "\\u{:04x}", static_cast<unsigned>(c));
    else
      shown += character;
  }
  return shown;
}

std::string printable_lines(std::string_view text) {
  std::string shown;
  for (std::size_t end; (end = text.find('\n')) != std::string_view::npos; text.remove_prefix(end + 1))
    shown += printable(text.substr(0, end)) + '\n';
  return shown + printable(text);
}

std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  if (first < 0xc2 || first > 0xf4) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  const bool too_long = (first == 0xe0 && byte(1) < 0xa0) || (first == 0xf0 && byte(1) < 0x90);
  const bool no_character = (first == 0xed && byte(1) > 0x9f) || (first == 0xf4 && byte(1) > 0x8f);
  return too_long || no_character ? 0 : length;
}

}  // namespace talweg
