#include "live/udp/class_socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "live/udp/udp_sender.h"

namespace talweg::live {

// Not merged: each is to have its own class and time of arrival.
ClassSocket::ClassSocket(const UdpAddress& local) : socket_(local, {.merge = false}), receiver_(socket_) {}

int ClassSocket::send(const UdpAddress& to, std::uint8_t traffic_class,
                      std::span<const std::byte> bytes) const {
  UdpAddress address = to;
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  struct alignas(cmsghdr) Control {
    std::array<std::byte, CMSG_SPACE(sizeof(int))> bytes{};
  } control;
  msghdr message{};
  message.msg_name = address.raw();
  message.msg_namelen = address.bytes();
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes.data();
  message.msg_controllen = control.bytes.size();
  cmsghdr* c = CMSG_FIRSTHDR(&message);
  c->cmsg_level = to.ipv6() ? IPPROTO_IPV6 : IPPROTO_IP;
  c->cmsg_type = to.ipv6() ? IPV6_TCLASS : IP_TOS;
  c->cmsg_len = CMSG_LEN(sizeof(int));
  const int value = traffic_class;
  std::memcpy(CMSG_DATA(c), &value, sizeof value);
  while (::sendmsg(socket_.fd(), &message, MSG_DONTWAIT) < 0)
    if (errno != EINTR) return errno;
  return 0;
}

void ClassSocket::wait(bool for_room, int milliseconds) const {
  pollfd file{socket_.fd(), static_cast<short>(for_room ? POLLOUT : POLLIN), 0};
  ::poll(&file, 1, milliseconds);
}

bool ClassSocket::offloads(const UdpAddress& to) const {
  constexpr std::size_t kSome = 4, kBytes = 500;
  UdpSender sender(socket_);
  const UdpSender::Destination there = sender.add(to);
  for (std::size_t i = 0; i < kSome; ++i)
    if (std::byte* place = sender.place(there, 0, kBytes)) {
      std::memset(place, 0, kBytes);  // nobody's: whoever it comes to takes no notice
      sender.placed(kBytes);
    }
  return sender.flush() && sender.offloads(there) && sender.statistics().dropped == 0;
}

}  // namespace talweg::live
