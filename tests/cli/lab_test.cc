// `talweg lab`, as a user starts it; what a lab is made of is tried in tests/fabric.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "cli/program.h"

namespace talweg::cli {
namespace {

using testing::HasSubstr;

// Two leaves of two hosts each and two spines, of which so many have links. One has a name that could steer a
// terminal.
std::string leaves_under(int spines) {
  std::string nodes, links;
  for (int host = 0; host < 4; ++host) {
    nodes += fmt::format("{{name: h{}}}, ", host);
    links += fmt::format("  - {{between: [h{}, leaf{}], capacity: 1Gbit/s}}\n", host, host / 2);
  }
  const char* const spine_names[] = {"spine0", "\"spine1\\e[2J\""};
  for (const char* name : {"leaf0", "leaf1", spine_names[0], spine_names[1]})
    nodes += fmt::format("{{name: {}, kind: switch}}, ", name);
  for (int leaf = 0; leaf < 2; ++leaf)
    for (int spine = 0; spine < spines; ++spine)
      links += fmt::format("  - {{between: [leaf{}, {}], capacity: 300Mbit/s}}\n", leaf, spine_names[spine]);
  return fmt::format("nodes: [{}]\nlinks:\n{}", nodes, links);
}

// In a folder with a file of each network.
Outcome beside_networks(const std::string& line) {
  return shell("d=$(mktemp -d); trap 'rm -r $d' EXIT; cd $d; cat >one.yaml <<'END'\n" + leaves_under(1) +
               "END\ncat >two.yaml <<'END'\n" + leaves_under(2) + "END\n" + line);
}

bool has_no_lab(const Outcome& outcome) {
  return outcome.err.find("a lab needs root") != std::string::npos;
}

constexpr const char* kLeftOut =
    "talweg lab: a lab has one path between two hosts: its ranks plan for what is left without the links "
    "leaf0 - spine1\\x1b[2J, leaf1 - spine1\\x1b[2J\n";

nlohmann::json predicted(const std::string& file) {
  const Outcome outcome = beside_networks("\"$TALWEG\" info all_reduce --json - --cluster " + file);
  return nlohmann::json::parse(outcome.out)["sizes"];
}

// What rank 3 of a lab of its standard input predicts for the network that it is told.
Outcome predicted_in_lab(const std::string& how) {
  return beside_networks(how +
                         "\"$TALWEG\" lab run --no-tag-output --timeout 100s /dev/stdin -- sh -c '[ $RANK != "
                         "3 ] || \"$TALWEG\" info all_reduce --json -'");
}

TEST(LabRun, RanksPlanForThePathsThatAreThereAlsoOfANetworkFromStandardInput) {
  const Outcome outcome = predicted_in_lab("cat two.yaml | ");
  if (has_no_lab(outcome)) GTEST_SKIP() << outcome.err;
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto seen = nlohmann::json::parse(outcome.out)["sizes"];
  EXPECT_EQ(seen, predicted("one.yaml"));
  EXPECT_NE(seen, predicted("two.yaml"));
  EXPECT_THAT(outcome.err, HasSubstr(kLeftOut));
}

TEST(LabRun, RanksKnowAWholeNetworkFromStandardInputToo) {
  for (const char* how : {"cat one.yaml | ", "<one.yaml "}) {
    const Outcome outcome = predicted_in_lab(how);
    if (has_no_lab(outcome)) GTEST_SKIP() << outcome.err;
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_EQ(nlohmann::json::parse(outcome.out)["sizes"], predicted("one.yaml")) << how;
  }
}

TEST(LabRun, AGroupWorksWhateverBecomesOfItsFile) {
  const Outcome outcome = beside_networks(
      "cp two.yaml copy.yaml; TALWEG_CLUSTER=$d/two.yaml \"$TALWEG\" lab run --timeout 100s two.yaml -- sh "
      "-c "
      "'[ $RANK != 0 ] || mv two.yaml gone.yaml; until [ -e gone.yaml ]; do sleep 0.01; done; \"$TALWEG\" "
      "perf "
      "all_reduce -b 64K -e 64K -n 1'; r=$?; cmp gone.yaml copy.yaml || r=9; exit $r");
  if (has_no_lab(outcome)) GTEST_SKIP() << outcome.err;
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr(kLeftOut));
  EXPECT_THAT(outcome.out, HasSubstr("# Out of bounds values : 0 OK\n"));
}

TEST(LabList, SpellsOutWhatAFilesNameHasThatCouldSteerATerminal) {
  const Outcome outcome = shell(
      "d=$(mktemp -d); trap 'rm -r $d' EXIT; mkdir $d/talweg; cat >$d/talweg/lab-odd.json <<END\n"
      "{\"name\": \"odd\", \"cluster_file\": \"/\\u001b[2J.yaml\", \"network\": \"\", \"holder\": $$, "
      "\"holder_started\": \"$(cut -d ' ' -f 22 /proc/$$/stat)\", \"hosts\": [], \"switches\": \"\"}\n"
      "END\nXDG_RUNTIME_DIR=$d \"$TALWEG\" lab list");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, testing::StartsWith("lab  hosts  first address  held by process  cluster file\n"
                                               "odd      0  -"));
  EXPECT_THAT(outcome.out, testing::EndsWith("  /\\x1b[2J.yaml\n"));
}

// Its own program, at the address that it has in the lab; ranks are told where, and have its key.
TEST(LabRun, ASwitchOfTheFileSumsForTheRanks) {
  const Outcome outcome = shell(
      "d=$(mktemp -d); trap 'rm -r $d' EXIT; export TMPDIR=$d; cat >$d/box.yaml <<'END'\n"
      "nodes: [{name: h0}, {name: h1}, {name: box, kind: switch, switch: \"10.9.9.9:4799\"}]\n"
      "links:\n  - {between: [h0, box], capacity: 1Gbit/s}\n  - {between: [h1, box], capacity: "
      "1Gbit/s}\nEND\n"
      "TALWEG_ALGO=switch \"$TALWEG\" lab run --no-tag-output --timeout 100s $d/box.yaml -- sh -c '"
      "echo at $TALWEG_SWITCH; stat -c \"key %a\" $TALWEG_SWITCH_KEY_FILE; "
      // Both look at what rank 0 was told, until they have joined it in time.
      "for i in $(seq 50); do \"$TALWEG\" perf all_reduce -b 64K -e 1M -f 2 -n 20 >$0.$RANK || exit 1; "
      "[ $RANK = 1 ] || mv $0.0 $0.said.$i; until [ -e $0.said.$i ]; do sleep 0.02; done; "
      "grep -q \"^# Algorithm .*switch\" $0.said.$i && exit 0; done; exit 1' $d/rank; "
      "r=$?; cat $d/rank.said.*; ls $d; exit $r");
  if (has_no_lab(outcome)) GTEST_SKIP() << outcome.err;
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, testing::ContainsRegex("at 10\\.[0-9]+\\.[0-9]+\\.[0-9]+:4799\n"));
  EXPECT_THAT(outcome.out, HasSubstr("key 600\n"));
  EXPECT_THAT(outcome.out, HasSubstr("# Out of bounds values : 0 OK\n"));
  EXPECT_THAT(outcome.out, testing::Not(HasSubstr(".key")));
  // Nothing else runs there, nor does it greet the ranks.
  EXPECT_THAT(outcome.out + outcome.err, testing::Not(HasSubstr("switch at")));
  EXPECT_THAT(outcome.out, HasSubstr("# aggregators: none\n"));
  EXPECT_THAT(outcome.err, testing::Not(HasSubstr("aggregator")));
}

}  // namespace
}  // namespace talweg::cli
