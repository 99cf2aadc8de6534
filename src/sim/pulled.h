// Pulled: a transport whose receivers ask for packets at the rate at which they can receive them, as NDP
// (Handley et al., SIGCOMM 2017) and EQDS (Olteanu et al., NSDI 2022) have it. Made for switches that trim:
// short queues, and what does not fit arrives as a header, ahead of all data.
//
// What goes unasked. A flow that its receiver owes no pulls sends a first window at once, at the rate of its
// link: `first_window` segments (NDP), or as many as its path holds, bandwidth times round trip (EQDS:
// speculative packets). Every segment says how many more wait that must be asked for.
//
// Answers. A segment that arrives whole is acknowledged, a header is refused (an acknowledgement with
// kTrimmed), both at once. What was refused joins the segments to be sent again, in front of all new ones,
// and goes when the next pull comes: one packet for each pull, so a link that was too full once is not
// filled again.
//
// Pulls. A receiver asks its flows in turn, one packet each, and no faster than full packets come through
// its link. It asks a flow for what was announced and for what was refused, as long as fewer packets than a
// window (EQDS: two) were asked for and have not come. Pulls are counted from the beginning of the flow, and
// each answer carries the count: a lost pull is made good by the next answer, and where the pace allows a
// pull at once, the acknowledgement is the pull.
//
// Timers. Trimming tells of every packet that a queue had no room for. What the wire has lost is sent again,
// unasked, when it has not been answered for a timeout (as Dctcp's); a flow that waits for pulls and has
// nothing in flight then sends one packet, whose answer brings the count.
//
// Window and pulls count segments, not bytes: a pull for a short segment costs the receiver as much time as
// one for a full one.
#pragma once

#include <vector>

#include "sim/transport.h"

namespace talweg::sim {

class Pulled final : public Transport {
 public:
  Pulled(const TransportOptions& options, Network& network, EventQueue& events, FlowClient& client,
         std::uint64_t seed);

  std::int64_t window_bytes(FlowId flow) const override {
    return static_cast<std::int64_t>(askers_[flow].most_asked) * options_.payload_bytes;
  }
  void on_packet(Packet* packet, Picoseconds now) override;
  void on_timer(std::uint32_t target, Picoseconds now) override;
  // Likewise, of what this kind has beside the others.
  void fetch_own(FlowId flow, int node) const {
    __builtin_prefetch(&givers_[flow], 1);
    __builtin_prefetch(&askers_[flow], 1);
    __builtin_prefetch(&hosts_[static_cast<std::size_t>(node)], 1);
  }
  void fetch_timer(std::uint32_t target, int slots) const;

 private:
  static constexpr FlowId kNoFlow = ~0U;

  // Counts of segments since the flow began wrap; only their differences mean something.
  struct Giver {                  // a flow's sender
    std::uint32_t granted = 0;    // pulls that it knows of
    std::uint32_t used = 0;       // of these
    std::uint32_t new_asked = 0;  // segments that went on a pull for the first time
    std::uint32_t announced = 0;  // those, and the ones that the receiver was told of
    std::uint32_t refused = 0;    // headers that were answered
    std::uint32_t unasked = 0;    // segments that may go without a pull
    std::uint32_t overdue = 0;    // segments that may be sent again without one
  };
  struct Asker {  // its receiver
    std::uint32_t announced = 0;
    std::uint32_t headers = 0;  // that came
    std::uint32_t granted = 0;
    std::uint32_t arrived = 0;     // of what was asked for, headers included
    std::uint32_t window = 0;      // that may go unasked
    std::uint32_t most_asked = 0;  // and not arrived
    bool listed = false;           // among those that its host will ask
  };
  struct Host {
    RingQueue<FlowId> listed;  // in the order in which they will be asked
    Picoseconds pace = 0;      // from pull to pull
    Picoseconds next = 0;      // no pull before
    bool pending = false;      // an event is, at `next`
  };

  void opened(FlowId flow) override;
  void pump(FlowId flow, Picoseconds now) override;
  bool send_one(FlowId flow, Picoseconds now);
  auto sender(Picoseconds now);
  void announce(const Sender& s, Giver& g) const;
  std::uint32_t segments_in(std::int64_t bytes) const;
  void on_segment(Packet* packet, Picoseconds now);
  void on_answer(Packet* packet, Picoseconds now);
  bool wants(const Asker& a) const;
  void list(FlowId flow, Host& host);
  FlowId ask(Host& host, Picoseconds now);
  void wait_for_pace(int node, Host& host);
  void send_pull(FlowId flow, Picoseconds now);
  void on_flow_timer(FlowId flow, Picoseconds now);
  void arm(FlowId flow, Picoseconds when);

  std::vector<Giver> givers_;
  std::vector<Asker> askers_;
  std::vector<Host> hosts_;  // by node
};

}  // namespace talweg::sim
