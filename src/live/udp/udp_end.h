// UdpEnd: one end of a flow of datagrams (protocol/datagram/flow.h) on a socket of its own: seals what the
// flow wants to send, opens what comes, and keeps to what the path takes. It sends by as many paths as the
// flow has; what comes may be from any port.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "live/udp/udp_receiver.h"
#include "live/udp/udp_sender.h"
#include "live/udp/udp_socket.h"
#include "protocol/datagram/flow.h"
#include "wire/datagram_cipher.h"

namespace talweg::live {

struct UdpEndOptions {
  UdpSenderOptions sender;     // but for its paths, which are the flow's
  protocol::FlowOptions flow;  // its window and `around` are those of the socket
  wire::DatagramSuite suite;
  std::size_t most_payload = 16384;  // of a datagram, where the path takes it: loopback and jumbo frames
  UdpSender::SendCall send;          // for tests
};

// Of what is sealed here, and of what is opened. They may be one: each direction derives its own from it.
struct UdpKeys {
  wire::Secret send{};
  wire::Secret receive{};
};

class UdpEnd {
 public:
  // `peer`: its addresses, to which paths go in turn; at least one. `outward`: from here to the other side;
  // what comes has its ends exchanged. Throws Error{system} when there is no way to any of them.
  UdpEnd(UdpSocket socket, std::span<const UdpAddress> peer, const UdpKeys& keys,
         const wire::DatagramScope& outward, const UdpEndOptions& options);
  UdpEnd(const UdpEnd&) = delete;  // its sender and receiver know where its socket is
  UdpEnd& operator=(const UdpEnd&) = delete;

  protocol::DatagramFlow& flow() { return flow_; }
  const protocol::DatagramFlow& flow() const { return flow_; }
  const UdpSocket& socket() const { return socket_; }
  std::span<const UdpSocket> more_sockets() const { return sender_.more_sockets(); }

  // Sends what may leave now, or the first `most` datagrams of it. False: the kernel has no room, again when
  // the blocked socket is writable.
  bool send(std::int64_t now_ns, std::size_t most = std::numeric_limits<std::size_t>::max());
  int blocked_fd() const { return sender_.blocked_fd(); }
  // Takes what has come, up to a budget. True if anything had that was sound.
  bool receive(std::int64_t now_ns);

  // The next datagram that may leave now, to bring it there in another way, of up to most_bytes(): how many
  // bytes `at` has of it. 0: none.
  std::size_t next(std::int64_t now_ns, std::byte* at);
  std::size_t most_bytes() const;
  // Of the largest that leaves, with IP's header.
  std::size_t packet_bytes() const { return most_bytes() + (socket_.ipv6() ? 48 : 28); }
  // Takes one that has come in another way. True if it is sound and wants an answer.
  bool take(std::span<std::byte> datagram, std::int64_t now_ns);

  // When an answer last came by the socket: then something had arrived there, beside trials of paths. 0:
  // never.
  std::int64_t answered_ns() const { return answered_ns_; }
  // How many sound ones have; received() counts strangers' as well, who may send here as they like.
  std::uint64_t heard() const { return heard_; }
  const wire::DatagramRefusals& refusals() const { return refusals_; }
  const UdpSendStatistics& sent() const { return sender_.statistics(); }
  const UdpReceiveStatistics& received() const { return receiver_.statistics(); }

 private:
  void keep_to_path();
  bool open(std::span<std::byte> datagram, bool marked, std::int64_t now_ns, std::int64_t waited_ns,
            wire::DatagramHeader& header);

  UdpSocket socket_;
  wire::DatagramSuite suite_;
  UdpSender sender_;
  UdpReceiver receiver_;
  std::vector<UdpSender::Destination> to_;  // by path
  std::size_t mtu_ = 0;
  wire::DatagramSealer sealer_;
  wire::DatagramOpener opener_;
  protocol::DatagramFlow flow_;
  wire::DatagramRefusals refusals_;
  std::int64_t answered_ns_ = 0;
  std::uint64_t heard_ = 0;
};

}  // namespace talweg::live
