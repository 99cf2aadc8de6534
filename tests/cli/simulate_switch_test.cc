// `talweg simulate --algo switch`, as its users start it.
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/program.h"

namespace talweg::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const std::string kBox = TALWEG_SOURCE_DIR "/examples/clusters/aggregator4.yaml";

Outcome simulate(const std::vector<std::string>& more) {
  std::vector<std::string> arguments{"simulate", kBox, "--algo", "switch"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return talweg(arguments);
}

TEST(SimulateSwitch, IsAsQuickAsItsLinksLetItAndSaysSoInTableJsonPageAndTrace) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("talweg-simulate-switch-" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  const auto text = [&](const char* name) {
    std::ifstream in(folder / name);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  const Outcome outcome =
      talweg({"simulate", kBox, "--algo", "switch,ring", "-b", "1M,16M", "-n", "1", "--json",
              folder / "a.json", "--html", folder / "p.html", "--trace", folder / "t.json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("switch through agg"));
  const auto json = nlohmann::json::parse(text("a.json"));
  ASSERT_EQ(json["results"].size(), 4U);
  const auto took = [&](std::size_t i) {
    return json["results"][i]["out_of_place"]["time_us"].get<double>();
  };
  EXPECT_LT(took(2), took(3) / 1.4) << "up once and down once; a ring carries one and a half times as much";
  const auto& planned = json["results"][2]["planned"];
  EXPECT_NEAR(planned["predicted_us"].get<double>() / took(2), 1, 0.03);
  EXPECT_EQ(planned["through"], nlohmann::json::array({"agg"}));
  EXPECT_EQ(planned["limit"], "links");
  EXPECT_THAT(text("p.html"), HasSubstr("all_reduce of 16 MiB by switch"));
  std::size_t spans = 0;
  for (const auto& event : nlohmann::json::parse(text("t.json")))
    spans += event.value("ph", "") == "b" && event.value("name", "") == "all_reduce" ? 1 : 0;
  EXPECT_GE(spans, 4U * 4U * 2U) << "four runs of four ranks, each with a warm-up call";
  std::filesystem::remove_all(folder);
}

TEST(SimulateSwitch, SumsInTwoStepsWhereSwitchesOfRacksAreBelowOne) {
  const std::string racks = TALWEG_SOURCE_DIR "/examples/clusters/racks2x2.yaml";
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / ("talweg-simulate-racks-" + std::to_string(::getpid()));
  const Outcome outcome = talweg({"simulate", racks, "--algo", "switch", "-b", "4,16M", "-n", "1",
                                  "--processors", "tcp", "--json", file});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  std::ifstream in(file);
  const auto said = nlohmann::json::parse(in);
  EXPECT_EQ(said["results"].size(), 2U);
  for (const auto& row : said["results"]) {
    EXPECT_EQ(row["planned"]["through"], nlohmann::json::array({"spine", "leaf0", "leaf1"}));
    const double took = row["out_of_place"]["time_us"].get<double>();
    EXPECT_NEAR(row["planned"]["predicted_us"].get<double>() / took, 1, 0.08);
  }
  std::filesystem::remove(file);
  EXPECT_THAT(talweg({"plan", racks, "--bytes", "16M"}).out,
              HasSubstr("switch at spine and leaf0 and leaf1"));
}

// A twentieth of the elements on each of four ranks is in nearly all blocks, and a fifth of the elements on
// any.
TEST(SimulateSwitch, TakesAsLongAsWhatTravelsOfSparseVectors) {
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / ("talweg-simulate-sparse-" + std::to_string(::getpid()));
  const auto took = [&](std::vector<std::string> how) {
    how.insert(how.end(), {"-b", "4M", "-n", "1", "-w", "0", "--json", file});
    const Outcome outcome = simulate(how);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    std::ifstream in(file);
    const auto row = nlohmann::json::parse(in)["results"][0];
    const double us = row["out_of_place"]["time_us"].get<double>();
    EXPECT_NEAR(row["planned"]["predicted_us"].get<double>() / us, 1, 0.1);
    return us;
  };
  const std::vector<std::string> sparse{"--sparse-density", "0.05", "--sparse-run", "1", "--sparse-as"};
  const auto as = [&](const std::string& form) {
    std::vector<std::string> how = sparse;
    how.push_back(form);
    return took(how);
  };
  const double dense = took({}), pairs = as("pairs"), blocks = as("blocks");
  EXPECT_NEAR(as("dense") / dense, 1, 0.01);
  EXPECT_NEAR(blocks / dense, 1, 0.02);
  EXPECT_NEAR(pairs / dense, 1.5 * (1 - 0.95 * 0.95 * 0.95 * 0.95), 0.05);
  EXPECT_NEAR(took({"--sparse-as", "pairs"}) / dense, 1.5, 0.05) << "nothing is zero";
  EXPECT_LT(took({"--sparse-density", "0.05"}), 0.3 * dense) << "whole blocks that are zero";
  // A block fills less of its datagram: what is around it counts for more.
  const double block8 = took({"--switch-format", "block8"}), block4 = took({"--switch-format", "block4"});
  EXPECT_LT(block8, 0.45 * dense);
  EXPECT_LT(block4, 0.8 * block8);
  EXPECT_LT(took({"--switch-format", "block8", "--sparse-density", "0.05"}), 0.3 * block8);
  EXPECT_THAT(simulate({"--switch-format", "block8", "-d", "half"}).err,
              HasSubstr("--switch-format block8 is for -d float, not for f16"));
  EXPECT_THAT(simulate({"--sparse-as", "pairs", "-d", "half"}).err,
              HasSubstr("--sparse-as pairs: pairs are of float, not of f16"));
  EXPECT_THAT(simulate({"--sparse-density", "0.5", "--overlap", "none"}).err,
              HasSubstr("--overlap none: 4 ranks cannot have 0.5 of all blocks each and none in common"));
  const Outcome dense_runs = simulate({"--sparse-run", "1", "-b", "64K"});
  EXPECT_THAT(dense_runs.out + dense_runs.err,
              HasSubstr("--sparse-run: with --sparse-density 1 nothing is zero"));
  std::filesystem::remove(file);
}

TEST(SimulateSwitch, IsOneOfAllAlgorithmsWhereThereIsAnAggregator) {
  const std::vector<std::string> all{"simulate", kBox, "--algo", "all", "-b", "64K", "-n", "1", "--csv", "-"};
  EXPECT_THAT(talweg(all).out, HasSubstr(",switch through agg\n"));
  EXPECT_THAT(talweg({"simulate", kBox, "--sweep", "algo=switch,ring", "-b", "64K", "-n", "1"}).out,
              HasSubstr("switch through agg"));
  EXPECT_THAT(talweg({"simulate", kBox, "--sweep", "algo=all", "-b", "64K", "-n", "1"}).out,
              AllOf(HasSubstr("switch through agg"), HasSubstr("halving_doubling")));
  for (const std::vector<std::string>& how :
       {std::vector<std::string>{"--topology", "star:hosts=4", "--algo", "all"},
        {"--topology", "star:hosts=4", "--sweep", "algo=all"},
        {kBox, "--sweep", "algo=all", "--op", "broadcast"}}) {
    std::vector<std::string> arguments{"simulate", "-b", "64K", "-n", "1"};
    arguments.insert(arguments.end(), how.begin(), how.end());
    const Outcome without = talweg(arguments);
    EXPECT_EQ(without.exit_code, 0) << without.err;
    EXPECT_THAT(without.out, AllOf(HasSubstr("binomial"), testing::Not(HasSubstr("switch through"))));
  }
}

// Two ports are twice as quick as one; an aggregator beside them has no part in it.
TEST(SimulateSwitch, NodesThatSayWhereTheirSwitchListensSum) {
  const auto milliseconds = [](const std::string& switches) {
    const Outcome outcome = shell(
        "d=$(mktemp -d); trap 'rm -r $d' EXIT; cat >$d/net.yaml <<'END'\n"
        "nodes: [{name: h0}, {name: h1}, {name: sw, kind: switch}, {name: agg, kind: aggregator}, " +
        switches +
        "]\nlinks:\n  - {between: [h0, sw], capacity: 10Gbit/s}\n  - {between: [h1, sw], capacity: "
        "10Gbit/s}\n"
        "  - {between: [agg, sw], capacity: 10Gbit/s}\n  - {between: [one, sw], capacity: 1Gbit/s}\n"
        "  - {between: [two, sw], capacity: 1Gbit/s}\nEND\n"
        "\"$TALWEG\" simulate $d/net.yaml --algo switch -b 4M -n 1 -w 0 --json -");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return nlohmann::json::parse(outcome.out)["results"][0]["out_of_place"]["time_us"].get<double>() / 1e3;
  };
  const std::string one = "{name: one, kind: switch, switch: \"a:1\"}",
                    two = "{name: two, kind: switch, switch: \"b:2\"}";
  // Both vectors of 4 MiB go over one port, or half of each.
  EXPECT_NEAR(milliseconds(one + ", {name: two, kind: switch}"), 70, 7);
  EXPECT_NEAR(milliseconds(one + ", " + two), 35, 4);
}

TEST(SimulateSwitch, LosesAPartWhereItMayAndSaysHowMuch) {
  const auto json = [](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"-b", "1M", "-n", "4", "--loss", "0.02", "--json", "-"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = simulate(arguments);
    return std::pair(outcome, nlohmann::json::parse(outcome.out)["results"][0]);
  };
  const auto [lossy, result] = json({"--may-lose", "0.05"});
  EXPECT_GT(result["lost_part"].get<double>(), 0);
  EXPECT_LE(result["lost_part"].get<double>(), 0.05);
  EXPECT_FALSE(result.contains("lost_important_part")) << "a switch knows no packets that are droppable";
  EXPECT_FALSE(json({}).second.contains("lost_part")) << "nothing may be missing unless it is said";
  EXPECT_THAT(simulate({"-b", "1M", "-n", "1", "--may-lose", "0.05"}).out,
              AllOf(HasSubstr("0 % of what workers sent is not in these sums"), HasSubstr("at most 5 %"),
                    HasSubstr("20 more, which lose nothing")));
  const Outcome racks = talweg({"simulate", TALWEG_SOURCE_DIR "/examples/clusters/racks2x2.yaml", "--algo",
                                "switch", "--may-lose", "0.05", "-b", "64K"});
  EXPECT_NE(racks.exit_code, 0);
  EXPECT_THAT(racks.err,
              HasSubstr("--algo switch: nothing may be missing of sums that racks' switches make"));
  EXPECT_EQ(count_lines(racks.err), 1) << racks.err;
  EXPECT_THAT(simulate({"-b", "64K", "--may-lose", "0.05", "--may-lose-call", "0.01"}).err,
              HasSubstr("--may-lose-call: only --algo bounded has it"));
}

TEST(SimulateSwitch, WhatItCannotDoIsSaidInOneLine) {
  struct Bad {
    std::vector<std::string> more;
    const char* said;
  };
  const Bad all[] = {
      {{"--op", "broadcast"}, "--algo switch: it does not serve broadcast"},
      {{"-d", "double"}, "--algo switch: it sums float, half, bfloat16 and int32, not f64"},
      {{"--fluid"}, "--algo switch: its datagrams are packets, and --fluid has none"},
      {{"-b", "900T"}, "more than can be simulated here"},
      {{"--payload", "64"}, "--algo switch: packets with 64 bytes of payload have no room for a block"},
      {{"--fail", "agg@1us", "--horizon", "1s"},
       "agg failed at 1 us and was not repaired: all_reduce by switch had"},
  };
  for (const Bad& bad : all) {
    const Outcome refused = simulate(bad.more);
    EXPECT_NE(refused.exit_code, 0) << bad.said;
    EXPECT_EQ(count_lines(refused.err), 1) << refused.err;
    EXPECT_THAT(refused.err, HasSubstr(bad.said));
  }
  EXPECT_THAT(talweg({"simulate", "--topology", "star:hosts=4", "--algo", "switch"}).err,
              HasSubstr("--algo switch: star:hosts=4 has no switch or aggregator that all workers reach"));
  EXPECT_THAT(talweg({"simulate", kBox, "--algo", "best"}).err, HasSubstr(", switch"));
  EXPECT_THAT(simulate({"-b", "64K", "--window", "20"}).err,
              HasSubstr("--window: datagrams have windows of their own"));
}

}  // namespace
}  // namespace talweg::cli
