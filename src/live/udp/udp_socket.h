// UdpSocket: a UDP socket as datagrams of Talweg want it; udp_sender.h and udp_receiver.h move them in
// batches.
//
// Nothing is ever fragmented: what is too large for the path is refused by the kernel (EMSGSIZE), which
// learns the path's MTU from what routers say. ECN's marks are asked for with what comes. Datagrams that came
// for one flow may be handed over in one piece (UDP_GRO), where the kernel can. It is never connected, so
// that an ICMP message (nobody listens there yet) is no error of any call.
#pragma once

#include <netinet/in.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "live/system.h"

namespace talweg::live {

// An IPv4 or IPv6 address with a port.
class UdpAddress {
 public:
  UdpAddress() : any_{.v6 = {}} {}
  // "127.0.0.1:4000", "[::1]:4000", "[fe80::1%eth0]:4000". Throws Error{invalid_argument} for anything else.
  explicit UdpAddress(std::string_view text);
  bool ipv6() const { return any_.base.sa_family == AF_INET6; }
  int port() const { return ntohs(ipv6() ? any_.v6.sin6_port : any_.v4.sin_port); }
  // Of IPv4, in the network's order, as in sockaddr_in.
  std::uint32_t ipv4() const { return ipv6() ? 0 : any_.v4.sin_addr.s_addr; }
  void set_ipv4(std::uint32_t address) { any_.v4.sin_addr.s_addr = address; }
  void set_port(std::uint16_t port) { (ipv6() ? any_.v6.sin6_port : any_.v4.sin_port) = htons(port); }
  sockaddr* raw() { return &any_.base; }
  const sockaddr* raw() const { return &any_.base; }
  socklen_t bytes() const { return ipv6() ? sizeof any_.v6 : sizeof any_.v4; }
  bool operator==(const UdpAddress& other) const;

 private:
  union Any {
    sockaddr base;
    sockaddr_in v4;
    sockaddr_in6 v6;
  };
  Any any_;
};
std::string to_string(const UdpAddress& address);

struct UdpOptions {
  // Of the kernel's buffers. What is in the receiving one has a window's room (UdpSocket::window).
  int receive_bytes = 4 << 20;
  int send_bytes = 4 << 20;
  bool merge = true;  // UDP_GRO, where the kernel can
  // It only sends: what comes is thrown away, and it is never readable.
  bool deaf = false;
  bool shared = false;  // others of this host may have the same address: of a multicast group
};

class UdpSocket {
 public:
  // Port 0: any free one. Throws Error{system}.
  explicit UdpSocket(const UdpAddress& local, const UdpOptions& options = {});

  int fd() const { return fd_.get(); }
  const UdpAddress& address() const { return address_; }
  bool ipv6() const { return address_.ipv6(); }
  bool merges() const { return merges_; }
  // Bytes of datagrams, IP headers included, that may wait here to be received, all senders together: more
  // may be dropped. Half of the kernel's buffer, since it counts the memory that datagrams take, not their
  // bytes.
  std::size_t window() const { return receive_bytes_ / 2; }
  // One line for people: which buffer is smaller than was asked for, what to set and what it costs. Empty:
  // none.
  const std::string& shortage() const { return shortage_; }
  // Datagrams that were dropped here because the buffer was full, since it was opened; as the kernel counts.
  std::uint64_t dropped() const;

  // Of packets that reach this address unfragmented, IP headers included, as far as the kernel knows now; 0:
  // it knows no way there.
  std::size_t path_mtu(const UdpAddress& to) const;

 private:
  FileDescriptor fd_;
  UdpAddress address_;
  bool merges_ = false;
  std::size_t receive_bytes_ = 0;
  std::string shortage_;
};

// The line above. `got`: what the kernel gave when `wanted` bytes were asked for, in bytes that can be used.
std::string buffer_shortage(bool receiving, std::size_t wanted, std::size_t got);

}  // namespace talweg::live
