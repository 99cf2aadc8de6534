#include "fabric/temporary_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "base/fail.h"
#include "base/file_descriptor.h"

namespace talweg::fabric {

TemporaryFile::TemporaryFile(const std::string& suffix, const std::string& text) {
  namespace fs = std::filesystem;
  std::error_code why;
  const fs::path folder = fs::temp_directory_path(why);
  if (why)
    throw_error(ErrorCode::system, "cannot find the folder for temporary files (TMPDIR): {}", why.message());
  path_ = fs::absolute(folder / ("talweg-XXXXXX" + suffix)).string();
  const FileDescriptor file(mkostemps(path_.data(), static_cast<int>(suffix.size()), O_CLOEXEC));
  if (!file) throw_system("make the file {}", path_);
  errno = ENOSPC;  // a write that is cut short does not say why
  const bool whole = write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (whole && fchmod(file.get(), 0644) == 0) return;
  const int reason = errno;
  unlink(path_.c_str());
  errno = reason;
  throw_system("write the file {}", path_);
}

TemporaryFile::~TemporaryFile() {
  unlink(path_.c_str());
}

}  // namespace talweg::fabric
