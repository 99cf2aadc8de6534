// Runs the built `talweg` as a user would, and says what came of it.
#pragma once

#include <string>
#include <vector>

namespace talweg::cli {

struct Outcome {
  int exit_code = -1;  // 128 + n: killed by signal n
  std::string out;
  std::string err;
};

// `arguments` go to the program as they are; no launcher's variables are left in its environment.
// `environment`: NAME=value pairs on top.
Outcome talweg(const std::vector<std::string>& arguments, const std::vector<std::string>& environment = {});
// A command line for /bin/sh, in which $TALWEG is the program.
Outcome shell(const std::string& line);

int count_lines(const std::string& text);

}  // namespace talweg::cli
