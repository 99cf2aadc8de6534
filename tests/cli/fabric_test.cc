// `talweg fabric`, as a user starts it, on networks that do what is asked and that do not. Which verdict
// comes of what was counted is tested without hosts (tests/steer/load_checks_test.cc); here hosts may be too
// busy to fill a link, or the relay that is the network. Both say so themselves: a look is done again where
// they have, and there alone.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "cli/program.h"

namespace talweg::cli {
namespace {

using testing::AnyOf;
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

// What kept a look from seeing the network, in the words of those who were kept; empty: nothing did.
std::string relay_doubt_in(const Outcome& outcome) {
  const std::size_t begin = outcome.err.find("the relay was too slow for times to be trusted");
  return begin == std::string::npos ? "" : outcome.err.substr(begin, outcome.err.find('\n', begin) - begin);
}
bool was_sent(const nlohmann::json& load) {
  return load["sent_bit_per_s"] >= 0.9 * load["asked_bit_per_s"].get<double>();
}
std::string disturbance(const nlohmann::json& load) {
  if (!was_sent(load)) return "senders got to send less than they were to: " + load.dump();
  if (load["overlap"] < 0.6) return "senders did not send at the same time: " + load.dump();
  if (load["dropped_by_socket"] > 0) return "the receiver did not take what came: " + load.dump();
  // Two of four fifths of 50 Mbit/s, if that was what was measured before.
  if (load["asked_bit_per_s"] < 70e6) return "rates were measured too low: " + load.dump();
  return {};
}
std::string disturbance(const Outcome& outcome, const nlohmann::json& document) {
  std::string why = relay_doubt_in(outcome);
  for (const auto& load : document["loads"])
    if (why.empty()) why = disturbance(load);
  return why;
}

// The verdicts that are wanted: "marks h0 pass".
using Verdicts = std::set<std::string>;
Verdicts of_hosts(const std::vector<std::string>& checks, const std::string& verdict) {
  Verdicts all;
  for (const std::string& check : checks)
    for (const char* host : {" h0 ", " h1 ", " h2 "}) all.insert(check + host + verdict);
  return all;
}

// Looks until each of these verdicts has been seen. `holds` is called with what each look says. A look in
// which one is missing was disturbed, or it is a failure.
template <class Holds>
void look_until(Verdicts missing, const std::string& lab, const std::string& flags, Holds holds) {
  constexpr int kMostLooks = 6;
  for (int look = 1; !missing.empty(); ++look) {
    const Outcome outcome = fabric_in_lab(lab, flags);
    if (no_lab_here(outcome)) GTEST_SKIP() << outcome.err;
    ASSERT_THAT(outcome.exit_code, AnyOf(0, 1)) << outcome.err;
    const auto document = nlohmann::json::parse(outcome.out);
    holds(outcome, document);
    Verdicts seen;
    for (const auto& check : document["checks"])
      seen.insert(fmt::format("{} {} {}", check["check"].get<std::string>(), check["to"].get<std::string>(),
                              check["verdict"].get<std::string>()));
    const std::string why = disturbance(outcome, document);
    for (const std::string& verdict : missing)
      ASSERT_TRUE(seen.contains(verdict) || !why.empty())
          << "not seen: " << verdict << ", though nothing disturbed this look\n"
          << outcome.err;
    std::erase_if(missing, [&](const std::string& verdict) { return seen.contains(verdict); });
    ASSERT_TRUE(missing.empty() || look < kMostLooks)
        << "each look was disturbed, the last one so: " << why << '\n'
        << outcome.err;
  }
}

TEST(RelayedLab, FabricPassesWhereSwitchesDoWhatIsAsked) {
  const std::vector<std::string> all{"host", "dscp", "ecn", "mtu", "marks", "selective", "priorities"};
  look_until(of_hosts(all, "pass"), "--simulate --queue 64K --mark 15K --priorities 8",
             fmt::format("--expect {}", fmt::join(all, ",")),
             [&](const Outcome& outcome, const nlohmann::json& document) {
               EXPECT_EQ(document["hosts"], (nlohmann::json{"h0", "h1", "h2"}));
               std::size_t passed = 0;
               for (const std::string& check : all) {
                 EXPECT_EQ(verdicts(document, check).size(), 3U) << check;
                 passed += static_cast<std::size_t>(std::ranges::count(verdicts(document, check), "pass"));
                 if (relay_doubt_in(outcome).empty()) {  // busy hosts keep it from telling, and turn nothing
                   EXPECT_THAT(verdicts(document, check), Not(Contains("fail"))) << outcome.err;
                 }
               }
               EXPECT_THAT(outcome.err, HasSubstr(fmt::format("{} passed, ", passed)));
               EXPECT_EQ(outcome.exit_code, passed == 3 * all.size() ? 0 : 1);
               EXPECT_EQ(document["loads"].size(), 12U) << "of four priorities, into each of three hosts";
               for (const auto& load : document["loads"]) {
                 EXPECT_EQ(load["senders"], 2);
                 if (!relay_doubt_in(outcome).empty() || !disturbance(load).empty()) continue;
                 EXPECT_GT(load["ect_marked"], 0);
                 EXPECT_GT(load["marked_from_bytes"], 10'000) << "a queue that is shorter is not marked";
               }
             });
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
  look_until(of_hosts({"marks"}, "pass"), "--simulate --queue 64K --mark 15K",
             "--queues 2 --expect dscp,ecn,priorities",
             [](const Outcome& outcome, const nlohmann::json& document) {
               EXPECT_EQ(outcome.exit_code, 1) << outcome.err;
               EXPECT_THAT(verdicts(document, "priorities"), Not(Contains("pass")));
               if (disturbance(outcome, document).empty()) {
                 EXPECT_THAT(verdicts(document, "priorities"), Each("fail")) << outcome.err;
               }
               EXPECT_EQ(document["loads"].size(), 9U) << "two of layers and best effort";
             });
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
