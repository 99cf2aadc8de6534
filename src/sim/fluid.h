// Fluid: a transport without packets, for quick what-if runs. Flows with something to send have max-min
// fair rates (max_min.h) on the links of their paths and on shared capacities. Rates change when flows begin,
// end or are routed anew; an event is such a change, or something that somebody waits for.
//
// What it counts: headers of full packets; acknowledgements, as capacity that the links back lack; and the
// time from when a byte is sent until it has arrived: latencies, and a packet's own time on every link but
// the first. What it leaves out: windows and the time they take to open, queues, losses, priorities, bursts
// of links. So long flows end within a few per cent of when packets do, short ones too early.
//
// Rates follow a change within kPause: changes at nearly the same time cost one filling. Rates and what they
// come to are real numbers; only additions, products and quotients decide, in a fixed order, so that all
// machines give the same run.
#pragma once

#include <vector>

#include "sim/max_min.h"
#include "sim/transport.h"

namespace talweg::sim {

class Fluid final : public Transport {
 public:
  static constexpr Picoseconds kPause = 1'000'000;  // a microsecond

  Fluid(const TransportOptions& options, Network& network, EventQueue& events, FlowClient& client,
        std::uint64_t seed, const Picoseconds& clock);

  std::int64_t window_bytes(FlowId) const override { return options_.most_window_bytes; }
  void notify_at(FlowId flow, std::int64_t bytes) override;
  void notify_below(FlowId flow, std::int64_t low_water) override;
  void on_packet(Packet* packet, Picoseconds now) override;
  void on_timer(std::uint32_t target, Picoseconds now) override;
  void on_reroute(Picoseconds now) override;
  void count(Picoseconds now) override;

 private:
  // Targets of timers beside flows: from here on flows something of which arrives; the last: a filling.
  static constexpr std::uint32_t kArrival = kMostFlows;
  static constexpr std::uint32_t kFill = EventQueue::kMaxTargets - 1;

  struct Stream {
    std::vector<MaxMin::Use> there;  // what a byte of payload takes of each resource; and its acknowledgement
    std::vector<MaxMin::Use> back;
    double sent = 0;  // bytes of payload, at `since`
    double rate = 0;  // bytes per second
    Picoseconds since = 0;
    Picoseconds stopped = 0;     // when it had sent all
    Picoseconds latency = 0;     // of its path
    Picoseconds byte_time = 0;   // on all links of it but the first, of 1024 bytes
    Picoseconds wake = kNever;   // the next time that matters
    Picoseconds event = kNever;  // of the event that is pending: at `wake` or before
    std::int64_t due = 0;        // bytes that will have arrived when what is on the way has
    std::size_t place = 0;       // among the active ones
    // The network's changes when its path was found.
    std::uint64_t reroutes = ~std::uint64_t{0};
    bool active = false;
    bool arriving = false;
  };

  void opened(FlowId flow) override;
  void pump(FlowId flow, Picoseconds now) override;
  void find_path(FlowId flow);
  void add_uses(std::vector<MaxMin::Use>& uses, int from, int to, std::uint32_t route, std::uint32_t spread,
                double weight) const;
  void move_to(FlowId flow, Picoseconds now);
  void stop(FlowId flow, Picoseconds now);
  void plan_filling(Picoseconds now);
  void fill(Picoseconds now);
  void look(FlowId flow, Picoseconds now);
  void announce_arrival(FlowId flow, Picoseconds now);
  void set_wake(FlowId flow, Picoseconds now);
  void on_wake(FlowId flow, Picoseconds now);
  void on_arrival(FlowId flow, Picoseconds now);
  Picoseconds delay(FlowId flow) const;

  const Picoseconds& clock_;
  MaxMin shares_;
  std::size_t links_;                               // the first resources; capacity groups follow
  std::vector<std::vector<std::uint32_t>> groups_;  // resources, by link
  std::vector<Stream> streams_;
  std::vector<FlowId> active_;
  std::vector<const std::vector<MaxMin::Use>*> paths_;  // for a filling
  std::vector<double> rates_;
  std::vector<double> answers_;  // rate of acknowledgements, by resource
  std::vector<double> carried_;  // bytes that the network's counters do not have yet, by link
  Picoseconds filled_ = -kPause;
  bool planned_ = false;
  std::uint64_t reroutes_ = 0;
};

}  // namespace talweg::sim
