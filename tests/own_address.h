#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <string>

namespace talweg {

// This process's own address on loopback: no test beside it takes a port there, not even one just given up.
inline std::string own_address() {
  const int pid = ::getpid();
  return fmt::format("127.{}.{}.{}", 1 + (pid >> 16) % 250, (pid >> 8) % 256, 1 + pid % 254);
}

}  // namespace talweg
