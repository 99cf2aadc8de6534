// BoundedExchange: this rank's side of a direct reduce-scatter that may lose a bounded part: each rank sends
// every other one the shard that the other one is to sum, in datagrams, all at once. Drives the protocol
// (protocol/bounded) over one UDP socket.
//
//   BoundedExchange exchange(std::move(socket), self, peers, options);
//   const std::size_t t = exchange.add(shard_bytes);         // the same tensors in the same order on all ranks
//   exchange.begin(t, data, deadline_ns);                    // when all ranks are known to begin the same one
//   while (!(exchange.received() && exchange.settled())) {
//     exchange.step(now_ns());
//     if (exchange.failure()) ...                            // of no use any more
//     exchange.wait(exchange.next_time_ns(now_ns()));
//   }
//   exchange.arrived(r), exchange.missing(r)                 // what rank r has sent of this rank's shard
//   exchange.lost(r)                                         // and what r has ended without
//
// Who has received everything goes on stepping until it knows that every other rank has settled: it is asked
// what was lost until then. That is for a reliable channel to say.
//
// The first calls of each tensor lose nothing: they say how long a transfer takes
// (protocol/bounded/adaptive_deadline.h). Nothing is read, sent or waited for between two steps. Of one
// thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "live/udp/udp_receiver.h"
#include "live/udp/udp_sender.h"
#include "live/udp/udp_socket.h"
#include "protocol/bounded/adaptive_deadline.h"
#include "protocol/bounded/flight.h"
#include "protocol/bounded/receiver.h"
#include "protocol/bounded/sender.h"
#include "wire/datagram_cipher.h"

namespace talweg::live {

// A rank as the others know it.
struct BoundedPeer {
  UdpAddress address;
  wire::Secret secret{};        // by which it seals
  std::uint32_t credit = 1500;  // bytes that each other rank may have on their way to it
};

struct BoundedExchangeOptions {
  protocol::LossBounds bounds;
  protocol::BoundedTimes times;
  protocol::RateOptions rate;
  wire::DatagramSuite suite;
  std::uint16_t stride = 1368;  // bytes of a packet, as many whole elements: bounded_stride()
  bool warm_up = true;          // false: may lose from the first call on
  UdpSenderOptions sender;
  UdpSender::SendCall send;  // for tests
};

// The largest stride of whole elements for packets (IP header included) of `mtu` bytes, `most` at most. 0:
// such packets carry nothing.
std::uint16_t bounded_stride(std::size_t mtu, bool ipv6, wire::DatagramProtection protection,
                             std::size_t most);

class BoundedExchange {
 public:
  // `peers`: of all ranks; the own one's address is not used. Throws Error{invalid_argument} for bounds that
  // are none.
  BoundedExchange(UdpSocket socket, int self, const std::vector<BoundedPeer>& peers,
                  const BoundedExchangeOptions& options);
  BoundedExchange(const BoundedExchange&) = delete;  // its sender and receiver know where its socket is
  BoundedExchange& operator=(const BoundedExchange&) = delete;

  // Between two calls: what has arrived in the last one is lost. Of rank r shard_bytes[r], whole elements.
  // Throws Error{invalid_argument} for what is too large.
  std::size_t add(std::span<const std::uint64_t> shard_bytes);
  // The last one has been received and settled. `data`: the shards one behind the other; they stay as they
  // are until it is settled.
  void begin(std::size_t tensor, const std::byte* data, std::int64_t deadline_ns);
  // Takes what has come and sends what is due.
  void step(std::int64_t now_ns);
  std::int64_t next_time_ns(std::int64_t now_ns) const;
  // Until then, or something has come, or the file `wake` is readable.
  void wait(std::int64_t until_ns, int wake = -1) const;

  // All that is to come has come, or will be missing. Of the tensor that was begun last.
  bool received() const { return to_receive_ == 0; }
  bool ended(int rank) const { return !inflow(rank).open(); }  // what is to come from `rank`
  // It is known what `rank` has lost of what was sent to it; of all of them.
  bool settled(int rank) const { return !tensor().senders[index(rank)]->stream(0).open(); }
  bool settled() const { return to_settle_ == 0; }
  const std::optional<protocol::BoundedFailure>& failure() const { return failure_; }

  // With zeros in place of what is missing.
  const std::byte* arrived(int rank) const;
  const protocol::PacketSet& missing(int rank) const { return inflow(rank).missing(); }
  std::uint64_t missing_bytes(int rank) const { return inflow(rank).missing_bytes(); }
  const protocol::PacketSet& lost(int rank) const { return tensor().senders[index(rank)]->stream(0).lost(); }
  // How the shard of `rank` is cut.
  const protocol::BoundedShape& shape(int rank) const { return tensor().shapes[index(rank)]; }
  // Nothing may be missing this time.
  bool exact() const { return tensor().exact; }

  // Packets that have left again since begin().
  std::uint64_t sent_again() const { return all_sent_again() - again_before_; }
  const protocol::FlightCounters& flight(int rank) const { return peers_[index(rank)]->flight.counters(); }
  const protocol::OutflowCounters& sent(int rank) const {
    return tensor().senders[index(rank)]->stream(0).counters();
  }
  const UdpSocket& socket() const { return socket_; }
  const wire::DatagramRefusals& refusals() const { return refusals_; }

 private:
  // Another rank.
  struct Peer {
    Peer(UdpSender::Destination destination, const wire::Secret& own, const wire::Secret& other,
         std::uint16_t self, std::uint16_t rank, wire::DatagramSuite suite,
         const protocol::FlightOptions& options);
    UdpSender::Destination to;
    wire::DatagramSealer sealer;
    wire::DatagramOpener opener;
    protocol::Flight flight;
  };
  struct Tensor {
    explicit Tensor(const BoundedExchangeOptions& options) : receiver(options.bounds, options.times) {}
    std::vector<protocol::BoundedShape> shapes;                     // of each rank's shard
    std::vector<std::uint64_t> offsets;                             // where it begins
    protocol::BoundedReceiver receiver;                             // of this rank's shard
    std::vector<std::size_t> streams;                               // of each rank, in the receiver
    std::vector<std::unique_ptr<protocol::BoundedSender>> senders;  // to each rank, of one stream
    protocol::AdaptiveDeadline times;
    std::uint32_t iteration = 0;
    std::int64_t begun_ns = 0;
    bool exact = false;
  };
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  Tensor& tensor() { return *tensors_[current_]; }
  const Tensor& tensor() const { return *tensors_[current_]; }
  const protocol::BoundedInflow& inflow(int rank) const {
    return tensor().receiver.stream(tensor().streams[index(rank)]);
  }

  std::uint64_t all_sent_again() const;
  bool receive(std::int64_t now_ns);
  void take(UdpReceiver::Datagram& datagram, std::int64_t now_ns);
  void note_ends(std::int64_t now_ns);
  void send(std::int64_t now_ns);
  bool send_control(std::int64_t now_ns);
  bool send_data(Peer& peer, protocol::BoundedSender& sender, std::int64_t now_ns, int& budget);
  bool has_room(Peer& peer);
  void put(Peer& peer, wire::DatagramHeader& header);

  const int self_;
  const BoundedExchangeOptions options_;
  UdpSocket socket_;
  UdpSender sender_;
  UdpReceiver receiver_;
  const std::size_t around_;  // bytes of a datagram beside its payload
  const std::size_t most_payload_;
  std::vector<std::unique_ptr<Peer>> peers_;  // null: this rank
  std::vector<std::unique_ptr<Tensor>> tensors_;
  std::unique_ptr<std::byte[]> inbox_;  // of the current one: this rank's shard from each
  std::uint64_t inbox_bytes_ = 0;       // as many as the largest needs
  std::size_t current_ = 0;
  std::size_t to_receive_ = 0, to_settle_ = 0;
  std::uint64_t again_before_ = 0;
  std::optional<protocol::BoundedFailure> failure_;
  std::vector<std::byte> payload_;  // of the datagram that is being made
  bool blocked_ = false;            // the kernel has no room
  wire::DatagramRefusals refusals_;
};

}  // namespace talweg::live
