// A small process that outlives a launcher killed by SIGKILL just long enough to kill what the launcher
// started. The parent-death signal reaches only direct children; the warden reaches their whole process
// groups.
#pragma once

#include <sys/types.h>

#include <optional>
#include <vector>

#include "base/child_process.h"
#include "base/file_descriptor.h"

namespace talweg::fabric {

class Warden {
 public:
  // Watches over these process groups from now on. Throws Error{system}.
  explicit Warden(const std::vector<pid_t>& groups);
  // When this ends, it is dismissed, and the groups are left alone.

 private:
  FileDescriptor alive_;  // the warden sees end-of-file on the other end when this process is gone
  std::optional<ChildProcess> process_;  // ends first
};

}  // namespace talweg::fabric
