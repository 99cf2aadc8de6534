#include "study/fabric_report.h"

#include <gmock/gmock.h>

#include "talweg/error.h"

namespace talweg::study {
namespace {

using steer::Verdict;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

FabricResult looked_at() {
  FabricResult result;
  result.host_names = {"h0", "h1"};
  result.checks = {{"host", Verdict::pass, "all is well", "", -1, 0},
                   {"dscp", Verdict::fail, "dropped: CS5", "Let it pass.", 0, 1},
                   {"dscp", Verdict::fail, "dropped: LE", "Let it pass.", 1, 0},
                   {"marks", Verdict::cannot_tell, "no queue built up", "", -1, 1}};
  result.seconds = 1.25;
  result.bytes = 28'000'000;
  return result;
}

TEST(FabricReport, IsALineForEachCheckAndWhatToDoOnce) {
  EXPECT_EQ(fabric_table(looked_at(), false),
            "check  where                  seen\n"
            "host   h0        PASS         all is well\n"
            "dscp   h0 -> h1  FAIL         dropped: CS5\n"
            "dscp   h1 -> h0  FAIL         dropped: LE\n"
            "marks  into h1   cannot tell  no queue built up\n"
            "to do:\n"
            "  dscp        Let it pass.\n"
            "1 passed, 2 failed, of 1 nothing can be told; 1.2 s, 28.0 MB\n");
}

TEST(FabricReport, LinesAreNoLongerThanALineUnlessTheyMay) {
  FabricResult result = looked_at();
  for (int i = 0; i < 40; ++i) result.checks[1].seen += " and more";
  for (int i = 0; i < 40; ++i) result.checks[1].to_do += " Do more.";
  const std::string text = fabric_table(result, false);
  for (std::size_t begin = 0; begin < text.size(); begin = text.find('\n', begin) + 1)
    EXPECT_LE(text.find('\n', begin) - begin, 120U);
  EXPECT_THAT(fabric_table(result, true), HasSubstr(result.checks[1].seen + "\n"));
  EXPECT_THAT(fabric_table(result, true), HasSubstr(result.checks[1].to_do + "\n"));
}

TEST(FabricReport, OfNothingToDoNothingIsSaid) {
  FabricResult result = looked_at();
  result.checks.resize(1);
  EXPECT_THAT(fabric_table(result, false), Not(HasSubstr("to do")));
}

TEST(FabricReport, AHostsNameCannotSteerTheTerminal) {
  FabricResult result = looked_at();
  result.host_names[1] = "a\x1b";
  EXPECT_THAT(fabric_table(result, false), HasSubstr("dscp   h0 -> a\\x1b  FAIL"));
  EXPECT_EQ(fabric_json(result)["hosts"][1], "a\x1b");
}

TEST(FabricReport, JsonHasAllThatTheTableHasAndTheLoads) {
  FabricResult result = looked_at();
  steer::LoadSeen load;
  load.to = 1;
  load.priority = 4;
  load.capable_sent = 100;
  load.marked = 7;
  load.taken_rate = 8e6;
  load.mark_wait_ns = 15e6;
  load.probes[0].sent = load.probes[0].overtook = 9;
  result.loads = {load};
  const auto document = fabric_json(result);
  EXPECT_EQ(document["format"], "talweg fabric");
  EXPECT_EQ(document["traffic_bytes"], 28'000'000);
  ASSERT_EQ(document["checks"].size(), 4U);
  EXPECT_EQ(document["checks"][1]["from"], "h0");
  EXPECT_EQ(document["checks"][1]["to"], "h1");
  EXPECT_EQ(document["checks"][1]["verdict"], "fail");
  EXPECT_EQ(document["checks"][1]["seen"], "dropped: CS5");
  EXPECT_EQ(document["checks"][1]["to_do"], "Let it pass.");
  EXPECT_EQ(document["checks"][3]["from"], nullptr);
  EXPECT_EQ(document["checks"][3]["verdict"], "cannot_tell");
  ASSERT_EQ(document["loads"].size(), 1U);
  EXPECT_EQ(document["loads"][0]["class"], "best effort");
  EXPECT_EQ(document["loads"][0]["ect_marked"], 7);
  EXPECT_EQ(document["loads"][0]["marked_from_bytes"], 15'000);
  ASSERT_EQ(document["loads"][0]["probes"].size(), 1U) << "of those that were sent";
  EXPECT_EQ(document["loads"][0]["probes"][0]["class"], "CS5");
}

TEST(FabricExpected, IsAListOfNames) {
  EXPECT_THAT(parse_expected("marks"), ElementsAre("marks"));
  EXPECT_THAT(parse_expected("dscp,ecn"), ElementsAre("dscp", "ecn"));
  for (const char* wrong : {"", "marks,", ",marks", "mark", "marks, ecn", "all"})
    EXPECT_THROW(parse_expected(wrong), Error) << wrong;
}

TEST(FabricExpected, WhatDidNotPassOrWasNotLookedAtIsUnmet) {
  const FabricResult result = looked_at();
  EXPECT_THAT(unmet(result, {}), IsEmpty());
  EXPECT_THAT(unmet(result, {"host"}), IsEmpty());
  EXPECT_THAT(unmet(result, {"host", "dscp"}), ElementsAre("expected dscp, h0 -> h1: FAIL: dropped: CS5",
                                                           "expected dscp, h1 -> h0: FAIL: dropped: LE"));
  EXPECT_THAT(unmet(result, {"marks"}),
              ElementsAre("expected marks, into h1: cannot tell: no queue built up"));
  EXPECT_THAT(unmet(result, {"priorities"}), ElementsAre("expected priorities: --no-load leaves it out"));
}

}  // namespace
}  // namespace talweg::study
