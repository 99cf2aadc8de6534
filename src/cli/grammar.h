// The words that all commands share, each with one meaning, and how those that were once spelled otherwise
// are still understood. The manual page, docs/commands.md and tests read the table.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace talweg::cli {

struct Word {
  const char* name;     // without dashes
  const char* letters;  // "-n"; or empty
  const char* meaning;  // for people
};
std::span<const Word> grammar();

struct OldSpelling {  // of a flag of one command
  const char* command;
  const char* was;
  const char* is;
};
std::span<const OldSpelling> old_spellings();

struct Spelling {
  std::vector<std::string> arguments;
  std::vector<std::string> notes;  // one line for each word that is spelled otherwise now
};
// `arguments`: the whole command line, without the program's name. A --json without a file gets "-".
Spelling respelled(std::vector<std::string> arguments);

}  // namespace talweg::cli
