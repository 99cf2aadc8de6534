#include <fmt/format.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/printable.h"
#include "cli/program.h"
#include "sanitized.h"
#include "text/escape.h"

namespace talweg::cli {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using Json = nlohmann::json;

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
      {{"info", "all_reduce", "-n", "2", "--ranks", "3"},
       "--ranks: expected once, got it 2 times (see --help)"},
      {{"info", "all_reduce", "-n"}, "--ranks: expected a value, got nothing (see --help)"},
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
      {{"switch"}, "--listen is required"},
      {{"switch", "--listen", "here"},
       "--listen: expected an address and a port, such as 127.0.0.1:4711, got"},
      {{"switch", "--listen", "127.0.0.1:65536"}, "--listen: expected an address and a port"},
      {{"switch", "--listen", "0.0.0.0:0"}, "will not listen where others can reach it without a job key"},
      {{"switch", "--listen", "127.0.0.1:0", "--key-file", "/no/such/key"},
       "--key-file /no/such/key: No such file"},
      {{"switch", "--listen", "127.0.0.1:0", "--threads", "0"}, "--threads"},
      {{"switch", "--listen", "127.0.0.1:0", "--job-rate", "fast"}, "--job-rate: "},
      {{"switch", "--listen", "127.0.0.1:0", "--job-rate", "0Gbit/s"}, "rate"},
      {{"switch", "--listen", "127.0.0.1:0", "--memory", "much"}, "--memory: "},
      {{"switch", "--listen", "127.0.0.1:0", "--status", "/no/such/folder/file"}, "/no/such/folder/file"},
      {{"switch", "halt"}, "halt"},
      {{"switch", "drain"}, "--listen is required"},
      {{"perf", "all_reduce", "--overlap", "all"}, "which --switch?"},
      {{"perf", "all_reduce", "--switch", "here"}, "--switch: expected an address and a port"},
      {{"perf", "broadcast", "--switch", "127.0.0.1:1"}, "a switch does all_reduce, not broadcast"},
      {{"perf", "all_reduce", "-d", "double", "--switch", "127.0.0.1:1"}, "not f64"},
      {{"perf", "all_reduce", "-o", "max", "--switch", "127.0.0.1:1"}, "a switch sums"},
      {{"perf", "all_reduce", "--switch", "127.0.0.1:1", "--sparse-density", "2"}, "--sparse-density"},
      {{"perf", "all_reduce", "--switch", "127.0.0.1:1", "--sparse-as", "coo"},
       "--sparse-as: expected blocks, pairs or dense"},
      {{"perf", "all_reduce", "--sparse-as", "pairs"}, "which --switch?"},
      {{"perf", "all_reduce", "--ordered"}, "which --switch?"},
      {{"perf", "all_reduce", "--sparse-rows", "4", "--sparse-run", "2"},
       "--sparse-rows: expected no --sparse-run: rows go by the group's own switch, of which TALWEG_SWITCH"},
      {{"perf", "all_reduce", "--sparse-rows", "4", "--sparse-density", "0.1", "--overlap", "all", "--exact"},
       "--sparse-rows: expected no --exact: rows go by the group's own switch"},
      {{"perf", "all_reduce", "--sparse-rows", "4", "--switch", "127.0.0.1:1"}, "expected no --switch"},
      {{"perf", "all_reduce", "--sparse-rows", "4", "--sim", "net.yaml"}, "no sums of rows in --sim"},
      {{"perf", "broadcast", "--sparse-rows", "4"}, "rows are summed by all_reduce, not by broadcast"},
      {{"perf", "all_reduce", "--sparse-rows", "4", "-o", "max"}, "-o must be sum"},
      {{"perf", "all_reduce", "--sparse-rows", "4", "--may-lose", "0.1"}, "nothing may be lost of rows"},
      {{"perf", "all_reduce", "--sparse-rows", "4", "-b", "12", "-e", "12"}, "12 bytes hold no such row"},
      {{"simulate", "--topology", "star:hosts=2", "--sparse-rows", "4"},
       "--sparse-rows: simulate has no sums of sparse tensors by rows"},
      {{"perf", "all_reduce", "--switch-block", "64"}, "which --switch?"},
      {{"perf", "all_reduce", "--switch", "127.0.0.1:1", "--switch-block", "100"},
       "--switch-block: a block has a multiple of 8 elements, and no more than"},
      {{"perf", "all_reduce", "--switch", "127.0.0.1:1", "--ordered", "--exact"},
       "--ordered: sums of --exact are the same in any order"},
      {{"perf", "all_reduce", "--switch-format", "block8"}, "which --switch?"},
      {{"perf", "all_reduce", "--switch", "127.0.0.1:1", "--switch-format", "block2"},
       "--switch-format: expected type, block8 or block4, got \"block2\""},
      {{"perf", "all_reduce", "--switch", "127.0.0.1:1", "--switch-format", "block8", "-d", "half"},
       "--switch-format block8 is for -d float, not for f16"},
      {{"perf", "all_reduce", "--switch", "127.0.0.1:1", "--switch-format", "block8", "--sparse-as", "pairs"},
       "--switch-format block8: pairs have floats as they are"},
      {{"perf", "all_reduce", "--switch", "127.0.0.1:1", "--switch-format", "block4", "--exact"},
       "--exact: codes of --switch-format block4 are rounded"},
      {{"simulate", "--topology", "star:hosts=2", "--algo", "switch", "--sparse-as", "coo"}, "--sparse-as"},
      {{"perf", "all_reduce", "--switch", "127.0.0.1:1", "--overlap", "some"},
       "--overlap: expected random, all or none"},
      {{"perf", "all_reduce", "--switch", "127.0.0.1:1", "--sim", "net.yaml"}, "--sim"},
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
  for (const char* sub : {"run", "aggregator", "switch", "perf", "info", "lab"}) {
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
        "doctor --trace trace-0.json trace-0.json", "convert net.json net.json",
        "compare net.json work.yaml --json net.json", "info all_reduce --cluster net.json --json net.json"}) {
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

// What acts on a terminal in all the ways there are (C0, DEL, C1, the direction of writing), and a letter.
const std::string kSteering = "\x1b[2J\x01\x7f\u0085\u009b31m\u202e\u00f6";

// Files in which every name is such a text; some have such a name, too.
class SteeringFiles {
 public:
  SteeringFiles()
      : folder_(std::filesystem::temp_directory_path() / ("talweg-steering-" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(folder_ / "lab" / "talweg");
    write("named.json", network().dump());
    write("key.json", Json{{"nodes", Json::array()}, {"k" + kSteering, 1}}.dump());
    const Json step{{"op", "all_reduce"}, {"bytes", "4K"}};
    const Json group{{"name", "g" + kSteering}, {"ranks", {a, b}}, {"steps", Json::array({step})}};
    for (const std::string& name : {std::string("work.json"), "y" + kSteering + ".json"})
      write(name, Json{{"groups", Json::array({group})}}.dump());
    write("x" + kSteering + ".json", network().dump());
    const Json call{{"operation", "all_reduce"},
                    {"sequence", 0},
                    {"root", -1},
                    {"reduction", "sum"},
                    {"layout", "0"},
                    {"type", "f32"},
                    {"count", 1},
                    {"algorithm", "ring"},
                    {"state", "failed"},
                    {"started_ns", 1},
                    {"ended_ns", 2},
                    {"error", "aborted"},
                    {"text", "t" + kSteering}};
    write("record-0.json", Json{{"talweg_flight_record", 1},
                                {"reason", "asked"},
                                {"job", "j" + kSteering},
                                {"group", "g" + kSteering},
                                {"rank", 0},
                                {"size", 2},
                                {"hosts", {a, b}},
                                {"monotonic_ns", 3},
                                {"wall_ns", 3},
                                {"operations", Json::array({call})}}
                               .dump());
    const Json args{{"job", "j" + kSteering}, {"rank", 0}, {"wall_ns", 1}, {"monotonic_ns", 1}};
    const Json event{{"name", "e" + kSteering}, {"ph", "X"}, {"ts", 1}, {"dur", 1}, {"pid", 0}, {"tid", 0}};
    write("trace-0.json", "[\n" + Json{{"name", "talweg_trace"}, {"ph", "M"}, {"args", args}}.dump() + ",\n" +
                              event.dump() + "\n]\n");
    for (const std::string& name : {std::string("talweg.conf"), "z" + kSteering + ".conf"})
      write(name, "TALWEG_ALGO=c" + kSteering + "\n");
  }
  ~SteeringFiles() { std::filesystem::remove_all(folder_); }
  SteeringFiles(const SteeringFiles&) = delete;
  SteeringFiles& operator=(const SteeringFiles&) = delete;

  // What `talweg` WORDS does among them.
  Outcome run(const std::string& words, const std::string& before = "") const {
    return shell("cd " + text::shell_quoted(folder_.string()) + "; " + before + " \"$TALWEG\" " + words);
  }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
  }
  std::string read(const std::string& name) const {
    std::ifstream in(folder_ / name);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  const std::string a = "a" + kSteering, b = "b" + kSteering, agg = "agg" + kSteering;

 private:
  Json network() const {
    const std::string s = "s" + kSteering;
    Json document;
    for (const auto& [name, kind] :
         {std::pair{a, "worker"}, {b, "worker"}, {s, "switch"}, {agg, "aggregator"}}) {
      document["nodes"].push_back(Json{{"name", name}, {"kind", kind}});
      if (name != s)
        document["links"].push_back(
            Json{{"between", {name, s}}, {"capacity", "1Gbit/s"}, {"latency", "30us"}});
    }
    const Json card{
        {"name", "q" + kSteering}, {"capacity", "1Gbit/s"}, {"links", {a + "->" + s, s + "->" + a}}};
    document["groups"].push_back(card);
    return document;
  }

  const std::filesystem::path folder_;
};

void expect_harmless(const std::string& text, const std::string& whose) {
  for (std::string_view left = text; !left.empty();) {
    const std::size_t length = utf8_length(left);
    ASSERT_GT(length, 0U) << whose << ": bytes that are no character";
    const char32_t c = decoded(left.substr(0, length));
    ASSERT_TRUE(c == U'\n' || !steers(c)) << whose << fmt::format(": U+{:04X}", static_cast<unsigned>(c));
    left.remove_prefix(length);
  }
}

bool says(const Json& document, const std::string& text) {
  if (document.is_string()) return document.get<std::string>().find(text) != std::string::npos;
  return document.is_structured() &&
         std::any_of(document.begin(), document.end(), [&](const Json& each) { return says(each, text); });
}

TEST(Usage, WhatAFileSaysCannotSteerTheTerminal) {
  const SteeringFiles files;
  const std::string lab = R"(started=$(cut -d ' ' -f 22 /proc/$$/stat); export XDG_RUNTIME_DIR="$PWD/lab"
sed "s/STARTED/$started/; s/12345678/$$/" note >lab/talweg/lab-l.json;)";
  const Json host{{"name", "h"}, {"worker", true}, {"address", "d" + kSteering}, {"net", ""}};
  files.write("note", Json{{"name", "l" + kSteering},
                           {"cluster_file", "f" + kSteering},
                           {"network", ""},
                           {"holder", 12345678},
                           {"switches", ""},
                           {"holder_started", "STARTED"},
                           {"hosts", Json::array({host})}}
                          .dump());
  struct Line {
    const char* words;
    std::string shown;
    int exit_code = 0;
    std::string before{};
  };
  const std::string conf = "TALWEG_CONF_FILE=talweg.conf";
  const Line lines[] = {
      {"plan named.json --bytes 4K --html plan.html", printable("q" + kSteering)},
      {"plan key.json", "unknown key \"" + printable("k" + kSteering) + "\"", 2},
      {"simulate named.json --bytes 4K --trace trace.json --html simulated.html", printable(files.a)},
      {"simulate named.json --workload work.json --wide", printable("g" + kSteering)},
      {"simulate named.json --workload work.json --csv -", printable("g" + kSteering)},
      {"simulate x*.json --workload y*.json", printable("x" + kSteering)},
      {"simulate x*.json --workload y*.json", printable("y" + kSteering)},
      {"info all_reduce --cluster x*.json", printable("x" + kSteering)},
      {"perf all_reduce --sim named.json -b 4K -e 4K -n 1 -w 0", printable(files.a)},
      {"info all_reduce --cluster named.json", printable(files.agg)},
      {"info all_reduce -n 2", printable("c" + kSteering), 0, conf},
      {"info all_reduce -n 2", printable("z" + kSteering), 0, "TALWEG_CONF_FILE=\"$(ls z*.conf)\""},
      {"info", printable("TALWEG_ALG" + kSteering), 0, "env 'TALWEG_ALG" + kSteering + "=1'"},
      {"info", printable("c" + kSteering), 1, conf},
      {"convert named.json - --to dot", text::backslashed(files.a)},
      {"convert named.json - --to yaml", text::json_escaped(files.a)},
      {"doctor record-0.json", "job " + printable("j" + kSteering) + " group " + printable("g" + kSteering)},
      {"lab list --wide", printable("l" + kSteering), 0, lab},
      {"lab list --wide", printable("d" + kSteering), 0, lab},
      {"lab list --wide", printable("f" + kSteering), 0, lab}};
  for (const Line& line : lines) {
    const Outcome outcome = files.run(line.words, line.before);
    EXPECT_EQ(outcome.exit_code, line.exit_code) << line.words << "\n" << outcome.err;
    for (const std::string& text : {outcome.out, outcome.err}) expect_harmless(text, line.words);
    EXPECT_THAT(line.exit_code == 2 ? outcome.err : outcome.out, HasSubstr(line.shown)) << line.words;
  }
  for (const char* name : {"plan.html", "trace.json", "simulated.html"})
    expect_harmless(files.read(name), name);
  EXPECT_THAT(files.read("plan.html"), HasSubstr(Json(printable(files.a)).dump(-1, ' ', true)));
  EXPECT_TRUE(says(Json::parse(files.read("trace.json")), files.a));
  EXPECT_THAT(files.read("simulated.html"), HasSubstr(printable(files.a)));
}

TEST(Usage, WhatAFileSaysIsInDocumentsToTheLetter) {
  const SteeringFiles files;
  struct Line {
    const char* words;
    std::string name;
  };
  const auto document_of = [&](const Line& line) {
    const Outcome outcome = files.run(line.words);
    EXPECT_EQ(outcome.exit_code, 0) << line.words << "\n" << outcome.err;
    for (const std::string& text : {outcome.out, outcome.err}) expect_harmless(text, line.words);
    Json document = Json::parse(outcome.out, nullptr, false);
    EXPECT_TRUE(says(document, line.name)) << line.words << "\n" << outcome.out;
    return document;
  };
  for (const Line& line :
       {Line{"plan named.json --bytes 4K --json -", "q" + kSteering},
        {"simulate named.json --bytes 4K --json -", files.a},
        {"simulate named.json --workload work.json --json -", "g" + kSteering},
        {"perf all_reduce --sim named.json -b 4K -e 4K -n 1 -w 0 --json -", files.b},
        {"info all_reduce --cluster named.json --json -", files.agg},
        {"doctor record-0.json --json -", "j" + kSteering},
        {"doctor trace-0.json --trace -", "e" + kSteering},
        {"convert named.json - --to json", files.agg},
        {"convert named.json again.yaml && \"$TALWEG\" convert again.yaml - --to json", files.agg}})
    document_of(line);
  Json forest = document_of({"convert named.json - --to json --op all_reduce --algo ring", "ring"});
  forest["planner"] = "p" + kSteering;
  files.write("forest.json", forest.dump());
  document_of({"convert forest.json - --to json", "p" + kSteering});
  document_of(
      {"convert forest.json again.yaml && \"$TALWEG\" convert again.yaml - --to json", "p" + kSteering});
  expect_harmless(files.read("again.yaml"), "a forest in YAML");
  const Outcome msccl = files.run("convert forest.json - --to msccl");
  EXPECT_EQ(msccl.exit_code, 0) << msccl.err;
  expect_harmless(msccl.out + msccl.err, "convert --to msccl");
  EXPECT_THAT(msccl.out, HasSubstr("<algo name=\"" + printable("p" + kSteering) + "-allreduce\""));
}

TEST(Usage, AFileOfManyKeysTakesLittleMemory) {
  const std::string limit = kSanitized ? "unlimited" : "200000";  // sanitizers take terabytes of addresses
  const Outcome outcome =
      shell("LIMIT=" + limit + R"sh(; file=$(mktemp); seq 200000 | sed 's/.*/key&: &/' > "$file"
(ulimit -v $LIMIT; "$TALWEG" convert "$file" - --to yaml --from talweg); rm "$file")sh");
  EXPECT_THAT(outcome.err, HasSubstr("unknown key \"key1\""));
}

TEST(Usage, OutputThatIsLostIsAFailure) {
  for (const char* words :
       {"--help", "info", "plan \"$C\" --bytes 4K", "plan \"$C\" --bytes 4K --json -",
        "simulate \"$C\" --bytes 4K", "convert \"$C\" - --to dot", "perf all_reduce -b 4 -e 4 -n 1 -w 0",
        "perf all_reduce -b 4 -e 4 -n 1 -w 0 --json -",
        "perf all_reduce -b 4K -e 4K -n 1 -w 0 --sim \"$C\""}) {
    const Outcome outcome =
        shell(std::string("C=" TALWEG_SOURCE_DIR "/examples/clusters/uneven4.yaml; \"$TALWEG\" ") + words +
              " >/dev/full");
    EXPECT_EQ(outcome.exit_code, 1) << words << outcome.err;
    EXPECT_THAT(outcome.err, testing::HasSubstr("cannot write to standard output")) << words;
  }
}

TEST(Usage, WhatCannotBeSaidChangesNoExitCode) {
  const std::string cluster = "C=" TALWEG_SOURCE_DIR "/examples/clusters/uneven4.yaml; \"$TALWEG\" ";
  for (const char* closed : {" 2>&-", " 2>/dev/full"}) {
    for (const char* words : {"predict nonexistent", "plan nonexistent", "plan \"$C\" --nonsense"})
      EXPECT_EQ(shell(cluster + words + closed).exit_code, 2) << words << closed;
    EXPECT_EQ(shell(cluster + "info >/dev/full" + closed).exit_code, 1) << closed;
    for (const char* words : {"simulate \"$C\" --bytes 4K", "plan \"$C\" --bytes 4K --algo ring --json -"}) {
      const Outcome outcome = shell(cluster + words + closed);
      EXPECT_EQ(outcome.exit_code, 0) << words << closed;
      EXPECT_FALSE(outcome.out.empty()) << words << closed;
    }
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
