#include "fabric/net_namespace.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>

#include <exception>
#include <fstream>
#include <thread>

#include "base/fail.h"

namespace talweg::fabric {

namespace {

void run_on_a_thread(const std::function<void()>& work) {
  std::exception_ptr failure;
  std::thread([&] {
    try {
      work();
    } catch (...) {
      failure = std::current_exception();
    }
  }).join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace

NetNamespace NetNamespace::create() {
  FileDescriptor fd;
  run_on_a_thread([&] {  // a namespace belongs to a thread, so the caller stays where it is
    if (unshare(CLONE_NEWNET) != 0) throw_system("make a network namespace");
    fd = FileDescriptor(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
    if (!fd) throw_system("hold a network namespace");
  });
  return NetNamespace(std::move(fd));
}

NetNamespace NetNamespace::open(const std::string& path) {
  FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) throw_system("open the network namespace {}", path);
  return NetNamespace(std::move(fd));
}

void NetNamespace::run(const std::function<void()>& work) const {
  run_on_a_thread([&] {
    enter();
    work();
  });
}

void NetNamespace::enter() const {
  if (setns(fd_.get(), CLONE_NEWNET) != 0) throw_system("enter a network namespace");
}

std::string NetNamespace::path() const {
  return fmt::format("/proc/{}/fd/{}", getpid(), fd_.get());
}

bool set_net_setting(const std::string& name, const std::string& value) {
  std::ofstream file("/proc/sys/net/" + name);
  file << value << std::flush;
  return file.good();
}

}  // namespace talweg::fabric
