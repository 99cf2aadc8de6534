#include "live/bounded/bounded_peers.h"

#include <poll.h>

#include <algorithm>
#include <ctime>
#include <iterator>

#include "live/system.h"

namespace talweg::live {

BoundedPeers::BoundedPeers(int self, std::span<const BoundedPeer> peers, wire::DatagramSuite suite,
                           std::uint32_t epoch)
    : suite_(suite) {
  const auto own = static_cast<std::uint16_t>(self);
  for (std::size_t r = 0; r < peers.size(); ++r) {
    const auto rank = static_cast<std::uint16_t>(r);
    peers_.push_back(rank == own ? nullptr
                                 : std::make_unique<Peer>(Peer{
                                       wire::DatagramSealer(peers[own].secret, {0, epoch, own, rank}, suite),
                                       wire::DatagramOpener(peers[r].secret, {0, epoch, rank, own}, suite)}));
  }
}

bool BoundedPeers::open(std::span<std::byte> datagram, wire::DatagramHeader& header) {
  auto why = wire::decode(datagram, suite_.protection, header);
  if (why == wire::DatagramRefusal::none)
    why = header.sender < peers_.size() && peers_[header.sender]
              ? peers_[header.sender]->opener.open(datagram, header)
              : wire::DatagramRefusal::sender;
  if (why == wire::DatagramRefusal::none) return true;
  refusals_.count(why);
  return false;
}

void wait_for_datagrams(const UdpSocket& socket, int blocked, int wake, std::int64_t until_ns) {
  pollfd polled[] = {{socket.fd(), POLLIN, 0}, {wake, POLLIN, 0}, {blocked, POLLOUT, 0}};
  constexpr std::int64_t kSecond = 1'000'000'000;
  const std::int64_t left = std::clamp<std::int64_t>(until_ns - now_ns(), 0, kSecond);
  const timespec time{left / kSecond, left % kSecond};
  ::ppoll(polled, std::size(polled), &time, nullptr);
}

}  // namespace talweg::live
