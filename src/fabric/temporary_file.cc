#include "fabric/temporary_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "base/fail.h"
#include "base/file_descriptor.h"
#include "base/temporary_folder.h"

namespace talweg::fabric {

TemporaryFile::TemporaryFile(const std::string& suffix, const std::string& text, For whom) {
  path_ = std::filesystem::absolute(std::filesystem::path(temporary_folder()) / ("talweg-XXXXXX" + suffix))
              .string();
  const FileDescriptor file(mkostemps(path_.data(), static_cast<int>(suffix.size()), O_CLOEXEC));
  if (!file) throw_system("make the file {}", path_);
  errno = ENOSPC;  // a write that is cut short does not say why
  const bool whole = write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (whole && fchmod(file.get(), whom == For::owner ? 0600 : 0644) == 0) return;
  const int reason = errno;
  unlink(path_.c_str());
  errno = reason;
  throw_system("write the file {}", path_);
}

TemporaryFile::~TemporaryFile() {
  unlink(path_.c_str());
}

}  // namespace talweg::fabric
