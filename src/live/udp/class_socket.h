// ClassSocket: datagrams one by one, each with any traffic class, and with what class and when they came; to
// look at what a network makes of them. What carries data is udp_sender.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "live/udp/udp_receiver.h"
#include "live/udp/udp_socket.h"

namespace talweg::live {

class ClassSocket {
 public:
  // Port 0: any free one. Throws Error{system}.
  explicit ClassSocket(const UdpAddress& local);
  ClassSocket(const ClassSocket&) = delete;  // its receiver knows where its socket is
  ClassSocket& operator=(const ClassSocket&) = delete;

  // 0: it has left; else the errno: EAGAIN for no room, EMSGSIZE for a path that takes no more, EINVAL or
  // EPERM for a class that may not be set.
  int send(const UdpAddress& to, std::uint8_t traffic_class, std::span<const std::byte> bytes) const;
  // All that is there; calls use(UdpReceiver::Datagram&) for each. False: nothing was.
  template <class Use>
  bool receive(Use&& use) {
    const std::uint64_t before = receiver_.statistics().datagrams;
    while (receiver_.receive(use)) {
    }
    return receiver_.statistics().datagrams > before;
  }
  // Until something has come, or there is room to send again, or so much time has passed.
  void wait(bool for_room, int milliseconds) const;

  // Whether several datagrams in one call leave for there (UDP_SEGMENT). Sends some.
  bool offloads(const UdpAddress& to) const;

  const UdpSocket& socket() const { return socket_; }

 private:
  UdpSocket socket_;
  UdpReceiver receiver_;
};

}  // namespace talweg::live
