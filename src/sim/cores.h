// Cores: when work that begins now is done, on processors that each host has of its own or that all hosts of
// one machine share.
#pragma once

#include <algorithm>
#include <vector>

#include "sim/time.h"

namespace talweg::sim {

class Cores {
 public:
  // 0: every host has its own, which does one thing after the other by itself.
  explicit Cores(int shared) : free_at_(static_cast<std::size_t>(shared)) {}

  Picoseconds finish(Picoseconds now, Picoseconds work) {
    if (free_at_.empty()) return now + work;
    Picoseconds& core = *std::ranges::min_element(free_at_);
    core = std::max(now, core) + work;
    return core;
  }

 private:
  std::vector<Picoseconds> free_at_;
};

}  // namespace talweg::sim
