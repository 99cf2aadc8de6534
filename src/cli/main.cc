// talweg: the command line. Each subcommand has a file of its own.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "base/printable.h"
#include "cli/app.h"
#include "cli/grammar.h"
#include "cli/words.h"

namespace {

using talweg::Error;
using talweg::ErrorCode;

// "talweg perf", or "talweg perf [rank 2]" under a launcher.
std::string with_rank(const std::string& path) {
  const char* rank = std::getenv("RANK");
  return rank ? fmt::format("{} [rank {}]", path, rank) : path;
}

std::string one_line(std::string text) {
  for (char& c : text)
    if (c == '\n') c = ' ';
  return talweg::printable(text);
}

// A file that is opened must not get the number of a standard error that is closed, and with it what is said.
void open_standard_error() {
  if (::fcntl(STDERR_FILENO, F_GETFD) >= 0) return;
  const int nowhere = ::open("/dev/null", O_WRONLY);
  if (nowhere < 0 || nowhere == STDERR_FILENO) return;
  ::dup2(nowhere, STDERR_FILENO);
  ::close(nowhere);
}

// Of an option without its value, or that is given twice, CLI11 says "1 required TEXT missing" and the like.
std::string in_plain_words(const CLI::ParseError& error) {
  std::string text = error.what();
  const std::string twice = ": At Most 1 required but received ";
  if (const auto at = text.find(twice); at != std::string::npos)
    return text.substr(0, at) + ": expected once, got it " + text.substr(at + twice.size()) + " times";
  if (const auto at = text.find(": 1 required "); at != std::string::npos && text.ends_with(" missing"))
    return text.substr(0, at) + ": expected a value, got nothing";
  return text;
}

// What was printed is told to be lost, if it is: on a full disk, into a pipe without a reader.
int finished(int exit_code) {
  std::cout.flush();
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout.good()) return exit_code;
  talweg::cli::say("talweg: cannot write to standard output\n");
  return exit_code == 0 ? talweg::cli::kFailureExitCode : exit_code;
}

// Most often a variable of a shell that is not set: an output would silently not be written.
void check_no_empty_value(const CLI::App& app) {
  for (const CLI::App* sub : app.get_subcommands())
    for (const CLI::Option* option : sub->get_options())
      if (!option->get_positional())
        for (const std::string& value : option->results())
          if (value.empty()) talweg::refuse("{}: expected a value, got nothing", option->get_name());
}

}  // namespace

int main(int argc, char** argv) {
  open_standard_error();
  talweg::cli::Action action;
  const auto made = talweg::cli::make_app(&action);
  CLI::App& app = *made;
  std::vector<std::string> arguments(argv + 1, argv + argc);
  // On every rank: their command lines may differ, and the wrong one need not be rank 0's.
  const std::string speaker = with_rank(talweg::cli::path_of(app, arguments));
  const auto complain = [&](const std::string& text, const char* after = "") {
    talweg::cli::say("{}: {}{}\n", speaker, one_line(text), after);
  };
  try {
    talweg::cli::Spelling spelling = talweg::cli::respelled(std::move(arguments));
    // One rank says it for all.
    if (const char* rank = std::getenv("RANK"); rank == nullptr || std::string(rank) == "0")
      for (const std::string& note : spelling.notes)
        talweg::cli::say("talweg {}: {}\n", spelling.arguments[0], note);
    arguments = talweg::cli::checked_words(app, std::move(spelling.arguments));
    std::ranges::reverse(arguments);  // CLI11 takes a vector back to front
    app.parse(arguments);
    check_no_empty_value(app);
    return finished(action());
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return finished(app.exit(error));  // --help and --version
    complain(in_plain_words(error), " (see --help)");
    return talweg::cli::kUsageExitCode;
  } catch (const Error& error) {
    complain(error.what());
    const bool usage = error.code() == ErrorCode::invalid_argument || error.code() == ErrorCode::bad_file;
    return usage ? talweg::cli::kUsageExitCode : talweg::cli::kFailureExitCode;
  } catch (const std::exception& error) {
    complain(error.what());
    return talweg::cli::kFailureExitCode;
  }
}
