#include "live/bounded/bounded_exchange.h"

#include <poll.h>

#include <algorithm>
#include <ctime>
#include <utility>

#include "live/system.h"

namespace talweg::live {

namespace {

// Batches that are received before others get their turn.
constexpr int kReceiveRounds = 4;
// Bytes of the largest element there is, of which a packet has a whole number.
constexpr std::size_t kElement = 16;

std::size_t bytes_around(const UdpSocket& socket, wire::DatagramProtection protection) {
  return (socket.ipv6() ? 48 : 28) + wire::kDatagramHeaderBytes + trailer_bytes(protection);
}

std::vector<std::uint32_t> credits_of(const std::vector<BoundedPeer>& peers) {
  std::vector<std::uint32_t> credits;
  for (const BoundedPeer& peer : peers) credits.push_back(peer.credit);
  return credits;
}

UdpSenderOptions sender_options(const BoundedExchangeOptions& options) {
  UdpSenderOptions sender = options.sender;
  sender.paths = options.paths;
  return sender;
}

}  // namespace

std::uint16_t bounded_stride(std::size_t mtu, bool ipv6, wire::DatagramProtection protection,
                             std::size_t most) {
  const std::size_t payload = wire::datagram_payload(mtu, ipv6, protection);
  // Reports and acknowledgements have to fit, too.
  if (payload < std::max(wire::kMostReportBytes, wire::kMostAckBytes)) return 0;
  return static_cast<std::uint16_t>(std::min(payload - wire::kBoundedHeadBytes, most) / kElement * kElement);
}

BoundedExchange::Peer::Peer(std::vector<UdpSender::Destination> destinations, const wire::Secret& own,
                            const wire::Secret& other, std::uint16_t self, std::uint16_t rank,
                            wire::DatagramSuite suite)
    : to(std::move(destinations)),
      sealer(own, {0, 0, self, rank}, suite),
      opener(other, {0, 0, rank, self}, suite) {}

BoundedExchange::BoundedExchange(UdpSocket socket, int self, const std::vector<BoundedPeer>& peers,
                                 const BoundedExchangeOptions& options, std::vector<UdpSocket> more)
    : Exchange(self, options, bytes_around(socket, options.suite.protection), credits_of(peers), *this),
      suite_(options.suite),
      socket_(std::move(socket)),
      sender_(socket_, sender_options(options), options.send, std::move(more)),
      receiver_(socket_) {
  const BoundedPeer& own = peers[static_cast<std::size_t>(self)];
  for (std::size_t r = 0; r < peers.size(); ++r) {
    peers_.emplace_back();
    if (r == static_cast<std::size_t>(self)) continue;
    std::vector<UdpSender::Destination> to;
    for (std::size_t path = 0; path < options.paths; ++path)
      to.push_back(sender_.add(peers[r].address, path));
    peers_.back() =
        std::make_unique<Peer>(std::move(to), own.secret, peers[r].secret, static_cast<std::uint16_t>(self),
                               static_cast<std::uint16_t>(r), options.suite);
  }
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
  if (const auto why = wire::decode(datagram.bytes, suite_.protection, header);
      why != wire::DatagramRefusal::none)
    return refusals_.count(why);
  if (header.sender >= peers_.size() || !peers_[header.sender])
    return refusals_.count(wire::DatagramRefusal::sender);
  if (const auto why = peers_[header.sender]->opener.open(datagram.bytes, header);
      why != wire::DatagramRefusal::none)
    return refusals_.count(why);
  on(header.sender, header, datagram.bytes.subspan(wire::kDatagramHeaderBytes, header.length),
     datagram.marked, now - datagram.waited_ns, now);
}

int BoundedExchange::left_a_path() {
  for (int r = 0; r < ranks() && !told_; ++r) {
    if (!peers_[static_cast<std::size_t>(r)] || paths(r).left() == 0 || paths(r).times_left() == 0) continue;
    told_ = true;
    return r;
  }
  return -1;
}

bool BoundedExchange::has_room(int rank) {
  const std::size_t most = wire::kDatagramHeaderBytes + most_payload() + trailer_bytes(suite_.protection);
  const UdpSender::Destination to = peers_[static_cast<std::size_t>(rank)]->to[0];
  return sender_.place(to, wire::kOrdinary, most) != nullptr || sender_.flush();
}

std::uint64_t BoundedExchange::put(int rank, std::size_t path, wire::DatagramHeader& header,
                                   const std::byte* payload) {
  Peer& peer = *peers_[static_cast<std::size_t>(rank)];
  const std::size_t bytes = wire::kDatagramHeaderBytes + header.length + trailer_bytes(suite_.protection);
  std::byte* const at = sender_.place(peer.to[path], header.service, bytes);
  sender_.placed(peer.sealer.seal(header, payload, at));
  return header.number;
}

void BoundedExchange::wait(std::int64_t until, int wake) const {
  pollfd polled[] = {{socket_.fd(), POLLIN, 0}, {wake, POLLIN, 0}, {-1, POLLOUT, 0}};
  if (blocked() && !sender_.empty()) polled[2].fd = sender_.blocked_fd();
  constexpr std::int64_t kSecond = 1'000'000'000;
  const std::int64_t left = std::clamp<std::int64_t>(until - now_ns(), 0, kSecond);
  const timespec time{left / kSecond, left % kSecond};
  ::ppoll(polled, std::size(polled), &time, nullptr);
}

}  // namespace talweg::live
