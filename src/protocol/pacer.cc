#include "protocol/pacer.h"

#include <algorithm>

namespace talweg::protocol {

namespace {
// Of the time that is needed: less cannot be on links that carry what they are said to, but for bursts that
// nobody has described. Calls that paces alone hold up take 1 / forest::kPaceHeadRoom of it and a little.
constexpr double kTooSoon = 0.95;
constexpr double kMostFactor = 1 << 20;  // a million times what is known: no network is so badly described
}  // namespace

void Pacer::restart(std::int64_t now_ns) {
  since_ns_ = now_ns;
  needed_ = 0;
}

void Pacer::begin(std::span<const forest::Pace> paces, std::int64_t now_ns) {
  if (in_flight_++ == 0) restart(now_ns);
  for (const forest::Pace& pace : paces) {
    set_(pace.to, factor_ * pace.bytes_per_second);
    if (pace.bytes_per_second > 0 && std::ranges::find(held_, pace.to) == held_.end())
      held_.push_back(pace.to);
  }
}

void Pacer::end(double seconds_needed, std::int64_t now_ns) {
  needed_ += seconds_needed;
  if (static_cast<double>(now_ns - since_ns_) * 1e-9 < kTooSoon * needed_) {
    factor_ = std::min(2 * factor_, kMostFactor);
    restart(now_ns);
  }
  if (--in_flight_ > 0) return;
  for (const forest::NodeId node : held_) set_(node, 0);
  held_.clear();
}

}  // namespace talweg::protocol
