// `talweg perf` of sums of which a part may be lost, and of the algorithm that TALWEG_ALGO names.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "cli/program.h"

namespace talweg::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const std::string kFourHosts = std::string(TALWEG_SOURCE_DIR) + "/examples/clusters/uneven4.yaml";

Outcome perf_on_file(const std::vector<std::string>& more, const std::vector<std::string>& environment = {}) {
  std::vector<std::string> line{"perf", "all_reduce", "-b", "64K",   "-e",
                                "64K",  "-n",         "2",  "--sim", kFourHosts};
  line.insert(line.end(), more.begin(), more.end());
  return talweg(line, environment);
}

TEST(PerfMayLose, TimesAndChecksSumsOfRanks) {
  const Outcome outcome = shell(
      "\"$TALWEG\" run -n 3 --no-tag-output --timeout 100s -- \"$TALWEG\" perf all_reduce --may-lose 0.1 -b "
      "64K "
      "-e 256K -f 4 -n 3 -c 2 --json -");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.err,
              AllOf(HasSubstr("# Out of bounds values : 0 OK\n"), HasSubstr(": bounded\n"),
                    HasSubstr("# 256 KiB, bounded: "), HasSubstr("at most 10 % may be missing")));
  const auto json = nlohmann::json::parse(outcome.out);
  ASSERT_EQ(json["results"].size(), 2U);
  for (const auto& line : json["results"]) {
    EXPECT_EQ(line["algorithm"], "bounded");
    EXPECT_LE(line["lost_part"].get<double>(), 0.1);
    EXPECT_EQ(line["out_of_place"]["wrong_elements"], 0);
    EXPECT_EQ(line["in_place"]["wrong_elements"], 0);
  }
  EXPECT_GT(json["wire_bytes"].get<double>(), 20 * 256 * 1024);
}

TEST(PerfMayLose, HasTheLimitsThatItIsGiven) {
  const Outcome outcome = shell(
      "\"$TALWEG\" run -n 2 --no-tag-output --timeout 100s -- \"$TALWEG\" perf all_reduce --may-lose 0.1 "
      "--may-lose-sender 0.05 --may-lose-call 0.05 -b 64K -e 64K -n 2 -c 2 --json -");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(nlohmann::json::parse(outcome.out)["results"][0]["out_of_place"]["wrong_elements"], 0);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("5 % of that"), HasSubstr("5 % of what all others")));
  const Outcome simulated = perf_on_file({"--may-lose", "0.05", "--may-lose-call", "0.01"});
  EXPECT_EQ(simulated.exit_code, 0);
  EXPECT_THAT(simulated.out, AllOf(HasSubstr("at most 5 %"), HasSubstr("1 % of what all others")));
  EXPECT_THAT(shell("\"$TALWEG\" perf all_reduce --may-lose 0.05 --may-lose-sender 0.06").err,
              AllOf(HasSubstr("--may-lose-sender: "), HasSubstr("to 0.05"), HasSubstr("above --may-lose")));
  EXPECT_THAT(shell("\"$TALWEG\" perf all_reduce --may-lose-call 0.06").err,
              HasSubstr("--may-lose-call: a limit beside --may-lose, which is not given"));
}

TEST(PerfMayLose, HasTheServersThatItIsGiven) {
  const Outcome outcome = shell(
      "\"$TALWEG\" run -n 3 --no-tag-output --timeout 100s -- \"$TALWEG\" perf all_reduce --may-lose 0.1 "
      "--servers 2,0 -b 64K -e 64K -n 2 -c 2 --json -");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto line = nlohmann::json::parse(outcome.out)["results"][0];
  EXPECT_EQ(line["out_of_place"]["wrong_elements"], 0);
  EXPECT_EQ(line["in_place"]["wrong_elements"], 0);
  EXPECT_EQ(perf_on_file({"--may-lose", "0.05", "--servers", "0"}).exit_code, 0);
  EXPECT_THAT(perf_on_file({"--may-lose", "0.05", "--servers", "9"}).err,
              HasSubstr("--servers: rank 9 as a server: expected 0 to 3"));
  EXPECT_THAT(shell("\"$TALWEG\" perf all_reduce --may-lose 0.05 --servers 0,-1").err,
              HasSubstr("--servers 0,-1: expected ranks with commas between them, such as 0,1"));
  EXPECT_THAT(shell("\"$TALWEG\" perf all_reduce --servers 0").err,
              HasSubstr("--servers: they sum with --may-lose, which is not given"));
}

// Each link of the lab loses one packet in fifty.
TEST(PerfMayLose, SaysWhatALabHasLost) {
  const Outcome outcome = shell(
      "\"$TALWEG\" lab run --topology star:hosts=3,rate=1G --simulate --loss 0.02 --no-tag-output --timeout "
      "100s -- "
      "\"$TALWEG\" perf all_reduce --may-lose 0.2 -b 512K -e 512K -n 10 -c 5 --json -");
  if (outcome.err.find("a lab needs root") != std::string::npos ||
      outcome.err.find("needs /dev/net/tun") != std::string::npos)
    GTEST_SKIP() << outcome.err;
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto line = nlohmann::json::parse(outcome.out)["results"][0];
  EXPECT_GT(line["lost_part"].get<double>(), 0);
  EXPECT_LE(line["lost_part"].get<double>(), 0.2);
  EXPECT_EQ(line["out_of_place"]["wrong_elements"], 0);
}

TEST(PerfMayLose, IsSimulatedOnAFile) {
  const Outcome outcome = perf_on_file({"--may-lose", "0.05"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("64 KiB, bounded: 0 % of what ranks"), HasSubstr("at most 5 % may be")));
  EXPECT_EQ(nlohmann::json::parse(
                perf_on_file({"--may-lose", "0.05", "--json", "-"}).out)["results"][0]["lost_part"],
            0.0);
}

TEST(PerfMayLose, RefusesInOneLineWhatSuchSumsDoNotDo) {
  for (const char* words :
       {"broadcast --may-lose 0.1", "all_reduce --may-lose 0.1 -d int32", "all_reduce --may-lose 0.1 -o max",
        "all_reduce --may-lose 0.6", "all_reduce --may-lose -1", "all_reduce --may-lose 0.1 -m 2",
        "all_reduce --may-lose 0.1 --switch 127.0.0.1:1 --exact",
        "all_reduce --may-lose 0.1 --switch 127.0.0.1:1 --sparse-density 0.5",
        "all_reduce --may-lose 0.1 --switch 127.0.0.1:1 --sparse-as pairs",
        "all_reduce --may-lose 0.1 --switch 127.0.0.1:1 -d half",
        "all_reduce --may-lose 0.1 --switch 127.0.0.1:1 --may-lose-call 0.1",
        "all_reduce --may-lose 0.1 --switch 127.0.0.1:1 --servers 0"}) {
    const Outcome outcome = shell("\"$TALWEG\" perf " + std::string(words));
    EXPECT_EQ(outcome.exit_code, 2) << words << outcome.err;
    EXPECT_THAT(outcome.err, AllOf(HasSubstr("--may-lose"), Not(HasSubstr("\n\n")))) << words;
  }
}

TEST(PerfSim, GoesByTheAlgorithmThatTheEnvironmentNames) {
  EXPECT_THAT(perf_on_file({}, {"TALWEG_ALGO=ring"}).out, HasSubstr(": ring\n"));
  EXPECT_THAT(perf_on_file({}, {"TALWEG_ALGO=broadcast:chain;all_reduce:star"}).out, HasSubstr(": star\n"));
  EXPECT_EQ(perf_on_file({}, {"TALWEG_ALGO=broadcast:chain"}).out, perf_on_file({}).out);
  EXPECT_THAT(perf_on_file({"--may-lose", "0"}, {"TALWEG_ALGO=ring"}).out, HasSubstr(": bounded\n"));
  for (const char* name : {"xx", "bounded", "all_reduce:xx"}) {
    const Outcome unknown = perf_on_file({}, {std::string("TALWEG_ALGO=") + name});
    EXPECT_EQ(unknown.exit_code, 2) << name;
    EXPECT_EQ(unknown.out, "") << name;
    EXPECT_THAT(unknown.err, HasSubstr("expected one of halving_doubling, ring")) << name;
  }
  const Outcome no_switch = perf_on_file({"-d", "double"}, {"TALWEG_ALGO=switch"});
  EXPECT_EQ(no_switch.exit_code, 2);
  EXPECT_THAT(no_switch.err,
              HasSubstr("TALWEG_ALGO: switch: it sums float, half, bfloat16 and int32, not f64"));
}

}  // namespace
}  // namespace talweg::cli
