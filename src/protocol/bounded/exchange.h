// Exchange: one rank's side of a direct reduce-scatter that may lose a bounded part: each rank sends every
// other one the shard that the other one is to sum, in datagrams, all at once.
//
//   Exchange exchange(self, options, around, credits, outbox);
//   const std::size_t t = exchange.add(shard_bytes, type);   // the same tensors in the same order on all ranks
//   exchange.last_transfer(t)                                // which all ranks tell each other, before:
//   exchange.begin(t, data, {}, told, deadline_ns, now_ns);  // when all ranks are known to begin the same one
//   exchange.on(from, header, payload, marked, came_ns, now_ns);     // each datagram that was opened
//   exchange.end_of_batch(); exchange.on_time(now_ns); exchange.send(now_ns);   // once no more has come, and at
//                                                                               // next_time_ns()
//   if (exchange.received() && exchange.settled()) ...       // or failure(): it is of no use any more
//   exchange.arrived(r), exchange.missing(r)                 // what rank r has sent of this rank's shard
//   exchange.lost(r)                                         // and what r has ended without
//
// Who has received everything goes on until it knows that every other rank has settled: it is asked what was
// lost until then. That is for a reliable channel to say.
//
// The first calls of each tensor lose nothing: they say how long a transfer takes (adaptive_deadline.h). All
// ranks hear what each has measured, and so all wait for as long.
//
// Pure: no clock, no socket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "protocol/bounded/adaptive_deadline.h"
#include "protocol/bounded/flight.h"
#include "protocol/bounded/packet_class.h"
#include "protocol/bounded/receiver.h"
#include "protocol/bounded/sender.h"
#include "talweg/types.h"
#include "wire/datagram.h"

namespace talweg::protocol {

struct ExchangeOptions {
  LossBounds bounds;
  BoundedTimes times;
  // What all others may have in the queue to a rank, all together, and each of them while all send: losses
  // that are expected do not tell how much room it has. With less, links stand idle while streams take turns.
  // Once half of those that a rank sends to have settled, the rest have their part as well: they are not to
  // be starved by what others send there meanwhile.
  double queue_bytes = 96 << 10, most_queue_bytes = 16 << 10;
  RateOptions rate;             // but for queue_bytes
  std::size_t packets = 4096;   // on their way to one rank at most; a power of two
  std::size_t paths = 1;        // by which this rank may send to each other one; 1 .. kMostPaths
  std::uint16_t stride = 1368;  // bytes of a packet, as many whole elements
  bool warm_up = true;          // false: may lose from the first call on
  std::vector<int> silent{};    // ranks that send no shards; all ranks have the same
};

// What the network may do with what one rank sends in a call; ranks need not say the same.
struct ExchangeClasses {
  std::uint8_t priority = wire::kOrdinary;  // 1 .. 7
  // The part of each shard's packets, those of the smallest values, that may be dropped before others. Where
  // nothing may be missing, none is.
  double droppable = 0;  // 0 .. 1
  bool must = false;     // the others may not be missing
};

// Where datagrams leave.
class ExchangeOutbox {
 public:
  virtual ~ExchangeOutbox() = default;
  // Whether one of the largest can leave for this rank now.
  virtual bool has_room(int rank) = 0;
  // header.length bytes of payload, valid during the call; after has_room(). Seals it: the number it was
  // given. `path`: 0 .. options.paths - 1, each with a source port of its own.
  virtual std::uint64_t put(int rank, std::size_t path, wire::DatagramHeader& header,
                            const std::byte* payload) = 0;
  // Nothing more is put for now. False: some of it still waits for room.
  virtual bool flush() = 0;
};

class Exchange {
 public:
  // `around`: bytes of a datagram beside its payload, IP header included. `credits`: bytes that every other
  // rank may have on their way to each, by rank. `outbox` must outlive it. Throws Error{invalid_argument} for
  // bounds that are none.
  Exchange(int self, const ExchangeOptions& options, std::size_t around,
           std::span<const std::uint32_t> credits, ExchangeOutbox& outbox);

  // Between two calls: what has arrived in the last one is lost. Of rank r shard_bytes[r], whole elements.
  // Throws Error{invalid_argument} for what is too large.
  std::size_t add(std::span<const std::uint64_t> shard_bytes, DataType type);
  // What is known of it goes, and its number is not given again. All ranks have begun another one since:
  // throws Error{invalid_argument} for the one that was begun last.
  void forget(std::size_t tensor);
  // Of the last call of this tensor; all zero: there was none, or none of it was for this rank.
  const MeasuredTransfer& last_transfer(std::size_t tensor) const { return tensors_[tensor]->last; }
  // The last one has been received and settled. `data`: the shards one behind the other; they stay as they
  // are until it is settled. `told`: last_transfer() of each rank, in any order, the same on all ranks.
  void begin(std::size_t tensor, const std::byte* data, const ExchangeClasses& classes,
             std::span<const MeasuredTransfer> told, std::int64_t deadline_ns, std::int64_t now_ns);

  // `marked`: by the network (ECN). `came_ns`: when it came to this machine.
  void on(int from, const wire::DatagramHeader& header, std::span<const std::byte> payload, bool marked,
          std::int64_t came_ns, std::int64_t now_ns);
  void end_of_batch();
  void on_time(std::int64_t now_ns);
  // What is due, as far as the outbox has room.
  void send(std::int64_t now_ns);
  bool blocked() const { return blocked_; }  // it had none
  std::int64_t next_time_ns(std::int64_t now_ns) const;

  // All that is to come has come, or will be missing. Of the tensor that was begun last.
  bool received() const { return to_receive_ == 0; }
  bool ended(int rank) const { return !inflow(rank).open(); }  // what is to come from `rank`
  // It is known what `rank` has lost of what was sent to it; of all of them.
  bool settled(int rank) const { return !tensor().senders[index(rank)]->stream(0).open(); }
  bool settled() const { return to_settle_ == 0; }
  const std::optional<BoundedFailure>& failure() const { return failure_; }

  // With zeros in place of what is missing.
  const std::byte* arrived(int rank) const;
  const PacketSet& missing(int rank) const { return inflow(rank).missing(); }
  std::uint64_t missing_bytes(int rank) const { return inflow(rank).missing_bytes(); }
  const PacketSet& lost(int rank) const { return tensor().senders[index(rank)]->stream(0).lost(); }
  // Of what is sent to `rank`, the packets that are not droppable; null: none is.
  const PacketSet* important(int rank) const { return tensor().classes[index(rank)].important; }
  // How the shard of `rank` is cut.
  const BoundedShape& shape(int rank) const { return tensor().shapes[index(rank)]; }
  // Nothing may be missing this time.
  bool exact() const { return tensor().exact; }

  int ranks() const { return static_cast<int>(flights_.size()); }
  // Packets that have left again since begin().
  std::uint64_t sent_again() const { return all_sent_again() - again_before_; }
  const FlightCounters& flight(int rank) const { return flights_[index(rank)]->counters(); }
  const PathChooser& paths(int rank) const { return flights_[index(rank)]->paths(); }
  const InflowCounters& from(int rank) const { return inflow(rank).counters(); }
  const OutflowCounters& sent(int rank) const { return tensor().senders[index(rank)]->stream(0).counters(); }
  // Of a datagram, at most.
  std::size_t most_payload() const { return payload_.size(); }

 private:
  struct Tensor {
    explicit Tensor(const ExchangeOptions& options) : receiver(options.bounds, options.times) {}
    std::vector<BoundedShape> shapes;                     // of each rank's shard
    std::vector<std::uint64_t> offsets;                   // where it begins
    std::vector<ImportantPackets> important;              // of it
    std::vector<TransferClasses> classes;                 // of the call
    BoundedReceiver receiver;                             // of this rank's shard
    std::vector<std::size_t> streams;                     // of each rank, in the receiver
    std::vector<std::unique_ptr<BoundedSender>> senders;  // to each rank, of one stream
    AdaptiveDeadline times;
    MeasuredTransfer last;
    std::uint32_t iteration = 0;
    std::int64_t begun_ns = 0;
    bool exact = false;
  };
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  Tensor& tensor() { return *tensors_[current_]; }
  const Tensor& tensor() const { return *tensors_[current_]; }
  const BoundedInflow& inflow(int rank) const {
    return tensor().receiver.stream(tensor().streams[index(rank)]);
  }
  std::uint64_t all_sent_again() const;
  void note_ends(std::int64_t now_ns);
  void share_queues();
  bool has_room(int rank);
  bool send_control(std::int64_t now_ns);
  bool send_data(int rank, std::int64_t now_ns, int& budget);
  void put_control(int rank, wire::DatagramHeader& header, std::int64_t now_ns);

  BoundedShape sent_by(int rank, const BoundedShape& shape) const;

  const int self_;
  const ExchangeOptions options_;
  const std::size_t around_;
  ExchangeOutbox& outbox_;
  std::vector<std::unique_ptr<Flight>> flights_;  // to and from each rank; null: this one
  std::vector<std::unique_ptr<Tensor>> tensors_;  // null: forgotten
  std::unique_ptr<std::byte[]> inbox_;            // of the current one: this rank's shard from each
  std::uint64_t inbox_bytes_ = 0;                 // as many as the largest needs
  std::size_t current_ = 0;
  std::size_t to_receive_ = 0, to_settle_ = 0;
  std::size_t sent_to_ = 0;    // ranks, in this call
  std::size_t shared_by_ = 0;  // ranks among whom queue_bytes are shared
  std::uint64_t again_before_ = 0;
  std::optional<BoundedFailure> failure_;
  std::vector<std::byte> payload_;  // of the datagram that is being made
  bool blocked_ = false;
};

}  // namespace talweg::protocol
