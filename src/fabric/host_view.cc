#include "fabric/host_view.h"

#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <fstream>

#include "base/fail.h"

namespace talweg::fabric {

namespace {

// The file is written to a file system in memory that covers /mnt only for as long as it takes to bind the
// file over /etc/hosts: nothing has to be removed later.
void replace_hosts_file(const std::string& text) {
  if (mount("talweg", "/mnt", "tmpfs", 0, "size=1m") != 0) return;
  std::ofstream("/mnt/hosts") << text;
  mount("/mnt/hosts", "/etc/hosts", nullptr, MS_BIND, nullptr);
  umount2("/mnt", MNT_DETACH);
}

}  // namespace

void enter_host(const NetNamespace& net, const std::string& name, const std::string& hosts_file) {
  net.enter();
  if (unshare(CLONE_NEWUTS | CLONE_NEWNS) != 0) throw_system("make host {} a machine of its own", name);
  if (sethostname(name.data(), name.size()) != 0) throw_system("name a host {}", name);
  if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
    throw_system("keep mounts to one host");
  // Some containers refuse these two. Programs run without them; they only see the machine's own.
  mount("sysfs", "/sys", "sysfs", 0, nullptr);
  replace_hosts_file(hosts_file);
}

}  // namespace talweg::fabric
