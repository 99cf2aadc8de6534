#include "fabric/tool.h"

#include <errno.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <sstream>

#include "base/fail.h"
#include "base/file_descriptor.h"

namespace talweg::fabric {

namespace {

// Files in memory instead of pipes: nobody has to read while somebody writes.
FileDescriptor memory_file(const std::string& content) {
  FileDescriptor file(memfd_create("talweg-tool", MFD_CLOEXEC));
  if (!file) throw_system("make a file in memory");
  if (pwrite(file.get(), content.data(), content.size(), 0) != static_cast<ssize_t>(content.size()))
    throw_system("write a file in memory");
  return file;
}

std::string content_of(const FileDescriptor& file) {
  std::string content;
  char buffer[4096];
  ssize_t n;
  while ((n = pread(file.get(), buffer, sizeof buffer, static_cast<off_t>(content.size()))) > 0)
    content.append(buffer, static_cast<std::size_t>(n));
  return content;
}

std::string find_program(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(std::string(path == nullptr ? "" : path) + ":/usr/sbin:/sbin:/usr/bin:/bin");
  for (std::string folder; std::getline(folders, folder, ':');) {
    std::string candidate = folder + "/" + name;
    if (!folder.empty() && access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  throw_error(ErrorCode::unsupported, "cannot find the program '{}' (Debian: package iproute2)", name);
}

// iproute2 ends a failed batch with "Command failed -:LINE"; the people who read it have no line numbers.
std::string explain(const std::string& words, const std::string& input) {
  std::string first;
  std::istringstream lines(words);
  while (std::getline(lines, first) && first.empty()) {
  }
  const std::string marker = "Command failed -:";
  const std::size_t at = words.find(marker);
  if (at == std::string::npos) return first;
  std::istringstream batch(input);
  std::string refused;
  for (int left = std::atoi(words.c_str() + at + marker.size()); left > 0; --left)
    std::getline(batch, refused);
  return fmt::format("{} (in: {})", first, refused);
}

}  // namespace

std::string run_tool(const std::vector<std::string>& command, const std::string& input) {
  const std::string program = find_program(command.at(0));
  const FileDescriptor in = memory_file(input), out = memory_file({}), err = memory_file({});
  std::vector<std::string> arguments = command;
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in.get(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err.get(), STDERR_FILENO);
  pid_t pid = -1;
  const int failure = posix_spawn(&pid, program.c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failure != 0) throw_error(ErrorCode::system, "cannot start '{}': {}", program, strerror(failure));
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (status != 0)
    throw_error(ErrorCode::system, "'{}' failed: {}", fmt::join(command, " "),
                explain(content_of(err), input));
  return content_of(out);
}

}  // namespace talweg::fabric
