#include "live/bounded/bounded_exchange.h"

#include <poll.h>

#include <algorithm>
#include <ctime>
#include <utility>

#include "live/system.h"

namespace talweg::live {

namespace {

// Datagrams before others get their turn: what is received, what is sent, and to one rank at a time, so that
// they leave in one piece.
constexpr int kReceiveRounds = 4;
constexpr int kMostSent = 256;
constexpr int kBurst = 16;
// Bytes of the largest element there is, of which a packet has a whole number.
constexpr std::size_t kElement = 16;

std::size_t bytes_around(const UdpSocket& socket, wire::DatagramProtection protection) {
  return (socket.ipv6() ? 48 : 28) + wire::kDatagramHeaderBytes + trailer_bytes(protection);
}

}  // namespace

std::uint16_t bounded_stride(std::size_t mtu, bool ipv6, wire::DatagramProtection protection,
                             std::size_t most) {
  const std::size_t payload = wire::datagram_payload(mtu, ipv6, protection);
  // Reports and acknowledgements have to fit, too.
  if (payload < std::max(wire::kMostReportBytes, wire::kMostAckBytes)) return 0;
  return static_cast<std::uint16_t>(std::min(payload - wire::kBoundedHeadBytes, most) / kElement * kElement);
}

BoundedExchange::Peer::Peer(UdpSender::Destination destination, const wire::Secret& own,
                            const wire::Secret& other, std::uint16_t self, std::uint16_t rank,
                            wire::DatagramSuite suite, const protocol::FlightOptions& options)
    : to(destination),
      sealer(own, {0, 0, self, rank}, suite),
      opener(other, {0, 0, rank, self}, suite),
      flight(options) {}

BoundedExchange::BoundedExchange(UdpSocket socket, int self, const std::vector<BoundedPeer>& peers,
                                 const BoundedExchangeOptions& options)
    : self_(self),
      options_(options),
      socket_(std::move(socket)),
      sender_(socket_, options.sender, options.send),
      receiver_(socket_),
      around_(bytes_around(socket_, options.suite.protection)),
      most_payload_(std::max({wire::kMostReportBytes, wire::kMostAckBytes,
                              wire::kBoundedHeadBytes + std::size_t{options.stride}})),
      payload_(most_payload_) {
  protocol::FlightOptions flight;
  flight.credit = peers[index(self)].credit;
  flight.datagram = around_ + wire::kBoundedHeadBytes + options.stride;
  flight.rate = options.rate;
  for (int r = 0; r < static_cast<int>(peers.size()); ++r) {
    peers_.emplace_back();
    if (r == self) continue;
    flight.other_credit = peers[index(r)].credit;
    peers_.back() = std::make_unique<Peer>(sender_.add(peers[index(r)].address), peers[index(self)].secret,
                                           peers[index(r)].secret, static_cast<std::uint16_t>(self),
                                           static_cast<std::uint16_t>(r), options.suite, flight);
  }
}

std::size_t BoundedExchange::add(std::span<const std::uint64_t> shard_bytes) {
  auto t = std::make_unique<Tensor>(options_);
  const auto number = static_cast<std::uint32_t>(tensors_.size());
  std::uint64_t offset = 0;
  for (const std::uint64_t bytes : shard_bytes) {
    t->shapes.push_back({number, bytes, options_.stride});
    t->offsets.push_back(offset);
    offset += bytes;
  }
  for (int r = 0; r < static_cast<int>(peers_.size()); ++r) {
    t->senders.emplace_back();
    t->streams.push_back(0);
    if (r == self_) continue;
    const auto rank = static_cast<std::uint16_t>(r);
    t->senders.back() =
        std::make_unique<protocol::BoundedSender>(static_cast<std::uint16_t>(self_), rank, options_.times);
    t->senders.back()->add(t->shapes[index(r)]);
    t->streams.back() = t->receiver.add(rank, t->shapes[index(self_)]);
  }
  if (const std::uint64_t needed = shard_bytes[index(self_)] * peers_.size(); needed > inbox_bytes_) {
    inbox_.reset();
    inbox_bytes_ = 0;
    inbox_ = std::make_unique<std::byte[]>(needed);
    inbox_bytes_ = needed;
  }
  tensors_.push_back(std::move(t));
  return number;
}

const std::byte* BoundedExchange::arrived(int rank) const {
  return inbox_.get() + index(rank) * tensor().shapes[index(self_)].bytes;
}

std::uint64_t BoundedExchange::all_sent_again() const {
  std::uint64_t sum = 0;
  for (const auto& sender : tensor().senders)
    if (sender) sum += sender->stream(0).counters().again;
  return sum;
}

void BoundedExchange::begin(std::size_t number, const std::byte* data, std::int64_t deadline_ns) {
  current_ = number;
  Tensor& t = tensor();
  const std::int64_t now = now_ns();
  t.begun_ns = now;
  again_before_ = all_sent_again();
  t.exact = options_.warm_up && !t.times.is_warm();
  if (t.times.is_warm()) t.receiver.set_linger(t.times.linger_ns());
  t.receiver.begin(++t.iteration, t.exact);
  to_receive_ = to_settle_ = peers_.size() - 1;
  for (int r = 0; r < static_cast<int>(peers_.size()); ++r) {
    if (r == self_) continue;
    const std::uint64_t at = index(r) * t.shapes[index(self_)].bytes;
    t.receiver.expect(t.streams[index(r)], inbox_.get() + at, deadline_ns, now);
    t.senders[index(r)]->begin(0, t.iteration, data + t.offsets[index(r)], {}, deadline_ns, now);
  }
  note_ends(now);  // shards of no bytes
}

void BoundedExchange::step(std::int64_t now) {
  receive(now);
  Tensor& t = tensor();
  t.receiver.on_time(now);
  for (std::size_t r = 0; r < peers_.size(); ++r) {
    if (!peers_[r]) continue;
    t.senders[r]->on_time(now);
    peers_[r]->flight.on_time(now);
  }
  send(now);
  note_ends(now);
}

void BoundedExchange::note_ends(std::int64_t now) {
  Tensor& t = tensor();
  const auto ended = [this](std::size_t& left, const std::optional<protocol::BoundedFailure>& failure) {
    --left;
    if (failure && !failure_) failure_ = failure;
  };
  const bool receiving = to_receive_ > 0;
  while (const auto s = t.receiver.take_ended()) ended(to_receive_, t.receiver.stream(*s).failure());
  for (const auto& sender : t.senders)
    while (sender && sender->take_ended()) ended(to_settle_, sender->stream(0).failure());
  if (!receiving || to_receive_ > 0 || failure_) return;
  std::uint64_t lost = 0, bytes = 0;
  for (std::size_t s = 0; s < t.receiver.streams(); ++s) {
    lost += t.receiver.stream(s).missing_bytes();
    bytes += t.receiver.stream(s).shape().bytes;
  }
  t.times.on_ended(now - t.begun_ns, lost, bytes);
}

bool BoundedExchange::receive(std::int64_t now) {
  bool any = false;
  for (int i = 0; i < kReceiveRounds; ++i) {
    const bool more = receiver_.receive([&](UdpReceiver::Datagram& datagram) {
      take(datagram, now);
      any = true;
    });
    if (!more) break;
  }
  for (const auto& peer : peers_)
    if (any && peer) peer->flight.end_of_batch();
  return any;
}

void BoundedExchange::take(UdpReceiver::Datagram& datagram, std::int64_t now) {
  wire::DatagramHeader header;
  if (const auto why = wire::decode(datagram.bytes, options_.suite.protection, header);
      why != wire::DatagramRefusal::none)
    return refusals_.count(why);
  if (header.sender >= peers_.size() || !peers_[header.sender])
    return refusals_.count(wire::DatagramRefusal::sender);
  Peer& peer = *peers_[header.sender];
  if (const auto why = peer.opener.open(datagram.bytes, header); why != wire::DatagramRefusal::none)
    return refusals_.count(why);
  const auto payload = datagram.bytes.subspan(wire::kDatagramHeaderBytes, header.length);
  const std::int64_t came_ns = now - datagram.waited_ns;
  if (header.type == static_cast<std::uint8_t>(wire::FlowType::acknowledgement))
    return peer.flight.on_acknowledgement(payload, came_ns, now);
  const bool data = header.type == static_cast<std::uint8_t>(wire::BoundedType::data);
  if (data) peer.flight.received(header.number, datagram.marked, came_ns, now);
  if (tensors_.empty()) return;
  // What is about another tensor is of a call that is over.
  if (data || header.type == static_cast<std::uint8_t>(wire::BoundedType::probe))
    tensor().receiver.on(header, payload, now);
  else
    tensor().senders[header.sender]->on(header, payload, now);
}

// --- what leaves ---

bool BoundedExchange::has_room(Peer& peer) {
  const std::size_t most =
      wire::kDatagramHeaderBytes + most_payload_ + trailer_bytes(options_.suite.protection);
  if (sender_.place(peer.to, wire::kOrdinary, most) != nullptr) return true;
  blocked_ = !sender_.flush();
  return !blocked_;
}

void BoundedExchange::put(Peer& peer, wire::DatagramHeader& header) {
  const std::size_t bytes =
      wire::kDatagramHeaderBytes + header.length + trailer_bytes(options_.suite.protection);
  std::byte* const at = sender_.place(peer.to, header.service, bytes);
  sender_.placed(peer.sealer.seal(header, payload_.data(), at));
}

// What the kernel does not take waits where it is.
void BoundedExchange::send(std::int64_t now) {
  int budget = kMostSent;
  bool any = send_control(now);
  while (any && budget > 0) {
    any = false;
    // Each rank begins with the one behind it: they do not all send to the same one.
    for (std::size_t i = 1; i < peers_.size() && !blocked_; ++i) {
      const std::size_t r = (index(self_) + i) % peers_.size();
      any = send_data(*peers_[r], *tensor().senders[r], now, budget) || any;
    }
  }
  blocked_ = !sender_.flush();
}

// False: there is no room for it.
bool BoundedExchange::send_control(std::int64_t now) {
  wire::DatagramHeader header;
  std::uint16_t to = 0;
  // Any peer does to find out about room.
  Peer& any = *peers_[index(self_) == 0 ? peers_.size() - 1 : 0];
  while (has_room(any) && tensor().receiver.next(now, to, header, payload_.data())) put(*peers_[to], header);
  for (std::size_t r = 0; r < peers_.size(); ++r) {
    if (!peers_[r]) continue;
    Peer& peer = *peers_[r];
    if (has_room(peer) && peer.flight.acknowledgement_due(now)) {
      peer.flight.acknowledge(now, header, payload_.data());
      put(peer, header);
    }
    while (has_room(peer) &&
           tensor().senders[r]->next(now, header, payload_.data(), protocol::BoundedSender::What::control))
      put(peer, header);
  }
  return !blocked_;
}

// True if anything has left.
bool BoundedExchange::send_data(Peer& peer, protocol::BoundedSender& sender, std::int64_t now, int& budget) {
  bool any = false;
  wire::DatagramHeader header;
  for (int i = 0; i < kBurst && budget > 0 && sender.has_data() && peer.flight.allowed(now); ++i) {
    if (!has_room(peer) || !sender.next(now, header, payload_.data())) break;
    peer.flight.sent(peer.sealer.number(), around_ + header.length, now);
    put(peer, header);
    --budget;
    any = true;
  }
  return any;
}

std::int64_t BoundedExchange::next_time_ns(std::int64_t now) const {
  const Tensor& t = tensor();
  std::int64_t at = t.receiver.next_time_ns();
  for (std::size_t r = 0; r < peers_.size(); ++r) {
    if (!peers_[r]) continue;
    at = std::min({at, t.senders[r]->next_time_ns(),
                   peers_[r]->flight.next_time_ns(now, t.senders[r]->has_data() && !blocked_)});
  }
  return at;
}

void BoundedExchange::wait(std::int64_t until, int wake) const {
  const auto events = static_cast<short>(blocked_ ? POLLIN | POLLOUT : POLLIN);
  pollfd polled[] = {{socket_.fd(), events, 0}, {wake, POLLIN, 0}};
  constexpr std::int64_t kSecond = 1'000'000'000;
  const std::int64_t left = std::clamp<std::int64_t>(until - now_ns(), 0, kSecond);
  const timespec time{left / kSecond, left % kSecond};
  ::ppoll(polled, 2, &time, nullptr);
}

}  // namespace talweg::live
