// How far a child may be ahead of its parent, in chunks of one tree. Ranks keep this rule, and plans are
// priced by it.
//
//   window_of(chunk_bytes, chunks);   // the child may send chunk c once the parent has summed chunk c - window
//
// The parent grants half a window at a time. Until the child has heard that the parent has begun the call, it
// may send one chunk.
//
// The blocks of a scatter go one after the other (block_turns.h). Who gets one that may_be_held_up() says
// that it is there, and until then no more of these are on their way over what is narrowest of their ways
// than kLeastAhead, or than may_go_beside() lets. In an all-to-all a rank is as far ahead of what it has
// received (look_ahead.h).
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/units.h"

namespace talweg::forest {

// Four chunks keep an edge busy while one is being received, one summed, one sent on and one grant is on its
// way back. Small ones queue behind those of other trees, and there may be more of them; but not more than a
// quarter of what the tree has, or all that goes up goes before what comes down.
inline constexpr std::int64_t kLeastWindow = 4;
inline constexpr std::int64_t kMostWindow = 32;
inline constexpr std::int64_t kWindowBytes = 128 << 10;

// About what a link's queues hold without loss, besides what is on the wire.
inline constexpr std::int64_t kAheadBytes = 128 << 10;
inline constexpr std::int64_t kLeastAhead = 2;

// Whether a block may follow what is on its way already. `wire_bytes`: what the way holds while it is full,
// from when a block leaves to when its sender hears of it. The first block of those on their way is as good
// as arrived when the next one is asked for: the wire is full if the others are what it holds.
constexpr bool may_go_beside(std::int64_t on_way_bytes, std::int64_t block_bytes, std::int64_t wire_bytes,
                             std::int64_t ahead_bytes = kAheadBytes) {
  return on_way_bytes + block_bytes <= ahead_bytes + wire_bytes ||
         (wire_bytes > 0 && on_way_bytes < block_bytes + wire_bytes);
}

// What a way of this rate holds of what was sent within so long.
constexpr std::int64_t bytes_on_wire(double bytes_per_second, Nanoseconds time) {
  return static_cast<std::int64_t>(bytes_per_second * 1e-9 * static_cast<double>(time.value));
}

// Small blocks are not worth it.
constexpr bool may_be_held_up(std::int64_t block_bytes, std::int64_t ahead_bytes = kAheadBytes) {
  return block_bytes >= ahead_bytes / 8;
}

// No more than there are chunks.
constexpr std::int64_t window_of(std::int64_t chunk_bytes, std::int64_t chunks,
                                 std::int64_t window_bytes = kWindowBytes) {
  const std::int64_t fit = std::min(window_bytes / std::max<std::int64_t>(1, chunk_bytes), chunks / 4);
  return std::min(chunks, std::clamp(fit, kLeastWindow, kMostWindow));
}

}  // namespace talweg::forest
