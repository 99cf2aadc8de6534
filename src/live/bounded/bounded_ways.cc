#include "live/bounded/bounded_ways.h"

#include <algorithm>
#include <utility>

#include "live/bounded/bounded_exchange.h"
#include "live/system.h"

namespace talweg::live {

namespace {

constexpr std::uint32_t kEpoch = 1;  // that of the sums is 0
// Batches: more than a socket's buffer has. Whoever comes late finds there what has passed, and is not to
// give up before it has seen that.
constexpr int kMostBatches = 128;

}  // namespace

BoundedWays::BoundedWays(const UdpSocket& socket, int self, std::span<const BoundedPeer> peers,
                         wire::DatagramSuite suite, std::size_t most, UdpSender::SendCall send,
                         std::vector<UdpSocket> more)
    : socket_(socket),
      sender_(socket, {.offload = false}, std::move(send), std::move(more)),
      receiver_(socket),
      peers_(self, peers, suite, kEpoch) {
  const std::size_t around = bounded_around(socket.ipv6(), suite.protection);
  least_ = around + kLeastBoundedPayload;
  const std::size_t most_payload = std::max(wire::kBoundedHeadBytes + most, kLeastBoundedPayload);
  const std::size_t paths = sender_.more_sockets().size() + 1;
  std::vector<std::size_t> largest(peers.size());
  wanted_ = around + most_payload;
  for (std::size_t r = 0; r < peers.size(); ++r) {
    to_.emplace_back();
    if (r == static_cast<std::size_t>(self)) continue;
    for (std::size_t path = 0; path < paths; ++path)
      to_[r].push_back(sender_.add(of_path(peers[r].addresses, path), path));
    const std::size_t payload =
        wire::datagram_payload(sender_.least_mtu(to_[r]), socket.ipv6(), suite.protection);
    largest[r] = payload < kLeastBoundedPayload ? 0 : around + std::min(payload, most_payload);
    wanted_ = std::min(wanted_, largest[r]);
  }
  payload_.resize(most_payload);
  trial_.emplace(self, largest, least_, around, now_ns(), paths);
}

void BoundedWays::step(std::int64_t now) {
  const auto take = [this](UdpReceiver::Datagram& datagram) {
    wire::DatagramHeader header;
    wire::BoundedTrial message;
    if (!peers_.open(datagram.bytes, header)) return;
    if (wire::decode(header, BoundedPeers::payload(datagram.bytes, header), message) != nullptr) return;
    trial_->on(header.sender, message);
  };
  for (int i = 0; i < kMostBatches && receiver_.receive(take); ++i) {
  }
  for (int to = 0;;) {
    const std::size_t room = peers_.around_payload() + payload_.size();
    // Any destination does to find out about room.
    if (sender_.place(0, wire::kOrdinary, room) == nullptr && !sender_.flush()) return;
    wire::BoundedTrial message;
    if (!trial_->next(now, to, message)) break;
    wire::DatagramHeader header;
    header.service = wire::kOrdinary;
    encode(message, header, payload_.data());
    std::byte* const at =
        sender_.place(to_[static_cast<std::size_t>(to)][trial_->path()], header.service, room);
    sender_.placed(peers_.seal(to, header, payload_.data(), at));
  }
  sender_.flush();
}

void BoundedWays::wait(std::int64_t until_ns, int wake) const {
  wait_for_datagrams(socket_, sender_.empty() ? -1 : sender_.blocked_fd(), wake, until_ns);
}

}  // namespace talweg::live
