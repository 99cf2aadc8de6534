// Files that somebody names and a program reads whole: a network, a plan, settings.
#pragma once

#include <cstddef>
#include <string>

namespace talweg {

// All that is in the file. A pipe is read to its end, if somebody writes into it: who has not begun after a
// second, or says nothing for a minute, is not waited for. Throws Error{bad_file} that begins with `shown`,
// also for more than `most_bytes`.
std::string read_input(const std::string& path, const std::string& shown, std::size_t most_bytes);

}  // namespace talweg
