#include "text/json_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "base/random.h"
#include "talweg/error.h"

namespace talweg::text {
namespace {

using testing::HasSubstr;

// Hands the document out in pieces of so many bytes.
JsonStream stream(const std::string& document, std::size_t at_once = 1 << 20) {
  return {[&document, at_once, at = std::size_t{0}](char* into, std::size_t most) mutable {
            const std::size_t n = std::min({most, at_once, document.size() - at});
            std::memcpy(into, document.data() + at, n);
            at += n;
            return n;
          },
          "f.json"};
}

// All of the document, written anew.
std::string again(JsonStream& json) {
  switch (json.kind()) {
    case JsonStream::Kind::object: {
      std::string text = "{";
      json.begin_object();
      while (json.next_member()) {
        text += std::string(json.key()) + ":";
        text += again(json) + ";";
      }
      return text + "}";
    }
    case JsonStream::Kind::array: {
      std::string text = "[";
      json.begin_array();
      while (json.next_item()) text += again(json) + ";";
      return text + "]";
    }
    case JsonStream::Kind::string:
      return "'" + std::string(json.string()) + "'";
    case JsonStream::Kind::number:
      return std::string(json.number());
    case JsonStream::Kind::word:
      json.skip();
      return "w";
  }
  return "";
}

std::string refusal(const std::string& document) {
  try {
    JsonStream json = stream(document);
    json.skip();
    json.end();
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_file);
    return error.what();
  }
}

const std::string kDocument =
    "  {\"a\": [1, -2.5e3, \"x\\u00e4\\ud83d\\ude00\\n\\\"\\\\\"], \"long key of many bytes\":{\"c\": {}, "
    "\"d\": []},\n"
    "\t\"words\" : [true,false,null,NaN], \"lone\": \"\\ud800\", \"z\xc3\xa4\": \"a text of more than eight "
    "bytes\"}  ";
const std::string kAgain =
    "{a:[1;-2.5e3;'x\xc3\xa4\xf0\x9f\x98\x80\n\"\\';];long key of many "
    "bytes:{c:{};d:[];};words:[w;w;w;w;];lone:'\xef\xbf\xbd';"
    "z\xc3\xa4:'a text of more than eight bytes';}";

TEST(JsonStream, ReadsTheSameHoweverTheBytesCome) {
  for (const std::size_t at_once : {1U, 2U, 3U, 5U, 7U, 8U, 16U, 1000U}) {
    JsonStream json = stream(kDocument, at_once);
    EXPECT_EQ(again(json), kAgain) << at_once;
    json.end();
  }
}

TEST(JsonStream, ReadsTextsThatLieAcrossItsWindow) {
  Random random(3);
  std::string document = "[", wanted = "[";
  while (document.size() < 2'000'000) {
    const std::string text(random.below(random.below(50) == 0 ? 300'000 : 30), 'x');
    document += (wanted.size() > 1 ? ", \"" : "\"") + text + "\\n\"";
    wanted += "'" + text + "\n';";
  }
  document += "]";
  JsonStream json = stream(document);
  EXPECT_EQ(again(json), wanted + "]");
}

TEST(JsonStream, KnowsWhereItIs) {
  JsonStream json = stream(kDocument, 3);
  json.begin_object();
  ASSERT_TRUE(json.next_member());
  json.skip();
  EXPECT_EQ(kDocument.substr(json.position(), 3), ", \"");
}

TEST(JsonStream, SaysWhatIsWrongAndWhere) {
  EXPECT_EQ(refusal(kDocument), "");
  EXPECT_EQ(refusal("[-Infinity, Infinity]"), "");
  EXPECT_EQ(refusal("{\"a\" 1}"), "f.json: byte 5: expected \":\", got \"1}\"");
  EXPECT_EQ(refusal("[1, 2"), "f.json: byte 5: expected more behind a number, but the file ends here");
  EXPECT_THAT(refusal("[1 2]"), HasSubstr("byte 3: expected \",\" or \"]\""));
  EXPECT_THAT(refusal("[1,]"), HasSubstr("byte 3: expected a value"));
  EXPECT_THAT(refusal("{,}"), HasSubstr("byte 1: expected the name of a member"));
  EXPECT_THAT(refusal("[tru]"), HasSubstr("expected a value, got tru"));
  EXPECT_THAT(refusal("[] []"), HasSubstr("byte 3: expected the end of the document"));
  EXPECT_THAT(refusal("[\"a"), HasSubstr("byte 3: expected the end of a string, but the file ends here"));
  EXPECT_THAT(refusal("[\"a\\"), HasSubstr("expected the end of a string"));
  EXPECT_THAT(refusal(std::string("[\"a\0\"]", 6)), HasSubstr("byte 3: expected no NUL bytes"));
  EXPECT_THAT(refusal(std::string("[\0]", 3)), HasSubstr("byte 1: expected no NUL bytes"));
  EXPECT_THAT(refusal("[\"a\nb\"]"), HasSubstr("byte 3: expected no control characters within a string"));
  EXPECT_THAT(refusal(""), HasSubstr("expected a value, but the file ends here"));
  EXPECT_THAT(refusal(std::string(300, '[')), HasSubstr("nested at most 200 deep"));
}

TEST(JsonStream, RefusesTextsAndNumbersThatAreTooLarge) {
  EXPECT_THAT(refusal("\"" + std::string(JsonStream::kMostToken * 3, 'x') + "\""),
              HasSubstr("texts of at most 16 MiB"));
  std::string document = "18446744073709551617";
  JsonStream json = stream(document);
  EXPECT_THROW(json.integer(), Error);
  document = "1.5";
  JsonStream real = stream(document);
  EXPECT_THROW(real.integer(), Error);
  document = "-9223372036854775808 ";
  JsonStream least = stream(document);
  EXPECT_EQ(least.integer(), INT64_MIN);
}

TEST(JsonStream, RefusesEscapesThatDoNotExist) {
  for (const char* text : {R"("\x")", R"("\u12")", R"("\u12g4")"}) {
    const std::string document = text;
    JsonStream json = stream(document);
    EXPECT_THROW(json.string(), Error) << text;
  }
}

}  // namespace
}  // namespace talweg::text
