#include "cli/words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "cli/app.h"
#include "talweg/error.h"

namespace talweg::cli {
namespace {

using testing::ElementsAreArray;
using testing::HasSubstr;
using Line = std::vector<std::string>;

Line checked_line(const Line& words) {
  Action action;
  return checked_words(*make_app(&action), words);
}

std::string complaint_about(const Line& words) {
  try {
    checked_line(words);
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing";
}

void expect_narrow_help(const CLI::App& app, const std::string& path) {
  constexpr std::size_t kMostColumns = 120;
  std::istringstream lines(app.help(path));
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) EXPECT_LE(line.size(), kMostColumns) << line;
  EXPECT_GT(count, 3) << path;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    expect_narrow_help(*command, path + " " + command->get_name());
}

TEST(Words, NoLineOfHelpIsWiderThanATable) {
  Action action;
  expect_narrow_help(*make_app(&action), "talweg");
}

TEST(Words, WhatIsBeforeTheProgramIsTalwegs) {
  for (const char* separator : {"--", ""}) {
    const auto about = [&](Line words) {
      if (*separator != '\0') words.emplace_back(separator);
      words.insert(words.end(), {"echo", "--loud"});
      return complaint_about(words);
    };
    EXPECT_THAT(about({"run", "-n", "2", "--no-tags"}),
                HasSubstr("\"--no-tags\": did you mean --no-tag-output?"));
    EXPECT_THAT(about({"run", "-n", "2", "--timout", "5s"}),
                HasSubstr("\"--timout\": did you mean --timeout?"));
    EXPECT_THAT(about({"run", "--timeot=5s"}), HasSubstr("\"--timeot\": did you mean --timeout?"));
    EXPECT_THAT(about({"run", "--hots", "node1:1"}), HasSubstr("\"--hots\": did you mean --hosts?"));
    EXPECT_THAT(about({"run", "--np", "2"}), HasSubstr("\"--np\": did you mean -n?"));
    EXPECT_THAT(about({"run", "-x"}), HasSubstr("\"-x\" (see"));
    EXPECT_THAT(about({"lab", "run", "c.yaml", "-n", "2"}), HasSubstr("\"-n\""));
    EXPECT_THAT(about({"lab", "run", "--tag", "c.yaml"}), HasSubstr("\"--tag\": did you mean --tag-output?"));
    EXPECT_EQ(about({"run", "-n2", "-T", "5s", "--hosts=a:2"}), "nothing");
  }
}

TEST(Words, TheProgramIsParted) {
  EXPECT_THAT(checked_line({"run", "-n", "2", "echo", "--loud", "--", "x"}),
              ElementsAreArray({"run", "-n", "2", "--", "echo", "--loud", "--", "x"}));
  EXPECT_THAT(checked_line({"lab", "run", "c.yaml", "echo", "--timeout"}),
              ElementsAreArray({"lab", "run", "c.yaml", "--", "echo", "--timeout"}));
  const Line parted{"lab", "run", "c.yaml", "--name", "x", "--", "echo", "-n"};
  EXPECT_EQ(checked_line(parted), parted);
}

TEST(Words, TheFirstUnknownOneIsNamedWithTheNearest) {
  EXPECT_THAT(complaint_about({"plan", "f", "--size", "1M"}), HasSubstr("\"--size\": did you mean --bytes?"));
  EXPECT_THAT(complaint_about({"plan", "f", "--algorithm", "ring"}), HasSubstr("did you mean --algo?"));
  EXPECT_THAT(complaint_about({"plan", "f", "--collective", "x"}), HasSubstr("did you mean --op?"));
  EXPECT_THAT(complaint_about({"plan", "f", "g", "--siez"}), HasSubstr("not expected: \"g\""));
  EXPECT_THAT(complaint_about({"--verson"}), HasSubstr("\"--verson\": did you mean --version?"));
  EXPECT_THAT(complaint_about({"lab", "lst"}), HasSubstr("lab is called \"lst\": did you mean list?"));
  EXPECT_THAT(complaint_about({"plam"}), HasSubstr("\"plam\": did you mean plan?"));
}

TEST(Words, WhatAnOptionTakesIsNotLookedAt) {
  for (const Line& words : {Line{"plan", "f", "--out", "--size"},
                            {"perf", "all_reduce", "-g", "1"},
                            {"perf", "all_reduce", "-b", "-1"},
                            {"convert", "a", "-", "--to", "dot"},
                            {"doctor", "a", "b", "c", "-J", "-"},
                            {"simulate", "--sweep", "-x"}})
    EXPECT_EQ(checked_line(words), words);
}

TEST(Words, AMistakeIsSaidInTheNameOfItsCommand) {
  Action action;
  const auto app = make_app(&action);
  EXPECT_EQ(path_of(*app, {"lab", "run", "run"}), "talweg lab run");
  EXPECT_EQ(path_of(*app, {"plan", "lab"}), "talweg plan");
  EXPECT_EQ(path_of(*app, {}), "talweg");
}

}  // namespace
}  // namespace talweg::cli
