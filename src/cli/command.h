// The subcommands of `talweg`. Each adds itself to the command line and, when the user chose it, leaves in
// `action` what is to be done; `main` runs that and turns errors into one line and an exit code.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace talweg::cli {

using Action = std::function<int()>;  // returns the exit code

inline constexpr int kUsageExitCode = 2;    // the command line or an input file can never work
inline constexpr int kFailureExitCode = 1;  // it was tried and failed

void add_run(CLI::App& app, Action* action);
void add_perf(CLI::App& app, Action* action);
void add_info(CLI::App& app, Action* action);

}  // namespace talweg::cli
