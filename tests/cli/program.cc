#include "cli/program.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "text/escape.h"

namespace talweg::cli {
namespace {

std::string content(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

}  // namespace

Outcome shell(const std::string& line) {
  std::string folder = (std::filesystem::temp_directory_path() / "talweg-test-XXXXXX").string();
  if (!mkdtemp(folder.data())) throw std::runtime_error("cannot make a scratch folder");
  const std::string script =
      "unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT TALWEG_KEY TALWEG_KEY_FILE\n"
      "TALWEG=" +
      text::shell_quoted(TALWEG_PROGRAM) + "; export TALWEG\n" + line;
  const std::string command = "/bin/sh -c " + text::shell_quoted(script) + " >" +
                              text::shell_quoted(folder + "/out") + " 2>" +
                              text::shell_quoted(folder + "/err") + " </dev/null";
  const int status = std::system(command.c_str());
  Outcome outcome;
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  outcome.out = content(folder + "/out");
  outcome.err = content(folder + "/err");
  std::filesystem::remove_all(folder);
  return outcome;
}

Outcome talweg(const std::vector<std::string>& arguments, const std::vector<std::string>& environment) {
  std::string line = "exec env";
  for (const auto& pair : environment) line += " " + text::shell_quoted(pair);
  line += " \"$TALWEG\"";
  for (const auto& argument : arguments) line += " " + text::shell_quoted(argument);
  return shell(line);
}

int count_lines(const std::string& text) {
  return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
}

}  // namespace talweg::cli
