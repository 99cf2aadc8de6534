#include "live/udp/multicast.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace talweg::live {

bool is_group(const UdpAddress& address) {
  const std::uint32_t dotted = ntohl(address.ipv4());
  return IN_MULTICAST(dotted) && dotted > INADDR_MAX_LOCAL_GROUP;
}

void send_to_groups(const UdpSocket& socket, int hops) {
  const std::string what = fmt::format("sending to multicast groups from {}", to_string(socket.address()));
  const in_addr by{socket.address().ipv4()};
  check(::setsockopt(socket.fd(), IPPROTO_IP, IP_MULTICAST_IF, &by, sizeof by), what);
  check(::setsockopt(socket.fd(), IPPROTO_IP, IP_MULTICAST_TTL, &hops, sizeof hops), what);
}

void join_group(const UdpSocket& socket, const UdpAddress& by) {
  const std::string what =
      fmt::format("joining the multicast group {} by {}", to_string(socket.address()), to_string(by));
  const ip_mreq group{{socket.address().ipv4()}, {by.ipv4()}};
  const int none = 0;  // of what other programs of this host have joined
  check(::setsockopt(socket.fd(), IPPROTO_IP, IP_MULTICAST_ALL, &none, sizeof none), what);
  check(::setsockopt(socket.fd(), IPPROTO_IP, IP_ADD_MEMBERSHIP, &group, sizeof group), what);
}

}  // namespace talweg::live
