// What came of a link that was filled on purpose: some hosts send one, together, more than it can take. All
// of that is of one priority, drawn by lot half ECT(0) and half Not-ECT, and between it go a few small
// datagrams of every priority, the probes.
//
// Whether a queue is served before another one is told by order, not by time: all that a sender sends has one
// pair of addresses and ports, so that nothing overtakes but in a queue of its own. A probe that comes before
// load that left earlier has overtaken it. How often load overtakes load says how much a network mixes up
// anyway. Delays are taken beside the quickest of the same sender and kind, so that clocks need not agree.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "wire/traffic_class.h"

namespace talweg::steer {

enum class LoadStage : std::uint8_t { idle, fills, full };  // probes alone; then load; then a queue is there

// A datagram that has come. In lists: in the order in which they came.
struct LoadArrival {
  std::uint16_t sender = 0;  // 0 .. senders
  LoadStage stage = LoadStage::idle;
  bool load = false;         // else a probe
  bool ecn_capable = false;  // when it left
  bool marked = false;
  std::uint8_t priority = 0;
  std::uint32_t order = 0;   // among all of its sender
  std::uint32_t number = 0;  // of load: among its sender's load with the same ECN
  std::uint32_t bytes = 0;   // of the IP packet
  std::int64_t sent_ns = 0;  // by the sender's clock
  std::int64_t came_ns = 0;  // by the receiver's
};

// What one sender has sent.
struct LoadSent {
  std::uint32_t capable = 0;                               // ECT(0) load
  std::uint32_t droppable = 0;                             // Not-ECT load
  std::array<std::uint32_t, wire::kDscp.size()> probes{};  // by priority, while the queue was full
  std::uint64_t bytes = 0;                                 // of load, as IP packets
  double seconds = 0;                                      // that it took
};

struct ProbesSeen {
  std::uint32_t sent = 0;
  std::uint32_t received = 0;
  std::uint32_t overtook = 0;  // of those received
  double wait_ns = 0;          // median, beyond an idle network's
};

// Of one priority's load into one host, while the queue was full where nothing else is said. Trivially
// copyable: ranks tell it each other.
struct LoadSeen {
  std::int32_t to = 0;        // the host
  std::int32_t priority = 0;  // of the load
  std::int32_t senders = 0;
  std::uint32_t dropped_at_host = 0;  // by the receiver's socket: not by the network
  double overlap = 0;                 // the part of the load's time in which all senders sent
  double asked_rate = 0;              // bit/s, of all senders: what they were to send
  double sent_rate = 0;               // and what they got to send
  double taken_rate = 0;              // bit/s that came
  std::uint32_t capable_sent = 0;     // these: all load
  std::uint32_t capable_received = 0;
  std::uint32_t marked = 0;            // of those received
  std::uint32_t lost_before_mark = 0;  // ECT(0) load that was lost before its sender's first mark
  std::uint32_t droppable_sent = 0;
  std::uint32_t droppable_received = 0;
  std::uint32_t received = 0;  // load, for
  std::uint32_t overtook = 0;  // load that overtook load
  double idle_ns = 0;          // median wait of probes while nothing else was sent: noise
  double wait_ns = 0;          // median wait of load
  double most_wait_ns = 0;     // nine in ten wait less
  double mark_wait_ns = 0;     // of what is marked, 99 in a hundred wait longer
  std::array<ProbesSeen, wire::kDscp.size()> probes{};  // by priority

  // What waits that long in front of a link that takes so much.
  double bytes_of(double nanoseconds) const { return nanoseconds * 1e-9 * taken_rate / 8; }
};

LoadSeen load_seen(std::span<const LoadArrival> arrivals, std::span<const LoadSent> sent);

}  // namespace talweg::steer
