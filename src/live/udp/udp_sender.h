// UdpSender: datagrams to any number of destinations, many in one system call.
//
//   const auto to = sender.add(address);
//   while (std::byte* at = sender.place(to, service, most)) sender.placed(what was written there);
//   if (!sender.flush()) the kernel has no more room: again when the socket is writable;
//
// Datagrams of one size that follow each other to one destination leave as one, and the network card or the
// kernel's last step cuts them (UDP_SEGMENT): ten times as many per second. A card, an interface or a kernel
// may be unable to, and says so only when it is tried: then what was to leave leaves one by one, and so does
// all else to that destination from then on. The same for a class that may not be set: where kClassRefusals
// messages in a row are refused with it, and each of them is taken without. Who refuses that as well, or
// takes the next one with its class, such as a firewall that is being changed, does not mean the class.
//
// With several paths it has more sockets than the one that is given: each has a port of its own, and so a way
// of its own where a network hashes flows over equal ones. A destination is by one of them.
//
// What cannot be sent is dropped and counted; whoever wants it to arrive looks for acknowledgements. All
// memory is taken when the sender is made.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "live/udp/udp_paths.h"
#include "live/udp/udp_socket.h"

namespace talweg::live {

struct UdpSenderOptions {
  bool offload = true;         // UDP_SEGMENT
  bool mark_priority = false;  // set DSCP by the priority of a datagram; else all is best effort
  UdpPaths paths = {};
};

struct UdpSendStatistics {
  std::uint64_t datagrams = 0;  // that the kernel took
  std::uint64_t bytes = 0;
  std::uint64_t calls = 0;
  std::uint64_t offload_refused = 0;  // destinations that got no offload any more
  std::uint64_t class_refused = 0;    // and no class
  int class_error = 0;                // the errno of the last one's refusal
  std::uint64_t too_large = 0;        // datagrams for a path that takes no more
  std::uint64_t dropped = 0;          // for any other reason
  std::uint64_t blocked = 0;          // the kernel had no room
};

// For people, where class_refused is not 0: what is refused, what it costs and what to do.
std::string classes_refused(const UdpSendStatistics& statistics);

class UdpSender {
 public:
  using Destination = std::size_t;
  static constexpr unsigned kClassRefusals = 8;
  // ::sendmmsg, or what stands in for it.
  using SendCall = std::function<int(int fd, mmsghdr* messages, unsigned n)>;

  // `socket` must outlive the sender; path 0 is by it, and the others by `more`, of more_paths(). Where that
  // is empty they are made; throws Error{system} where there is no socket.
  explicit UdpSender(const UdpSocket& socket, UdpSenderOptions options = {}, SendCall send = {},
                     std::vector<UdpSocket> more = {});

  Destination add(const UdpAddress& address, std::size_t path = 0);
  // What waits to be sent there leaves, as far as the kernel takes it. The next one that is added may have
  // its number, and what is left of that then goes there.
  void remove(Destination to);
  // The destination is another one from now on, as if it had been added anew.
  void change(Destination to, const UdpAddress& address);
  // Of IP packets to it, as the kernel has it; smaller after something was too large. 0: no way there is
  // known.
  std::size_t mtu(Destination to) const { return destinations_[to].mtu; }
  // Of all that a way is known to; 0: to none.
  std::size_t least_mtu(std::span<const Destination> of) const;
  bool offloads(Destination to) const { return destinations_[to].offload; }

  // Where the next datagram is to be written, with `service` (wire/datagram.h) as its class, and `most` bytes
  // at most. Null when it does not fit any more: flush() first.
  std::byte* place(Destination to, std::uint8_t service, std::size_t most);
  void placed(std::size_t bytes);

  // True when everything has left or been dropped.
  bool flush();
  bool empty() const { return groups_ == 0; }
  // After flush() has said no: the socket that has no room.
  int blocked_fd() const { return socket_of(group_[first_]).fd(); }
  // Those of all paths but the first.
  std::span<const UdpSocket> more_sockets() const { return more_; }
  // The same for another sender; nothing more is sent by this one.
  std::vector<UdpSocket> take_more_sockets() { return std::move(more_); }
  const UdpSendStatistics& statistics() const { return statistics_; }

 private:
  static constexpr std::size_t kArenaBytes = 512U << 10;
  static constexpr std::size_t kGroups = 64;
  static constexpr std::size_t kSegments = 64;          // of one message; older kernels take no more
  static constexpr std::size_t kMessageBytes = 65'000;  // IPv4's limit, with some room for headers
  static constexpr std::size_t kMessages = 64;          // in one call

  struct Peer {
    UdpAddress address;
    std::size_t mtu = 0;
    bool offload = true;
    bool classes = true;
    std::size_t path = 0;
    unsigned class_refusals = 0;  // messages in a row that were taken only without their class
  };
  // Datagrams of one size, but for the last that may be smaller, one behind the other in the arena.
  struct Group {
    Destination to = 0;
    std::uint8_t service = 0;
    bool closed = false;
    std::size_t begin = 0, bytes = 0, segment = 0, count = 0;
  };
  struct alignas(cmsghdr) Control {
    std::array<std::byte, 64> bytes;
  };

  const UdpSocket& socket_of(const Group& group) const {
    const std::size_t path = destinations_[group.to].path;
    return path == 0 ? socket_ : more_[path - 1];
  }
  void open_group(Destination to, std::uint8_t service, std::size_t bytes);
  std::size_t build();
  void message(std::size_t i, const Group& group, std::size_t begin, std::size_t bytes, bool offload);
  void took(std::size_t messages);
  void drop_first();
  bool on_error(int error);

  const UdpSocket& socket_;
  const UdpSenderOptions options_;
  SendCall send_;
  std::vector<UdpSocket> more_;
  std::vector<Peer> destinations_;
  std::vector<Destination> removed_;
  std::unique_ptr<std::byte[]> arena_;
  std::size_t arena_end_ = 0;
  std::array<Group, kGroups> group_;
  std::size_t first_ = 0, groups_ = 0;  // those that have not left: group_[first_ .. first_ + groups_)
  int class_error_ = 0;  // for which the first message that waits is tried without its class; 0: it is not
  Destination place_to_ = 0;
  std::uint8_t place_service_ = 0;

  std::array<mmsghdr, kMessages> messages_;
  std::array<iovec, kMessages> parts_;
  std::array<Control, kMessages> control_;
  std::array<std::size_t, kMessages> message_datagrams_;
  UdpSendStatistics statistics_;
};

}  // namespace talweg::live
