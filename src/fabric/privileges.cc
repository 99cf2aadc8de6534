#include "fabric/privileges.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "base/fail.h"
#include "base/file_descriptor.h"
#include "fabric/net_namespace.h"

namespace talweg::fabric {

namespace {

bool can_make_namespaces() {
  try {
    NetNamespace::create();
    return true;
  } catch (const Error&) {
    return false;
  }
}

void map_to_root(const char* file, unsigned outside) {
  std::ofstream map(file);
  map << fmt::format("0 {} 1", outside) << std::flush;
  if (!map.good()) throw_system("write {}", file);
}

}  // namespace

void gain_lab_privileges() {
  if (can_make_namespaces()) return;
  const uid_t user = geteuid();
  const gid_t group = getegid();
  if (unshare(CLONE_NEWUSER) != 0)
    throw_error(
        ErrorCode::unsupported,
        "a lab needs root, or CAP_SYS_ADMIN and CAP_NET_ADMIN, or unprivileged user namespaces, which "
        "this system refuses ({}; see sysctl user.max_user_namespaces)",
        strerror(errno));
  std::ofstream("/proc/self/setgroups") << "deny";
  map_to_root("/proc/self/uid_map", user);
  map_to_root("/proc/self/gid_map", group);
  if (!can_make_namespaces())
    throw Error(ErrorCode::unsupported,
                "a lab needs network namespaces: this system gives none, not even within a user namespace");
}

void join_user_namespace_of(pid_t pid) {
  const std::string path = fmt::format("/proc/{}/ns/user", pid);
  const FileDescriptor theirs(open(path.c_str(), O_RDONLY | O_CLOEXEC)),
      ours(open("/proc/self/ns/user", O_RDONLY | O_CLOEXEC));
  struct stat a {
  }, b{};
  if (!theirs || !ours || fstat(theirs.get(), &a) != 0 || fstat(ours.get(), &b) != 0)
    throw_system("open {}", path);
  if (a.st_ino == b.st_ino && a.st_dev == b.st_dev) return;
  if (setns(theirs.get(), CLONE_NEWUSER) != 0) throw_system("join the user namespace of process {}", pid);
}

}  // namespace talweg::fabric
