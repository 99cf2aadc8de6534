#include <gmock/gmock.h>

#include "cli/program.h"
#include "sanitized.h"

namespace talweg::cli {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

struct BadLine {
  std::vector<std::string> arguments;
  const char* expected;
};

TEST(Usage, EveryMistakeIsAnsweredWithOneLineAndExitCode2) {
  const BadLine lines[] = {
      {{"fly"}, "no subcommand is called \"fly\""},
      {{}, "subcommand"},
      {{"run", "-n", "0", "--", "true"}, "--ranks"},
      {{"run", "-n", "2", "--no-tags", "--", "true"}, "run: no option is called \"--no-tags\""},
      {{"lab", "run", "f", "-n", "2", "--", "true"}, "lab run: no option is called \"-n\""},
      {{"plan", "f", "--size", "1M"}, "plan: no option is called \"--size\": did you mean --bytes?"},
      {{"run", "-n", "2"}, "no program given"},
      {{"run", "--", "true"}, "how many ranks"},
      {{"run", "--hosts", "a:b", "--", "true"}, "--hosts"},
      {{"run", "-n", "1", "--timeout", "soon", "--", "true"}, "soon"},
      {{"run", "-n", "1", "--", "/no/such/program"}, "/no/such/program"},
      {{"perf"}, "which collective? expected all_reduce, "},
      {{"perf", "all_everything"}, "all_everything"},
      {{"perf", "all_reduce", "-b", "2M", "-e", "1M"}, "-b 2M is larger than -e 1M"},
      {{"perf", "all_reduce", "-g", "1"}, "-g"},
      {{"perf", "all_reduce", "-d", "quad"}, "quad"},
      {{"perf", "all_reduce", "-n", "few"}, "--iters"},
      {{"perf", "reduce", "-r", "3"}, "-r 3: there are 1 ranks"},
      {{"perf", "all_reduce", "-b", "4", "-e", "4", "--json", "/no/such/folder/file"},
       "/no/such/folder/file"},
      {{"perf", "send_recv"}, "at least two ranks"},
      {{"info", "--cluster", "nosuch.yaml"}, "--cluster: it needs a collective"},
      {{"info", "-n", "4"}, "--ranks: it needs a collective"},
      {{"info", "all_everything"}, "all_everything"},
      {{"info", "all_reduce"}, "how many ranks"},
      {{"info", "all_reduce", "--cluster", "/no/such/cluster.yaml"}, "/no/such/cluster.yaml"},
      {{"aggregator"}, "--name is required"},
      {{"aggregator", "--name", "agg"}, "aggregator agg does not know where to meet the others"},
      {{"aggregator", "--name", "agg", "--rendezvous", "here"},
       "--rendezvous: expected file:/path or tcp://host:port, got \"here\""},
      {{"aggregator", "--name", "agg", "--rendezvous", "tcp://here:x"},
       "--rendezvous's port: expected a whole number, got \"x\""},
      {{"aggregator", "--name", "two words", "--rendezvous", "file:/tmp/x"},
       "--name: expected a node's name, without blanks, got \"two words\""},
      {{"aggregator", "--name", "-", "--rendezvous", "file:/tmp/x"}, "--name: expected a node's name"},
      {{"aggregator", "--name", "agg", "--timeout", "soon"}, "--timeout: expected a time"},
      {{"plan", "/no/such/cluster.yaml", "--html", ""}, "--html: expected a value, got nothing"},
  };
  for (const auto& line : lines) {
    const auto outcome = talweg(line.arguments);
    EXPECT_EQ(outcome.exit_code, 2) << line.expected << outcome.out << outcome.err;
    EXPECT_EQ(count_lines(outcome.err), 1) << outcome.err;
    EXPECT_THAT(outcome.err, StartsWith("talweg"));
    EXPECT_THAT(outcome.err, HasSubstr(line.expected));
  }
}

TEST(Usage, AMistakeOfAnyRankIsShown) {
  const auto outcome = talweg({"perf", "all_reduce", "-g", "1"}, {"RANK=3", "WORLD_SIZE=4"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, StartsWith("talweg perf [rank 3]: "));
}

TEST(Usage, WhatIsWrongWithLoggingIsSaidBeforeAnybodyIsMet) {
  const auto outcome =
      talweg({"perf", "barrier"}, {"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=9",
                                   "TALWEG_TIMEOUT=300ms", "TALWEG_DEBUG=loud"});
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_THAT(outcome.err, HasSubstr("TALWEG_DEBUG=\"loud\": expected"));
}

TEST(Usage, VersionAndHelpEndWell) {
  EXPECT_THAT(talweg({"--version"}).out, StartsWith("talweg "));
  EXPECT_EQ(talweg({"--version"}).exit_code, 0);
  for (const char* sub : {"run", "aggregator", "perf", "info", "lab"}) {
    const auto outcome = talweg({sub, "--help"});
    EXPECT_EQ(outcome.exit_code, 0);
    EXPECT_THAT(outcome.out, HasSubstr("Examples:")) << sub;
  }
}

TEST(Usage, NoCommandWritesOverWhatItReads) {
  const std::string line = R"(
d=$(mktemp -d); trap 'rm -r $d' EXIT; cd $d
echo '{"nodes": [{"name": "a"}, {"name": "b"}], "links": [{"between": ["a", "b"], "capacity": "1Gbit/s", "latency": "1us"}]}' > net.json
echo 'groups: [{ranks: [a, b], steps: [{op: all_reduce, bytes: 4K}]}]' > work.yaml
echo '[]' > trace-0.json; cp net.json n; cp work.yaml w; cp trace-0.json t
"$TALWEG" )";
  for (const char* command :
       {"simulate net.json --bytes 4K --json ./net.json", "simulate net.json --bytes 4K --html net.json",
        "simulate net.json --bytes 4K --trace net.json",
        "simulate net.json --workload work.yaml --csv work.yaml",
        "simulate net.json --bytes 4K --sweep seed=1,2 --csv net.json",
        "perf all_reduce -b 4K -e 4K --sim net.json --json net.json", "plan net.json --bytes 4K -o net.json",
        "doctor --trace trace-0.json trace-0.json", "convert net.json net.json"}) {
    const Outcome outcome =
        shell(line + command + "; r=$?; cmp net.json n && cmp work.yaml w && cmp trace-0.json t && exit $r");
    EXPECT_EQ(outcome.exit_code, 2) << command;
    EXPECT_THAT(outcome.err, HasSubstr("it would be written over the file that is read")) << command;
    EXPECT_EQ(count_lines(outcome.err), 1) << outcome.err;
  }
  const Outcome twice = shell(line + "plan net.json --bytes 4K --json x --html ./x");
  EXPECT_EQ(twice.exit_code, 2);
  EXPECT_THAT(twice.err, HasSubstr("./x: two outputs would be written to it"));
}

TEST(Usage, ARootIsAWholeNumberEverywhere) {
  for (const char* command : {"plan net.json --op broadcast --root 010", "simulate net.json --root 0x2"}) {
    const Outcome outcome = shell(std::string("\"$TALWEG\" ") + command);
    EXPECT_EQ(outcome.exit_code, 2) << command;
    EXPECT_THAT(outcome.err, HasSubstr("--root: expected")) << command;
  }
}

TEST(Usage, WhatAFileSaysCannotSteerTheTerminal) {
  const Outcome outcome = shell(R"sh(folder=$(mktemp -d); cd "$folder"
printf 'nodes: [{name: "a\\e[2J", kind: worker}, {name: "b\\u202Ec", kind: worker}, {name: s, kind: switch}]\n' > named.yaml
printf 'links: [{between: ["a\\e[2J", s], capacity: 1G, latency: 30us}, {between: ["b\\u202Ec", s], capacity: 1G, latency: 30us}]\n' >> named.yaml
printf 'nodes: []\n"k\\e]0;x\\a": 1\n' > key.yaml
printf 'groups: [{name: "g\\u202Eh\\e", ranks: ["a\\e[2J", "b\\u202Ec"], steps: [{op: all_reduce, bytes: 4K}]}]\n' > work.yaml
"$TALWEG" plan named.yaml --bytes 4K --algo ring -o forest.yaml
sed 's/^planner:.*/planner: "p\\u202Eq\\e"/' forest.yaml > forest2.yaml
for words in "plan named.yaml --bytes 4K --html page.html" "simulate named.yaml --bytes 4K" "plan key.yaml" "convert named.yaml - --to dot" \
    "convert named.yaml - --to yaml" "convert named.yaml - --to json" "convert named.yaml - --to yaml --op broadcast" \
    "plan named.yaml --bytes 4K --json -" "simulate named.yaml --bytes 4K --json - --trace trace.json --html simulated.html" \
    "simulate named.yaml --workload work.yaml --json -" "simulate named.yaml --workload work.yaml --csv -" \
    "info all_reduce --cluster named.yaml --json -" "convert forest2.yaml - --to msccl"; do
  "$TALWEG" $words; echo "exit code $?"
done
cat page.html trace.json simulated.html; cd /; rm -r "$folder")sh");
  for (const std::string& text : {outcome.out, outcome.err}) {
    for (const char c : text) ASSERT_TRUE(c == '\n' || static_cast<unsigned char>(c) >= ' ') << text;
    EXPECT_THAT(text, testing::Not(HasSubstr("\u202e")));
  }
  EXPECT_THAT(outcome.out, testing::HasSubstr("a\\x1b[2J"));
  for (const char* there : {"b\\u202ec", "g\\u202eh", "<algo name=\"p\\u202eq\\x1b-allreduce\"",
                            "process_name", "[\"b\\\\u202ec\","})
    EXPECT_THAT(outcome.out, testing::HasSubstr(there));
  EXPECT_THAT(outcome.err, testing::HasSubstr("unknown key \"k\\x1b]0;x\\x07\""));
}

TEST(Usage, AFileOfManyKeysTakesLittleMemory) {
  const std::string limit = kSanitized ? "unlimited" : "200000";  // sanitizers take terabytes of addresses
  const Outcome outcome =
      shell("LIMIT=" + limit + R"sh(; file=$(mktemp); seq 200000 | sed 's/.*/key&: &/' > "$file"
(ulimit -v $LIMIT; "$TALWEG" convert "$file" - --to yaml --from talweg); rm "$file")sh");
  EXPECT_THAT(outcome.err, HasSubstr("unknown key \"key1\""));
}

TEST(Usage, OutputThatIsLostIsAFailure) {
  for (const char* words : {"--help", "info", "plan \"$C\" --bytes 4K", "plan \"$C\" --bytes 4K --json -",
                            "simulate \"$C\" --bytes 4K", "convert \"$C\" - --to dot"}) {
    const Outcome outcome =
        shell(std::string("C=" TALWEG_SOURCE_DIR "/examples/clusters/uneven4.yaml; \"$TALWEG\" ") + words +
              " >/dev/full");
    EXPECT_EQ(outcome.exit_code, 1) << words << outcome.err;
    EXPECT_THAT(outcome.err, testing::HasSubstr("cannot write to standard output")) << words;
  }
}

TEST(Usage, OneRankSaysForAllHowAWordIsSpelledNow) {
  const Outcome outcome = shell(
      "\"$TALWEG\" run -n 2 --no-tag-output -- \"$TALWEG\" perf all_reduce --op max -b 4 -e 4 -n 1 -w 0");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "talweg perf: --op is now --reduction\n");
}

TEST(Usage, OldSpellingsGetALineThatSaysTheNewOne) {
  const Outcome outcome = shell(
      "\"$TALWEG\" convert " TALWEG_SOURCE_DIR
      "/examples/clusters/uneven4.yaml - --to yaml --collective all_reduce --size 64K --algorithm ring");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.err,
            "talweg convert: --collective is now --op\ntalweg convert: --size is now --bytes\n"
            "talweg convert: --algorithm is now --algo\n");
  EXPECT_THAT(outcome.out, testing::HasSubstr("planner: \"ring\""));
}

}  // namespace
}  // namespace talweg::cli
