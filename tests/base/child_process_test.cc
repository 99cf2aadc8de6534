#include "base/child_process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>
#include <utility>

namespace talweg {
namespace {

TEST(ChildProcess, EndsAsItsBodyDoes) {
  EXPECT_EQ(WEXITSTATUS(ChildProcess("try", [] {}).wait()), 0);
  EXPECT_EQ(WEXITSTATUS(ChildProcess("try", [] { throw std::runtime_error("no"); }).wait()), 1);
  EXPECT_EQ(WEXITSTATUS(ChildProcess("try", [] { _exit(7); }).wait()), 7);
}

TEST(ChildProcess, WhoDropsItEndsIt) {
  pid_t pid = 0;
  {
    const ChildProcess child("try", [] { pause(); });
    pid = child.pid();
    EXPECT_EQ(kill(pid, 0), 0);
  }
  EXPECT_NE(kill(pid, 0), 0);  // ended and waited for
}

TEST(ChildProcess, MovedAwayItIsItsNewOwners) {
  ChildProcess first("try", [] { pause(); });
  const pid_t pid = first.pid();
  ChildProcess second(std::move(first));
  EXPECT_EQ(first.pid(), -1);
  EXPECT_EQ(second.pid(), pid);
  second.kill(SIGTERM);
  EXPECT_EQ(WTERMSIG(second.wait()), SIGTERM);
}

TEST(ChildProcess, ReleasedItGoesOn) {
  pid_t pid = 0;
  {
    ChildProcess child("try", [] { pause(); });
    pid = child.release();
  }
  EXPECT_EQ(kill(pid, SIGKILL), 0);
  EXPECT_EQ(waitpid(pid, nullptr, 0), pid);
}

}  // namespace
}  // namespace talweg
