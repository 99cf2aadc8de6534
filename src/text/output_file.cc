#include "text/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <system_error>
#include <utility>

#include "base/fail.h"
#include "base/printable.h"
#include "text/draft.h"

namespace talweg::text {
namespace {

namespace fs = std::filesystem;

// What would be replaced, or be there anew: never a pipe or a device.
bool can_be_replaced(const std::string& path) {
  std::error_code ignored;
  const auto there = fs::status(path, ignored);
  return there.type() == fs::file_type::not_found || fs::is_regular_file(there);
}

}  // namespace

PipeOpening::PipeOpening(const std::string& option, const std::string& path) {
  std::error_code ignored;
  if (!fs::is_fifo(path, ignored)) return;
  file_ = ::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
  if (file_ < 0 && errno == ENXIO)
    std::fputs(fmt::format("talweg: {}: waiting for somebody to read {}\n", option, printable(path)).c_str(),
               stderr);
}

PipeOpening::~PipeOpening() {
  if (file_ >= 0) ::close(file_);
}

OutputFile::OutputFile(std::string option, std::string path)
    : option_(std::move(option)), path_(std::move(path)) {
  std::error_code ignored;
  const auto there = fs::status(path_, ignored);
  if (!wanted() || is_standard_output() || fs::is_other(there)) return;  // a pipe would wait for its reader
  const bool absent = there.type() == fs::file_type::not_found;
  if (absent && fs::is_symlink(fs::symlink_status(path_, ignored)))
    refuse("{}: cannot write {}: it is a link that leads nowhere", option_, path_);
  const bool opened = !fs::is_directory(there) && std::ofstream(path_, std::ios::app).is_open();
  const std::string reason = fs::is_directory(there) ? "it is a directory" : std::strerror(errno);
  if (opened && absent) fs::remove(path_, ignored);
  if (!opened) refuse("{}: cannot write {}: {}", option_, path_, reason);
}

void OutputFile::write(const std::string& text) const {
  write([&](std::ostream& out) { out << text; });
}

void OutputFile::write(const std::function<void(std::ostream&)>& fill) const {
  if (!wanted()) return;
  if (is_standard_output()) {
    std::ostringstream text;
    fill(text);
    return print(text.str());
  }
  std::optional<Draft> draft;
  if (can_be_replaced(path_)) draft.emplace(path_);
  if (draft && draft->failed()) draft.reset();  // a folder in which only this file may be changed
  const PipeOpening pipe(option_, path_);
  errno = 0;
  std::ofstream file(draft ? draft->name() : path_, std::ios::binary);
  fill(file);
  file.close();
  int reason = errno;
  std::error_code failed;
  if (file && draft) failed = draft->replace();
  if (file && !failed) return;
  if (failed) reason = failed.value();
  throw_error(ErrorCode::system, "{}: cannot write {}: {}", option_, path_,
              reason != 0 ? std::strerror(reason) : "not all of it was taken");
}

void print(const std::string& text) {
  const bool whole = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (!whole || std::fflush(stdout) != 0)
    throw_error(ErrorCode::system, "cannot write to standard output: {}", std::strerror(errno));
}

void check_outputs(const std::vector<std::string>& outputs, const std::vector<std::string>& inputs) {
  std::error_code ignored;
  const auto name = [&](const std::string& path) {
    return fs::weakly_canonical(fs::absolute(path, ignored), ignored);
  };
  const auto same = [&](const std::string& a, const std::string& b) {
    return fs::equivalent(a, b, ignored) || name(a) == name(b);
  };
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const std::string& path = outputs[i];
    const auto there = fs::status(path, ignored);
    if (path.empty() || path == "-" || (exists(there) && !is_regular_file(there))) continue;
    for (const std::string& in : inputs)
      if (!in.empty() && same(path, in))
        refuse("{}: it would be written over the file that is read; give another name", path);
    for (std::size_t other = 0; other < i; ++other)
      if (!outputs[other].empty() && outputs[other] != "-" && same(path, outputs[other]))
        refuse("{}: two outputs would be written to it; give one another name", path);
  }
}

}  // namespace talweg::text
