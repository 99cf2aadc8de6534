// The subcommands of `talweg`. Each adds itself to the command line and, when the user chose it, leaves in
// `action` what is to be done; `main` runs that and turns errors into one line and an exit code. A new one is
// a file that defines `void add_NAME(CLI::App& app, Action* action)`, and a line in app.cc.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>
#include <utility>

namespace talweg::cli {

using Action = std::function<int()>;  // returns the exit code

inline constexpr int kUsageExitCode = 2;    // the command line or an input file can never work
inline constexpr int kFailureExitCode = 1;  // it was tried and failed

// On standard error, to whoever hears it: that it is full, or a pipe without a reader, changes nothing.
template <typename... Args>
void say(fmt::format_string<Args...> text, Args&&... args) {
  std::fputs(fmt::format(text, std::forward<Args>(args)...).c_str(), stderr);
}

}  // namespace talweg::cli
