// ChildProcess: a function that runs in a process of its own, and the one place where this process forks.
//
//   ChildProcess child("look for namespaces", [&] { write(pipe, "yes", 3); });
//   child.wait();
//
// The child must not return to what its parent was doing, so it ends by _exit(): with 0 when `body` returns,
// with 1 when it throws. It has what fork() leaves: the calling thread alone, and copies of all memory and
// descriptors.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <utility>

namespace talweg {

class ChildProcess {
 public:
  // `what` is what was attempted, for the error. Throws Error{system} where there can be no more processes.
  ChildProcess(const std::string& what, const std::function<void()>& body);
  // Kills it and waits for its end, unless wait() or release() came before.
  ~ChildProcess();
  ChildProcess(ChildProcess&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
  ChildProcess& operator=(ChildProcess&&) = delete;

  pid_t pid() const { return pid_; }  // -1 once it is not ours any more
  void kill(int signal) const;
  // Its end, as waitpid() tells it.
  int wait();
  // From now on it is somebody else's to end and to wait for.
  pid_t release() { return std::exchange(pid_, -1); }

 private:
  pid_t pid_;
};

}  // namespace talweg
