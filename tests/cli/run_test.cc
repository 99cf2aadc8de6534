#include <gmock/gmock.h>

#include "cli/program.h"

namespace talweg::cli {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;

TEST(Run, EachRankFindsItsPlaceInTheEnvironment) {
  const auto outcome = talweg({"run", "-n", "3", "--", "sh", "-c",
                               "echo place $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $MASTER_ADDR"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const char* line :
       {"[0] place 0/3 0/3 127.0.0.1\n", "[1] place 1/3 1/3 127.0.0.1\n", "[2] place 2/3 2/3 127.0.0.1\n"})
    EXPECT_THAT(outcome.out, HasSubstr(line));
}

TEST(Run, AllRanksShareOnePortAndOneKey) {
  const auto outcome =
      talweg({"run", "-n", "2", "--no-tag-output", "--", "sh", "-c", "echo $MASTER_PORT $TALWEG_KEY"});
  ASSERT_EQ(count_lines(outcome.out), 2) << outcome.out << outcome.err;
  const std::string first = outcome.out.substr(0, outcome.out.find('\n') + 1);
  EXPECT_EQ(outcome.out, first + first);
  EXPECT_THAT(first, MatchesRegex("[1-9][0-9]+ [^ ]+\n"));
}

TEST(Run, TheProgramsOwnFlagsReachIt) {
  for (const char* separator : {"-- ", ""}) {
    const auto outcome =
        shell(std::string("\"$TALWEG\" run -n 1 --no-tag-output ") + separator + "echo -n 5 --hosts -- end");
    EXPECT_EQ(outcome.out, "5 --hosts -- end") << outcome.err;
  }
}

TEST(Run, TheFirstFailingRankIsNamedAndItsExitCodeTaken) {
  const auto outcome =
      talweg({"run", "-n", "3", "--", "sh", "-c", "if [ $RANK = 1 ]; then exit 7; fi; exec sleep 100"});
  EXPECT_EQ(outcome.exit_code, 7);
  EXPECT_THAT(outcome.err, HasSubstr("talweg run: rank 1 "));
  EXPECT_THAT(outcome.err, HasSubstr("7"));
}

TEST(Run, ARankThatIsKilledIsNamedWithItsSignal) {
  const auto outcome =
      talweg({"run", "-n", "2", "--", "sh", "-c", "if [ $RANK = 1 ]; then kill -9 $$; fi; exec sleep 100"});
  EXPECT_EQ(outcome.exit_code, 128 + 9);
  EXPECT_THAT(outcome.err, HasSubstr("rank 1 "));
  EXPECT_THAT(outcome.err, HasSubstr("signal 9"));
}

TEST(Run, SignalsReachTheRanks) {
  const auto outcome = shell(
      "f=$(mktemp); trap 'rm $f' EXIT\n"
      "\"$TALWEG\" run -n 2 --no-tag-output -- sh -c "
      "'trap \"echo stopped; exit 0\" TERM; echo ready; while :; do sleep 0.05; done' >$f &\n"
      "run=$!; while [ \"$(grep -c ready $f)\" != 2 ]; do sleep 0.05; done\n"
      "kill -TERM $run; wait $run; grep -c stopped $f");
  EXPECT_EQ(outcome.out, "2\n") << outcome.err;
}

TEST(Run, OutputOfRanksThatIsLostIsAFailure) {
  const auto outcome = shell("\"$TALWEG\" run -n 2 -- echo hi >/dev/full");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.err, "talweg run: cannot write what rank 0 printed: No space left on device\n");
}

TEST(Run, ATimeoutStopsEverything) {
  const auto outcome = talweg({"run", "-n", "2", "--timeout", "300ms", "--", "sleep", "100"});
  EXPECT_EQ(outcome.exit_code, 124);
  EXPECT_EQ(count_lines(outcome.err), 1) << outcome.err;
}

// A remote shell that runs the line here, and says for which host.
constexpr const char* kFakeShell =
    "d=$(mktemp -d); trap 'rm -r $d' EXIT; "
    "printf '#!/bin/sh\\necho host $1 >&2\\nexec sh -c \"$2\"\\n' >$d/rsh; chmod +x $d/rsh; ";

TEST(Run, OtherHostsAreReachedThroughTheRemoteShell) {
  const auto outcome =
      shell(std::string(kFakeShell) +
            "TALWEG_DEBUG=INFO \"$TALWEG\" run --hosts h0:1,h1:2 --ssh $d/rsh -- sh -c "
            "'echo $RANK $LOCAL_RANK $MASTER_ADDR $TALWEG_DEBUG \"$0\" \"$1\"' \"it's\" 'a  b'");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("[0] 0 0 h0 INFO it's a  b\n"));
  EXPECT_THAT(outcome.out, HasSubstr("[2] 2 1 h0 INFO it's a  b\n"));
  EXPECT_THAT(outcome.err, HasSubstr("[0] host h0\n"));
  EXPECT_THAT(outcome.err, HasSubstr("[2] host h1\n"));
}

TEST(Run, RanksShareANewKeyUnlessThereIsOne) {
  const auto key_of = [](const std::string& before) {
    const auto outcome = shell(
        before + " \"$TALWEG\" run -n 2 --no-tag-output -- sh -c 'echo key $TALWEG_KEY $TALWEG_KEY_FILE'");
    EXPECT_EQ(count_lines(outcome.out), 2) << outcome.out << outcome.err;
    const std::string first = outcome.out.substr(0, outcome.out.find('\n') + 1);
    EXPECT_EQ(outcome.out, first + first);
    return first;
  };
  const std::string drawn = key_of("");
  EXPECT_THAT(drawn, MatchesRegex("key [0-9a-f]+\n"));
  EXPECT_EQ(drawn.size(), std::string("key \n").size() + 64);
  EXPECT_NE(key_of(""), drawn);
  EXPECT_EQ(key_of("TALWEG_KEY=the-key-of-this-job"), "key the-key-of-this-job\n");
  EXPECT_EQ(key_of("f=$(mktemp); trap 'rm $f' EXIT; echo the-key-in-a-file >$f; TALWEG_KEY_FILE=$f"),
            "key the-key-in-a-file\n");
}

// What ps shows is what the remote shell was given; it says it here.
TEST(Run, RemoteRanksGetTheKeyButNoCommandLineShowsIt) {
  const auto outcome = shell(
      "d=$(mktemp -d); trap 'rm -r $d' EXIT; "
      "printf '#!/bin/sh\\necho line \"$@\" >&2\\nexec sh -c \"$2\"\\n' >$d/rsh; chmod +x $d/rsh; "
      "TALWEG_KEY=the-key-of-this-job \"$TALWEG\" run --hosts h0,h1 --ssh $d/rsh -- sh -c "
      "'echo got $TALWEG_KEY; tr \"\\000\" \" \" </proc/$PPID/cmdline >&2'");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("[0] got the-key-of-this-job\n"));
  EXPECT_THAT(outcome.out, HasSubstr("[1] got the-key-of-this-job\n"));
  EXPECT_THAT(outcome.err, HasSubstr("[0] line h0"));
  EXPECT_THAT(outcome.err, testing::Not(HasSubstr("the-key-of-this-job")));
}

TEST(Run, TheExitCodeOfARemoteRankComesBack) {
  const auto outcome = shell(std::string(kFakeShell) +
                             "\"$TALWEG\" run --hosts h0,h1 --ssh $d/rsh -- sh -c "
                             "'[ $RANK = 0 ] && exec sleep 100; exit 9'");
  EXPECT_EQ(outcome.exit_code, 9) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("talweg run: rank 1 "));
}

// setsid stands for the network: the far side is out of reach of the launcher's signals, and learns of the
// end only because its standard input ends.
TEST(Run, ARemoteProgramIsStoppedWhenItsRemoteShellIsGone) {
  const auto outcome = shell(
      "d=$(mktemp -d); trap 'rm -r $d' EXIT\n"
      "printf '#!/bin/sh\\nexec setsid -w sh -c \"$2\"\\n' >$d/rsh; chmod +x $d/rsh\n"
      "D=$d \"$TALWEG\" run --hosts far --ssh \"env D=$d $d/rsh\" -- sh -c 'echo $$ >$D/pid; exec sleep 100' "
      "&\n"
      "run=$!; while [ ! -s $d/pid ]; do sleep 0.05; done\n"
      "kill -KILL $run; wait $run 2>/dev/null\n"
      "for i in $(seq 200); do kill -0 $(cat $d/pid) 2>/dev/null || { echo gone; exit; }; sleep 0.05; done");
  EXPECT_EQ(outcome.out, "gone\n") << outcome.err;
}

TEST(Run, AtVersionLevelOneRankSaysWhatRunsAndAtInfoLevelAllSayHowTheyJoined) {
  const auto quiet =
      shell("TALWEG_DEBUG=VERSION \"$TALWEG\" run -n 2 -- \"$TALWEG\" perf all_reduce -b 4 -e 4 -n 1");
  EXPECT_EQ(quiet.exit_code, 0) << quiet.err;
  const std::string both = quiet.out + quiet.err;
  EXPECT_THAT(both, HasSubstr("VERSION init: talweg "));
  EXPECT_EQ(both.find("VERSION init"), both.rfind("VERSION init"));
  const auto chatty =
      shell("TALWEG_DEBUG=INFO \"$TALWEG\" run -n 2 -- \"$TALWEG\" perf all_reduce -b 4 -e 4 -n 1");
  for (const char* line :
       {"[0] INFO init: rank: 0 of 2", "[1] INFO init: rank: 1 of 2", "INFO init: algorithm:"})
    EXPECT_THAT(chatty.out + chatty.err, HasSubstr(line));
}

}  // namespace
}  // namespace talweg::cli
