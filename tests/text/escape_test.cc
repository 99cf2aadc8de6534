#include "text/escape.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace talweg::text {
namespace {

TEST(Escape, JsonReadsBackAsWhatItWas) {
  for (const std::string text : {"", "plain", "q\"b\\n\n\t\x01", "größe"})
    EXPECT_EQ(nlohmann::json::parse("\"" + json_escaped(text) + "\"").get<std::string>(), text);
  EXPECT_EQ(nlohmann::json::parse("\"" + json_escaped("a\xff") + "\"").get<std::string>(), "a\xef\xbf\xbd");
}

TEST(Escape, XmlHasNoMarkupAndNoControlCharacters) {
  EXPECT_EQ(xml_escaped("<a href=\"x\">&\x1b\n"), "&lt;a href=&quot;x&quot;&gt;&amp; \n");
}

TEST(Escape, ShellAndLabels) {
  EXPECT_EQ(shell_quoted("it's $HOME"), "'it'\\''s $HOME'");
  EXPECT_EQ(backslashed("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
}

}  // namespace
}  // namespace talweg::text
