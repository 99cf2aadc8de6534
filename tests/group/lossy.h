// Networks that lose datagrams, for tests of bounded sums: losses are made where datagrams leave.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <string>

#include "group/bounded.h"
#include "wire/traffic_class.h"

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

// The same, once `on` is set; before that nothing is lost.
inline BoundedSeams once(const std::atomic<bool>& on, BoundedSeams seams) {
  seams.send = [&on, before = lossy(0, 1).send, after = seams.send](int fd, mmsghdr* messages, unsigned n) {
    return on ? after(fd, messages, n) : before(fd, messages, n);
  };
  return seams;
}

// And whatever is larger than a tunnel on the way takes, and nobody says so.
inline BoundedSeams no_larger_than(std::size_t bytes, BoundedSeams seams) {
  seams.send = [bytes, forward = seams.send](int fd, mmsghdr* messages, unsigned n) {
    for (unsigned i = 0; i < n; ++i)
      if (messages[i].msg_hdr.msg_iov->iov_len <= bytes) forward(fd, messages + i, 1);
    return static_cast<int>(n);
  };
  return seams;
}

// A switch with RED and ECN whose queue is full now and then: of what is not ECN-capable it drops a part, of
// all else nothing. `seen`: by octet of type of service, what has come to it.
inline BoundedSeams selective(double loss, unsigned seed, std::array<std::atomic<std::uint64_t>, 256>& seen) {
  BoundedSeams seams = lossy(0, seed);
  seams.send = [loss, &seen, random = std::mt19937(seed)](int fd, mmsghdr* messages, unsigned n) mutable {
    for (unsigned i = 0; i < n; ++i) {
      msghdr& header = messages[i].msg_hdr;
      int octet = 0;
      for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c))
        if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS)
          std::memcpy(&octet, CMSG_DATA(c), sizeof octet);
      ++seen[static_cast<std::size_t>(octet)];
      const bool capable = (octet & wire::kEcnMask) != 0;
      if (capable || std::uniform_real_distribution<>(0, 1)(random) >= loss)
        ::sendmmsg(fd, messages + i, 1, 0);
    }
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
