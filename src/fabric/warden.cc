#include "fabric/warden.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <vector>

#include "base/fail.h"

namespace talweg::fabric {

Warden::Warden(std::size_t most, const std::vector<std::string>& files) {
  std::vector<pid_t> groups;
  groups.reserve(most);  // nothing may be allocated in a copy of a process that has more threads
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw_system("make a pipe");
  FileDescriptor ear(ends[0]);
  alive_ = FileDescriptor(ends[1]);
  process_.emplace("start the warden process", [&] {
    // Out of reach of the terminal and of whoever kills the launcher's process group or session.
    setsid();
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, nullptr);
    prctl(PR_SET_NAME, "talweg-warden");
    dup2(ear.get(), 0);
    close_range(1, ~0U, 0);  // its own copy of `alive_` among them
    pid_t group = 0;
    for (;;) {  // what is written at once is read at once
      const ssize_t n = read(0, &group, sizeof group);
      if (n < 0 && errno == EINTR) continue;
      if (n != sizeof group) break;
      if (groups.size() < groups.capacity()) groups.push_back(group);
    }
    for (const pid_t each : groups) kill(-each, SIGKILL);
    for (const std::string& file : files) unlink(file.c_str());
  });
}

void Warden::watch_me() const {
  const pid_t group = getpid();
  while (write(alive_.get(), &group, sizeof group) < 0 && errno == EINTR) {
  }
}

}  // namespace talweg::fabric
