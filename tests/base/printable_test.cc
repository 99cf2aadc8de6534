#include "base/printable.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

#include "talweg/error.h"

namespace talweg {
namespace {

TEST(Printable, WordsOfAnyLanguageStayAsTheyAre) {
  for (const char* text : {"", "leaf0 -> spine1", "größe", "節点", "tab\\x09", "a\\nb"})
    EXPECT_EQ(printable(text), text);
}

TEST(Printable, WhatSteersATerminalIsSpelledOut) {
  EXPECT_EQ(printable("a\x1b[2Jb"), "a\\x1b[2Jb");
  EXPECT_EQ(printable("one\ntwo\ttab\x7f"), "one\\ntwo\\x09tab\\x7f");
  EXPECT_EQ(printable("abc\xe2\x80\xae"
                      "fed"),
            "abc\\u202efed");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "\\u009b31m");
  EXPECT_EQ(printable(std::string_view("nul\0", 4)), "nul\\x00");
}

// RFC 3629, section 3.
std::string in_utf8(char32_t c) {
  const auto byte = [](char32_t bits) { return static_cast<char>(bits); };
  const auto rest = [&](int shift) { return byte(0x80 | (c >> shift & 0x3f)); };
  if (c < 0x80) return {byte(c)};
  if (c < 0x800) return {byte(0xc0 | c >> 6), rest(0)};
  if (c < 0x10000) return {byte(0xe0 | c >> 12), rest(6), rest(0)};
  return {byte(0xf0 | c >> 18), rest(12), rest(6), rest(0)};
}

// General categories Cc, Zl and Zp, the property Bidi_Control, and the mark of the order of bytes.
TEST(Printable, NothingElseIsSpelledOutThanUnicodeSaysThatItSteers) {
  constexpr std::pair<char32_t, char32_t> kSteering[] = {
      {0, 0x1f},        {0x7f, 0x9f},     {0x61c, 0x61c},   {0x200e, 0x200f},
      {0x2028, 0x2029}, {0x202a, 0x202e}, {0x2066, 0x2069}, {0xfeff, 0xfeff},
  };
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c == 0xd800) c = 0xe000;  // surrogates are no characters
    const std::string character = in_utf8(c);
    const auto there = [c](const auto& range) { return range.first <= c && c <= range.second; };
    const bool expected = std::ranges::any_of(kSteering, there);
    ASSERT_EQ(decoded(character), c);
    ASSERT_EQ(utf8_length(character), character.size()) << static_cast<unsigned>(c);
    ASSERT_EQ(steers(c), expected) << static_cast<unsigned>(c);
    const auto code = static_cast<unsigned>(c);
    const std::string spelled = c == U'\n' ? "\\n"
                                : c < 0x80 ? fmt::format("\\x{:02x}", code)
                                           : fmt::format("\\u{:04x}", code);
    ASSERT_EQ(printable(character), expected ? spelled : character) << code;
  }
}

TEST(Printable, BytesThatAreNoCharactersAreSpelledOutOneByOne) {
  EXPECT_EQ(printable("\xff"
                      "a\xc3"),
            "\\xffa\\xc3");
}

TEST(Printable, ItsOwnResultStays) {
  const std::string once = printable("x\x1b\n\xff\xe2\x80\xae");
  EXPECT_EQ(printable(once), once);
}

TEST(Printable, AnErrorIsOneLineWhateverItQuotes) {
  const Error error(ErrorCode::bad_file, "c.yaml:1: unknown key \"\x1b]0;pwned\x07\nx\"");
  EXPECT_STREQ(error.what(), "c.yaml:1: unknown key \"\\x1b]0;pwned\\x07\\nx\"");
}

}  // namespace
}  // namespace talweg
