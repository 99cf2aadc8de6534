// Whose the words of a command line are. CLI11 gives what it does not know to the program of `talweg run`,
// and names it back to front elsewhere: the words are looked through before it reads them.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace talweg::cli {

// `words`: those of the whole command line, without the program's name. Gives them back with the "--" that
// the user left out in front of the program of `run` and `lab run`, so that its flags are never taken for
// talweg's. Throws Error{invalid_argument} that names the first word that is no command, no option or one
// argument too many, and the nearest that there is.
std::vector<std::string> checked_words(const CLI::App& app, std::vector<std::string> words);

// "talweg lab run": the commands that `words` begin with.
std::string path_of(const CLI::App& app, const std::vector<std::string>& words);

}  // namespace talweg::cli
