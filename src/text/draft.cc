#include "text/draft.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

namespace talweg::text {

namespace fs = std::filesystem;

Draft::Draft(const std::string& path) {
  std::error_code ignored;
  const fs::path real = fs::weakly_canonical(path, ignored);
  file_ = real.empty() ? path : real.string();
  name_ = fmt::format("{}.{}.part", file_, ::getpid());
  fs::remove(name_, ignored);
  const int made = ::open(name_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  there_ = made >= 0;
  if (!there_ || ::close(made) != 0) failed_ = {errno, std::generic_category()};
}

Draft::~Draft() {
  std::error_code ignored;
  if (there_) fs::remove(name_, ignored);
}

std::error_code Draft::replace() {
  std::error_code failed;
  fs::rename(name_, file_, failed);
  there_ = there_ && failed;
  return failed;
}

}  // namespace talweg::text
