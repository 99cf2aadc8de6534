// A small process that outlives a launcher killed by SIGKILL just long enough to kill what the launcher
// started. The parent-death signal reaches only direct children; the warden reaches their whole process
// groups.
#pragma once

#include <sys/types.h>

#include <vector>

#include "fabric/fd.h"

namespace talweg::fabric {

class Warden {
 public:
  // Watches over these process groups from now on. Throws Error{system}.
  explicit Warden(const std::vector<pid_t>& groups);
  // Dismisses it; the groups are left alone.
  ~Warden();
  Warden(const Warden&) = delete;

 private:
  pid_t pid_;
  Fd alive_;  // the warden sees end-of-file on the other end when this process is gone
};

}  // namespace talweg::fabric
