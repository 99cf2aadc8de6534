// Links, times and flows that tests of the simulator share, and the words of an error.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "sim/matrix_file.h"
#include "sim/time.h"
#include "sim/topologies.h"
#include "talweg/error.h"

namespace talweg::sim {

inline constexpr LinkShape kTen{Bandwidth{10e9}, Nanoseconds{1000}};
inline constexpr LinkShape kGigabit{Bandwidth{1e9}, Nanoseconds{1000}};  // 1500 bytes take 12 us
inline constexpr Picoseconds kMicrosecond = 1'000'000;

// Flows of equal size that all begin at once.
inline Matrix matrix_of(int nodes, const std::vector<std::pair<int, int>>& flows, std::int64_t bytes) {
  Matrix m;
  m.nodes = nodes;
  for (const auto& [from, to] : flows) {
    Connection c;
    c.from = from;
    c.to = to;
    c.bytes = bytes;
    c.id = static_cast<int>(m.connections.size());
    m.connections.push_back(c);
  }
  return m;
}

inline std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace talweg::sim
