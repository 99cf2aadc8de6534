// Flight: how many bytes of transfers that may lose a part are on their way to one node, and how many of its
// own have come: rate control for streams whose packets are not acknowledged one by one.
//
//   while (flight.allowed(now_ns)) { flight.sent(number, bytes, now_ns); send that datagram of data by
//                                    flight.path(); it asks if flight.fills(bytes) or there is nothing more
//                                    to be sent; if (flight.trial(now_ns)) send it a second time; }
//   flight.on_acknowledgement(payload, came_ns, now_ns);
//   flight.on_time(now_ns) after these, and at flight.next_time_ns(now_ns, wants to send) or soon after
//
//   flight.received(number, asks, marked, came_ns, now_ns);  // at the other end: each datagram of data
//   flight.passed(number);                                   // and each other one
//   flight.end_of_batch();                                   // nothing more is there to be received right now
//   while (flight.acknowledgement_due(now_ns)) flight.acknowledge(now_ns, header, payload), seal and send it;
//
// The numbers are those of the sealer. Acknowledgements are DatagramFlow's (wire/flow_packets.h), without
// channels: what has come, for how long the answer was held, and the receiver's credit, which is its share of
// a socket's buffer: all senders together never have more on their way than fits there. Lost datagrams are
// not sent again here. The receiver of a transfer says what it misses (inflow.h).
//
// The delay decides (rate_control.h). A loss is no sign of a queue where losses are expected: only more than
// kHeavyLoss of the packets is.
//
// Pure: no clock, no socket. Its memory is taken when it is made.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "protocol/datagram/arrivals.h"
#include "protocol/datagram/burst_pacer.h"
#include "protocol/datagram/paths.h"
#include "protocol/datagram/rate_control.h"
#include "protocol/datagram/round_trip.h"
#include "protocol/datagram/sent_packets.h"
#include "wire/datagram.h"
#include "wire/flow_packets.h"

namespace talweg::protocol {

struct FlightOptions {
  std::uint32_t credit = 64U << 10;        // bytes that the other node may have on their way to this one
  std::uint32_t other_credit = 64U << 10;  // and this one to the other, until it says something else
  std::size_t datagram = 1500;             // bytes of the largest, IP header included
  std::size_t packets = 4096;              // on their way at most; a power of two
  std::size_t paths = 1;                   // by which this node may send; 1 .. kMostPaths
  // By the delay alone: losses that are expected do not tell how much room a queue has.
  RateOptions rate{.queue_bytes = 0};
};

// What has happened so far; each a path that tests must have taken.
struct FlightCounters {
  std::uint64_t sent = 0;
  std::uint64_t arrived = 0;
  std::uint64_t lost = 0;          // something newer had arrived, by the same path or long ago
  std::uint64_t heavy_losses = 0;  // more than are expected
  std::uint64_t timeouts = 0;      // nothing was heard: what was on its way counts as gone
  std::uint64_t credit_waits = 0;  // the other node's credit was used up
  std::uint64_t rate_waits = 0;    // the rate control's window was
  std::uint64_t marks = 0;
  std::uint64_t trials = 0;             // datagrams that left a second time to try a path
  std::uint64_t arrived_after_all = 0;  // what had been taken for lost
  std::uint64_t malformed = 0;
  bool operator==(const FlightCounters&) const = default;
};

class Flight {
 public:
  static constexpr double kHeavyLoss = 0.1;

  explicit Flight(const FlightOptions& options);

  // One of the largest datagrams may leave, by path().
  bool allowed(std::int64_t now_ns);
  std::size_t path() const { return path_; }
  // A path wants a datagram that nothing depends on, by path() as well: the one that has just left will do.
  bool trial(std::int64_t now_ns);
  // For one that is not of data.
  std::size_t control_path(std::int64_t now_ns) { return paths_.unanswered(now_ns); }
  // With so many bytes more no other one may leave before something has come; or the window is so small that
  // each one should ask.
  bool fills(std::size_t bytes) const {
    const double window = std::min(rate_.window(), static_cast<double>(other_credit_));
    return this->window(bytes) != Window::open ||
           window < Arrivals::kSmallWindow * static_cast<double>(options_.datagram);
  }
  // `bytes`: of the datagram, IP header included. After allowed(), or trial().
  void sent(std::uint64_t number, std::size_t bytes, std::int64_t now_ns);
  // `came_ns`: when it came to this machine.
  void on_acknowledgement(std::span<const std::byte> payload, std::int64_t came_ns, std::int64_t now_ns);

  void received(std::uint64_t number, bool asks, bool marked, std::int64_t came_ns, std::int64_t now_ns);
  // Another one of that node's: control, or an acknowledgement.
  void passed(std::uint64_t number) { arrivals_.passed(number); }
  void end_of_batch() { arrivals_.end_of_batch(); }
  bool acknowledgement_due(std::int64_t now_ns) const { return arrivals_.due(now_ns); }
  // About how much later than newer ones some of that node's data have come of late.
  std::int64_t lateness_ns() const { return arrivals_.lateness_ns(); }
  // Fills in type, class and length, and writes at most kMostAckBytes.
  void acknowledge(std::int64_t now_ns, wire::DatagramHeader& header, std::byte* payload);

  // What of the queue on the way may be this one's, from now on.
  void set_queue(double bytes) { rate_.set_queue(bytes); }

  void on_time(std::int64_t now_ns);
  // SentPackets::kNever: nothing is waited for.
  std::int64_t next_time_ns(std::int64_t now_ns, bool wants_to_send) const;

  const FlightCounters& counters() const { return counters_; }
  const RoundTrip& round_trip() const { return rtt_; }
  const PathChooser& paths() const { return paths_; }
  double congestion_window() const { return rate_.window(); }
  std::uint64_t bytes_on_their_way() const { return sent_.bytes_on_their_way(); }

 private:
  enum class Window : std::uint8_t { open, no_credit, rate_full };
  Window window(std::size_t more = 0) const;
  void on_fate(bool lost, std::size_t path, std::int64_t now_ns);
  void find_lost(std::int64_t now_ns);
  // Of what has left by that path.
  const RoundTrip& trip(std::size_t path) const { return paths_.several() ? paths_.trip(path) : rtt_; }
  std::int64_t timeout_at() const;

  const FlightOptions options_;
  SentPackets sent_;
  PathChooser paths_;
  std::size_t path_ = 0;
  bool trial_ = false;  // the next one is
  RoundTrip rtt_;
  RateControl rate_;
  BurstPacer pacer_;
  std::uint32_t other_credit_;
  std::uint32_t other_marked_ = 0;
  std::uint64_t newest_credit_ = 0;  // the highest number that was acknowledged when it was told
  double loss_ = 0;                  // moving average of how large a part is lost
  bool window_was_full_ = false;
  double first_window_ = 0;      // when the first answer came; 0: none has
  double arrived_bytes_ = 0;     // since then
  unsigned missed_ = 0;          // timeouts since anything was heard
  std::int64_t heard_ns_ = 0;    // or given up
  std::int64_t awaited_ns_ = 0;  // since when anything is waited for
  bool news_ = false;            // something has been acknowledged since losses were looked for

  Arrivals arrivals_;

  FlightCounters counters_;
};

}  // namespace talweg::protocol
