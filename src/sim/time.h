// Virtual time: whole picoseconds, so that a byte at 100 Gbit/s (80 ps) is exact and a run may last 100 days.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "base/units.h"

namespace talweg::sim {

using Picoseconds = std::int64_t;  // since the start of the run, or a duration

inline constexpr Picoseconds kPicosecondsPerNanosecond = 1000;
inline constexpr Picoseconds kPicosecondsPerSecond = 1'000'000'000'000;
inline constexpr Picoseconds kNever = std::numeric_limits<Picoseconds>::max();

// Longer than any run, and any time of a run with it added is still before kNever.
inline constexpr Picoseconds kForever = kNever / 2;

constexpr Picoseconds picoseconds(Nanoseconds time) {
  return time.value * kPicosecondsPerNanosecond;
}
constexpr double seconds(Picoseconds time) {
  return static_cast<double>(time) * 1e-12;
}

// How long bytes take at a rate, in fixed point: the same on every machine, with no division per packet.
class TransmitTime {
 public:
  static constexpr int kFraction = 20;  // bits: a packet of 64 KiB is off by less than 0.1 ps

  TransmitTime() = default;
  explicit TransmitTime(Bandwidth rate)
      : per_byte_(std::llround(8e12 / rate.bits_per_second * (1 << kFraction))) {}
  bool operator==(const TransmitTime&) const = default;
  // At most kForever: a packet at 1 bit/s takes hours, but no number overflows.
  Picoseconds of(std::int64_t bytes) const { return of_at_most(bytes, kForever); }
  // The same of any number of bytes, at most `most`.
  Picoseconds of_at_most(std::int64_t bytes, Picoseconds most) const {
    const Wide time = (Wide{bytes} * per_byte_ + (1 << (kFraction - 1))) >> kFraction;
    return time < most ? static_cast<Picoseconds>(time) : most;
  }
  // The inverse, rounded down: what is sent in that time. For reports and for limits near a queue's size.
  std::int64_t bytes_in(Picoseconds time) const {
    return static_cast<std::int64_t>((Wide{time} << kFraction) / per_byte_);
  }

 private:
  __extension__ using Wide = __int128;
  std::int64_t per_byte_ = 1 << kFraction;
};

}  // namespace talweg::sim
