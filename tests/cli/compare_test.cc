// `talweg compare`, of what the commands write: each kind is read back.
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/program.h"

namespace talweg::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const std::string kUneven4 = std::string(TALWEG_SOURCE_DIR) + "/examples/clusters/uneven4.yaml";

class CompareProgram : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("talweg-compared-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string file(const std::string& name) const { return folder_ / name; }
  // What a command writes with --json.
  std::string written(const std::string& name, std::vector<std::string> arguments) const {
    arguments.insert(arguments.end(), {"--json", file(name)});
    const Outcome outcome = talweg(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return file(name);
  }

 private:
  std::filesystem::path folder_;
};

TEST_F(CompareProgram, ReadsWhatEachCommandWritesAndFindsItEqualToItself) {
  const std::string cm = file("two.cm");
  std::ofstream(cm) << "Nodes 4\nConnections 2\n0->3 id 7 start 0 size 90000\n1->3 id 8 start 0 size 90000\n";
  const auto simulate = [&](const std::vector<std::string>& more) {
    std::vector<std::string> line{"simulate", "--topology", "star:hosts=4"};
    line.insert(line.end(), more.begin(), more.end());
    return line;
  };
  const std::vector<std::vector<std::string>> commands = {
      {"plan", kUneven4, "--bytes", "4K,1M"},
      {"info", "all_reduce", "-n", "4"},
      {"perf", "all_reduce", "-b", "4K", "-e", "4K", "-n", "1"},
      {"perf", "all_reduce", "-b", "4K", "-e", "4K", "-n", "1", "--sim", kUneven4},
      simulate({"-b", "64K,128K"}),
      simulate({"--cm", cm}),
      simulate({"-b", "64K", "--sweep", "loss=0,0.01"})};
  for (const auto& command : commands) {
    const std::string path = written("a.json", command);
    const Outcome outcome = talweg({"compare", path, path, "--threshold", "0"});
    EXPECT_EQ(outcome.exit_code, 0) << command[0] << outcome.out << outcome.err;
    EXPECT_EQ(outcome.err, "") << command[0];
    EXPECT_THAT(outcome.out, AllOf(HasSubstr("A  " + path), HasSubstr("\n0 of "))) << command[0];
  }
}

TEST_F(CompareProgram, APlanIsLaidBesideItsSimulation) {
  const std::string plan = written("plan.json", {"plan", kUneven4, "--bytes", "1M", "--algo", "ring,star"});
  const std::string run =
      written("run.json", {"simulate", kUneven4, "-b", "1M", "--algo", "ring", "-n", "1"});
  const Outcome tight = talweg({"compare", plan, run, "--threshold", "0"});
  EXPECT_EQ(tight.exit_code, 1) << tight.out << tight.err;
  EXPECT_THAT(tight.out, HasSubstr("\n1 of 1 differ by more than 0 %, marked *\n"));
  const Outcome loose = talweg({"compare", plan, run, "--threshold", "1000000%", "--json", "-"});
  EXPECT_EQ(loose.exit_code, 0) << loose.err;
  const auto document = nlohmann::json::parse(loose.out);
  EXPECT_EQ(document["measures"].size(), 1U);
  EXPECT_EQ(document["measures"][0]["planner"], "ring");
  EXPECT_EQ(document["threshold"], 10000);
  EXPECT_THAT(loose.err, HasSubstr("B/A"));
}

TEST_F(CompareProgram, WhatCannotBeComparedIsOneLineWithExitCode2) {
  const std::string plan = written("plan.json", {"plan", kUneven4, "--bytes", "1M", "--algo", "ring"});
  const std::string other = written("other.json", {"plan", kUneven4, "--bytes", "4M", "--algo", "ring"});
  const std::string cut = file("cut.json");
  std::ofstream(cut) << R"({"format": "talweg plan", "format_ver)";
  struct Bad {
    std::vector<std::string> arguments;
    const char* said;
  };
  const Bad all[] = {{{plan, kUneven4}, "uneven4.yaml: it is not JSON from byte"},
                     {{plan, file("none.json")}, "none.json: cannot read it"},
                     {{cut, plan}, "cut.json: it is empty or ends in the middle"},
                     {{plan}, "b is required"},
                     {{plan, plan, "--threshold", "some"}, "--threshold: expected percent"},
                     {{plan, plan, "--threshold", "-1"}, "--threshold: expected percent"},
                     {{plan, plan, "--json", plan}, "it would be written over the file that is read"}};
  for (const Bad& bad : all) {
    std::vector<std::string> line{"compare"};
    line.insert(line.end(), bad.arguments.begin(), bad.arguments.end());
    const Outcome outcome = talweg(line);
    EXPECT_EQ(outcome.exit_code, 2) << bad.said << outcome.err;
    EXPECT_EQ(outcome.out, "") << bad.said;
    EXPECT_EQ(count_lines(outcome.err), 1) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(bad.said));
  }
  // The bound is common to both; the times are of other sizes.
  const Outcome sizes = talweg({"compare", plan, other});
  EXPECT_EQ(sizes.exit_code, 1) << sizes.err;
  EXPECT_THAT(sizes.out, HasSubstr("only in A: taken of 1 MiB; time of 1 MiB, ring\n"));
}

}  // namespace
}  // namespace talweg::cli
