// Pieces of work side by side, each in a process of its own: one that takes too long or too much memory is
// ended, and harms no other.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace talweg::study {

struct WorkResult {
  std::vector<std::string> lines;  // handed over before its end, in order
  std::string failure;             // empty: it came to its end; else why not, in one line
};

// Hands a line over, without its end; it has none inside.
using HandOver = std::function<void(const std::string&)>;
using Work = std::function<void(const HandOver&)>;

// What has come of a piece so far.
struct WorkState {
  std::size_t lines = 0;  // handed over
  bool ended = false;
};
// Told of all pieces whenever one has said something, and ten times a second.
using Look = std::function<void(const std::vector<WorkState>&)>;

// Returns when all have ended, or `seconds` after the `begin` (infinity: never); with 0 nothing is begun. No
// more than `at_once` run at a time, in the order given. What a piece throws becomes its failure. Pieces see
// memory as it is when they begin, and must not need what other threads hold. Throws Error{system} if
// processes cannot be made.
std::vector<WorkResult> side_by_side(
    const std::vector<Work>& pieces, double seconds,
    std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now(),
    std::size_t at_once = SIZE_MAX, const Look& look = {});

}  // namespace talweg::study
