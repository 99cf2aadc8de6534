#include "live/tcp_traffic.h"

// The kernel's own header: glibc's tcp_info ends before these fields, and the two do not go together.
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace talweg::live {

TcpTraffic tcp_traffic(int socket) {
  tcp_info info{};
  socklen_t length = sizeof info;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return {};
  const auto held_up = static_cast<double>(info.tcpi_rwnd_limited);
  return {info.tcpi_bytes_acked, (static_cast<double>(info.tcpi_busy_time) - held_up) * 1e-6};
}

}  // namespace talweg::live
