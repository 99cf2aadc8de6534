// DatagramFlow: bytes over datagrams, exactly once and in order, on several channels, between two nodes. One
// object at each end. What is below may lose, repeat, delay and exchange datagrams; what it damages, the
// opener (wire/datagram_cipher.h) has thrown away before.
//
//   flow.write(channel, bytes);                              // as much as there is room for
//   while (flow.next(sealer.number(), now, header, payload)) seal and send it, by flow.path();
//   flow.on_datagram(header, payload, marked, now);          // each that was opened
//   flow.end_of_batch();                                     // nothing more is there to be received right now
//   for (auto bytes = flow.readable(c); !bytes.empty(); ...) flow.consumed(c, what was used);
//   flow.on_time(now) at flow.next_time(now) or soon after, and then the loop around next() again
//
// Every datagram has a number of its own, also where it brings again what another one has lost. So an
// acknowledgement of numbers says which of them arrived and how long that took. Frames are cut from the bytes
// by wire::FrameReader, and written as such by wire::FrameWriter.
//
// Three things hold a sender back: the credit of each channel, which is the room in its receiver's buffer;
// the window of the receiver's socket, which drops what is over it; the rate control, which looks at the way
// between. A lost acknowledgement of credit is asked for by a probe.
//
// Pure: no clock, no socket. Its memory is taken when it is made, but for lists of holes, which are bounded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "protocol/datagram/arrivals.h"
#include "protocol/datagram/burst_pacer.h"
#include "protocol/datagram/channel_buffers.h"
#include "protocol/datagram/loss_cause.h"
#include "protocol/datagram/paths.h"
#include "protocol/datagram/queue_share.h"
#include "protocol/datagram/rate_control.h"
#include "protocol/datagram/round_trip.h"
#include "protocol/datagram/sent_packets.h"
#include "wire/datagram.h"
#include "wire/flow_packets.h"

namespace talweg::protocol {

// Both ends have the same channels and receive_bytes.
struct FlowOptions {
  std::size_t channels = 1;              // 1 .. wire::kFlowChannels
  std::size_t send_bytes = 1U << 20;     // of one channel that may wait for their arrival
  std::size_t receive_bytes = 1U << 20;  // of one channel that may wait to be read: its credit
  std::uint32_t window = 1U << 20;       // bytes for which this end's socket has room, of this sender
  std::size_t payload = 1400;            // of the largest datagram: wire::datagram_payload()
  std::size_t around = 28 + 48;          // bytes of a datagram beside its payload
  std::size_t packets = 4096;            // on their way at most; a power of two
  std::size_t paths = 1;                 // by which this end may send; 1 .. kMostPaths
  RateOptions rate;
  std::shared_ptr<QueueShare> share;  // of rate.queue_bytes, with others; null: all are this flow's
};

// What has happened so far; each a path that tests must have taken.
struct FlowStatistics {
  std::uint64_t datagrams_sent = 0;
  std::uint64_t bytes_sent = 0;  // of channels, repetitions included
  std::uint64_t bytes_sent_again = 0;
  std::uint64_t acknowledgements_sent = 0;
  std::uint64_t lost_by_gap = 0;        // something newer had arrived by the same path
  std::uint64_t lost_by_silence = 0;    // by others, and for long nothing by that one
  std::uint64_t lost_alike = 0;         // times that losses were none of the queue's
  std::uint64_t arrived_after_all = 0;  // what had been taken for lost
  std::uint64_t timeouts = 0;           // nothing had been heard; each sends a probe
  std::uint64_t early_probes = 0;       // nothing more could be sent, and no answer came
  std::uint64_t silences = 0;           // several in a row: the rate begins anew
  std::uint64_t credit_waits = 0;       // timeouts while only credit was missing
  std::uint64_t window_waits = 0;       // the socket's window was full
  std::uint64_t given_up = 0;           // too many were on their way for a probe to leave: the oldest is lost
  std::uint64_t marks = 0;              // of the network, told by the other side
  std::uint64_t known = 0;              // bytes came that had come before
  std::uint64_t early = 0;              // bytes came before others that belong in front of them
  std::uint64_t no_room = 0;            // bytes beyond their credit
  std::uint64_t too_scattered = 0;      // bytes that would have made one hole too many
  std::uint64_t malformed = 0;          // authentic, but nonsense
  std::uint64_t refused = 0;            // not taken by the kernel, or too large for the path
  std::uint64_t trials = 0;             // probes of paths that are not in use, or of which nothing was heard
  bool operator==(const FlowStatistics&) const = default;
};

class DatagramFlow {
 public:
  // Throws Error{invalid_argument} for options out of range.
  explicit DatagramFlow(const FlowOptions& options);

  // Takes as many bytes as there is room for; how many. They are copied.
  std::size_t write(std::size_t channel, std::span<const std::byte> bytes);
  std::size_t room(std::size_t channel) const { return out_[channel].room(); }
  // Bytes of a channel that have not left for the first time: an urgent one waits behind them.
  std::uint64_t unsent(std::size_t channel) const { return out_[channel].never_sent(); }
  // Everything that was ever written has arrived.
  bool all_arrived() const;

  std::span<const std::byte> readable(std::size_t channel) const { return in_[channel].readable(); }
  void consumed(std::size_t channel, std::size_t bytes);

  // The next datagram that should leave now: fills in type, own16, service and length of the header and
  // writes the payload, up to options.payload bytes. False: none. `number` is the one that it will have; it
  // must leave, or not_sent() be called.
  bool next(std::uint64_t number, std::int64_t now_ns, wire::DatagramHeader& header, std::byte* payload);
  void not_sent(std::uint64_t number);
  // By which path that datagram is to leave: 0 .. options.paths - 1, each with a source port of its own.
  std::size_t path() const { return path_; }

  // `payload` has header.length bytes. `marked`: with ECN's "congestion experienced". `waited_ns`: since the
  // network brought it, until it was looked at.
  void on_datagram(const wire::DatagramHeader& header, std::span<const std::byte> payload, bool marked,
                   std::int64_t now_ns, std::int64_t waited_ns = 0);
  // What has come is acknowledged with the next datagram.
  void end_of_batch() { arrivals_.end_of_batch(); }
  void on_time(std::int64_t now_ns);
  // When on_time() and next() have something to do, if nothing comes before; SentPackets::kNever: nothing.
  std::int64_t next_time(std::int64_t now_ns) const;

  // Asks the other side for a sign of life, with the next datagram.
  void ask() {
    probe_due_ = true;
    size_tries_ = 0;
  }
  // As ask(), with a datagram of the full size; and where no answer comes, with ever smaller ones. When one
  // of these is answered, and the full size once more is not, none is larger from then on. It asks itself
  // where answers come and data do not arrive for long: a path may have come to take only smaller ones, and
  // not say so.
  // `passes`: of one smaller than the full size that is known, and none between is tried; 0: of none.
  void ask_for_size(std::size_t passes = 0) {
    probe_due_ = true;
    size_tries_ = 1;
    size_from_ = sent_.next_number();
    size_answered_ = passes < payload_ ? passes : 0;
  }
  // As ask(), with the next datagram, once, and one of the n-th of those sizes, of which 0 is the full one.
  static constexpr std::size_t kSizes = 4;
  void ask_with_size(std::size_t n);
  // The largest of these that was answered since the full size was asked with; 0: none.
  std::size_t answered_size() const { return size_seen_; }
  // From now on datagrams have payloads of so many bytes at most: a path or a card takes no more.
  void set_payload(std::size_t bytes);
  std::size_t payload() const { return payload_; }
  // At most so many bytes per second, whatever the rate control says; 0: as it says.
  void set_pace(double bytes_per_second) { pace_ = bytes_per_second; }

  const FlowStatistics& statistics() const { return statistics_; }
  const RoundTrip& round_trip() const { return rtt_; }
  const PathChooser& paths() const { return paths_; }
  double congestion_window() const { return rate_.window(); }
  std::uint64_t bytes_on_their_way() const { return sent_.bytes_on_their_way(); }
  std::uint64_t bytes_arrived() const;  // at the other end, of what was written here
  // Timeouts in a row since something was heard of what is waited for.
  unsigned missed() const { return missed_; }
  // All that the newest acknowledgement told were trials of paths, which are small: others may not pass.
  bool only_trials() const { return only_trials_; }
  bool acknowledgement_due(std::int64_t now_ns) const { return arrivals_.due(now_ns); }

 private:
  void make_acknowledgement(std::int64_t now_ns, wire::DatagramHeader& header, std::byte* payload);
  bool make_data(std::uint64_t number, std::int64_t now_ns, wire::DatagramHeader& header, std::byte* payload);
  void make_probe(std::uint64_t number, std::int64_t now_ns, wire::DatagramHeader& header,
                  std::byte* payload);
  bool make_trial(std::uint64_t number, std::int64_t now_ns, wire::DatagramHeader& header);
  void make_empty(std::uint64_t number, std::int64_t now_ns, wire::DatagramHeader& header, bool trial);
  std::size_t size_to_try();
  bool data_in_doubt() const;
  void look_at_size(std::size_t arrived, std::int64_t now_ns);
  void send_piece(std::uint64_t number, std::int64_t now_ns, std::size_t channel,
                  const SendBuffer::Piece& piece, wire::DatagramHeader& header, std::byte* payload);
  std::size_t channel_with_data() const;
  enum class Window : std::uint8_t { open, full, rate_full };
  Window window() const;
  bool window_is_small() const;
  bool may_send() const { return !sent_.full() && window() == Window::open; }
  void on_lost(const SentPacket& packet);
  void share_queue();
  bool few_on_their_way() const;
  bool waits_for_credit() const;
  void on_data(const wire::DatagramHeader& header, std::span<const std::byte> payload);
  void on_acknowledgement(const wire::DatagramHeader& header, const wire::Acknowledgement& ack,
                          std::int64_t now_ns, std::int64_t came_ns);
  void find_lost(std::int64_t now_ns);
  // Of what has left by that path.
  const RoundTrip& trip(std::size_t path) const { return paths_.several() ? paths_.trip(path) : rtt_; }
  std::int64_t timeout_at() const;
  std::int64_t early_probe_at() const;

  const FlowOptions options_;
  std::size_t payload_;
  std::vector<SendBuffer> out_;
  std::vector<ReceiveBuffer> in_;
  std::size_t turn_ = 0;  // the channel that sends next

  SentPackets sent_;
  PathChooser paths_;
  bool asked_again_ = false;  // by who may not have had the answer
  std::size_t path_ = 0;
  bool stirred_ = false;  // something has left since paths were looked at
  RoundTrip rtt_;
  RateControl rate_;
  QueueShare::Part share_;
  double queue_bytes_;  // of this flow
  LossCause cause_;     // of one path
  BurstPacer pacer_;
  double pace_ = 0;
  std::uint32_t other_window_;
  std::uint32_t other_marked_ = 0;
  std::uint64_t newest_ack_ = 0;  // one past the number of the newest acknowledgement that has come
  bool window_was_full_ = false;
  unsigned missed_ = 0;
  bool only_trials_ = false;
  bool probe_due_ = false;
  std::uint64_t probed_ = 0;           // the number of the newest probe
  bool probed_early_ = false;          // since something was heard
  bool only_asks_ = false;             // the probe that is due: nothing is sent again with it
  std::size_t size_tries_ = 0;         // which one is next; 0: the size of what passes is not asked for
  std::uint64_t size_from_ = 0;        // the first that may have asked for it
  std::size_t size_once_ = 0;          // with which is asked next; 0: none
  std::size_t size_seen_ = 0;          // the largest of these that was answered
  std::size_t size_answered_ = 0;      // less than the full size; 0: nothing yet
  std::uint64_t arrived_bytes_ = 0;    // when it was looked at last
  std::int64_t doubt_since_ns_ = 0;    // nothing more has arrived of what has left
  std::int64_t waiting_since_ns_ = 0;  // for credit, or for what is on its way

  Arrivals arrivals_;
  std::vector<std::uint64_t> told_limit_;

  FlowStatistics statistics_;
};

}  // namespace talweg::protocol
