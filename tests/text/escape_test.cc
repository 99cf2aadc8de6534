#include "text/escape.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace talweg::text {
namespace {

TEST(Escape, JsonReadsBackAsWhatItWas) {
  for (const std::string text : {"", "plain", "q\"b\\n\n\t\x01", "größe", "a\u202eb\x7f"})
    EXPECT_EQ(nlohmann::json::parse("\"" + json_escaped(text) + "\"").get<std::string>(), text);
  EXPECT_EQ(json_escaped("a\u202eb\x7f"), "a\\u202eb\\u007f");
  EXPECT_EQ(nlohmann::json::parse("\"" + json_escaped("a\xff") + "\"").get<std::string>(), "a\xef\xbf\xbd");
}

TEST(Escape, JsonWithoutWhatSteersReadsBackAsTheSame) {
  const nlohmann::json value{
      {"a\u202e\u200fb", {"\x7f\u0085\u2028", "größe 数 \U0001F600", "\x1b\n\\u202e"}}};
  const std::string safe = json_unsteered(value.dump(2));
  EXPECT_EQ(nlohmann::json::parse(safe), value);
  EXPECT_NE(safe.find("a\\u202e\\u200fb"), std::string::npos) << safe;
  EXPECT_NE(safe.find("\\u007f\\u0085\\u2028"), std::string::npos) << safe;
  EXPECT_NE(safe.find("größe 数 \U0001F600"), std::string::npos) << safe;
  EXPECT_EQ(json_unsteered("{\n  \"a\": 1\n}\n"), "{\n  \"a\": 1\n}\n");
}

TEST(Escape, XmlHasNoMarkupAndNothingThatSteers) {
  EXPECT_EQ(xml_escaped("<a href=\"x\">&\x1b\n"), "&lt;a href=&quot;x&quot;&gt;&amp;\\x1b\n");
  EXPECT_EQ(xml_escaped("a\u202eb\xff größe"), "a\\u202eb\\xff größe");
  EXPECT_EQ(xml_escaped("größe 'x'"), "größe 'x'");
}

TEST(Escape, ADocumentReadsBackAsTheSameAndCannotSteer) {
  const nlohmann::json value{{"a\u202eb", "\x7f größe"}};
  EXPECT_EQ(nlohmann::json::parse(json_document(value)), value);
  EXPECT_EQ(json_document(value), "{\n  \"a\\u202eb\": \"\\u007f größe\"\n}\n");
  EXPECT_EQ(json_document("\xff"), "\"\xef\xbf\xbd\"\n");
}

TEST(Escape, ShellAndLabels) {
  EXPECT_EQ(shell_quoted("it's $HOME"), "'it'\\''s $HOME'");
  EXPECT_EQ(backslashed("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
  EXPECT_EQ(backslashed("a\u202eb\x1b"), "a\\\\u202eb\\\\x1b");
}

}  // namespace
}  // namespace talweg::text
