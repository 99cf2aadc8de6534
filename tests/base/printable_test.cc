#include "base/printable.h"

#include <gtest/gtest.h>

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
