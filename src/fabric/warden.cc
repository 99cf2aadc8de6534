#include "fabric/warden.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/fail.h"

namespace talweg::fabric {

Warden::Warden(const std::vector<pid_t>& groups) {
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
    char byte;
    while (read(0, &byte, 1) < 0 && errno == EINTR) {
    }
    for (const pid_t group : groups) kill(-group, SIGKILL);
  });
}

}  // namespace talweg::fabric
