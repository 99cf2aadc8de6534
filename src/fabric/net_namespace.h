// A network namespace without a name: it lives as long as somebody holds a descriptor of it or runs in it. A
// lab built of these needs no clean-up: when the process that holds it is gone, in whatever way, so is the
// lab.
#pragma once

#include <functional>
#include <string>

#include "base/file_descriptor.h"

namespace talweg::fabric {

class NetNamespace {
 public:
  // A new, empty one. Throws Error{system}; see privileges.h for what it takes.
  static NetNamespace create();
  // The one that `path`, such as /proc/PID/fd/N, stands for. Throws Error{system}.
  static NetNamespace open(const std::string& path);

  // Runs `work` on a thread inside the namespace and throws on what it throws. Programs that it starts are
  // inside, too.
  void run(const std::function<void()>& work) const;
  // Moves the calling thread into the namespace, for good.
  void enter() const;

  int fd() const { return fd_.get(); }
  // Stands for the namespace in other processes of the same user, as long as this process holds it.
  std::string path() const;

 private:
  explicit NetNamespace(FileDescriptor fd) : fd_(std::move(fd)) {}
  FileDescriptor fd_;
};

// Writes a kernel setting of the calling thread's network namespace: set_net_setting("ipv4/ip_forward", "1").
// False when this kernel has no such setting or does not let it be written.
bool set_net_setting(const std::string& name, const std::string& value);

}  // namespace talweg::fabric
