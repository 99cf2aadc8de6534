// A small process that outlives a launcher killed by SIGKILL just long enough to kill what the launcher
// started and to remove the files that were made for it. The parent-death signal reaches only direct
// children; the warden reaches their whole process groups. It is there before the first of them is: a
// launcher may be killed while it starts others.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/child_process.h"
#include "base/file_descriptor.h"

namespace talweg::fabric {

class Warden {
 public:
  // Will watch over so many process groups at most, and over these files. Throws Error{system}.
  Warden(std::size_t groups, const std::vector<std::string>& files);
  // When this ends, it is dismissed, and the groups and the files are left alone.

  // To be called in a new process that leads a group, before it starts others: the warden watches over it.
  void watch_me() const;

 private:
  // The warden sees end-of-file on the other end when this process is gone, and the new ones run programs.
  FileDescriptor alive_;
  std::optional<ChildProcess> process_;  // ends first
};

}  // namespace talweg::fabric
