#include "fabric/launcher.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>

#include "base/file_descriptor.h"
#include "fabric/launch_fixture.h"
#include "talweg/error.h"

namespace talweg::fabric {
namespace {

using testing::HasSubstr;

class Launcher : public InScratchFolder {
 protected:
  // One rank per script, run by the shell.
  std::vector<Process> shell(const std::vector<std::string>& scripts) const {
    std::vector<Process> ranks;
    for (std::size_t r = 0; r < scripts.size(); ++r)
      ranks.push_back({std::to_string(r), {"sh", "-c", scripts[r]}, {{"RANK", std::to_string(r)}}, {}});
    return ranks;
  }
  // Launches with output into the files "out" and "err".
  LaunchResult run(const std::vector<Process>& ranks, LaunchOptions options = {}) const {
    const FileDescriptor out(open(path("out").c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600));
    const FileDescriptor err(open(path("err").c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600));
    options.out = out.get();
    options.err = err.get();
    return launch(ranks, options);
  }
  // Launches in a process of its own; its exit code is the launch's.
  pid_t run_apart(const std::vector<Process>& ranks, const LaunchOptions& options = {}) const {
    const pid_t pid = fork();
    if (pid != 0) return pid;
    signal(SIGINT, SIG_DFL);  // shells start what is in their background without it
    _exit(run(ranks, options).exit_code);
  }
  static int exit_code_of(pid_t pid) {
    int status = 0;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
};

TEST_F(Launcher, ReturnsZeroWhenEveryRankDoes) {
  const LaunchResult result = run(shell({"exit 0", "exit 0"}));
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.first_failed, -1);
  EXPECT_EQ(result.what, "");
}

TEST_F(Launcher, PrefixesLinesAndKeepsTheStreamsApart) {
  run(shell({"echo to out; echo to err >&2; printf unfinished"}));
  EXPECT_EQ(read("out"), "[0] to out\n[0] unfinished\n");
  EXPECT_EQ(read("err"), "[0] to err\n");
}

// It may be a node's name in a file.
TEST_F(Launcher, ALabelThatCouldSteerATerminalIsSpelledOut) {
  std::vector<Process> ranks = shell({"echo to out; exit 3"});
  ranks[0].label = "a\x1b[2J\u009b";
  EXPECT_EQ(run(ranks).what, "rank a\\x1b[2J\\u009b exited with code 3");
  EXPECT_EQ(read("out"), "[a\\x1b[2J\\u009b] to out\n");
}

TEST_F(Launcher, PassesBytesOnUnchangedWithoutPrefix) {
  run(shell({"printf 'a\\nb'"}), {.prefix = false});
  EXPECT_EQ(read("out"), "a\nb");
}

TEST_F(Launcher, LosesNoOutputOfARankThatWritesMuchAndEndsAtOnce) {
  run(shell({"seq 1 50000"}));
  const std::string text = read("out");
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 50000);
  EXPECT_THAT(text, testing::EndsWith("[0] 50000\n"));
}

TEST_F(Launcher, GivesEachRankItsOwnEnvironmentOverTheInheritedOne) {
  setenv("RANK", "wrong", 1);
  setenv("TALWEG_TEST_INHERITED", "yes", 1);
  run(shell({"echo $RANK $TALWEG_TEST_INHERITED", "echo $RANK $TALWEG_TEST_INHERITED"}));
  unsetenv("RANK");
  unsetenv("TALWEG_TEST_INHERITED");
  EXPECT_THAT(read("out"), HasSubstr("[0] 0 yes\n"));
  EXPECT_THAT(read("out"), HasSubstr("[1] 1 yes\n"));
}

TEST_F(Launcher, NamesTheFirstFailingRankAndReturnsItsCode) {
  const LaunchResult result = run(shell({"exec sleep 100", "exit 7", "exec sleep 100"}));
  EXPECT_EQ(result.exit_code, 7);
  EXPECT_EQ(result.first_failed, 1);
  EXPECT_EQ(result.what, "rank 1 exited with code 7");
}

TEST_F(Launcher, NamesTheSignalThatKilledARank) {
  const LaunchResult result = run(shell({"kill -SEGV $$"}));
  EXPECT_EQ(result.exit_code, 128 + SIGSEGV);
  EXPECT_EQ(result.what, "rank 0 was killed by signal 11 (SIGSEGV)");
}

TEST_F(Launcher, SpellsOutWhatALabelHasThatCouldSteerATerminal) {
  auto processes = shell({"echo out; echo err >&2; exit 3"});
  processes[0].label = "a\x1b[2J";
  EXPECT_EQ(run(processes).what, "rank a\\x1b[2J exited with code 3");
  EXPECT_EQ(read("out"), "[a\\x1b[2J] out\n");
  EXPECT_EQ(read("err"), "[a\\x1b[2J] err\n");
}

TEST_F(Launcher, DoesNotTakeALargeExitCodeForASignal) {
  EXPECT_EQ(run(shell({"exit 139"})).what, "rank 0 exited with code 139");
}

TEST_F(Launcher, KillsARankThatIgnoresTheRequestToStop) {
  const std::string stubborn = "trap '' TERM; touch " + path("ready") + "; while :; do sleep 0.05; done";
  const std::string failing = "while ! [ -e " + path("ready") + " ]; do sleep 0.05; done; exit 3";
  const LaunchResult result = run(shell({stubborn, failing}), {.grace = std::chrono::milliseconds(50)});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(result.first_failed, 1);
}

TEST_F(Launcher, StopsAggregatorsAfterTheLastRankAndMindsNotHowTheyEnd) {
  const std::string there = path("there");
  auto processes =
      shell({"trap 'echo over; exit 3' TERM; echo up >" + there + "; while :; do sleep 0.01; done",
             "while ! test -f " + there + "; do sleep 0.01; done; echo done", "exit 7"});
  processes[0].aggregates = processes[2].aggregates = true;
  const LaunchResult result = run(processes);
  EXPECT_EQ(result.exit_code, 0) << result.what;
  EXPECT_EQ(read("out"), "[1] done\n[0] over\n");
}

// It hears of the signals of others only once these have ended.
TEST_F(Launcher, EndsWhatCarriesForTheRanksAfterThem) {
  std::vector<Process> processes =
      shell({"trap 'echo over; exit 0' TERM; while :; do sleep 0.01; done", "sleep 0.2; echo done"});
  processes[0].carries = true;
  const LaunchResult result = run(processes);
  EXPECT_EQ(result.exit_code, 0) << result.what;
  EXPECT_EQ(read("out"), "[1] done\n[0] over\n");
}

TEST_F(Launcher, StopsTheRanksWhenWhatCarriesForThemEnds) {
  for (const char* end : {"exit 0", "exit 3", "kill -9 $$"}) {
    std::vector<Process> processes = shell({end, "exec sleep 100"});
    processes[0].label = "relay";
    processes[0].carries = true;
    const LaunchResult result = run(processes);
    EXPECT_NE(result.exit_code, 0) << end;
    EXPECT_THAT(result.what, testing::StartsWith("the relay ")) << end;
    EXPECT_THAT(result.what, testing::EndsWith(", and with it what ranks need")) << end;
  }
}

TEST_F(Launcher, RunsABodyInPlaceOfAProgram) {
  std::vector<Process> ranks = shell({""});
  ranks[0].body = [] { return ::write(STDOUT_FILENO, "a body\n", 7) == 7 ? 0 : 9; };
  EXPECT_EQ(run(ranks).exit_code, 0);
  EXPECT_EQ(read("out"), "[0] a body\n");
  ranks[0].body = []() -> int { throw Error(ErrorCode::system, "out of breath"); };
  EXPECT_EQ(run(ranks).exit_code, 1);
  EXPECT_EQ(read("err"), "[0] talweg: out of breath\n");
}

TEST_F(Launcher, LetsTheOthersCleanUpWhenARankFails) {
  const std::string tidy =
      "trap 'echo cleaned up; exit 0' TERM; touch " + path("ready") + "; sleep 100 & wait";
  const std::string failing = "while ! [ -e " + path("ready") + " ]; do sleep 0.05; done; exit 3";
  run(shell({tidy, failing}));
  EXPECT_EQ(read("out"), "[0] cleaned up\n");
}

TEST_F(Launcher, StopsAtTheTimeoutAndNamesWhoStillRan) {
  const LaunchResult result =
      run(shell({"exit 0", "exec sleep 100"}), {.timeout = std::chrono::milliseconds(500)});
  EXPECT_EQ(result.exit_code, kTimeoutExitCode);
  EXPECT_EQ(result.what, "timeout after 0.5 s, still running: rank 1");
}

TEST_F(Launcher, SaysWhichProgramItCannotFind) {
  try {
    run(shell({"exit 0"}));
    run({{"0", {"sleep", "100"}, {}, {}}, {"1", {"no-such-program-anywhere"}, {}, {}}});
    FAIL() << "expected an error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
    EXPECT_STREQ(
        e.what(),
        "cannot start rank 1: program 'no-such-program-anywhere' in PATH: No such file or directory");
  }
}

TEST_F(Launcher, SaysThatADirectoryIsNotAProgram) {
  try {
    run({{"0", {"/tmp"}, {}, {}}});
    FAIL() << "expected an error";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "cannot start rank 0: program '/tmp': Permission denied");
  }
}

TEST_F(Launcher, RefusesALaunchWithoutRanks) {
  EXPECT_THROW(run({}), Error);
}

TEST_F(Launcher, ReportsWhatTheHookSays) {
  try {
    run({{"0", {"true"}, {}, [] { throw Error(ErrorCode::system, "the hook's reason"); }}});
    FAIL() << "expected an error";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "cannot start rank 0: the hook's reason");
  }
}

TEST_F(Launcher, ForwardsASignalToEveryRank) {
  std::vector<std::string> scripts;
  for (const char* r : {"0", "1"})
    scripts.push_back(std::string("trap 'echo told; exit 5' INT; touch ") + path(r) + "; sleep 100 & wait");
  const pid_t launcher = run_apart(shell(scripts));
  ASSERT_TRUE(
      eventually([&] { return std::filesystem::exists(path("0")) && std::filesystem::exists(path("1")); }));
  kill(launcher, SIGINT);
  EXPECT_EQ(exit_code_of(launcher), 5);
  EXPECT_THAT(read("out"), HasSubstr("[0] told\n"));
  EXPECT_THAT(read("out"), HasSubstr("[1] told\n"));
}

TEST_F(Launcher, ForwardsASignalToAStoppedRankToo) {
  const pid_t launcher = run_apart(
      shell({"trap 'exit 6' TERM; echo $$ > " + path("pid") + "; kill -STOP $$; sleep 100 & wait"}));
  ASSERT_TRUE(eventually([&] { return !read("pid").empty(); }));
  const pid_t rank = std::stoi(read("pid"));
  ASSERT_TRUE(eventually([&] { return state_of(rank) == 'T'; }));
  kill(launcher, SIGTERM);
  EXPECT_EQ(exit_code_of(launcher), 6);
}

TEST_F(Launcher, KillsAtTheSecondSignal) {
  const pid_t launcher = run_apart(shell(
      {"trap 'touch " + path("told") + "' TERM; touch " + path("ready") + "; while :; do sleep 0.05; done"}));
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(path("ready")); }));
  kill(launcher, SIGTERM);
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(path("told")); }));
  kill(launcher, SIGTERM);
  EXPECT_EQ(exit_code_of(launcher), 128 + SIGKILL);
}

TEST_F(Launcher, LeavesNoBackgroundProcessBehindAtTheEnd) {
  run(shell({"sleep 100 & echo $! > " + path("pid")}));
  const pid_t background = std::stoi(read("pid"));
  EXPECT_TRUE(eventually([&] { return !alive(background); }));
}

TEST_F(Launcher, LeavesNothingBehindWhenItIsKilled) {
  const pid_t launcher = run_apart(shell({"sleep 100 & echo $$ $! > " + path("pids") + ".new; mv " +
                                          path("pids") + ".new " + path("pids") + "; wait"}));
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(path("pids")); }));
  pid_t rank = 0, background = 0;
  std::istringstream(read("pids")) >> rank >> background;
  ASSERT_TRUE(alive(rank) && alive(background));
  kill(launcher, SIGKILL);
  exit_code_of(launcher);
  EXPECT_TRUE(eventually([&] { return !alive(rank) && !alive(background); }));
}

TEST_F(Launcher, TakesTheFilesOfTheRanksWithItWhenItIsKilled) {
  write("file", "");
  write("other", "");
  const pid_t launcher = run_apart(shell({"touch " + path("ready") + "; sleep 100 & wait"}),
                                   {.files = {path("file"), path("other")}});
  const bool started = eventually([&] { return std::filesystem::exists(path("ready")); });
  EXPECT_TRUE(std::filesystem::exists(path("file")));
  EXPECT_TRUE(std::filesystem::exists(path("other")));
  kill(launcher, SIGKILL);
  exit_code_of(launcher);
  ASSERT_TRUE(started);
  for (const char* file : {"file", "other"})
    EXPECT_TRUE(eventually([&] { return !std::filesystem::exists(path(file)); })) << file;
}

TEST_F(Launcher, LeavesNothingBehindWhenItIsKilledWhileItStartsOthers) {
  std::vector<Process> ranks = shell(
      {"sleep 100 & echo $! > " + path("pid") + ".new; mv " + path("pid") + ".new " + path("pid") + "; wait",
       "exit 0"});
  ranks[1].before_exec = [this] {
    eventually([&] { return std::filesystem::exists(path("pid")); });
    kill(getppid(), SIGKILL);
  };
  EXPECT_EQ(exit_code_of(run_apart(ranks)), -SIGKILL);
  ASSERT_TRUE(std::filesystem::exists(path("pid")));
  const pid_t background = std::stoi(read("pid"));
  EXPECT_TRUE(eventually([&] { return !alive(background); }));
}

}  // namespace
}  // namespace talweg::fabric
