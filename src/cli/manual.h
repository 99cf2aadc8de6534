// What is written about the command line, from what the command line says of itself: manual pages and
// completions. `talweg_manual` writes them while Talweg is built; nothing of it is in `talweg`.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace talweg::cli {

// An option or an argument as a user sees it.
struct Described {
  std::vector<std::string> names;  // "-n", "--ranks"; of an argument: none
  std::string argument;            // what an argument is called; of an option: empty
  bool takes_value = false;
  bool required = false;
  std::string description;
  std::string default_value;
};

// Those that are shown by --help, in its order.
std::vector<Described> options_of(const CLI::App& app);
std::vector<Described> arguments_of(const CLI::App& app);
std::vector<const CLI::App*> subcommands_of(const CLI::App& app);
// The words that may stand for an argument; empty where there is no such list.
std::vector<std::string> words_for(const std::string& argument);

// Section 1, for `talweg` itself (with the settings, files and exit codes) or for one of its subcommands
// (with those below it). `path`: "talweg" or "talweg run".
std::string man_page(const CLI::App& app, const std::string& path);

std::string bash_completion(const CLI::App& app);
std::string zsh_completion(const CLI::App& app);

}  // namespace talweg::cli
