// ResultTally: how many of the results that a switch sends to all come to a worker, by their numbers. Those
// that do not are sent again to it alone, and have their numbers, too: so what is missing is known even where
// nothing comes of what is sent to all.
#pragma once

#include <algorithm>
#include <cstdint>

namespace talweg::protocol {

class ResultTally {
 public:
  // Windows of so many results. One is bad where more are missing: then a result costs more than as many
  // copies of it would. A host that stops for a moment loses as many, once: so it takes windows in a row.
  static constexpr std::uint32_t kOf = 512, kMost = 64, kBad = 2;

  // A result of this number has come, as it was sent to all, or again to us alone. Each datagram once.
  void came(std::uint16_t number, bool to_all) {
    sent_ += ahead(number);
    if (to_all) came_ = std::min(came_ + 1, sent_);
    if (sent_ >= kOf) end_window();
  }
  // One that was sent to all, and came by another way: as the switch sends them while they do not go to the
  // group, or from a network or somebody else who brings what is sent to it. It has neither come nor is it
  // missing; those between it and the ones before it may be.
  void came_otherwise(std::uint16_t number) {
    if (const std::uint32_t more = ahead(number); more > 0) sent_ += more - 1;
    if (sent_ >= kOf) end_window();
  }
  bool too_few() const { return bad_ >= kBad; }
  // Of the bad windows in a row: so many are missing, of so many.
  std::uint32_t missing() const { return missing_; }
  std::uint32_t of() const { return of_; }

 private:
  // By how many numbers this is beyond all before it.
  std::uint32_t ahead(std::uint16_t number) {
    if (!begun_) newest_ = static_cast<std::uint16_t>(number - 1);
    begun_ = true;
    const auto by = static_cast<std::int16_t>(number - newest_);
    if (by <= 0) return 0;
    newest_ = number;
    return static_cast<std::uint32_t>(by);
  }
  void end_window() {
    const std::uint32_t missing = sent_ - came_;
    if (missing <= kMost) bad_ = missing_ = of_ = 0;
    if (missing > kMost) {
      ++bad_;
      missing_ += missing;
      of_ += sent_;
    }
    sent_ = came_ = 0;
  }

  std::uint32_t sent_ = 0, came_ = 0, bad_ = 0, missing_ = 0, of_ = 0;
  std::uint16_t newest_ = 0;
  bool begun_ = false;
};

}  // namespace talweg::protocol
