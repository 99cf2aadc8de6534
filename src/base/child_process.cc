#include "base/child_process.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "base/fail.h"

namespace talweg {

ChildProcess::ChildProcess(const std::string& what, const std::function<void()>& body) {
  std::fflush(nullptr);  // or both would write what is buffered
  pid_ = fork();
  if (pid_ < 0) throw_system("{}", what);
  if (pid_ > 0) return;
  try {
    body();
  } catch (...) {
    _exit(1);
  }
  _exit(0);
}

ChildProcess::~ChildProcess() {
  if (pid_ < 0) return;
  kill(SIGKILL);
  wait();
}

void ChildProcess::kill(int signal) const {
  if (pid_ > 0) ::kill(pid_, signal);
}

int ChildProcess::wait() {
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  return status;
}

}  // namespace talweg
