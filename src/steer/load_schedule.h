// When one sender of a load (load_seen.h) sends what. It is told the time whenever its host gives it a
// processor, and says what is due; what it makes up for is bounded, because more would queue at the host's
// own card. So a host that is too busy sends less than was asked for.
#pragma once

#include <algorithm>
#include <cstdint>

#include "steer/load_seen.h"

namespace talweg::steer {

class LoadSchedule {
 public:
  // How often a sender looks, at best.
  static constexpr std::int64_t kTickNs = 200'000;
  static constexpr std::int64_t kMostBehindNs = 2'000'000;

  struct Plan {
    std::int64_t idle_ns = 0;  // before the load
    std::int64_t load_ns = 0;
    std::int64_t load_gap_ns = 0;  // from packet to packet
    std::int64_t probes_gap_ns = 0;
  };

  LoadSchedule(std::int64_t begin_ns, const Plan& plan)
      : plan_(plan), load_begin_(begin_ns + plan.idle_ns), next_probes_(begin_ns), next_load_(load_begin_) {}

  bool over(std::int64_t now) const { return now >= load_begin_ + plan_.load_ns; }
  LoadStage stage(std::int64_t now) const {
    if (now < load_begin_) return LoadStage::idle;
    return now < load_begin_ + plan_.load_ns / 4 ? LoadStage::fills : LoadStage::full;
  }
  // A probe of each priority. True once for each time that they are due.
  bool probes_due(std::int64_t now) {
    if (now < next_probes_) return false;
    next_probes_ = std::max(next_probes_ + plan_.probes_gap_ns, now);
    return true;
  }
  // How many packets of load, since it was asked last.
  int load_due(std::int64_t now) {
    next_load_ = std::max(next_load_, now - kMostBehindNs);
    int due = 0;
    for (; next_load_ <= now; next_load_ += plan_.load_gap_ns) ++due;
    return due;
  }
  double load_seconds(std::int64_t now) const {
    return static_cast<double>(std::max<std::int64_t>(1, now - load_begin_)) * 1e-9;
  }

 private:
  const Plan plan_;
  const std::int64_t load_begin_;
  std::int64_t next_probes_, next_load_;
};

}  // namespace talweg::steer
