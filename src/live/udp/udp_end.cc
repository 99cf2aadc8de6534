#include "live/udp/udp_end.h"

#include <algorithm>
#include <utility>

#include "base/fail.h"
#include "live/system.h"
#include "wire/flow_packets.h"

namespace talweg::live {

namespace {

// Datagrams before others get their turn.
constexpr int kReceiveCalls = 4;

wire::DatagramScope turned(wire::DatagramScope scope) {
  std::swap(scope.from, scope.to);
  return scope;
}

protocol::FlowOptions flow_options(const UdpEndOptions& options, const UdpSocket& socket, std::size_t mtu,
                                   std::span<const UdpAddress> peer) {
  protocol::FlowOptions flow = options.flow;
  flow.window = static_cast<std::uint32_t>(std::min<std::size_t>(socket.window(), 1U << 31));
  flow.payload =
      std::min(options.most_payload, wire::datagram_payload(mtu, socket.ipv6(), options.suite.protection));
  if (flow.payload < wire::kMostAckBytes)
    throw_error(ErrorCode::system, "sending datagrams to {}: {}", to_string(peer[0]),
                mtu == 0          ? "there is no way to it"
                : peer.size() > 1 ? "one of the ways to it and its other addresses takes too small ones"
                                  : "its path takes too small ones");
  flow.rate.wall_ns = wall_ns() - now_ns();
  flow.around =
      (socket.ipv6() ? 48 : 28) + wire::kDatagramHeaderBytes + trailer_bytes(options.suite.protection);
  return flow;
}

UdpSenderOptions sender_options(const UdpEndOptions& options) {
  UdpSenderOptions sender = options.sender;
  sender.paths.count = options.flow.paths;
  return sender;
}

std::vector<UdpSender::Destination> by_path(UdpSender& sender, std::span<const UdpAddress> peer,
                                            std::size_t paths) {
  std::vector<UdpSender::Destination> to;
  for (std::size_t path = 0; path < paths; ++path) to.push_back(sender.add(of_path(peer, path), path));
  return to;
}

}  // namespace

UdpEnd::UdpEnd(UdpSocket socket, std::span<const UdpAddress> peer, const UdpKeys& keys,
               const wire::DatagramScope& outward, const UdpEndOptions& options)
    : socket_(std::move(socket)),
      suite_(options.suite),
      sender_(socket_, sender_options(options), options.send),
      receiver_(socket_),
      to_(by_path(sender_, peer, options.flow.paths)),
      mtu_(sender_.least_mtu(to_)),
      sealer_(keys.send, outward, options.suite),
      opener_(keys.receive, turned(outward), options.suite),
      flow_(flow_options(options, socket_, mtu_, peer)) {}

bool UdpEnd::send(std::int64_t now_ns, std::size_t most) {
  const std::size_t bytes = most_bytes();
  for (std::size_t n = 0; n < most;) {
    std::byte* const at = sender_.place(to_[0], wire::kOrdinary, bytes);
    if (at == nullptr) {
      if (!sender_.flush()) return false;
      keep_to_path();
      continue;
    }
    wire::DatagramHeader header;
    std::byte* const payload = at + wire::kDatagramHeaderBytes;
    if (!flow_.next(sealer_.number(), now_ns, header, payload)) break;
    if (flow_.path() != 0) sender_.place(to_[flow_.path()], wire::kOrdinary, bytes);  // the same place
    sender_.placed(sealer_.seal(header, payload, at));
    ++n;
  }
  if (!sender_.flush()) return false;
  keep_to_path();
  return true;
}

// What was too large has been dropped; the flow notices, and sends it again in smaller pieces.
void UdpEnd::keep_to_path() {
  const std::size_t mtu = sender_.least_mtu(to_);
  if (mtu == mtu_) return;
  mtu_ = mtu;
  flow_.set_payload(wire::datagram_payload(mtu_, socket_.ipv6(), suite_.protection));
}

bool UdpEnd::open(std::span<std::byte> datagram, bool marked, std::int64_t now_ns, std::int64_t waited_ns,
                  wire::DatagramHeader& header) {
  const auto why = opener_.open(datagram, header);
  if (why != wire::DatagramRefusal::none) {
    refusals_.count(why);
    return false;
  }
  ++heard_;
  flow_.on_datagram(header, datagram.subspan(wire::kDatagramHeaderBytes, header.length), marked, now_ns,
                    waited_ns);
  return true;
}

bool UdpEnd::receive(std::int64_t now_ns) {
  bool any = false;
  for (int i = 0; i < kReceiveCalls; ++i) {
    const bool more = receiver_.receive([&](UdpReceiver::Datagram& datagram) {
      wire::DatagramHeader header;
      if (!open(datagram.bytes, datagram.marked, now_ns, datagram.waited_ns, header)) return;
      any = true;
      if (header.type == static_cast<std::uint8_t>(wire::FlowType::acknowledgement) && !flow_.only_trials())
        answered_ns_ = now_ns;
    });
    if (!more) break;
  }
  if (any) flow_.end_of_batch();
  return any;
}

std::size_t UdpEnd::most_bytes() const {
  return wire::kDatagramHeaderBytes + flow_.payload() + trailer_bytes(suite_.protection);
}

std::size_t UdpEnd::next(std::int64_t now_ns, std::byte* at) {
  wire::DatagramHeader header;
  std::byte* const payload = at + wire::kDatagramHeaderBytes;
  return flow_.next(sealer_.number(), now_ns, header, payload) ? sealer_.seal(header, payload, at) : 0;
}

bool UdpEnd::take(std::span<std::byte> datagram, std::int64_t now_ns) {
  wire::DatagramHeader header;
  if (!open(datagram, false, now_ns, 0, header)) return false;
  flow_.end_of_batch();
  return header.type != static_cast<std::uint8_t>(wire::FlowType::acknowledgement);
}

}  // namespace talweg::live
