// BoundedExchange: this rank's side of a direct reduce-scatter that may lose a bounded part, over one UDP
// socket, and one more to send by for each path more. What it has from Exchange is used as
// protocol/bounded/exchange.h says.
//
//   BoundedExchange exchange(std::move(socket), self, peers, options);
//   exchange.begin(t, data, {}, told, deadline_ns, now_ns());
//   while (!(exchange.received() && exchange.settled())) {
//     exchange.step(now_ns());
//     if (exchange.failure()) ...                            // of no use any more
//     exchange.wait(exchange.next_time_ns(now_ns()));
//   }
//
// Nothing is read, sent or waited for between two steps. Of one thread at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "live/bounded/bounded_peers.h"
#include "live/udp/udp_receiver.h"
#include "live/udp/udp_sender.h"
#include "live/udp/udp_socket.h"
#include "protocol/bounded/exchange.h"
#include "wire/bounded.h"
#include "wire/datagram.h"
#include "wire/datagram_cipher.h"
#include "wire/flow_packets.h"

namespace talweg::live {

struct BoundedExchangeOptions : protocol::ExchangeOptions {
  wire::DatagramSuite suite;
  UdpSenderOptions sender;   // but for its paths
  UdpSender::SendCall send;  // for tests
};

// A datagram that carries less is of no use: reports and acknowledgements have to fit, too.
inline constexpr std::size_t kLeastBoundedPayload = std::max(wire::kMostReportBytes, wire::kMostAckBytes);
// Bytes of an IP packet beside that.
constexpr std::size_t bounded_around(bool ipv6, wire::DatagramProtection protection) {
  return (ipv6 ? 48 : 28) + wire::kDatagramHeaderBytes + trailer_bytes(protection);
}
// The largest stride of whole elements for packets (IP header included) of `mtu` bytes, `most` at most. 0:
// such packets carry nothing.
std::uint16_t bounded_stride(std::size_t mtu, bool ipv6, wire::DatagramProtection protection,
                             std::size_t most);

class BoundedExchange : private protocol::ExchangeOutbox, public protocol::Exchange {
 public:
  // `peers`: of all ranks; the own one's addresses are not used. Throws Error{invalid_argument} for bounds
  // that are none. `more`: sockets of further paths (UdpSender).
  BoundedExchange(UdpSocket socket, int self, const std::vector<BoundedPeer>& peers,
                  const BoundedExchangeOptions& options, std::vector<UdpSocket> more = {});
  BoundedExchange(const BoundedExchange&) = delete;  // its sender and receiver know where its socket is
  BoundedExchange& operator=(const BoundedExchange&) = delete;

  // Takes what has come and sends what is due.
  void step(std::int64_t now_ns);
  // Until then, or something has come, or the file `wake` is readable.
  void wait(std::int64_t until_ns, int wake = -1) const;

  // A rank to which a path answers nothing and was left; -1: none, or one has been told of. Where paths come
  // and go a line each time would say nothing more.
  int left_a_path();
  // For people, once: that the host lets no class be set. Empty: it does, or it has been said.
  std::string class_refusal();

  const UdpSocket& socket() const { return socket_; }
  const wire::DatagramRefusals& refusals() const { return peers_.refusals(); }

 private:
  bool has_room(int rank) override;
  std::uint64_t put(int rank, std::size_t path, wire::DatagramHeader& header,
                    const std::byte* payload) override;
  bool flush() override { return sender_.flush(); }
  void take(UdpReceiver::Datagram& datagram, std::int64_t now_ns);

  UdpSocket socket_;
  UdpSender sender_;
  UdpReceiver receiver_;
  BoundedPeers peers_;
  std::vector<std::vector<UdpSender::Destination>> to_;  // by rank and path; none: this rank
  bool told_ = false;                                    // of a path that was left
  bool told_of_classes_ = false;
};

}  // namespace talweg::live
