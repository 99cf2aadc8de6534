// `talweg aggregator`, alone and started by `talweg run` and `talweg lab run`.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "cli/program.h"

namespace talweg::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr const char* kNetwork = TALWEG_SOURCE_DIR "/examples/clusters/aggregator4.yaml";
constexpr const char* kPerf = "\"$TALWEG\" perf all_reduce -b 4K -e 4K -n 3";

int times(const std::string& text, const std::string& words) {
  int n = 0;
  for (std::size_t at = text.find(words); at != std::string::npos; at = text.find(words, at + 1)) ++n;
  return n;
}

// Four ranks of the network, of which rank 0 also does `beside`. Nothing here takes as long as its time
// limit.
Outcome ranks_that_know(const std::string& beside) {
  return shell(std::string("\"$TALWEG\" run -n 4 --timeout 100s -- env TALWEG_CLUSTER=") + kNetwork +
               " sh -c '" + "if [ $RANK = 0 ]; then " + beside + " fi; " + kPerf + "; r=$?; wait; exit $r'");
}

// One line of the ranks says `why` they do without; their sums are right.
void expect_planned_without(const Outcome& outcome, const std::string& why) {
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(times(outcome.err, "planned without"), 1) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("planned without aggregator agg: " + why));
  EXPECT_THAT(outcome.out, HasSubstr("# aggregators: none\n"));
  EXPECT_THAT(outcome.out, HasSubstr("# Out of bounds values : 0 OK\n"));
  EXPECT_THAT(outcome.out, Not(HasSubstr("through agg")));
}

void expect_planned_with(const Outcome& outcome) {
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("# aggregators: agg\n"));
  EXPECT_THAT(outcome.out, HasSubstr(" through agg\n"));
  EXPECT_THAT(outcome.out, HasSubstr("# Out of bounds values : 0 OK\n"));
  EXPECT_THAT(outcome.err, Not(HasSubstr("planned without")));
}

TEST(Aggregator, IsStartedByRunForEachNodeThatAggregates) {
  const Outcome outcome =
      shell(std::string("TALWEG_CLUSTER=") + kNetwork + " \"$TALWEG\" run -n 4 --timeout 100s -- " + kPerf);
  expect_planned_with(outcome);
  EXPECT_EQ(outcome.err, "");
}

// The remote shell runs the line here, as the one of a host does that has the program where PATH says.
TEST(Aggregator, IsStartedThroughTheRemoteShellOnTheNodeThatAggregates) {
  const Outcome outcome = shell(
      std::string("d=$(mktemp -d); trap 'rm -r $d' EXIT; ln -s \"$TALWEG\" $d/talweg; export PATH=$d:$PATH; "
                  "printf '#!/bin/sh\\necho host $1 >&2\\nexec sh -c \"$2\"\\n' >$d/rsh; chmod +x $d/rsh; "
                  "TALWEG_CLUSTER=") +
      kNetwork + " \"$TALWEG\" run --hosts 127.0.0.2:2,127.0.0.3:2 --ssh $d/rsh --timeout 100s -- " + kPerf);
  expect_planned_with(outcome);
  EXPECT_EQ(times(outcome.err, "[agg] host agg\n"), 1) << outcome.err;
  EXPECT_EQ(times(outcome.err, "] host 127.0.0."), 4) << outcome.err;
}

TEST(Aggregator, ServesTheGroupsOfAJobOneAfterTheOtherAndSaysSoAtInfo) {
  const Outcome outcome =
      shell(std::string("TALWEG_DEBUG=INFO TALWEG_DEBUG_SUBSYS=aggregator TALWEG_CLUSTER=") + kNetwork +
            " \"$TALWEG\" run -n 4 --timeout 100s -- sh -c '" + kPerf + "; " + kPerf + "'");
  expect_planned_with(outcome);
  EXPECT_EQ(times(outcome.out, " through agg\n"), 2) << outcome.out;
  EXPECT_EQ(times(outcome.err, "INFO aggregator: agg: it serves job "), 2) << outcome.err;
  EXPECT_EQ(times(outcome.err, ", a group of 4 ranks\n"), 2) << outcome.err;
}

TEST(Aggregator, OfANameThatCouldSteerATerminalIsNamedInPlainCharacters) {
  const Outcome outcome =
      shell(std::string("f=$(mktemp); trap 'rm $f' EXIT; sed 's/\\bagg\\b/\"agg\\\\e[2J\"/g' ") + kNetwork +
            " >$f; TALWEG_DEBUG=INFO TALWEG_DEBUG_SUBSYS=aggregator TALWEG_CLUSTER=$f \"$TALWEG\" run -n 4 "
            "--timeout "
            "100s -- " +
            kPerf);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("# aggregators: agg\\x1b[2J\n"));
  EXPECT_THAT(outcome.err, HasSubstr("[agg\\x1b[2J] talweg: "));
  EXPECT_THAT(outcome.err, HasSubstr(" INFO aggregator: agg\\x1b[2J: it waits for a group\n"));
  EXPECT_THAT(outcome.out + outcome.err, Not(HasSubstr("\x1b")));
}

TEST(Aggregator, IsShownWhereverAPlanIs) {
  const std::string cluster = kNetwork;
  const std::vector<std::vector<std::string>> commands = {
      {"plan", cluster, "--bytes", "16M"},
      {"info", "all_reduce", "--cluster", cluster},
      {"simulate", cluster, "-b", "1M"},
      {"perf", "all_reduce", "-b", "1M", "-e", "1M", "--sim", cluster}};
  for (const auto& command : commands) {
    const Outcome outcome = talweg(command);
    EXPECT_EQ(outcome.exit_code, 0) << command[0] << ": " << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr("through agg")) << command[0];
  }
  for (const auto& command : {commands[0], commands[1]}) {
    std::vector<std::string> as_json = command;
    as_json.insert(as_json.end(), {"--json", "-"});
    const auto row = nlohmann::json::parse(talweg(as_json).out)["sizes"].back();
    ASSERT_GT(row["candidates"].size(), 1u) << command[0];
    for (const auto& candidate : row["candidates"]) {
      if (!candidate.contains("predicted_us")) continue;  // it is not meant for this size
      const bool helped = candidate["algorithm"] == "packed" || candidate["algorithm"] == "sharded_star";
      EXPECT_EQ(candidate["through"], helped ? nlohmann::json({"agg"}) : nlohmann::json::array())
          << candidate;
    }
  }
}

TEST(Aggregator, IsStartedByLabRunOnAHostOfItsOwn) {
  const Outcome outcome =
      shell(std::string("\"$TALWEG\" lab run --timeout 100s ") + kNetwork + " -- " + kPerf);
  if (outcome.err.find("a lab needs root") != std::string::npos) GTEST_SKIP() << outcome.err;
  expect_planned_with(outcome);
}

TEST(Aggregator, OfARendezvousSumsForTheGroupThatMeetsThereAndEndsWithIt) {
  const Outcome outcome = ranks_that_know(
      "{ env -u RANK \"$TALWEG\" aggregator --name agg --timeout 60s --rendezvous "
      "tcp://$MASTER_ADDR:$MASTER_PORT; echo ended $?; } &");
  expect_planned_with(outcome);
  EXPECT_THAT(outcome.out, HasSubstr("ended 0\n"));
}

TEST(Aggregator, ThatNobodyStartsIsPlannedWithoutWhichIsSaidOnce) {
  expect_planned_without(ranks_that_know("true;"), "it was not there when all 4 ranks were\n");
}

// A rank lets the others wait until both are there: who comes after the job hears of nobody.
TEST(Aggregator, OfANameThatAnotherHasIsTurnedAway) {
  const Outcome outcome = shell(
      std::string("export D=$(mktemp -d); trap 'rm -r $D' EXIT; touch $D/0 $D/1; "
                  "\"$TALWEG\" run -n 4 --timeout 100s -- env TALWEG_CLUSTER=") +
      kNetwork + " sh -c 'if [ $RANK -lt 2 ]; then { TALWEG_DEBUG=INFO TALWEG_DEBUG_SUBSYS=aggregator " +
      "\"$TALWEG\" aggregator --name agg --timeout 60s 2>$D/$RANK; echo ended $?; } & fi; " +
      "if [ $RANK = 3 ]; then until [ $(cat $D/0 $D/1 | grep -c \"agg: it waits for a group$\") = 2 ]; " +
      "do sleep 0.01; done; fi; " + kPerf + "; r=$?; wait; exit $r'; r=$?; cat $D/0 $D/1 >&2; exit $r");
  expect_planned_with(outcome);
  EXPECT_EQ(times(outcome.err, "talweg aggregator"), 1) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr(": start one of each name\n"));
  EXPECT_THAT(outcome.out, HasSubstr("ended 0\n"));
  EXPECT_THAT(outcome.out, HasSubstr("ended 2\n"));
}

TEST(Aggregator, OfANameThatTheNetworkDoesNotHaveIsTold) {
  const Outcome outcome =
      ranks_that_know("{ \"$TALWEG\" aggregator --name other --timeout 60s; echo ended $?; } &");
  expect_planned_without(outcome, "it was not there");
  // In words that depend on whether it has heard of the group before the store was closed.
  EXPECT_THAT(outcome.err, HasSubstr("]: aggregator other: "));
  EXPECT_THAT(outcome.err, HasSubstr(" aggregator of that name"));
  EXPECT_THAT(outcome.out, HasSubstr("ended 1\n"));
}

TEST(Aggregator, WithAnotherKeyOrNoneIsTurnedAway) {
  for (const char* key : {"TALWEG_KEY=the-key-of-others", "-u TALWEG_KEY"}) {
    const Outcome outcome = ranks_that_know(
        std::string("{ env ") + key + " \"$TALWEG\" aggregator --name agg --timeout 60s; echo ended $?; } &");
    expect_planned_without(outcome, "it was not there");
    EXPECT_THAT(outcome.err, HasSubstr("the two sides do not hold the same job key: give TALWEG_KEY")) << key;
    EXPECT_THAT(outcome.out, HasSubstr("ended 2\n")) << key;
  }
}

}  // namespace
}  // namespace talweg::cli
