// QueuePolicy: what the output queue in front of a link does with a packet that comes to a backlog.
// Bytes that wait are counted without those already being sent where there are priorities, with them in a
// FIFO.
#pragma once

#include <array>
#include <cstdint>

#include "base/units.h"

namespace talweg::sim {

inline constexpr int kPriorities = 8;

struct QueuePolicy {
  int priorities = 1;            // 1: FIFO. Up to 8: strict, 0 first, each with a queue of its own
  std::int64_t limit_bytes = 0;  // of each queue; what does not fit is dropped or trimmed. 0: no limit
  // Packets that find more than this are marked (ECN), or dropped where they cannot be: selective dropping as
  // switches do it that know nothing of gradients. 0: never.
  std::int64_t mark_bytes = 0;
  // Or more than the link sends in the round trip of the network's longest path, where that is more than
  // mark_bytes; but never more than half of limit_bytes. Flows that alone fill a link are then not cut below
  // what the link and their path hold.
  bool mark_by_delay = false;
  // pFabric (Alizadeh et al., SIGCOMM 2013): whose flow has least left (Packet::credit) goes first, of one
  // flow the packet that came first; what does not fit costs the packet whose flow has most left, whether it
  // waits or comes. It needs one priority.
  bool least_left_first = false;
  // The limit is so many times what the link sends in the round trip of the network's longest path, where
  // that is more than limit_bytes.
  int limit_round_trips = 0;

  // RED (Floyd and Jacobson 1993) on the instantaneous queue: between least and most the probability grows
  // from 0 to `probability`, above most everything is taken. Marks instead of dropping if `marks`.
  struct Red {
    std::int64_t least_bytes = 0;
    std::int64_t most_bytes = 0;  // 0: no RED
    double probability = 0;
    bool marks = false;
    bool operator==(const Red&) const = default;
  } red;

  // Selective dropping: a packet of priority p is dropped where more than this waits, so that what matters
  // less leaves room early; 0: limit_bytes alone counts.
  std::array<std::int64_t, kPriorities> class_limit_bytes{};

  // In place of being dropped a packet loses its payload, and what remains goes to the most urgent queue.
  bool trim = false;
  std::uint16_t trimmed_bytes = 64;
  std::int64_t urgent_limit_bytes = 0;  // limit_bytes of that queue, where it differs
  bool operator==(const QueuePolicy&) const = default;
};

// Losses of a link, drawn for each packet from the link's own random stream.
struct LossModel {
  double loss = 0;            // independent
  double bit_error_rate = 0;  // any wrong bit costs the packet
  // Gilbert-Elliott: a link in its bad state loses packets with probability `burst_loss`. Per packet.
  double burst_begins = 0;
  double burst_ends = 1;
  double burst_loss = 1;
  double duplicate = 0;      // arrives twice
  double damage = 0;         // arrives with flipped bits (kDamaged)
  double delay = 0;          // is held up for as long as up to...
  Nanoseconds most_delay{};  // ...this, and so overtaken
  // Above 0: how long a burst lasts, in place of burst_ends, by which it goes on where nothing is sent.
  Nanoseconds burst_lasts{};
  bool operator==(const LossModel&) const = default;
  bool any() const {
    return loss > 0 || bit_error_rate > 0 || burst_begins > 0 || duplicate > 0 || damage > 0 || delay > 0;
  }
};

}  // namespace talweg::sim
