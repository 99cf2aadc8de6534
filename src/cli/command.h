// The subcommands of `talweg`. Each adds itself to the command line and, when the user chose it, leaves in
// `action` what is to be done; `main` runs that and turns errors into one line and an exit code. A new one is
// a file that defines `void add_NAME(CLI::App& app, Action* action)`, and a line in app.cc.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

namespace talweg::cli {

using Action = std::function<int()>;  // returns the exit code

inline constexpr int kUsageExitCode = 2;    // the command line or an input file can never work
inline constexpr int kFailureExitCode = 1;  // it was tried and failed

// Puts the "--" that the user left out in front of the program of `talweg run`, so that the program's own
// flags are never taken for run's. `arguments` are those of the whole command line, without the program's
// name.
std::vector<std::string> with_separator(const CLI::App& app, std::vector<std::string> arguments);

}  // namespace talweg::cli
