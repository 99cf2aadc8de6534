// ResultTally: how many of the results that a switch sends to all come to a worker, by their numbers. Those
// that do not are sent again to it alone, and have their numbers, too: so what is missing is known even where
// nothing comes of what is sent to all.
#pragma once

#include <algorithm>
#include <cstdint>

namespace talweg::protocol {

class ResultTally {
 public:
  // Of so many results: more than a burst of losses is, and few enough that one which gets nothing any more
  // finds out in a moment. Where as much is lost a result costs more than as many copies of it would.
  static constexpr std::uint32_t kOf = 512, kMost = 64;

  // A result of this number has come, as it was sent to all, or again to us alone. Each datagram once.
  void came(std::uint16_t number, bool to_all) {
    if (!begun_) newest_ = static_cast<std::uint16_t>(number - 1);
    begun_ = true;
    const auto ahead = static_cast<std::int16_t>(number - newest_);
    if (ahead > 0) {
      newest_ = number;
      sent_ += static_cast<std::uint32_t>(ahead);
    }
    if (to_all) came_ = std::min(came_ + 1, sent_);
    too_few_ = too_few_ || sent_ - came_ > kMost;
    if (sent_ < kOf) return;
    sent_ = came_ = 0;
  }
  bool too_few() const { return too_few_; }

 private:
  std::uint32_t sent_ = 0, came_ = 0;
  std::uint16_t newest_ = 0;
  bool begun_ = false, too_few_ = false;
};

}  // namespace talweg::protocol
