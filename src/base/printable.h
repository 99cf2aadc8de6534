// Text that somebody else wrote, made fit to be shown: names and values of input files, messages of other
// processes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace talweg {

// The text on one line, without what could steer a terminal or reorder what is read: control characters (C0,
// C1), line ends, marks that turn the direction of writing and bytes that are no UTF-8 become "\n", "\x1b",
// "\u202e". Applied to its own result it changes nothing.
std::string printable(std::string_view text);
// The same of every line; line ends stay.
std::string printable_lines(std::string_view text);

// Of characters: what is only there to act on those around it, such as control characters, line ends, marks
// that turn the direction of writing. All of them are below U+10000.
bool steers(char32_t character);
// The one that `character` is in UTF-8; a single byte is taken as it is.
char32_t decoded(std::string_view character);

// The length of the character that begins the text, or 0 if none does: what RFC 3629, section 4 allows.
std::size_t utf8_length(std::string_view text);

}  // namespace talweg
