#include "base/input_file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/fail.h"
#include "base/file_descriptor.h"

namespace talweg {
namespace {

constexpr int kLookEveryMs = 1000;
constexpr int kMostSilentLooks = 60;
constexpr std::size_t kPartBytes = std::size_t{1} << 16;

}  // namespace

std::string read_input(const std::string& path, const std::string& shown, std::size_t most_bytes) {
  if (path.empty()) throw_error(ErrorCode::bad_file, "expected the name of a file, got an empty one");
  // Without O_NONBLOCK, opening a pipe waits for somebody who writes.
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (!file || ::fstat(file.get(), &info) != 0)
    throw_error(ErrorCode::bad_file, "{}: cannot read it: {}", shown, std::strerror(errno));
  if (S_ISDIR(info.st_mode)) throw_error(ErrorCode::bad_file, "{}: expected a file, got a directory", shown);
  std::string text;
  std::array<char, kPartBytes> part;
  for (int silent = 0;;) {
    pollfd ready{file.get(), POLLIN, 0};
    const bool came = ::poll(&ready, 1, kLookEveryMs) != 0;
    const ssize_t n = ::read(file.get(), part.data(), part.size());
    if (n == 0 && !came)
      throw_error(ErrorCode::bad_file, "{}: expected a file, got a pipe that nobody writes into", shown);
    if (n == 0) return text;
    if (n > 0) {
      silent = 0;
      text.append(part.data(), static_cast<std::size_t>(n));
      if (text.size() > most_bytes)
        throw_error(ErrorCode::bad_file, "{}: expected a file of at most {} KiB", shown, most_bytes >> 10);
    } else if (errno != EAGAIN && errno != EINTR) {
      throw_error(ErrorCode::bad_file, "{}: cannot read it: {}", shown, std::strerror(errno));
    } else if (++silent == kMostSilentLooks) {
      throw_error(ErrorCode::bad_file, "{}: expected a file, got something that says nothing", shown);
    }
  }
}

}  // namespace talweg
