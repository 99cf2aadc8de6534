#include "steer/arrivals.h"

#include <algorithm>

namespace talweg::steer {
namespace {

// The part of the time that does not count: until as much as a token bucket may hold has come, within these.
constexpr double kSettled = 0.25, kMostSettled = 0.5;
constexpr double kBucketBytes = 136 << 10;
constexpr int kSamples = 100;

}  // namespace

std::size_t MessageSizes::next() {
  if (bytes_ < kMost && sent_ >= kOfASize * bytes_) bytes_ *= 2;
  sent_ += bytes_;
  return bytes_;
}

// The slope of the line closest to what had come at each time: messages come in lumps, and where the first
// and the last of them lie would say as much as what is between. With several streams messages overtake each
// other.
double steady_rate(std::vector<Arrival> arrivals, double seconds) {
  std::ranges::sort(arrivals, {}, &Arrival::seconds);
  double begin = kMostSettled * seconds, bytes = 0;
  for (const Arrival& arrival : arrivals) {
    bytes += arrival.bytes;
    if (bytes < kBucketBytes) continue;
    begin = std::clamp(arrival.seconds, kSettled * seconds, kMostSettled * seconds);
    break;
  }
  const double last = arrivals.empty() ? 0 : arrivals.back().seconds;
  const double step = ((last > begin ? std::min(seconds, last) : seconds) - begin) / kSamples;
  double come = 0, before = 0, slope = 0;
  auto next = arrivals.begin();
  for (int i = 0; i <= kSamples; ++i) {
    const double now = begin + step * i;
    for (; next != arrivals.end() && next->seconds < now; ++next) {
      before = next->seconds;
      come += next->bytes;
    }
    // Between two arrivals bytes are taken to have come evenly.
    const double part = next == arrivals.end() ? 0 : next->bytes * (now - before) / (next->seconds - before);
    slope += (i - kSamples / 2.0) * (come + part);
  }
  // The squares of -n/2 .. n/2 add up to n (n + 1) (n + 2) / 12.
  return std::max(0.0, 8 * slope / step / (kSamples * (kSamples + 1.0) * (kSamples + 2.0) / 12));
}

}  // namespace talweg::steer
