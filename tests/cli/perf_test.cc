#include <gmock/gmock.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "cli/program.h"
#include "sanitized.h"
#include "study/perf_case.h"
#include "talweg/types.h"

namespace talweg::cli {
namespace {

using testing::HasSubstr;

std::vector<std::string> result_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream input(text);
  for (std::string line; std::getline(input, line);)
    if (!line.empty() && line[0] != '#') lines.push_back(line);
  return lines;
}

// `talweg run -n ranks -- talweg perf ...`
Outcome perf(int ranks, std::vector<std::string> arguments) {
  std::vector<std::string> line = {
      "run",          "-n",  std::to_string(ranks), "--no-tag-output", "--timeout", "100s", "--",
      TALWEG_PROGRAM, "perf"};
  line.insert(line.end(), arguments.begin(), arguments.end());
  return talweg(line);
}

class EveryCollective : public testing::TestWithParam<std::tuple<int, int>> {};

TEST_P(EveryCollective, IsRightForEverySizeOnEveryRank) {
  const auto op = static_cast<Collective>(std::get<0>(GetParam()));
  // A message needs somebody to go to.
  const int ranks = std::max(std::get<1>(GetParam()), op == Collective::send_recv ? 2 : 1);
  const auto outcome = perf(ranks, {name(op), "-b", "4", "-e", "1M", "-f", "4", "-n", "2", "-w", "1"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("# Out of bounds values : 0 OK\n"));
  // 4 B are less than an element for each rank.
  const std::size_t sizes = has_parts(op) && ranks > 1 ? 9 : 10;
  EXPECT_EQ(result_lines(outcome.out).size(), op == Collective::barrier ? 1u : sizes) << outcome.out;
}

std::string case_name(const testing::TestParamInfo<std::tuple<int, int>>& info) {
  return std::string(name(static_cast<Collective>(std::get<0>(info.param)))) + "_of_" +
         std::to_string(std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(All, EveryCollective,
                         testing::Combine(testing::Range(0, kCollectives), testing::Values(1, 2, 4)),
                         case_name);

TEST(Perf, EveryTypeAndReductionIsRight) {
  for (const char* op : {"all", "bit_and", "bit_or", "bit_xor"}) {
    const auto outcome =
        perf(2, {"all_reduce", "-d", "all", "-o", op, "-b", "1000", "-e", "1000", "-n", "1", "-w", "0"});
    EXPECT_EQ(outcome.exit_code, 0) << op << outcome.out << outcome.err;
    EXPECT_GT(result_lines(outcome.out).size(), 8u);
  }
}

TEST(Perf, EveryRootIsServed) {
  const auto outcome = perf(3, {"broadcast", "-r", "all", "-b", "64K", "-e", "64K", "-n", "1"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
  EXPECT_EQ(result_lines(outcome.out).size(), 3u);
}

TEST(Perf, CallsInFlightTogetherAreRightInEveryBlockingMode) {
  for (const char* mode : {"0", "1", "2", "3"}) {
    const auto outcome = perf(
        4, {"all_reduce", "-z", mode, "-m", "3", "-u", "1", "-b", "64", "-e", "64K", "-f", "32", "-n", "5"});
    EXPECT_EQ(outcome.exit_code, 0) << mode << outcome.out << outcome.err;
  }
}

TEST(Perf, OnlyRankZeroSpeaks) {
  const auto outcome = perf(4, {"all_reduce", "-b", "4K", "-e", "4K", "-n", "1"});
  EXPECT_EQ(result_lines(outcome.out).size(), 1u) << outcome.out;
  EXPECT_THAT(outcome.out, HasSubstr("#  Rank  3 Group  0 Pid "));
  EXPECT_THAT(outcome.out, HasSubstr("# memory: chunk buffers peak "));
  EXPECT_THAT(outcome.out, HasSubstr("# wire bytes: "));
}

TEST(Perf, WithoutALauncherItRunsAloneAndSaysHowToStartMore) {
  const auto outcome = talweg({"perf", "all_reduce", "-b", "4K", "-e", "4K", "-n", "1"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out,
              HasSubstr("# one rank: start several with: talweg run -n 4 -- talweg perf all_reduce\n"));
}

TEST(Perf, JsonOnStandardOutputIsAllThatIsThere) {
  const auto outcome = perf(2, {"all_gather", "-b", "4K", "-e", "16K", "-f", "4", "-n", "2", "--json", "-"});
  const auto document = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(document["collective"], "all_gather");
  EXPECT_EQ(document["results"].size(), 2u);
  EXPECT_EQ(document["wrong_elements"], 0);
}

TEST(Perf, AskingForARootThatIsNotThereEndsEveryRankWithExitCode2) {
  const auto outcome = perf(2, {"broadcast", "-r", "2"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("-r 2: there are 2 ranks"));
}

TEST(Perf, ATestThatTakesLongerThanAllowedEndsWithAnError) {
  const auto outcome =
      perf(2, {"all_reduce", "-T", "0.2", "-b", "4K", "-e", "4K", "-n", "10000000", "-c", "0"});
  EXPECT_EQ(outcome.exit_code, 1) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("talweg perf [rank "));
}

constexpr const char* kProcessorsDecide = "with sanitizers, processors decide, not links";

// A ring of 4 MiB in the emulated lab, where links decide: what it takes of what is predicted; empty: there
// is no lab here.
std::optional<double> part_of_what_is_predicted(const std::string& network) {
  const std::string file = TALWEG_SOURCE_DIR "/examples/clusters/" + network + ".yaml";
  const auto planned =
      nlohmann::json::parse(talweg({"plan", file, "--bytes", "4M", "--algo", "ring", "--json", "-"})
                                .out)["sizes"][0]["candidates"][0];
  const Outcome measured = shell("TALWEG_ALGO=ring \"$TALWEG\" lab run --no-tag-output --timeout 100s " +
                                 file + " -- \"$TALWEG\" perf all_reduce -b 4M -e 4M -w 2 -n 5 --json -");
  if (measured.err.find("a lab needs root") != std::string::npos) return std::nullopt;
  EXPECT_EQ(measured.exit_code, 0) << measured.err;
  const auto row = nlohmann::json::parse(measured.out)["results"][0];
  return row["in_place"]["p50_us"].get<double>() / planned["predicted_us"].get<double>();
}

// However busy the machine is.
TEST(Perf, InALabCallsDoNotBeatTheirPredictionByMuch) {
  if (kSanitized) GTEST_SKIP() << kProcessorsDecide;
  for (const std::string network : {"even4", "uneven4"}) {
    const auto part = part_of_what_is_predicted(network);
    if (!part) GTEST_SKIP() << "there is no lab here";
    EXPECT_GT(*part, 0.9) << network;
  }
}

// A busy machine is late, and what it does not let through at once it may the next time.
TEST(Perf, InALabCallsTakeAboutWhatIsPredicted) {
  if (kSanitized) GTEST_SKIP() << kProcessorsDecide;
  constexpr int kAttempts = 6;
  for (const std::string network : {"even4", "uneven4"}) {
    std::vector<double> late;
    do {
      const auto part = part_of_what_is_predicted(network);
      if (!part) GTEST_SKIP() << "there is no lab here";
      late.push_back(*part);
      ASSERT_GT(late.back(), 0.9) << network;
    } while (late.back() >= 2 && late.size() < kAttempts);
    EXPECT_LT(late.back(), 2) << network << ": " << ::testing::PrintToString(late);
  }
}

}  // namespace
}  // namespace talweg::cli
