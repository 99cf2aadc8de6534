// Dctcp: a transport whose senders keep a window that reacts to congestion marks.
//
// Window (RFC 8257). It doubles every round trip until the first mark or loss, then grows by a segment per
// round trip. Once a window has passed, alpha moves by 1/16 toward the share of its bytes that were marked;
// a window with marks is cut by alpha / 2, once. A loss halves it, once per window. One that is not used does
// not grow: it has to have held something back since a window ago, or, while it doubles, half of it to have
// been on its way (RFC 7661, as Linux has it). What waits for its host's turn uses none, whoever fills the
// host's link. All in integers, so that a run does not depend on a compiler's floating point.
//
// Loss recovery. A segment is lost when one three numbers above it has been acknowledged that was sent after
// it (with `spray` a round trip after it: other paths may be that much quicker); or when its trimmed header
// comes. What is still missing when the retransmission timer ends (smoothed round trip + 4 deviations, at
// least `least_rto`, doubling up to `most_rto`) is all taken for lost and the window falls to its least. A
// flow has one timer event pending, put off when it fires early, so an acknowledgement costs no event.
//
// Acknowledgements. A receiver answers every `ack_every`th segment, as TCP's do (RFC 5681, section 4.2), and
// before that at once
//   - where a segment is not the next one, or closes a gap, or has been trimmed: senders learn of losses;
//   - where the last was marked and this one is not, or the other way round: first what is held back is
//     answered as it came, then the segment, so that senders know how many bytes were marked (RFC 8257,
//     section 3.2, as Linux has it);
//   - where a segment ends what there was to be sent, as TCP does where PSH is set and its reader has taken all;
//     or where the window has room for no second one, which TCP would wait for;
//   - of the first 16 acknowledgements of a flow, and again after a rest as long as a retransmission timer,
//     each one: windows that are small or begin anew wait for nothing (Linux's quick acknowledgements);
//   - when a fifth of `least_rto` has passed, as Linux's 40 ms are of its 200: no retransmission timer runs
//     out meanwhile. That is where a pace, or others' turns, hold up the next segment.
// A flow has one event pending for that, which is put off as the retransmission timer's is.
//
// Pace. A flow may be held to a rate below what its window lets pass, as Linux paces sockets; what is sent
// again is not held up.
//
// Demotion (`demote_bytes`). The more of a message has been sent, retransmissions included, the lower the
// priority of what follows, as PIAS (Bai et al., NSDI 2015) has it: where queues have priorities, short
// messages pass long ones of which nobody knows how long they are.
#pragma once

#include <vector>

#include "sim/transport.h"

namespace talweg::sim {

class Dctcp final : public Transport {
 public:
  Dctcp(const TransportOptions& options, Network& network, EventQueue& events, FlowClient& client,
        std::uint64_t seed)
      : Transport(options, network, events, client, seed),
        demotes_(options.demote_bytes[0] > 0),
        answer_delay_(picoseconds(options.least_rto) / kRtoOverAnswerDelay) {}

  std::int64_t window_bytes(FlowId flow) const override { return windows_[flow].bytes; }
  void pace(FlowId flow, double bytes_per_second) override;
  double pace_of(FlowId flow) const override {
    return flow < paces_.size() ? paces_[flow].bytes_per_second : 0;
  }
  void on_packet(Packet* packet, Picoseconds now) override;
  void on_timer(std::uint32_t target, Picoseconds now) override;

 private:
  static constexpr int kRtoOverAnswerDelay = 5;
  static constexpr std::uint8_t kQuickAnswers = 16;

  struct alignas(64) Window {
    std::int64_t bytes = 0;
    std::int64_t threshold = 0;     // slow start below
    std::int64_t growth = 0;        // acknowledged bytes that have not grown the window yet
    std::int64_t acknowledged = 0;  // bytes since alpha was renewed, and those of them that were marked
    std::int64_t marked = 0;
    std::int64_t alpha = 0;               // of 2^20
    Picoseconds newest = 0;               // the latest send time that was acknowledged
    std::uint32_t highest = 0;            // the highest number acknowledged, plus one
    std::uint32_t scan = 0;               // those before have been looked at for losses
    std::uint32_t window_end = 0;         // alpha is renewed when `first` gets there
    std::uint32_t recover = 0;            // no second cut before `first` gets there
    std::uint32_t use_end = 0;            // `most` and `full` begin anew when `first` gets there
    bool full = false;                    // since then it has held something back
    std::int64_t most = 0;                // bytes on their way since then
    RingQueue<std::uint32_t> sent_again;  // in the order of sending
  };
  struct Pace {
    double bytes_per_second = 0;  // 0: none
    TransmitTime gap;
    Picoseconds clear = 0;         // when the next segment may go
    Picoseconds wake_at = kNever;  // of the event that is pending
  };
  // What a receiver has not answered yet.
  struct Unanswered {
    Packet* packet = nullptr;  // the newest; null: nothing
    int segments = 0;
    std::uint32_t beyond = 0;            // the highest number that has come, plus one
    std::uint8_t quick = kQuickAnswers;  // segments that are still to be answered at once
    bool marked = false;                 // as the newest segment was, answered or not
    Picoseconds deadline = kNever;
    Picoseconds wake_at = kNever;  // of the event that is pending
  };

  void opened(FlowId flow) override;
  void pump(FlowId flow, Picoseconds now) override;
  bool send_one(FlowId flow, Picoseconds now);
  void transmit(FlowId flow, std::uint32_t number, Picoseconds now);
  void demote(FlowId flow, Packet& packet);
  bool clear_to_send(FlowId flow, Picoseconds now);
  // send_one() for whoever gives turns.
  auto sender(Picoseconds now);
  void on_segment(Packet* packet, Picoseconds now);
  void answer_unanswered(Unanswered& u, Picoseconds now);
  void on_answer_timer(FlowId flow, Picoseconds now);
  void on_acknowledgement(Packet* packet, Picoseconds now);
  void find_losses(Sender& s, Window& w);
  void cut(const Sender& s, Window& w, std::int64_t window) const;
  void grow(Window& w, std::int64_t bytes) const;
  static void use(const Sender& s, Window& w);
  static void renew_alpha(const Sender& s, Window& w);
  void set_timer(FlowId flow, Picoseconds now);

  std::vector<Window> windows_;
  std::vector<Pace> paces_;             // up to the last flow that ever had one
  std::vector<Unanswered> unanswered_;  // by flow; empty where each segment is answered at once
  const bool demotes_;
  const Picoseconds answer_delay_;
  std::vector<std::int64_t> sent_;  // of its message, by flow; where segments are demoted
};

}  // namespace talweg::sim
