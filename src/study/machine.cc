#include "study/machine.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "fabric/privileges.h"
#include "study/side_by_side.h"

namespace talweg::study {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::uint64_t meminfo(const std::string& key) {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    std::uint64_t kibibytes = 0;
    if (words >> name >> kibibytes && name == key + ":") return kibibytes * 1024;
  }
  return 0;
}

std::uint64_t shared_memory_free() {
  struct statvfs state {};
  if (access("/dev/shm", W_OK) != 0 || statvfs("/dev/shm", &state) != 0) return 0;
  return static_cast<std::uint64_t>(state.f_bavail) * state.f_frsize;
}

std::string try_namespaces() {
  try {
    fabric::gain_lab_privileges();
    return unshare(CLONE_NEWNET) == 0 ? "yes" : fmt::format("no: {}", std::strerror(errno));
  } catch (const std::exception& error) {
    return fmt::format("no: {}", error.what());
  }
}

// In a process of its own, since there is no way back out of a namespace.
std::string namespaces() {
  const auto tried =
      side_by_side({[](const HandOver& hand_over) { hand_over(try_namespaces()); }}, 10).front();
  return tried.lines.empty() ? "unknown: " + tried.failure : tried.lines.front();
}

}  // namespace

MachineFacts machine_facts() {
  MachineFacts facts;
  utsname names{};
  if (uname(&names) == 0) {
    facts.host = names.nodename;
    facts.kernel = fmt::format("{} {}", names.sysname, names.release);
  }
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  if (sched_getaffinity(0, sizeof cpus, &cpus) == 0) facts.cpus = CPU_COUNT(&cpus);
  facts.memory_bytes = meminfo("MemTotal");
  facts.memory_available_bytes = meminfo("MemAvailable");
  facts.congestion_control = first_line("/proc/sys/net/ipv4/tcp_congestion_control");
  facts.congestion_controls_available = first_line("/proc/sys/net/ipv4/tcp_available_congestion_control");
  facts.shared_memory_bytes = shared_memory_free();
  facts.namespaces = namespaces();
  return facts;
}

}  // namespace talweg::study
