// talweg_manual FOLDER: writes talweg.1, one page for each subcommand, and the completions for bash and zsh
// there.
#include <fmt/format.h>

#include <fstream>
#include <string>

#include "cli/app.h"
#include "cli/manual.h"

namespace {

bool write(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text << std::flush;
  if (!file) fmt::print(stderr, "talweg_manual: cannot write {}\n", path);
  return file.good();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: talweg_manual FOLDER\n");
    return talweg::cli::kUsageExitCode;
  }
  const std::string folder = argv[1];
  talweg::cli::Action action;
  const auto app = talweg::cli::make_app(&action);
  bool good = write(folder + "/talweg.1", talweg::cli::man_page(*app, "talweg"));
  for (const auto* command : talweg::cli::subcommands_of(*app))
    good = good && write(fmt::format("{}/talweg-{}.1", folder, command->get_name()),
                         talweg::cli::man_page(*command, "talweg " + command->get_name()));
  good = good && write(folder + "/talweg.bash", talweg::cli::bash_completion(*app)) &&
         write(folder + "/_talweg", talweg::cli::zsh_completion(*app));
  return good ? 0 : talweg::cli::kFailureExitCode;
}
