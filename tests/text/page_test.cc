#include "text/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <pugixml.hpp>

namespace talweg::text {
namespace {

TEST(Page, IsWellFormedWhateverItsTitleAndData) {
  const std::string html = to_html({.title = "<all> & \"more\"",
                                    .style = "p > b { color: red }\n",
                                    .body = "<p>here</p>\n",
                                    .data = R"({"name": "</script><b>&amp;"})",
                                    .script = "if (1 < 2 && true) {}\n"});
  pugi::xml_document document;
  ASSERT_TRUE(document.load_string(html.c_str()));
  EXPECT_STREQ(document.child("html").child("head").child_value("title"), "<all> & \"more\"");
  EXPECT_STREQ(document.child("html").child("body").child_value("p"), "here");
  EXPECT_THAT(html, testing::HasSubstr(R"({"name": "\u003c/script\u003e\u003cb\u003e\u0026amp;"})"));
}

// Scripts show the texts of the data as they are.
TEST(Page, DataAreMadePrintableHoweverDeepTheyLie) {
  EXPECT_EQ(page_data({{"rows", {1, {{"name", "a\x1b\u202e"}}}}}),
            R"({"rows":[1,{"name":"a\\x1b\\u202e"}]})");
}

TEST(Page, WithoutDataHasNoScript) {
  EXPECT_THAT(to_html({.title = "t", .body = "<p/>"}), testing::Not(testing::HasSubstr("<script")));
}

}  // namespace
}  // namespace talweg::text
