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
  return outcome.err.find("a lab needs root") != std::string::npos ||
         outcome.err.find("needs /dev/net/tun") != std::string::npos;
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

// Each rank is told of its own rack's switch, and all of them say so to each other.
TEST(LabRun, SwitchesOfRacksSumBelowTheOneAboveThem) {
  const Outcome outcome = shell(
      "d=$(mktemp -d); trap 'rm -r $d' EXIT; export TMPDIR=$d TALWEG_ALGO=switch\n"
      "\"$TALWEG\" lab run --no-tag-output --timeout 100s " TALWEG_SOURCE_DIR
      "/examples/clusters/racks2x2.yaml -- sh -c '"
      "echo rank $RANK at $TALWEG_SWITCH; "
      "for i in $(seq 50); do \"$TALWEG\" perf all_reduce -b 64K -e 256K -f 2 -n 100 >$0.$RANK || exit 1; "
      "[ $RANK != 0 ] || mv $0.0 $0.said.$i; until [ -e $0.said.$i ]; do sleep 0.02; done; "
      "grep -q \"^# Algorithm .*switch\" $0.said.$i && exit 0; done; exit 1' $d/rank; "
      "r=$?; cat $d/rank.said.*; exit $r");
  if (has_no_lab(outcome)) GTEST_SKIP() << outcome.err;
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto at = [&](const char* rank) {
    const std::size_t begin = outcome.out.find(std::string("rank ") + rank + " at ") + 10;
    return outcome.out.substr(begin, outcome.out.find('\n', begin) - begin);
  };
  EXPECT_EQ(at("0"), at("1"));
  EXPECT_EQ(at("2"), at("3"));
  EXPECT_NE(at("0"), at("2"));
  EXPECT_THAT(outcome.out, HasSubstr("# Out of bounds values : 0 OK\n"));
}

TEST(LabRun, SimulatesANetworkThatBridgesCannotBeAndLosesInBursts) {
  const Outcome outcome = beside_networks(
      "\"$TALWEG\" lab run --no-tag-output --timeout 200s two.yaml --simulate --loss 0.005 --burst-loss "
      "0.0005,0.4 --priorities 8 --seed 3 --json links.json -- \"$TALWEG\" perf all_reduce -b 64K -e 256K -f "
      "4 "
      "-n 2 || exit $?; cat links.json");
  if (has_no_lab(outcome)) GTEST_SKIP() << outcome.err;
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("# Out of bounds values : 0 OK\n"));
  EXPECT_THAT(outcome.err, testing::Not(HasSubstr("a lab has one path")));
  const auto links = nlohmann::json::parse(outcome.out.substr(outcome.out.find("\n{\n") + 1));
  std::uint64_t lost = 0;
  for (const auto& link : links["links"]) {
    const auto name = link["link"].get<std::string>();
    lost += link["lost"].get<std::uint64_t>();
    if (name.find("spine") != std::string::npos) continue;  // of several, connections choose by their ports
    EXPECT_GT(link["packets"], 0) << name;
    EXPECT_THAT(outcome.err, HasSubstr("\n" + name + " ")) << name;
  }
  EXPECT_EQ(links["links"].size(), 16U);
  EXPECT_GT(lost, 0U);
  EXPECT_GT(links["handed_over"], 0);
  EXPECT_THAT(outcome.err, HasSubstr("packets handed over, late by"));
}

TEST(LabRun, RanksOfASimulatedNetworkPlanForAllOfIt) {
  const Outcome outcome = beside_networks(
      "\"$TALWEG\" lab run --simulate --no-tag-output --timeout 100s two.yaml -- sh -c '[ $RANK != 3 ] || "
      "\"$TALWEG\" info all_reduce --json -'");
  if (has_no_lab(outcome)) GTEST_SKIP() << outcome.err;
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(nlohmann::json::parse(outcome.out)["sizes"], predicted("two.yaml"));
}

// The relay among the launcher's children, by the shell alone.
constexpr const char* kFindRelay =
    "relay() { for s in /proc/[0-9]*/stat; do read -r pid name state parent rest <$s || continue; [ "
    "\"$name\" = "
    "'(talweg-relay)' ] && [ $parent = $1 ] && echo $pid; done 2>/dev/null; }; ";

TEST(LabRun, EndsTheRanksWhenTheRelayIsGone) {
  const Outcome outcome = shell(
      std::string("export FIND=") + "\"" + "$(cat <<'END'\n" + kFindRelay + "\nEND\n)\"" +
      "; \"$TALWEG\" lab run --timeout 200s --simulate --topology star:hosts=2 -- sh -c 'eval \"$FIND\"; [ "
      "$RANK = 0 ] || until kill -9 $(relay $PPID); do sleep 0.05; done 2>/dev/null; exec sleep 150'");
  if (has_no_lab(outcome)) GTEST_SKIP() << outcome.err;
  EXPECT_EQ(outcome.exit_code, 137) << outcome.err;
  EXPECT_THAT(outcome.err,
              HasSubstr("talweg lab: the relay was killed by signal 9 (SIGKILL), and with it what "
                        "ranks need\n"));
  EXPECT_THAT(outcome.err, HasSubstr("talweg lab: the relay did not come to its end"));
}

TEST(LabRun, LeavesNothingBehindWhenItIsKilledInASimulatedNetwork) {
  const Outcome outcome = shell(
      std::string("d=$(mktemp -d); trap 'rm -r $d' EXIT; ") + kFindRelay +
      "\"$TALWEG\" lab run --timeout 200s --simulate --topology star:hosts=2 -- sh -c 'readlink "
      "/proc/self/ns/net >$0.$RANK.new; mv $0.$RANK.new $0.$RANK; sleep 150' $d/net & lab=$!; "
      "until [ -e $d/net.0 -a -e $d/net.1 ] || ! kill -0 $lab 2>/dev/null; do sleep 0.05; done; "
      "until relay=$(relay $lab); [ \"$relay\" ] || ! kill -0 $lab 2>/dev/null; do sleep 0.05; done; echo "
      "relay ${relay:+found}; kill -9 $lab; wait $lab 2>/dev/null; "
      "here() { ls -l /proc/[0-9]*/ns/net 2>/dev/null | grep -F -e \"$(cat $d/net.0)\" -e \"$(cat "
      "$d/net.1)\"; }; "
      "for i in $(seq 600); do here >/dev/null || [ -e /proc/$relay ] || { echo gone; break; }; sleep 0.05; "
      "done");
  if (has_no_lab(outcome)) GTEST_SKIP() << outcome.err;
  EXPECT_EQ(outcome.out, "relay found\ngone\n") << outcome.err;
}

TEST(LabRun, SaysWhichOptionsNeedASimulatedNetworkAndWhichCannotBe) {
  const auto said = [](const std::string& options) {
    return beside_networks("\"$TALWEG\" lab " + options).err;
  };
  EXPECT_EQ(said("run one.yaml --queue 64K -- true"), "talweg lab run: --queue: it needs --simulate\n");
  EXPECT_EQ(said("run one.yaml --json x -- true"), "talweg lab run: --json: it needs --simulate\n");
  EXPECT_EQ(said("run --topology star:hosts=2 -- true"), "talweg lab run: --topology: it needs --simulate\n");
  EXPECT_THAT(said("run one.yaml --simulate --trim -- true"),
              HasSubstr("--trim: programs know no packets without their payload"));
  EXPECT_THAT(said("run one.yaml --simulate --priorities 9 -- true"),
              HasSubstr("--priorities: expected a whole"));
  EXPECT_THAT(said("run one.yaml --simulate --name up -- true"),
              HasSubstr("--name up: a lab that is up has no"));
  EXPECT_THAT(said("run one.yaml --simulate --topology star:hosts=2 -- true"),
              HasSubstr("one.yaml describes a network, too"));
  EXPECT_THAT(said("run one.yaml --simulate --queue 1000 -- true"),
              HasSubstr("--queue 1000: no packet of 1514"));
  EXPECT_THAT(said("run one.yaml --simulate --queue 64K --mark 64K -- true"),
              HasSubstr("talweg lab: --mark: the queue is full before, at 65536 bytes\n"));
  EXPECT_THAT(said("up one.yaml --simulate"), HasSubstr("--simulate: the network is there as long as"));
}

}  // namespace
}  // namespace talweg::cli
