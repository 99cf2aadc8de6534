#include "live/tcp/tcp_traffic.h"

// The kernel's own header: glibc's tcp_info ends before these fields, and the two do not go together.
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace talweg::live {

namespace {
tcp_info info_of(int socket) {
  tcp_info info{};
  socklen_t length = sizeof info;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return {};
  return info;
}
}  // namespace

TcpTraffic tcp_traffic(int socket) {
  const tcp_info info = info_of(socket);
  const auto held_up = static_cast<double>(info.tcpi_rwnd_limited);
  // The kernel says ~0 where it has measured none.
  const std::uint32_t least = info.tcpi_min_rtt == ~std::uint32_t{0} ? 0 : info.tcpi_min_rtt;
  return {info.tcpi_total_retrans,
          info.tcpi_rtt,
          least,
          info.tcpi_bytes_acked,
          info.tcpi_bytes_retrans,
          (static_cast<double>(info.tcpi_busy_time) - held_up) * 1e-6};
}

TcpPace tcp_pace(int socket) {
  const tcp_info info = info_of(socket);
  return {static_cast<std::int64_t>(info.tcpi_snd_cwnd) * info.tcpi_snd_mss,
          static_cast<std::int64_t>(info.tcpi_rtt) * 1000};
}

std::uint64_t tcp_answers(int socket) {
  const tcp_info info = info_of(socket);
  return info.tcpi_bytes_acked + info.tcpi_bytes_received + (info.tcpi_segs_in - info.tcpi_data_segs_in);
}

}  // namespace talweg::live
