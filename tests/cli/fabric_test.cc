// `talweg fabric`, as a user starts it, on networks that do what is asked and that do not. What a full link
// says depends on whether hosts get to send: of a good network one of several looks has to see all of it, and
// of another one none may see what is not there.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/program.h"

namespace talweg::cli {
namespace {

using testing::Contains;
using testing::Each;
using testing::HasSubstr;
using testing::Not;

Outcome fabric_in_lab(const std::string& lab, const std::string& flags) {
  return shell(fmt::format(
      "d=$(mktemp -d); trap 'rm -r $d' EXIT; cat >$d/three.yaml <<'END'\n"
      "nodes: [{{name: h0}}, {{name: h1}}, {{name: h2}}, {{name: s, kind: switch}}]\nlinks:\n"
      "  - {{between: [h0, s], capacity: 50Mbit/s}}\n  - {{between: [h1, s], capacity: 50Mbit/s}}\n"
      "  - {{between: [h2, s], capacity: 50Mbit/s}}\nEND\n"
      "\"$TALWEG\" lab run --no-tag-output --timeout 100s $d/three.yaml {} -- \"$TALWEG\" fabric --json - {}",
      lab, flags));
}

bool no_lab_here(const Outcome& outcome) {
  return outcome.err.find("a lab needs root") != std::string::npos ||
         outcome.err.find("needs /dev/net/tun") != std::string::npos;
}

std::vector<std::string> verdicts(const nlohmann::json& document, const std::string& check) {
  std::vector<std::string> all;
  for (const auto& one : document["checks"])
    if (one["check"] == check) all.push_back(one["verdict"]);
  return all;
}

TEST(RelayedLab, FabricPassesWhereSwitchesDoWhatIsAsked) {
  constexpr int kLooks = 5;
  Outcome outcome;
  for (int look = 0; look < kLooks && outcome.exit_code != 0; ++look) {
    outcome = fabric_in_lab("--simulate --queue 64K --mark 15K --priorities 8",
                            "--expect host,dscp,ecn,mtu,marks,selective,priorities");
    if (no_lab_here(outcome)) GTEST_SKIP() << outcome.err;
  }
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto document = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(document["hosts"], (nlohmann::json{"h0", "h1", "h2"}));
  for (const char* check : {"host", "dscp", "ecn", "mtu", "marks", "selective", "priorities"}) {
    EXPECT_EQ(verdicts(document, check).size(), 3U) << check;
    EXPECT_THAT(verdicts(document, check), Each("pass")) << check;
  }
  EXPECT_EQ(document["loads"].size(), 12U) << "of four priorities, into each of three hosts";
  for (const auto& load : document["loads"]) {
    EXPECT_EQ(load["senders"], 2);
    EXPECT_GT(load["ect_marked"], 0);
    EXPECT_GT(load["marked_from_bytes"], 10'000) << "a queue that is shorter is not marked";
  }
  EXPECT_THAT(outcome.err, HasSubstr("21 passed, 0 failed, of 0 nothing can be told"));
}

void expect_nothing_is_on(const Outcome& outcome) {
  EXPECT_EQ(outcome.exit_code, 1) << outcome.err;
  const auto document = nlohmann::json::parse(outcome.out);
  for (const char* check : {"dscp", "ecn", "mtu"})
    EXPECT_THAT(verdicts(document, check), Each("pass")) << check;
  for (const char* check : {"marks", "selective", "priorities"}) {
    EXPECT_THAT(verdicts(document, check), Not(Contains("pass"))) << check;
    EXPECT_THAT(outcome.err, HasSubstr(fmt::format("talweg fabric: expected {}, into h0: ", check)));
  }
}

TEST(RelayedLab, FabricSaysWhatAnOrdinaryQueueDoesNot) {
  const Outcome outcome = fabric_in_lab("--simulate", "--queues 1 --expect dscp,marks,selective,priorities");
  if (no_lab_here(outcome)) GTEST_SKIP() << outcome.err;
  expect_nothing_is_on(outcome);
  const auto document = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(document["loads"].size(), 3U) << "layers are best effort";
  EXPECT_EQ(document["loads"][0]["probes"].size(), 2U) << "and control";
}

TEST(RelayedLab, FabricTellsMarksFromPriorities) {
  const Outcome outcome =
      fabric_in_lab("--simulate --queue 64K --mark 15K", "--queues 2 --expect dscp,ecn,priorities");
  if (no_lab_here(outcome)) GTEST_SKIP() << outcome.err;
  EXPECT_EQ(outcome.exit_code, 1) << outcome.err;
  const auto document = nlohmann::json::parse(outcome.out);
  EXPECT_THAT(verdicts(document, "priorities"), Not(Contains("pass")));
  EXPECT_THAT(verdicts(document, "marks"), Contains("pass"));
  EXPECT_EQ(document["loads"].size(), 9U) << "two of layers and best effort";
}

TEST(LabRun, FabricSaysWhatABridgeDoesNot) {
  const Outcome outcome = fabric_in_lab("", "--expect dscp,marks,selective,priorities");
  if (no_lab_here(outcome)) GTEST_SKIP() << outcome.err;
  expect_nothing_is_on(outcome);
}

TEST(LabRun, FabricOfAllPairsWithoutLoadFillsNoLink) {
  const Outcome outcome = fabric_in_lab("", "--pairs all --no-load --expect dscp,ecn,mtu,marks");
  if (no_lab_here(outcome)) GTEST_SKIP() << outcome.err;
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("talweg fabric: expected marks: --no-load leaves it out\n"));
  const auto document = nlohmann::json::parse(outcome.out);
  for (const char* check : {"dscp", "ecn", "mtu"}) {
    EXPECT_EQ(verdicts(document, check).size(), 6U) << check;
    EXPECT_THAT(verdicts(document, check), Each("pass")) << check;
  }
  EXPECT_EQ(document["loads"].size(), 0U);
  EXPECT_LT(document["traffic_bytes"], 1'000'000);
}

TEST(Fabric, OneHostSaysWhatItCan) {
  const Outcome alone = talweg({"fabric", "--expect", "dscp,ecn,mtu"});
  EXPECT_EQ(alone.exit_code, 0) << alone.err;
  EXPECT_THAT(alone.out, HasSubstr("# one host: "));
  EXPECT_THAT(alone.out, HasSubstr("  all eight arrive as they left\n"));
  EXPECT_THAT(alone.out, HasSubstr("  cannot tell  all ranks are on one host: there is no link to fill\n"));
  const Outcome together = talweg({"run", "-n", "3", "--no-tag-output", "--timeout", "100s", "--",
                                   TALWEG_PROGRAM, "fabric", "--expect", "dscp,marks"});
  EXPECT_EQ(together.exit_code, 1);
  EXPECT_THAT(together.err,
              HasSubstr(": cannot tell: all ranks are on one host: there is no link to fill\n"));
}

TEST(Fabric, WrongValuesAreUsageErrors) {
  for (const std::vector<std::string>& wrong : std::vector<std::vector<std::string>>{{"--expect", "mark"},
                                                                                     {"--expect", "marks,"},
                                                                                     {"--pairs", "some"},
                                                                                     {"--queues", "0"},
                                                                                     {"--queues", "8"}}) {
    std::vector<std::string> line{"fabric"};
    line.insert(line.end(), wrong.begin(), wrong.end());
    const Outcome outcome = talweg(line);
    EXPECT_EQ(outcome.exit_code, 2) << wrong[1];
    EXPECT_EQ(count_lines(outcome.err), 1) << outcome.err;
    EXPECT_EQ(outcome.out, "");
  }
  EXPECT_THAT(
      talweg({"fabric", "--expect", "mark"}).err,
      HasSubstr("--expect: expected some of host, dscp, ecn, mtu, marks, selective, priorities, with commas, "
                "got \"mark\""));
  EXPECT_EQ(talweg({"fabric", "--json", "/nowhere/fabric.json"}).exit_code, 2);
}

}  // namespace
}  // namespace talweg::cli
