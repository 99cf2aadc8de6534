// Transport: byte streams between hosts that arrive whole and in order, whatever the network does.
//
//   flow = transport.open({from, to});  transport.write(flow, bytes, now);
//   transport.notify_at(flow, bytes);   // FlowClient::on_delivered once that many have arrived in order
//
// Here stands what all kinds have in common; when something may go is each kind's own. It is asked what may
// go of a flow's backlog (`pump`), and is handed packets that arrive, answers and timers (`on_packet`,
// `on_timer`). Dctcp (dctcp.h) keeps windows that react to marks, Pulled (pulled.h) sends what
// receivers ask for, PFabric (pfabric.h) leaves it to the switches, Fluid (fluid.h) has no packets at all.
//
// Segments. The stream is cut into numbered segments of at most `payload` bytes, a segment once and for all;
// retransmissions carry the same number. An acknowledgement says which one it answers, up to where everything
// has arrived, whether the segment was marked or trimmed, and when it was sent. Each segment has one; but for
// Dctcp, whose receivers answer several at once.
//
// Turns. With `turns` a packet is handed to its host's link when that is free, and the flows that have
// something to send over the link take turns, a packet each: what a host has not sent yet waits in its flows
// and not in one queue, as Linux has it with small queues and fair queueing. Without, a flow's packets join
// the queue in front of the link as soon as they may go.
//
// Shortcuts of a simulation: there is no handshake, the receiver's buffer is never full, and both ends share
// the lengths of segments in flight, and after which of them nothing follows for now. A flow has at most 2^32
// segments.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/ring_queue.h"
#include "sim/network.h"

namespace talweg::sim {

using FlowId = std::uint32_t;

enum class TransportKind : std::uint8_t { dctcp, pulled, pfabric, fluid };

struct TransportOptions {
  TransportKind kind = TransportKind::dctcp;
  int payload_bytes = 1448;  // of a full segment
  int header_bytes = 66;     // on the wire, per segment; and an acknowledgement's size is
  int acknowledgement_bytes = 66;
  // Dctcp, and what Fluid charges ways back: segments in order that one acknowledgement answers (dctcp.h). Of
  // all other kinds each is answered at once.
  int ack_every = 2;
  // Segments. Pulled: that go unasked; PFabric: the most as well. Of both 0: as many as the path holds.
  int first_window = 10;
  int least_window = 2;
  std::int64_t most_window_bytes = 4 << 20;
  Nanoseconds least_rto{1'000'000};  // PFabric: the only one; 0: three round trips of the path
  Nanoseconds most_rto{120'000'000'000};
  Nanoseconds first_rto{10'000'000};  // before the first round trip has been measured
  bool spray = false;                 // each segment takes the next of all equal paths; else all take one
  bool turns = false;                 // see above; Pulled always has them
  int acknowledgement_priority = 0;
  int data_priority = 0;  // added to that of the flow
  // Dctcp: one more is added for each of these that a message's bytes have reached when a segment is sent;
  // ascending, 0: no more of them. A message begins where a flow writes that has nothing left to be
  // acknowledged.
  std::array<std::int64_t, kPriorities - 1> demote_bytes{};
  bool operator==(const TransportOptions&) const = default;
};

struct FlowOptions {
  int from = 0;
  int to = 0;
  int priority = 0;
  std::uint32_t route = kNoRoute;  // of segments; acknowledgements find their own way
};

class FlowClient {
 public:
  virtual ~FlowClient() = default;
  // At least as many bytes as notify_at() asked for have arrived in order. Asked once; ask again for more.
  virtual void on_delivered(FlowId flow, std::int64_t bytes, Picoseconds now) = 0;
  // Less than `low_water` bytes wait to be sent.
  virtual void on_writable(FlowId flow, Picoseconds now) = 0;
};

struct FlowCounters {
  std::int64_t written_bytes = 0;
  std::int64_t delivered_bytes = 0;
  std::uint64_t segments = 0;  // sent, retransmissions included
  std::uint64_t retransmissions = 0;
  std::uint64_t timeouts = 0;
  std::uint64_t marked = 0;  // acknowledgements that carry a mark
};

class Transport {
 public:
  static constexpr std::uint32_t kMostFlows = 1U << 23;

  // Throws Error{invalid_argument} for a network that is too large.
  Transport(const TransportOptions& options, Network& network, EventQueue& events, FlowClient& client,
            std::uint64_t seed);
  virtual ~Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  // Throws Error{invalid_argument} where there are kMostFlows already.
  FlowId open(const FlowOptions& options);
  void write(FlowId flow, std::int64_t bytes, Picoseconds now);
  virtual void notify_at(FlowId flow, std::int64_t bytes) { receivers_[flow].notify_at = bytes; }
  // Asks for on_writable once fewer than this many written bytes have not been sent for the first time.
  virtual void notify_below(FlowId flow, std::int64_t low_water) { senders_[flow].low_water = low_water; }
  std::int64_t delivered_bytes(FlowId flow) const { return receivers_[flow].delivered; }
  std::int64_t unsent_bytes(FlowId flow) const { return senders_[flow].unsent; }
  // Smoothed; 0: not measured yet.
  Picoseconds round_trip(FlowId flow) const { return senders_[flow].round_trip; }
  // What an end knows of the other one: when the last answer came, and, of the flow that comes from there,
  // when its last segment did.
  Picoseconds answered(FlowId flow) const { return senders_[flow].answered; }
  Picoseconds heard(FlowId flow) const { return receivers_[flow].heard; }
  // Bytes that may be in flight.
  virtual std::int64_t window_bytes(FlowId flow) const = 0;
  // New segments leave at so many bytes per second at most, from now on; 0: as the transport lets them. Only
  // Dctcp can be held to a pace: where receivers or fair rates decide what goes, nothing happens.
  virtual void pace(FlowId, double /*bytes_per_second*/) {}
  virtual double pace_of(FlowId) const { return 0; }

  // From the network, which hands over the packet, and from the event queue, whose top the timer is: it takes
  // it off.
  virtual void on_packet(Packet* packet, Picoseconds now) = 0;
  virtual void on_timer(std::uint32_t target, Picoseconds now) = 0;
  // Fetches ahead what a packet of the flow will touch.
  void fetch(FlowId flow) const {
    for (std::size_t line = 0; line < sizeof(Sender) / 64; ++line)
      __builtin_prefetch(reinterpret_cast<const char*>(&senders_[flow]) + 64 * line, 1);
    __builtin_prefetch(&receivers_[flow], 1);
    __builtin_prefetch(&flows_[flow]);
  }
  // Links or nodes have failed or are back.
  virtual void on_reroute(Picoseconds) {}
  // Before the network's counters are read: those who count only now and then count up to now.
  virtual void count(Picoseconds) {}

  std::size_t flows() const { return senders_.size(); }
  const FlowOptions& ends(FlowId flow) const { return flows_[flow]; }
  FlowCounters counters(FlowId flow) const;
  const TransportOptions& options() const { return options_; }

 protected:
  // Targets of timers: a flow; from kTurn on, the link whose next turn it is; and from kHost on a node.
  static constexpr std::uint32_t kTurn = kMostFlows;
  static constexpr std::uint32_t kHost = kTurn + (1U << 22);

  enum class State : std::uint8_t { in_flight, sent_again, lost, acknowledged };
  struct Segment {
    Picoseconds sent = 0;
    std::uint16_t bytes = 0;
    State state = State::in_flight;
    bool asked = false;   // for by the receiver
    bool pushed = false;  // as by TCP's PSH: nothing follows it for now
  };
  struct alignas(64) Sender {
    std::vector<Segment> ring;  // segment n is at n % size, a power of two; empty before the first
    std::uint32_t first = 0;    // the oldest not known to have arrived
    std::uint32_t next = 0;     // the next new one
    std::int64_t unsent = 0;
    std::int64_t in_flight = 0;  // bytes
    Picoseconds round_trip = 0;  // smoothed; 0: not measured
    Picoseconds deviation = 0;
    Picoseconds deadline = kNever;
    Picoseconds timer_at = kNever;  // of the event that is pending
    std::uint32_t spread = 0;
    std::uint8_t backoff = 0;
    bool has_turn = false;
    Picoseconds answered = 0;
    std::int64_t low_water = 0;
    RingQueue<std::uint32_t> lost;  // to be sent again
    std::uint64_t sent_segments = 0;
    std::uint64_t retransmissions = 0;
    std::uint64_t timeouts = 0;
    std::uint64_t marks = 0;
    std::int64_t written = 0;

    Segment& segment(std::uint32_t n) { return ring[n & (ring.size() - 1)]; }
  };
  struct Receiver {
    std::uint32_t expected = 0;
    std::vector<std::uint64_t> arrived;  // bits of segments from `expected` on, at n % (64 * size)
    std::int64_t delivered = 0;
    Picoseconds heard = 0;
    std::int64_t notify_at = kNever;
  };

  // Of kinds that always have them.
  static TransportOptions with_turns(TransportOptions options) {
    options.turns = true;
    return options;
  }

  // A kind's own part of a flow that has been opened.
  virtual void opened(FlowId flow) = 0;
  // Bytes of it that are not known to have arrived; of kinds that serve flows by it.
  virtual std::int64_t left(FlowId) const { return 0; }
  // Sends what may go now of what the flow has to send.
  virtual void pump(FlowId flow, Picoseconds now) = 0;

  // The next new segment, cut off what is unsent. The flow has some.
  std::uint32_t cut_segment(FlowId flow);
  // The packet of a segment, which counts as sent now.
  Packet* packet_of(FlowId flow, std::uint32_t number, Picoseconds now);
  // Bytes that are newly known to have arrived: of one, and of all before `number` too.
  std::int64_t acknowledge(Sender& s, std::uint32_t number);
  std::int64_t acknowledge_before(Sender& s, std::uint32_t number);
  void lose(Sender& s, std::uint32_t number);
  void measure(Sender& s, Picoseconds round_trip);
  // Of a full segment there and its answer back, where nothing else is, and of that segment on its slowest
  // link; 0: there is no way.
  struct PathTrip {
    Picoseconds round_trip = 0;
    Picoseconds slowest = 0;
    // Full segments that fit into it.
    std::uint32_t segments() const;
  };
  PathTrip path_trip(const FlowOptions& f) const;
  Picoseconds timeout(const Sender& s) const;

  // At the receiver: a whole segment has come. Its packet turns around and becomes the answer, which is sent.
  void arrive(FlowId flow, std::uint32_t number);
  void turn_around(Packet* packet, std::uint32_t expected) const;
  void answer(Packet* packet, Picoseconds now);
  void tell_delivered(FlowId flow, Picoseconds now);
  // A segment has come: it goes back as the acknowledgement of what has.
  void acknowledge_segment(Packet* packet, Picoseconds now);
  void tell_writable(FlowId flow, Picoseconds now);

  // Gives a flow that has something to send a turn at its link. `send(flow)` sends a packet, or is false
  // where none may go.
  template <class Send>
  void offer(FlowId flow, Picoseconds now, Send& send) {
    Sender& s = senders_[flow];
    if (s.has_turn || (s.unsent == 0 && s.lost.empty())) return;
    const FlowOptions& f = flows_[flow];
    const int link = network_.first_link(f.from, f.to, f.route, s.spread);
    if (link < 0) {  // for the network to count
      while (send(flow)) {
      }
      return;
    }
    s.has_turn = true;
    Turns& turns = turns_[static_cast<std::size_t>(link)];
    turns.ready.push(flow);
    if (!turns.going_on) take_turns(link, false, now, send);
  }
  // A packet of each flow in turn, while the link is free; one more where it is known to be (`due`).
  template <class Send>
  void take_turns(int link, bool due, Picoseconds now, Send& send) {
    Turns& turns = turns_[static_cast<std::size_t>(link)];
    turns.going_on = true;
    while (!turns.ready.empty()) {
      const Picoseconds clear = due ? now : network_.clear_at(link, now);
      if (clear > now) {
        events_.push(clear, EventKind::timer, kTurn + static_cast<std::uint32_t>(link));
        return;
      }
      if (least_left_first_) [[unlikely]]
        bring_forward(turns.ready);
      const FlowId flow = turns.ready.pop();
      senders_[flow].has_turn = false;
      if (!send(flow)) continue;
      due = false;
      offer(flow, now, send);
    }
    turns.going_on = false;
  }

  // Fetches ahead what a turn at a link will touch: first the link's, and then the flow's whose turn it is.
  void fetch_turn(int link) const {
    __builtin_prefetch(&turns_[static_cast<std::size_t>(link)], 1);
    network_.fetch(link);
  }
  const RingQueue<FlowId>& ready(int link) const { return turns_[static_cast<std::size_t>(link)].ready; }

  const TransportOptions options_;
  Network& network_;
  EventQueue& events_;
  FlowClient& client_;
  std::vector<FlowOptions> flows_;
  std::vector<Sender> senders_;
  std::vector<Receiver> receivers_;
  bool least_left_first_ = false;  // in place of turns, among flows that have something to send over a link

 private:
  struct Turns {
    RingQueue<FlowId> ready;
    bool going_on = false;  // or an event is pending that goes on with them
  };
  static void make_room(Sender& s, Receiver& r);
  // Puts the flow that has least left in front.
  void bring_forward(RingQueue<FlowId>& ready) const;

  Random random_;
  std::vector<Turns> turns_;  // by link; empty without turns
};

// The kind that the options name. `clock` is the simulation's time, and outlives the transport.
std::unique_ptr<Transport> make_transport(const TransportOptions& options, Network& network,
                                          EventQueue& events, FlowClient& client, std::uint64_t seed,
                                          const Picoseconds& clock);

}  // namespace talweg::sim
