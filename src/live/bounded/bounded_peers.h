// BoundedPeers: the ranks between which datagrams of bounded sums travel, each with a key to each other one.
//
//   BoundedPeers peers(self, all, suite, epoch);
//   sender.placed(peers.seal(to, header, payload, at));
//   if (peers.open(datagram.bytes, header)) ... header.sender, peers.payload(datagram.bytes, header)
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "live/udp/udp_socket.h"
#include "wire/datagram_cipher.h"
#include "wire/key.h"

namespace talweg::live {

// A rank as the others know it.
struct BoundedPeer {
  std::vector<UdpAddress> addresses;  // to which paths go in turn; at least one
  wire::Secret secret{};              // by which it seals
  std::uint32_t credit = 1500;        // bytes that each other rank may have on their way to it
};

class BoundedPeers {
 public:
  // `epoch`: another one for each object that is made with the same secrets, or numbers would come twice.
  BoundedPeers(int self, std::span<const BoundedPeer> peers, wire::DatagramSuite suite, std::uint32_t epoch);

  // header.length bytes of payload; how many bytes the datagram has.
  std::size_t seal(int to, wire::DatagramHeader& header, const std::byte* payload, std::byte* datagram) {
    return peers_[static_cast<std::size_t>(to)]->sealer.seal(header, payload, datagram);
  }
  // False: it is of none of the others, or has come before; that is counted. Decrypts in place.
  bool open(std::span<std::byte> datagram, wire::DatagramHeader& header);
  // Of one that was opened.
  static std::span<const std::byte> payload(std::span<std::byte> datagram,
                                            const wire::DatagramHeader& header) {
    return datagram.subspan(wire::kDatagramHeaderBytes, header.length);
  }
  std::size_t around_payload() const { return wire::kDatagramHeaderBytes + trailer_bytes(suite_.protection); }

  int size() const { return static_cast<int>(peers_.size()); }
  const wire::DatagramRefusals& refusals() const { return refusals_; }

 private:
  struct Peer {
    wire::DatagramSealer sealer;
    wire::DatagramOpener opener;
  };
  const wire::DatagramSuite suite_;
  std::vector<std::unique_ptr<Peer>> peers_;  // null: this rank
  wire::DatagramRefusals refusals_;
};

// Until `until_ns`, or `socket` has something to read, `blocked` (-1: none) room to send, or `wake` (-1:
// none) is readable; a second at most.
void wait_for_datagrams(const UdpSocket& socket, int blocked, int wake, std::int64_t until_ns);

}  // namespace talweg::live
