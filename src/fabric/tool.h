// Runs a small system program such as ip or tc to its end, with its input given and its output captured.
#pragma once

#include <string>
#include <vector>

namespace talweg::fabric {

// What the program wrote to its standard output. The program is looked up in PATH and in the sbin folders,
// which an ordinary user's PATH often lacks; it runs in the namespaces of the calling thread. Throws
// Error{unsupported} when there is no such program and Error{system} when it fails: the text has its own
// words and, for a batch read from `input`, the line that it refused.
std::string run_tool(const std::vector<std::string>& command, const std::string& input = {});

}  // namespace talweg::fabric
