// Links and times that tests of the simulator share, and the words of an error.
#pragma once

#include <functional>
#include <string>

#include "sim/time.h"
#include "sim/topologies.h"
#include "talweg/error.h"

namespace talweg::sim {

inline constexpr LinkShape kTen{Bandwidth{10e9}, Nanoseconds{1000}};
inline constexpr LinkShape kGigabit{Bandwidth{1e9}, Nanoseconds{1000}};  // 1500 bytes take 12 us
inline constexpr Picoseconds kMicrosecond = 1'000'000;

inline std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace talweg::sim
