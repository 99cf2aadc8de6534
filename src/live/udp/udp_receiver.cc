#include "live/udp/udp_receiver.h"

#include <netinet/udp.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <utility>

#include "live/system.h"

namespace talweg::live {

namespace {
// Some of these the kernel writes as a byte, others as an int.
int control_value(const cmsghdr* c) {
  if (c->cmsg_len < CMSG_LEN(sizeof(int)))
    return std::to_integer<int>(*reinterpret_cast<const std::byte*>(CMSG_DATA(c)));
  int value = 0;
  std::memcpy(&value, CMSG_DATA(c), sizeof value);
  return value;
}
std::int64_t as_ns(const timespec& t) {
  return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}
// By which the kernel stamps what comes. It may be set meanwhile: what has waited longer than this was not
// waiting.
constexpr std::int64_t kMostWaitedNs = 1'000'000'000;
}  // namespace

UdpReceiver::UdpReceiver(const UdpSocket& socket, ReceiveCall receive)
    : socket_(socket),
      receive_(receive ? std::move(receive)
                       : [](int fd, mmsghdr* messages,
                            unsigned n) { return ::recvmmsg(fd, messages, n, MSG_DONTWAIT, nullptr); }),
      buffers_(std::make_unique_for_overwrite<std::byte[]>(kMessages * kMessageBytes)) {}

std::size_t UdpReceiver::fetch() {
  for (std::size_t i = 0; i < kMessages; ++i) {
    parts_[i] = {buffer(i), kMessageBytes};
    msghdr& header = messages_[i].msg_hdr;
    header = {};
    header.msg_name = from_[i].raw();
    header.msg_namelen = sizeof(sockaddr_in6);
    header.msg_iov = &parts_[i];
    header.msg_iovlen = 1;
    header.msg_control = control_[i].bytes.data();
    header.msg_controllen = sizeof control_[i].bytes;
  }
  // What the network says of something that was sent is told instead of what has come, once each.
  constexpr int kErrorsInARow = 16;
  for (int tries = 0; tries < kErrorsInARow; ++tries) {
    ++statistics_.calls;
    const int n = receive_(socket_.fd(), messages_.data(), kMessages);
    if (n >= 0) {
      if (n > 0) fetched_ns_ = wall_ns();
      return static_cast<std::size_t>(n);
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) return 0;
    if (errno != EINTR) ++statistics_.errors;
  }
  return 0;
}

UdpReceiver::Message UdpReceiver::look(std::size_t i) {
  msghdr& header = messages_[i].msg_hdr;
  Message message{messages_[i].msg_len, messages_[i].msg_len};
  if ((header.msg_flags & MSG_TRUNC) != 0) {
    ++statistics_.truncated;
    return {0, 1};
  }
  for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
    if (c->cmsg_level == IPPROTO_UDP && c->cmsg_type == UDP_GRO) {
      const int segment = control_value(c);
      if (segment > 0) message.segment = static_cast<std::size_t>(segment);
    } else if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_TIMESTAMPNS) {
      timespec came{};
      std::memcpy(&came, CMSG_DATA(c), sizeof came);
      message.waited_ns = std::clamp<std::int64_t>(fetched_ns_ - as_ns(came), 0, kMostWaitedNs);
    } else if ((c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS) ||
               (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_TCLASS)) {
      message.traffic_class = static_cast<std::uint8_t>(control_value(c));
    }
  }
  if (message.segment < message.bytes) ++statistics_.merged;
  statistics_.bytes += message.bytes;
  return message;
}

}  // namespace talweg::live
