#include "live/join/job_key.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/fail.h"
#include "base/settings.h"
#include "base/trim.h"
#include "live/system.h"
#include "wire/key.h"

namespace talweg::live {

namespace {

constexpr std::size_t kLongestFile = 4096;

[[noreturn]] void refuse_key(const std::string& origin, const std::string& why) {
  throw_error(ErrorCode::invalid_argument, "{}: {}", origin, why);
}

JobKey long_enough(JobKey key) {
  if (key.text.size() < wire::kShortestKey)
    throw_error(ErrorCode::invalid_argument,
                "{}: a key has at least {} characters, this one has {}; such as that of: openssl rand "
                "-hex 32",
                key.origin, wire::kShortestKey, key.text.size());
  return key;
}

// What is checked is what is read: the open file, not whatever the path names a moment later.
std::string read_private_file(const std::string& origin, const std::string& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (!file || ::fstat(file.get(), &info) != 0) refuse_key(origin, std::strerror(errno));
  if (!S_ISREG(info.st_mode)) refuse_key(origin, "expected a file");
  if (info.st_uid != ::geteuid() && info.st_uid != 0) refuse_key(origin, "it belongs to another user");
  if ((info.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    refuse_key(origin, fmt::format("others may read or change it (mode {:04o}): chmod 600 {}",
                                   info.st_mode & 07777U, path));
  std::array<char, kLongestFile + 1> text;
  const ssize_t n = ::read(file.get(), text.data(), text.size());
  if (n < 0) refuse_key(origin, std::strerror(errno));
  if (static_cast<std::size_t>(n) > kLongestFile)
    refuse_key(origin, fmt::format("it is longer than {} bytes", kLongestFile));
  return {text.data(), static_cast<std::size_t>(n)};
}

}  // namespace

std::optional<JobKey> find_job_key() {
  if (const std::string path = resolve("TALWEG_KEY_FILE").value; !path.empty())
    return read_job_key("TALWEG_KEY_FILE", path);
  JobKey key{std::string(trimmed(resolve("TALWEG_KEY").value)), "TALWEG_KEY"};
  if (key.text.empty()) return std::nullopt;
  return long_enough(std::move(key));
}

JobKey read_job_key(const std::string& option, const std::string& path) {
  const std::string origin = option + " " + path;
  return long_enough({std::string(trimmed(read_private_file(origin, path))), origin});
}

}  // namespace talweg::live
