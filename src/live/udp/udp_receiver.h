// UdpReceiver: what has come to a socket, many datagrams in one system call, into memory of its own.
//
//   while (receiver.receive(budget, [&](UdpReceiver::Datagram& d) { use d.bytes, which may be written to; })) {}
#pragma once

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "live/udp/udp_socket.h"
#include "wire/traffic_class.h"

namespace talweg::live {

struct UdpReceiveStatistics {
  std::uint64_t datagrams = 0;
  std::uint64_t bytes = 0;
  std::uint64_t calls = 0;
  std::uint64_t merged = 0;     // messages with more than one datagram
  std::uint64_t truncated = 0;  // longer than UDP can be: never, or an error of the kernel
  std::uint64_t errors = 0;     // said by the network of something that was sent; of no consequence
};

class UdpReceiver {
 public:
  // Valid during the call.
  struct Datagram {
    std::span<std::byte> bytes;
    const UdpAddress& from;
    bool marked;                 // ECN: congestion experienced
    std::int64_t waited_ns;      // since it came to this machine, as far as the kernel says
    std::uint8_t traffic_class;  // DSCP and ECN, as it came
    std::int64_t came_ns;        // when it came to this machine, by its wall clock
  };
  using ReceiveCall = std::function<int(int fd, mmsghdr* messages, unsigned n)>;

  // `socket` must outlive the receiver.
  explicit UdpReceiver(const UdpSocket& socket, ReceiveCall receive = {});

  // One system call; calls use(Datagram&) for each datagram. False when there was nothing more.
  template <class Use>
  bool receive(Use&& use) {
    const std::size_t n = fetch();
    for (std::size_t i = 0; i < n; ++i) {
      const Message message = look(i);
      for (std::size_t at = 0; at < message.bytes; at += message.segment) {
        ++statistics_.datagrams;
        Datagram datagram{{buffer(i) + at, std::min(message.segment, message.bytes - at)},
                          from_[i],
                          message.marked(),
                          message.waited_ns,
                          message.traffic_class,
                          fetched_ns_ - message.waited_ns};
        use(datagram);
      }
    }
    return n == kMessages;
  }
  const UdpReceiveStatistics& statistics() const { return statistics_; }

 private:
  static constexpr std::size_t kMessages = 32;
  static constexpr std::size_t kMessageBytes = 64U << 10;
  struct alignas(cmsghdr) Control {
    std::array<std::byte, 128> bytes;
  };
  struct Message {
    std::size_t bytes = 0;
    std::size_t segment = 0;
    std::uint8_t traffic_class = 0;
    std::int64_t waited_ns = 0;
    bool marked() const { return (traffic_class & wire::kEcnMask) == wire::kEcnMarked; }
  };

  std::byte* buffer(std::size_t i) { return buffers_.get() + i * kMessageBytes; }
  std::size_t fetch();
  Message look(std::size_t i);

  const UdpSocket& socket_;
  ReceiveCall receive_;
  std::unique_ptr<std::byte[]> buffers_;  // pages that nothing comes to stay untouched
  std::array<mmsghdr, kMessages> messages_;
  std::array<iovec, kMessages> parts_;
  std::array<Control, kMessages> control_;
  std::array<UdpAddress, kMessages> from_;
  std::int64_t fetched_ns_ = 0;  // of the clock by which the kernel stamps
  UdpReceiveStatistics statistics_;
};

}  // namespace talweg::live
