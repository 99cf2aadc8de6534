// PFabric: a transport whose senders say how much is left and leave the rest to the switches, as pFabric
// (Alizadeh et al., SIGCOMM 2013) has it. Made for shallow switches that send what has least left first, and
// drop what has most (QueuePolicy::least_left_first).
//
// What is left of a flow is what was written and is not acknowledged: a stream that is written little by
// little counts as long as what it has been given. Every segment says it as of when it is sent (also again);
// answers say 0, and so go first. A host's link serves its flows in the same order.
//
// Rate control is minimal. A flow begins with the window that its path holds, bandwidth times round trip, and
// never has more. Losses are found by time alone: a segment that has not been answered for `least_rto` (three
// round trips of the path) is sent again, and the window begins anew with one segment: it doubles every round
// trip up to half of what it was, and then grows by a segment per round trip. After five such timeouts
// without an answer the flow only probes, with a packet that has a byte of payload, until one is answered.
// Probes are as frequent as the timeouts, but rarer and rarer after a while: what a failure has cut off for
// good should not keep a run busy.
#pragma once

#include <vector>

#include "sim/transport.h"

namespace talweg::sim {

class PFabric final : public Transport {
 public:
  PFabric(const TransportOptions& options, Network& network, EventQueue& events, FlowClient& client,
          std::uint64_t seed);

  std::int64_t window_bytes(FlowId flow) const override { return windows_[flow].bytes; }
  void on_packet(Packet* packet, Picoseconds now) override;
  void on_timer(std::uint32_t target, Picoseconds now) override;

 private:
  struct Window {
    std::int64_t bytes = 0;
    std::int64_t acknowledged = 0;  // of what was written
    std::int64_t most = 0;
    std::int64_t threshold = 0;  // it doubles below
    std::int64_t growth = 0;     // acknowledged bytes that have not grown the window yet
    Picoseconds timeout = 0;
    Picoseconds cut = -1;  // the last time; what was sent before does not cut it again
  };

  void opened(FlowId flow) override;
  std::int64_t left(FlowId flow) const override {
    return senders_[flow].written - windows_[flow].acknowledged;
  }
  void pump(FlowId flow, Picoseconds now) override;
  bool send_one(FlowId flow, Picoseconds now);
  void transmit(FlowId flow, std::uint32_t number, bool probe, Picoseconds now);
  auto sender(Picoseconds now);
  void on_answer(Packet* packet, Picoseconds now);
  void grow(Window& w, std::int64_t bytes) const;
  void arm(FlowId flow, Picoseconds when);
  void on_flow_timer(FlowId flow, Picoseconds now);

  std::vector<Window> windows_;
};

}  // namespace talweg::sim
