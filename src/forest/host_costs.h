// HostCosts: what it costs a processor to send or receive frames. Plans are priced by this rule, and
// simulated hosts keep it.
//
// Frames that are ready for one peer leave together, and frames that have come from one peer are read
// together. Such a batch costs `per_batch` at either end (a system call, the stack, a wake-up), however many
// frames are in it. Every byte of its frames, headers included, costs `per_byte` (copy and checksum). Of
// frames on their way to a root the receiver pays `reduce_per_byte` more.
#pragma once

#include <cstdint>

namespace talweg::forest {

// A batch holds about this much at most: what a connection takes that it has not sent yet.
inline constexpr std::int64_t kMostBatchBytes = 256 << 10;

// Time is double, in seconds, or a whole number of a simulation's units, which are then exact.
template <class Time>
struct HostCosts {
  Time per_batch{};
  Time per_byte{};
  Time reduce_per_byte{};

  // `reduced`: how many of the bytes are received on their way to a root.
  constexpr Time of(Time batches, Time bytes, Time reduced) const {
    return batches * per_batch + bytes * per_byte + reduced * reduce_per_byte;
  }
};

}  // namespace talweg::forest
