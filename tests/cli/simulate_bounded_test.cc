// `talweg simulate --algo bounded`, as its users start it.
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/program.h"

namespace talweg::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

Outcome simulate_bounded(const std::vector<std::string>& more) {
  std::vector<std::string> arguments{"simulate", "--topology", "star:hosts=4,rate=1G", "--algo", "bounded"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return talweg(arguments);
}

nlohmann::json json_of(std::vector<std::string> more) {
  more.insert(more.end(), {"--json", "-"});
  const Outcome outcome = simulate_bounded(more);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  return nlohmann::json::parse(outcome.out);
}

TEST(SimulateBounded, SaysWhatWasLostInTableAndJson) {
  const std::vector<std::string> how{"-b", "1M", "-n", "10", "--loss", "0.02", "--may-lose", "0.05"};
  const Outcome outcome = simulate_bounded(how);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("  bounded\n"),
                    HasSubstr("% of what ranks sent each other did not come in time; at most 5 %")));
  const auto json = json_of(how);
  const auto& line = json["results"][0];
  EXPECT_GT(line["lost_part"].get<double>(), 0.001);
  EXPECT_LE(line["lost_part"].get<double>(), 0.05);
  EXPECT_GT(json["report"]["retransmissions"].get<std::uint64_t>(), 0U);
  const auto exact = json_of({"-b", "1M", "-n", "10", "--loss", "0.02", "--may-lose", "0"});
  EXPECT_EQ(exact["results"][0]["lost_part"], 0.0);
  EXPECT_THAT(simulate_bounded({"-b", "64K", "-n", "1", "--csv", "-"}).out,
              HasSubstr(",lost_part,algorithm\n"));
  const auto ring =
      talweg({"simulate", "--topology", "star:hosts=4,rate=1G", "--algo", "ring", "--json", "-"});
  EXPECT_THAT(ring.out, Not(HasSubstr("lost_part")));
}

TEST(SimulateBounded, HasLimitsBesideWhatMayBeLost) {
  const auto lost = [](const std::vector<std::string>& limit) {
    std::vector<std::string> how{"-b", "1M", "-n", "40", "--loss", "0.05", "--may-lose", "0.1"};
    how.insert(how.end(), limit.begin(), limit.end());
    return json_of(how)["results"][0]["lost_part"].get<double>();
  };
  EXPECT_GT(lost({}), 0.03);
  const double of_sender = lost({"--may-lose-sender", "0.01"}), of_call = lost({"--may-lose-call", "0.02"});
  EXPECT_GT(of_sender, 0.005);
  EXPECT_LE(of_sender, 0.01 * (40 + 15) / 40);
  EXPECT_GT(of_call, 0.01);
  EXPECT_LE(of_call, 0.02);
  EXPECT_THAT(
      simulate_bounded({"-b", "64K", "-n", "1", "--may-lose", "0.1", "--may-lose-sender", "0.01",
                        "--may-lose-call", "0.02", "--wide"})
          .out,
      AllOf(HasSubstr("at most 10 %"), HasSubstr(", 1 % of that on average over calls, and 2 % of what")));
  for (const char* flag : {"--may-lose-sender", "--may-lose-call"})
    EXPECT_THAT(simulate_bounded({"--may-lose", "0.1", flag, "0.2"}).err,
                AllOf(HasSubstr(flag), HasSubstr("to 0.1"), HasSubstr("above --may-lose")));
}

TEST(SimulateBounded, IsNearlyAsQuickAsPlannedWhereNothingIsLost) {
  const auto line = json_of({"-b", "4M", "-n", "5"})["results"][0];
  const auto took = line["out_of_place"]["time_us"].get<double>();
  EXPECT_GT(line["planned"]["predicted_us"].get<double>() / took, 0.75);
  EXPECT_LT(line["planned"]["predicted_us"].get<double>() / took, 1.05);
  EXPECT_EQ(line["planned"]["limit"], "links");
  EXPECT_EQ(line["lost_part"].get<double>() < 0.001, true);
}

// A call after a rest takes as long as any; with processors that cost something it takes longer.
TEST(SimulateBounded, RestsBetweenCallsAndPaysForProcessors) {
  const auto run = [](const std::vector<std::string>& more) {
    std::vector<std::string> all{"-b", "4K", "-n", "10"};
    all.insert(all.end(), more.begin(), more.end());
    return json_of(all);
  };
  const auto time_us = [](const nlohmann::json& json) {
    return json["results"][0]["out_of_place"]["time_us"].get<double>();
  };
  const auto plain = run({}), rested = run({"--rest", "50ms"}), busy = run({"--processors", "tcp"});
  EXPECT_LT(plain["report"]["simulated_us"].get<double>(), 20e3);
  EXPECT_GT(rested["report"]["simulated_us"].get<double>(), 50e3);
  EXPECT_NEAR(time_us(rested), time_us(plain), 0.05 * time_us(plain));
  EXPECT_EQ(rested["report"]["timeouts"], 0U);
  EXPECT_GT(time_us(busy), 1.3 * time_us(plain));
}

TEST(SimulateBounded, HeedsMarksOfTheNetwork) {
  const auto run = [](const char* mark) {
    return json_of({"-b", "4M", "-n", "5", "--mark", mark})["report"];
  };
  const auto never = run("0"), marks = run("8K");
  const auto marked = [](const nlohmann::json& report) {
    return std::ranges::count_if(report["marked_by_priority"], [](const auto& n) { return n > 0; });
  };
  EXPECT_EQ(marked(never), 0);
  EXPECT_EQ(marked(marks), 1) << "all have one priority";
  EXPECT_LT(marks["longest_queue_bytes"].get<double>(), 0.9 * never["longest_queue_bytes"].get<double>());
}

// A server's link carries the whole vector of each other rank, one way after the other.
TEST(SimulateBounded, FewerServersTakeLongerAsPlanned) {
  double before = 0;
  for (const char* servers : {"0,1,2,3", "1,2", "3"}) {
    const auto line = json_of({"-b", "4M", "-n", "3", "--servers", servers})["results"][0];
    const auto took = line["out_of_place"]["time_us"].get<double>();
    EXPECT_GT(line["planned"]["predicted_us"].get<double>() / took, 0.75) << servers;
    EXPECT_LT(line["planned"]["predicted_us"].get<double>() / took, 1.05) << servers;
    EXPECT_GT(took, 1.5 * before) << servers;
    before = took;
  }
  EXPECT_GT(before, 2 * 3 * 4 * 1048576 / 0.125e9 * 1e6) << "what one link takes, both ways";
}

TEST(SimulateBounded, StandsBesideOthersAndInSweepsPagesAndTraces) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("talweg-simulate-bounded-" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  const Outcome outcome =
      talweg({"simulate", "--topology", "star:hosts=4", "--algo", "bounded,ring", "-b", "64K,256K", "-n", "2",
              "--html", folder / "p.html", "--trace", folder / "t.json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  std::ifstream page(folder / "p.html");
  EXPECT_THAT(std::string(std::istreambuf_iterator<char>(page), {}),
              HasSubstr("all_reduce of 256 KiB with bounded loss"));
  std::ifstream trace(folder / "t.json");
  std::size_t spans = 0;
  for (const auto& event : nlohmann::json::parse(trace))
    spans += event.value("ph", "") == "b" && event.value("name", "") == "all_reduce" ? 1 : 0;
  EXPECT_GE(spans, 2U * 4U * 23U + 2U * 4U * 3U) << "with the calls that lose nothing";
  EXPECT_THAT(simulate_bounded({"-b", "64K", "-n", "2", "--loss", "0.02", "--sweep", "may-lose=0,0.1"}).out,
              AllOf(HasSubstr("bounded"), HasSubstr("lost")));
  EXPECT_THAT(talweg({"simulate", "--topology", "star:hosts=4", "--algo", "all", "-b", "64K", "-n", "1"}).out,
              Not(HasSubstr("bounded")))
      << "what may lose a part is no other way to do the same";
  std::filesystem::remove_all(folder);
}

TEST(SimulateBounded, WhatItCannotDoIsSaidInOneLine) {
  struct Bad {
    std::vector<std::string> more;
    const char* said;
  };
  const Bad all[] = {
      {{"--op", "broadcast"}, "--algo bounded: it does not serve broadcast"},
      {{"-d", "int32"}, "--algo bounded: a sum of i32 with bounded loss: expected f16, bf16, f32 or f64"},
      {{"--fluid"}, "--algo bounded: its datagrams are packets, and --fluid has none"},
      {{"--may-lose", "0.6"}, "--may-lose"},
      {{"--may-lose", "-1"}, "--may-lose"},
      {{"--paths", "0"}, "--paths"},
      {{"--servers", "0,4"}, "--servers 0,4: rank 4 as a server: expected 0 to 3"},
      {{"--servers", "1,1"}, "--servers 1,1: rank 1 is a server twice"},
      {{"--servers", "1,"}, "--servers 1,: expected ranks with commas between them"},
      {{"--paths", "17"}, "--paths"},
      {{"--payload", "64"}, "--algo bounded: packets with 64 bytes of payload have no room for"},
      {{"--burst-loss", "0.1"},
       "--burst-loss: expected two probabilities: begins,ends, or one and a time: begins,100us"},
      {{"--burst-loss", "0.1,0s"}, "--burst-loss: expected two probabilities"},
      {{"--burst-loss", "2,1ms"}, "--burst-loss: expected two probabilities"},
      {{"-b", "900T"}, "more than can be simulated here"},
      {{"--burst-loss", "0.1,9000000000s"}, "--burst-loss 9000000000s: expected at most 10 days"},
      {{"--fail", "h1@1us"}, "h1 failed at 1 us and was not repaired: "},
      {{"--fail", "h1@1us", "--horizon", "1s"}, "h1 failed at 1 us and was not repaired"},
  };
  for (const Bad& bad : all) {
    const Outcome refused = simulate_bounded(bad.more);
    EXPECT_NE(refused.exit_code, 0) << bad.said;
    EXPECT_EQ(count_lines(refused.err), 1) << refused.err;
    EXPECT_THAT(refused.err, HasSubstr(bad.said));
  }
  EXPECT_THAT(talweg({"simulate", "--topology", "star:hosts=5000", "--algo", "bounded"}).err,
              HasSubstr("sums with bounded loss of 5000 workers: expected fewer"));
  EXPECT_THAT(talweg({"simulate", "--topology", "star:hosts=5000", "--algo", "bounded"}).err,
              HasSubstr("sums with bounded loss of 5000 workers: expected fewer"));
  EXPECT_THAT(simulate_bounded({"-b", "64K", "--window", "20"}).err,
              HasSubstr("--window: datagrams have windows of their own"));
  EXPECT_THAT(talweg({"simulate", "--topology", "star:hosts=4", "-b", "64K", "--may-lose", "0.1"}).err,
              HasSubstr("--may-lose: only --algo bounded and switch lose a part"));
  EXPECT_THAT(talweg({"simulate", "--topology", "star:hosts=4", "-b", "64K", "--paths", "4"}).err,
              HasSubstr("--paths: only --algo bounded chooses among paths"));
  EXPECT_THAT(talweg({"simulate", "--topology", "star:hosts=4", "-b", "64K", "--servers", "0"}).err,
              HasSubstr("--servers: only --algo bounded has servers"));
  EXPECT_THAT(simulate_bounded({"-b", "64K", "--paths", "4", "--routing", "spray"}).err,
              HasSubstr("--paths: with --routing spray each packet takes a way of its own"));
}

}  // namespace
}  // namespace talweg::cli
