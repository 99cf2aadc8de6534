// Transfers that were under way together, as if they had been sent in turn.
//
// A backend with several threads runs transfers at once. Each one's time is from the end of the one that
// ended before it, so that what they share, waits for a late rank above all, counts once.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace talweg::train {

struct UnderWay {
  std::int64_t begin = 0, end = 0;  // of one unit and clock, whatever they are
};

struct Turns {
  std::vector<std::int64_t> begins;  // of each transfer's turn, which ends with the transfer
  int in_flight = 1;                 // the most transfers that were under way at once
};
// Transfers may come in any order. No turn begins before `from`; one that would end before it began has no
// length.
Turns turns_of(std::span<const UnderWay> transfers, std::int64_t from);

}  // namespace talweg::train
