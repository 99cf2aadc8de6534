// Which of several sockets datagrams leave by, for tests; and one of them brings nothing anywhere.
#pragma once

#include <sys/socket.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "live/udp/udp_sender.h"

namespace talweg::live {

// In the order in which sockets were used first.
struct BySocket {
  UdpSender::SendCall call(std::size_t dead) {
    return [this, dead](int fd, mmsghdr* m, unsigned n) {
      const auto at = std::ranges::find(sockets, fd);
      const auto which = static_cast<std::size_t>(at - sockets.begin());
      if (at == sockets.end()) {
        sockets.push_back(fd);
        datagrams.push_back(0);
      }
      datagrams[which] += n;
      if (which == dead) return static_cast<int>(n);
      return ::sendmmsg(fd, m, n, MSG_DONTWAIT);
    };
  }
  std::vector<int> sockets;
  std::vector<std::uint64_t> datagrams;
};

}  // namespace talweg::live
