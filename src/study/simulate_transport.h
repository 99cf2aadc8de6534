// What --transport sets together: how flows are sent, and what the queues in front of links do for that.
// Options that are given take the place of a single setting each (simulate_request.h).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "sim/queue_policy.h"
#include "sim/simulation.h"

namespace talweg::study {

inline constexpr std::int64_t kQueueBytes = 1 << 20;   // of a switch with a shallow buffer
inline constexpr std::int64_t kMarkBytes = 100 << 10;  // about 65 packets, as DCTCP has it at 10 Gbit/s

// The authors' for flows as web search has them: packets of 1460 bytes.
inline constexpr std::array<std::int64_t, sim::kPriorities - 1> kDemoteBytes = {
    759 * 1460, 1132 * 1460, 1456 * 1460, 1737 * 1460, 2010 * 1460, 2199 * 1460, 2325 * 1460};

struct TransportPreset {
  const char* name;
  sim::TransportKind kind;
  int priorities;         // of the queues; 1: FIFO
  bool data_below;        // data have a lower priority than answers
  bool trim;              // the switches do
  int queue_packets;      // full ones that a switch keeps in front of a link; 0: kQueueBytes
  bool marks;             // by bandwidth times delay, from kMarkBytes on; false: never
  int window;             // packets that a flow begins with; 0: as many as its path holds
  bool spray;             // each packet takes the next of equal paths; else a flow keeps to one
  int ack_every;          // packets in order that an acknowledgement answers
  Nanoseconds least_rto;  // shortest retransmission timer; 0: three round trips of the path
  int round_trips = 0;    // of the longest path that a switch's queue holds, where that is more
  bool least_left_first = false;
  bool demotes = false;  // by kDemoteBytes
};

// The first is the default.
std::span<const TransportPreset> transport_presets();
// Throws Error{invalid_argument}.
const TransportPreset& transport_preset(std::string_view name);

// Sets what the preset says; packets' sizes are set before.
void apply(const TransportPreset& preset, sim::SimulationOptions& options);

// Headers and answers have a queue of their own where switches trim. They are small: it is as long as another
// switch's queue of data.
void settle_trimming(sim::QueuePolicy& queue);

}  // namespace talweg::study
