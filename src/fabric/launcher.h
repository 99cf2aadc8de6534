// Starts the ranks of a group, and what serves them, as processes of this machine and stays until the last
// rank has ended.
//
// How to use it:
//   std::vector<Process> ranks;
//   for (int r = 0; r < n; ++r)
//     ranks.push_back({.label = std::to_string(r),
//                      .command = {"./train"},
//                      .environment = {{"RANK", std::to_string(r)}}});
//   LaunchResult result = launch(ranks, {});
//   if (!result.what.empty()) fmt::print(stderr, "talweg: {}\n", result.what);
//   return result.exit_code;
//
// What it promises. Every line that a rank writes comes out whole, prefixed with "[label] ", on the stream it
// was written to. SIGINT, SIGTERM and SIGHUP go to every rank, and wake it if it is stopped; the second one
// kills. When a rank fails, the others get SIGTERM and, after the grace time, SIGKILL. The same happens to
// aggregators when the last rank has ended; the end of one stops nobody. What carries for the ranks ends
// last, and all others with it should it fail. Nothing outlives the launch: what ranks leave behind in their
// process groups is killed at the end, and also when the launcher itself is killed by a signal that nobody
// can catch.
#pragma once

#include <unistd.h>

#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace talweg::fabric {

struct Process {
  std::string label;                 // of its lines and in messages: "rank <label> ..."
  std::vector<std::string> command;  // the program (looked up in PATH) and its arguments
  std::vector<std::pair<std::string, std::string>> environment;  // on top of the launcher's own
  // Runs in the new process before the program does, such as entering a namespace. May throw Error.
  std::function<void()> before_exec;
  bool aggregates = false;  // for the ranks, being none: "aggregator <label> ..."
  // In place of a program, in a copy of the launcher: the result is the exit code. SIGINT, SIGTERM and SIGHUP
  // are blocked.
  std::function<int()> body{};
  // The ranks do not work without it: its end stops them. It hears of no signals, and gets SIGTERM when all
  // others have ended: "the <label> ...".
  bool carries = false;
};

struct LaunchOptions {
  std::chrono::milliseconds timeout{0};   // of the whole launch; 0: none
  std::chrono::milliseconds grace{3000};  // between SIGTERM and SIGKILL
  bool prefix = true;
  int out = STDOUT_FILENO;
  int err = STDERR_FILENO;
  // Which the caller made for the ranks and removes afterwards: they go with a launcher that is killed, too.
  std::vector<std::string> files{};
};

inline constexpr int kTimeoutExitCode = 124;  // as timeout(1)

struct LaunchResult {
  int exit_code = 0;      // of the first rank that failed (128 + n: signal n), or kTimeoutExitCode
  int first_failed = -1;  // index into the processes; -1: none
  std::string what;       // one line, such as "rank 2 exited with code 3"; empty when all is well
};

// Blocks until all have ended. Throws Error{invalid_argument} when a program cannot be started (none is left
// running), Error{system} when the system refuses a process or a pipe, and what `before_exec` throws.
// Call from a thread that is the only one to take signals, as in a program's main.
LaunchResult launch(const std::vector<Process>& processes, const LaunchOptions& options);

}  // namespace talweg::fabric
