// The subcommands of `talweg`. Each adds itself to the command line and, when the user chose it, leaves in
// `action` what is to be done; `main` runs that and turns errors into one line and an exit code.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

namespace talweg::cli {

using Action = std::function<int()>;  // returns the exit code

inline constexpr int kUsageExitCode = 2;    // the command line or an input file can never work
inline constexpr int kFailureExitCode = 1;  // it was tried and failed

void add_run(CLI::App& app, Action* action);
// Puts the "--" that the user left out in front of the program of `talweg run`, so that the program's own
// flags are never taken for run's. `arguments` are those of the whole command line, without the program's
// name.
std::vector<std::string> with_separator(const CLI::App& app, std::vector<std::string> arguments);

void add_perf(CLI::App& app, Action* action);
void add_probe(CLI::App& app, Action* action);
void add_info(CLI::App& app, Action* action);
void add_doctor(CLI::App& app, Action* action);
void add_convert(CLI::App& app, Action* action);
void add_plan(CLI::App& app, Action* action);
void add_simulate(CLI::App& app, Action* action);

}  // namespace talweg::cli
