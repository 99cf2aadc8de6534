#include "live/udp/udp_socket.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <linux/filter.h>
#include <linux/sock_diag.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/udp.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "base/fail.h"
#include "base/units.h"

namespace talweg::live {

namespace {

// "host:port" or "[host]:port" -> both.
bool split(std::string_view text, std::string& host, int& port) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return false;
  std::string_view name = text.substr(0, colon);
  if (name.front() == '[') {
    if (name.size() < 2 || name.back() != ']') return false;
    name = name.substr(1, name.size() - 2);
  }
  host = name;
  const std::string_view digits = text.substr(colon + 1);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  return error == std::errc{} && end == digits.data() + digits.size() && port >= 0 && port <= 65535;
}

// How much of `wanted` the kernel gives; it doubles what it is asked for, and counts its own memory against
// it.
std::size_t set_buffer(int fd, int option, int force, int wanted) {
  if (::setsockopt(fd, SOL_SOCKET, force, &wanted, sizeof wanted) != 0)
    ::setsockopt(fd, SOL_SOCKET, option, &wanted, sizeof wanted);
  int got = 0;
  socklen_t length = sizeof got;
  ::getsockopt(fd, SOL_SOCKET, option, &got, &length);
  return static_cast<std::size_t>(got);
}

void set_option(int fd, int level, int option, int value, const char* what) {
  check(::setsockopt(fd, level, option, &value, sizeof value), what);
}

}  // namespace

UdpAddress::UdpAddress(std::string_view text) : UdpAddress() {
  std::string host;
  int port = 0;
  if (!split(text, host, port))
    refuse("\"{}\" is not an address and a port, such as 127.0.0.1:4000 or [::1]:4000", text);
  if (inet_pton(AF_INET, host.c_str(), &any_.v4.sin_addr) == 1) {
    const in_addr address = any_.v4.sin_addr;
    any_.v4 = {};
    any_.v4.sin_family = AF_INET;
    any_.v4.sin_port = htons(static_cast<std::uint16_t>(port));
    any_.v4.sin_addr = address;
    return;
  }
  // An interface behind '%' is only there in link-local addresses, which getaddrinfo knows about.
  addrinfo hints{};
  hints.ai_family = AF_INET6;
  hints.ai_socktype = SOCK_DGRAM;
  hints.ai_flags = AI_NUMERICHOST;
  addrinfo* list = nullptr;
  if (text.front() != '[' || ::getaddrinfo(host.c_str(), nullptr, &hints, &list) != 0)
    refuse("\"{}\" is not an address and a port, such as 127.0.0.1:4000 or [::1]:4000", text);
  std::memcpy(&any_.v6, list->ai_addr, sizeof any_.v6);
  ::freeaddrinfo(list);
  any_.v6.sin6_port = htons(static_cast<std::uint16_t>(port));
}

bool UdpAddress::operator==(const UdpAddress& other) const {
  if (any_.base.sa_family != other.any_.base.sa_family || port() != other.port()) return false;
  return ipv6() ? std::memcmp(&any_.v6.sin6_addr, &other.any_.v6.sin6_addr, sizeof any_.v6.sin6_addr) == 0 &&
                      any_.v6.sin6_scope_id == other.any_.v6.sin6_scope_id
                : any_.v4.sin_addr.s_addr == other.any_.v4.sin_addr.s_addr;
}

std::string to_string(const UdpAddress& address) {
  std::array<char, NI_MAXHOST> host{};
  if (::getnameinfo(address.raw(), address.bytes(), host.data(), host.size(), nullptr, 0, NI_NUMERICHOST) !=
      0)
    return "no address";
  return fmt::format(fmt::runtime(address.ipv6() ? "[{}]:{}" : "{}:{}"), host.data(), address.port());
}

UdpSocket::UdpSocket(const UdpAddress& local, const UdpOptions& options)
    : fd_(check(::socket(local.ipv6() ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0),
                "creating a UDP socket")) {
  if (local.ipv6()) {
    set_option(fd(), IPPROTO_IPV6, IPV6_V6ONLY, 1, "keeping a UDP socket to IPv6");
    set_option(fd(), IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO, "asking for datagrams in one piece");
    set_option(fd(), IPPROTO_IPV6, IPV6_RECVTCLASS, 1, "asking for ECN's marks");
  } else {
    set_option(fd(), IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO, "asking for datagrams in one piece");
    set_option(fd(), IPPROTO_IP, IP_RECVTOS, 1, "asking for ECN's marks");
  }
  // When something came, apart from when it was looked at: so a busy host is told from a busy network.
  set_option(fd(), SOL_SOCKET, SO_TIMESTAMPNS, 1, "asking for the time of arrival");
  receive_bytes_ = set_buffer(fd(), SO_RCVBUF, SO_RCVBUFFORCE, options.receive_bytes);
  const std::size_t send_bytes = set_buffer(fd(), SO_SNDBUF, SO_SNDBUFFORCE, options.send_bytes);
  shortage_ = buffer_shortage(true, static_cast<std::size_t>(options.receive_bytes), receive_bytes_ / 2);
  if (shortage_.empty())
    shortage_ = buffer_shortage(false, static_cast<std::size_t>(options.send_bytes), send_bytes / 2);
  if (options.deaf) {
    sock_filter nothing{BPF_RET | BPF_K, 0, 0, 0};
    const sock_fprog program{1, &nothing};
    check(::setsockopt(fd(), SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program),
          "making a UDP socket deaf");
  }
  if (options.shared) set_option(fd(), SOL_SOCKET, SO_REUSEADDR, 1, "sharing the address of a group");
  const int on = 1;
  merges_ = options.merge && ::setsockopt(fd(), IPPROTO_UDP, UDP_GRO, &on, sizeof on) == 0;
  check(::bind(fd(), local.raw(), local.bytes()),
        fmt::format("binding a UDP socket to {}", to_string(local)));
  socklen_t length = sizeof(sockaddr_in6);
  check(::getsockname(fd(), address_.raw(), &length), "reading a UDP socket's address");
}

std::uint64_t UdpSocket::dropped() const {
  std::array<std::uint32_t, SK_MEMINFO_VARS> memory{};
  socklen_t length = sizeof memory;
  if (::getsockopt(fd(), SOL_SOCKET, SO_MEMINFO, memory.data(), &length) != 0) return 0;
  return memory[SK_MEMINFO_DROPS];
}

// Of a socket that is not connected the kernel does not say; one that is connected to nothing but this
// address asks the same cache of routes, and sends nothing. What goes to a multicast group leaves by the
// interface that this socket was given for that, whatever routes there are.
std::size_t UdpSocket::path_mtu(const UdpAddress& to) const {
  const FileDescriptor probe(::socket(to.ipv6() ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!probe) return 0;
  in_addr by{};
  socklen_t by_bytes = sizeof by;
  if (!to.ipv6() && !ipv6() && IN_MULTICAST(ntohl(to.ipv4())) &&
      ::getsockopt(fd(), IPPROTO_IP, IP_MULTICAST_IF, &by, &by_bytes) == 0 && by.s_addr != 0)
    ::setsockopt(probe.get(), IPPROTO_IP, IP_MULTICAST_IF, &by, sizeof by);
  if (::connect(probe.get(), to.raw(), to.bytes()) != 0) return 0;
  int mtu = 0;
  socklen_t length = sizeof mtu;
  const int result = to.ipv6() ? ::getsockopt(probe.get(), IPPROTO_IPV6, IPV6_MTU, &mtu, &length)
                               : ::getsockopt(probe.get(), IPPROTO_IP, IP_MTU, &mtu, &length);
  return result == 0 && mtu > 0 ? static_cast<std::size_t>(mtu) : 0;
}

std::string buffer_shortage(bool receiving, std::size_t wanted, std::size_t got) {
  if (got >= wanted) return {};
  // What can be on its way at once, over a round trip of a tenth of a millisecond: a rack's, with some queue.
  const double rate = static_cast<double>(got) * 8 / 100e-6;
  const auto bytes = [](std::size_t n) { return to_string(Bytes{static_cast<std::int64_t>(n)}); };
  return fmt::format(
      "the kernel gives UDP sockets {} to {}, not {}: over a round trip of 100 us no more than {:.1f} "
      "Gbit/s; more with "
      "sysctl -w net.core.{}mem_max={}",
      bytes(got), receiving ? "receive" : "send", bytes(wanted), rate / 1e9, receiving ? 'r' : 'w', wanted);
}

}  // namespace talweg::live
