// BoundedWays: tries by real datagrams, over the socket that bounded sums will use, which sizes pass between
// ranks (protocol/bounded/way_trial.h).
//
//   BoundedWays ways(socket, self, peers, suite, most);
//   while (!ways.trial().ended(now_ns())) {
//     ways.step(now_ns());
//     ways.wait(ways.trial().next_time_ns(now_ns()));
//   }
//
// The datagrams are sealed in an epoch of their own: those that come late are nobody's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "live/bounded/bounded_peers.h"
#include "live/udp/udp_receiver.h"
#include "live/udp/udp_sender.h"
#include "live/udp/udp_socket.h"
#include "protocol/bounded/way_trial.h"
#include "wire/datagram_cipher.h"

namespace talweg::live {

class BoundedWays {
 public:
  // `peers`: of all ranks; the own one's addresses are not used. `most`: bytes of a tensor that a packet is
  // to have. `socket` must outlive it. `send`: for tests. `more`: sockets of further paths, which take_more()
  // gives back.
  BoundedWays(const UdpSocket& socket, int self, std::span<const BoundedPeer> peers,
              wire::DatagramSuite suite, std::size_t most, UdpSender::SendCall send = {},
              std::vector<UdpSocket> more = {});

  // Takes what has come and sends what is due.
  void step(std::int64_t now_ns);
  // Until then, or something has come, or the file `wake` is readable.
  void wait(std::int64_t until_ns, int wake = -1) const;

  std::vector<UdpSocket> take_more() { return sender_.take_more_sockets(); }

  protocol::WayTrial& trial() { return *trial_; }
  // The smallest of the packets that are tried first, as far as kernels know their ways; 0: of one rank they
  // know none, or it takes none that are of use. And packets that are.
  std::size_t wanted() const { return wanted_; }
  std::size_t least() const { return least_; }
  const wire::DatagramRefusals& refusals() const { return peers_.refusals(); }

 private:
  const UdpSocket& socket_;
  UdpSender sender_;
  UdpReceiver receiver_;
  BoundedPeers peers_;
  std::vector<std::vector<UdpSender::Destination>> to_;  // by rank and path; none: this rank
  std::size_t least_ = 0;
  std::size_t wanted_ = 0;
  std::optional<protocol::WayTrial> trial_;
  std::vector<std::byte> payload_;
};

}  // namespace talweg::live
