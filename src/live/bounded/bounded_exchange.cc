#include "live/bounded/bounded_exchange.h"

#include <algorithm>
#include <utility>

#include "live/system.h"

namespace talweg::live {

namespace {

// Batches that are received before others get their turn.
constexpr int kReceiveRounds = 4;
// Bytes of the largest element there is, of which a packet has a whole number.
constexpr std::size_t kElement = 16;

std::vector<std::uint32_t> credits_of(const std::vector<BoundedPeer>& peers) {
  std::vector<std::uint32_t> credits;
  for (const BoundedPeer& peer : peers) credits.push_back(peer.credit);
  return credits;
}

UdpSenderOptions sender_options(const BoundedExchangeOptions& options) {
  UdpSenderOptions sender = options.sender;
  sender.paths.count = options.paths;
  return sender;
}

}  // namespace

std::uint16_t bounded_stride(std::size_t mtu, bool ipv6, wire::DatagramProtection protection,
                             std::size_t most) {
  const std::size_t payload = wire::datagram_payload(mtu, ipv6, protection);
  if (payload < kLeastBoundedPayload) return 0;
  return static_cast<std::uint16_t>(std::min(payload - wire::kBoundedHeadBytes, most) / kElement * kElement);
}

BoundedExchange::BoundedExchange(UdpSocket socket, int self, const std::vector<BoundedPeer>& peers,
                                 const BoundedExchangeOptions& options, std::vector<UdpSocket> more)
    : Exchange(self, options, bounded_around(socket.ipv6(), options.suite.protection), credits_of(peers),
               *this),
      socket_(std::move(socket)),
      sender_(socket_, sender_options(options), options.send, std::move(more)),
      receiver_(socket_),
      peers_(self, peers, options.suite, 0),
      to_(peers.size()) {
  for (std::size_t r = 0; r < peers.size(); ++r)
    for (std::size_t path = 0; path < options.paths && r != static_cast<std::size_t>(self); ++path)
      to_[r].push_back(sender_.add(of_path(peers[r].addresses, path), path));
}

void BoundedExchange::step(std::int64_t now) {
  bool any = false;
  for (int i = 0; i < kReceiveRounds; ++i) {
    const bool more = receiver_.receive([&](UdpReceiver::Datagram& datagram) {
      take(datagram, now);
      any = true;
    });
    if (!more) break;
  }
  if (any) end_of_batch();
  on_time(now);
  send(now);
}

void BoundedExchange::take(UdpReceiver::Datagram& datagram, std::int64_t now) {
  wire::DatagramHeader header;
  if (peers_.open(datagram.bytes, header))
    on(header.sender, header, BoundedPeers::payload(datagram.bytes, header), datagram.marked,
       now - datagram.waited_ns, now);
}

int BoundedExchange::left_a_path() {
  for (int r = 0; r < ranks() && !told_; ++r) {
    if (to_[static_cast<std::size_t>(r)].empty() || paths(r).dead() == 0) continue;
    told_ = true;
    return r;
  }
  return -1;
}

std::string BoundedExchange::class_refusal() {
  if (sender_.statistics().class_refused == 0 || std::exchange(told_of_classes_, true)) return {};
  return classes_refused(sender_.statistics());
}

bool BoundedExchange::has_room(int rank) {
  const UdpSender::Destination to = to_[static_cast<std::size_t>(rank)][0];
  return sender_.place(to, wire::kOrdinary, peers_.around_payload() + most_payload()) != nullptr ||
         sender_.flush();
}

std::uint64_t BoundedExchange::put(int rank, std::size_t path, wire::DatagramHeader& header,
                                   const std::byte* payload) {
  std::byte* const at = sender_.place(to_[static_cast<std::size_t>(rank)][path], header.service,
                                      peers_.around_payload() + header.length);
  sender_.placed(peers_.seal(rank, header, payload, at));
  return header.number;
}

void BoundedExchange::wait(std::int64_t until_ns, int wake) const {
  wait_for_datagrams(socket_, blocked() && !sender_.empty() ? sender_.blocked_fd() : -1, wake, until_ns);
}

}  // namespace talweg::live
