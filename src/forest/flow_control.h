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
// than kLeastAhead, or than are kAheadBytes together.
#pragma once

#include <algorithm>
#include <cstdint>

namespace talweg::forest {

// Four chunks keep an edge busy while one is being received, one summed, one sent on and one grant is on its
// way back. Small ones queue behind those of other trees, and there may be more of them; but not more than a
// quarter of what the tree has, or all that goes up goes before what comes down.
inline constexpr std::int64_t kLeastWindow = 4;
inline constexpr std::int64_t kMostWindow = 32;
inline constexpr std::int64_t kWindowBytes = 128 << 10;

// About what a link's queues hold without loss.
inline constexpr std::int64_t kAheadBytes = 128 << 10;
inline constexpr std::int64_t kLeastAhead = 2;

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
