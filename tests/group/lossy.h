// Networks that lose datagrams, for tests of bounded sums: losses are made where datagrams leave.
#pragma once

#include <sys/socket.h>

#include <functional>
#include <random>
#include <string>

#include "group/bounded.h"

namespace talweg::group {

inline BoundedSeams lossy(double loss, unsigned seed) {
  BoundedSeams seams;
  seams.offload = false;  // so that a message is a datagram
  seams.warm_up = false;
  seams.send = [loss, random = std::mt19937(seed)](int fd, mmsghdr* messages, unsigned n) mutable {
    for (unsigned i = 0; i < n; ++i)
      if (std::uniform_real_distribution<>(0, 1)(random) >= loss) ::sendmmsg(fd, messages + i, 1, 0);
    return static_cast<int>(n);
  };
  return seams;
}

inline std::string error_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& e) {
    return std::string(name(e.code())) + ": " + e.what();
  }
  return "nothing was thrown";
}

}  // namespace talweg::group
