// Reliable: byte streams between hosts that arrive whole and in order, whatever the network does. A window
// that reacts to congestion marks, as DCTCP does.
//
//   flow = transport.open({from, to});  transport.write(flow, bytes, now);
//   transport.notify_at(flow, bytes);   // FlowClient::on_delivered once that many have arrived in order
//
// Segments. The stream is cut into numbered segments of at most `payload` bytes, a segment once and for all;
// retransmissions carry the same number. Each is answered by an acknowledgement that says which one it
// answers, up to where everything has arrived, whether the segment was marked, and when it was sent.
//
// Window (RFC 8257). It doubles every round trip until the first mark or loss, then grows by a segment per
// round trip. Once a window has passed, alpha moves by 1/16 toward the share of its bytes that were marked;
// a window with marks is cut by alpha / 2, once. A loss halves it, once per window. All in integers, so that
// a run does not depend on a compiler's floating point.
//
// Loss recovery. A segment is lost when one three numbers above it has been acknowledged that was sent after
// it (with `spray` a round trip after it: other paths may be that much quicker); or when its trimmed header
// comes. What is still missing when the retransmission timer ends (smoothed round trip + 4 deviations, at
// least `least_rto`, doubling up to `most_rto`) is all taken for lost and the window falls to its least. A
// flow has one timer event pending, put off when it fires early, so an acknowledgement costs no event.
//
// Pace. A flow may be held to a rate below what its window lets pass, as Linux paces sockets; what is sent
// again is not held up.
//
// Shortcuts of a simulation: there is no handshake, the receiver's buffer is never full, and both ends share
// the lengths of segments in flight. A flow has at most 2^32 segments.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ring_queue.h"
#include "sim/network.h"

namespace talweg::sim {

using FlowId = std::uint32_t;

struct TransportOptions {
  int payload_bytes = 1448;  // of a full segment
  int header_bytes = 66;     // on the wire, per segment; and an acknowledgement's size is
  int acknowledgement_bytes = 66;
  int first_window = 10;  // segments
  int least_window = 2;
  std::int64_t most_window_bytes = 4 << 20;
  Nanoseconds least_rto{1'000'000};
  Nanoseconds most_rto{120'000'000'000};
  Nanoseconds first_rto{10'000'000};  // before the first round trip has been measured
  bool spray = false;                 // each segment takes the next of all equal paths; else all take one
  int acknowledgement_priority = 0;
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

class Reliable {
 public:
  Reliable(const TransportOptions& options, Network& network, EventQueue& events, FlowClient& client,
           std::uint64_t seed);

  FlowId open(const FlowOptions& options);
  void write(FlowId flow, std::int64_t bytes, Picoseconds now);
  void notify_at(FlowId flow, std::int64_t bytes) { receivers_[flow].notify_at = bytes; }
  // Asks for on_writable once fewer than this many written bytes have not been sent for the first time.
  void notify_below(FlowId flow, std::int64_t low_water) { senders_[flow].low_water = low_water; }
  // New segments leave at so many bytes per second at most, from now on; 0: as the window lets them.
  void pace(FlowId flow, double bytes_per_second);
  double pace_of(FlowId flow) const { return flow < paces_.size() ? paces_[flow].bytes_per_second : 0; }
  std::int64_t delivered_bytes(FlowId flow) const { return receivers_[flow].delivered; }
  std::int64_t unsent_bytes(FlowId flow) const { return senders_[flow].unsent; }
  // Smoothed; 0: not measured yet.
  Picoseconds round_trip(FlowId flow) const { return senders_[flow].round_trip; }
  // What an end knows of the other one: when the last acknowledgement came, and, of the flow that comes from
  // there, when its last segment did.
  Picoseconds answered(FlowId flow) const { return senders_[flow].answered; }
  Picoseconds heard(FlowId flow) const { return receivers_[flow].heard; }

  // From the network and the event queue.
  void on_packet(Packet* packet, Picoseconds now);
  void on_timer(FlowId flow, Picoseconds now);

  std::size_t flows() const { return senders_.size(); }
  const FlowOptions& ends(FlowId flow) const { return flows_[flow]; }
  FlowCounters counters(FlowId flow) const;
  std::int64_t window_bytes(FlowId flow) const { return senders_[flow].window; }
  const TransportOptions& options() const { return options_; }

 private:
  enum class State : std::uint8_t { in_flight, sent_again, lost, acknowledged };
  struct Segment {
    Picoseconds sent = 0;
    std::uint16_t bytes = 0;
    State state = State::in_flight;
  };
  struct Sender {
    std::vector<Segment> ring;     // segment n is at n % size, a power of two
    std::uint32_t first = 0;       // the oldest not known to have arrived
    std::uint32_t next = 0;        // the next new one
    std::uint32_t scan = 0;        // those before have been looked at for losses
    std::uint32_t window_end = 0;  // alpha is renewed when `first` gets there
    std::uint32_t recover = 0;     // no second cut before `first` gets there
    std::int64_t unsent = 0;
    std::int64_t in_flight = 0;     // bytes
    std::int64_t window = 0;        // bytes
    std::int64_t threshold = 0;     // slow start below
    std::int64_t growth = 0;        // acknowledged bytes that have not grown the window yet
    std::int64_t acknowledged = 0;  // bytes since alpha was renewed, and those of them that were marked
    std::int64_t marked = 0;
    std::int64_t alpha = 0;      // of 2^20
    Picoseconds newest = 0;      // the latest send time that was acknowledged
    std::uint32_t highest = 0;   // the highest number acknowledged, plus one
    Picoseconds round_trip = 0;  // smoothed; 0: not measured
    Picoseconds deviation = 0;
    Picoseconds deadline = kNever;
    Picoseconds timer_at = kNever;  // of the event that is pending
    int backoff = 0;
    std::uint32_t spread = 0;
    Picoseconds answered = 0;
    std::int64_t low_water = 0;
    RingQueue<std::uint32_t> lost;        // to be sent again
    RingQueue<std::uint32_t> sent_again;  // in the order of sending
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
  struct Pace {
    double bytes_per_second = 0;  // 0: none
    TransmitTime gap;
    Picoseconds clear = 0;         // when the next segment may go
    Picoseconds wake_at = kNever;  // of the event that is pending
  };

  void on_segment(Packet* packet, Picoseconds now);
  void on_acknowledgement(Packet* packet, Picoseconds now);
  void pump(FlowId flow, Picoseconds now);
  void transmit(FlowId flow, std::uint32_t number, Picoseconds now);
  bool clear_to_send(FlowId flow, Picoseconds now);
  std::int64_t acknowledge(Sender& s, std::uint32_t number);
  void find_losses(Sender& s);
  void lose(Sender& s, std::uint32_t number);
  void cut(Sender& s, std::int64_t window);
  void grow(Sender& s, std::int64_t bytes, bool limited);
  void measure(Sender& s, Picoseconds round_trip);
  void renew_alpha(Sender& s);
  void set_timer(FlowId flow, Picoseconds now);
  Picoseconds timeout(const Sender& s) const;
  static void make_room(Sender& s, Receiver& r);

  const TransportOptions options_;
  Network& network_;
  EventQueue& events_;
  FlowClient& client_;
  Random random_;
  std::vector<FlowOptions> flows_;
  std::vector<Sender> senders_;
  std::vector<Receiver> receivers_;
  std::vector<Pace> paces_;  // up to the last flow that ever had one
};

}  // namespace talweg::sim
