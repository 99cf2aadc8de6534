// Which datagrams of a sender have not come. It numbers those that matter, 1, 2, ..., round and round in 16
// bits; one that has not come when one that is kReordering numbers further on has is taken for lost, and said
// once. Numbers that come late or twice say nothing.
//
// All zero: nothing has come yet. Lives in memory that a switch lends, and so has no constructor.
#pragma once

#include <algorithm>
#include <cstdint>

namespace talweg::protocol {

struct Gaps {
  // Datagrams overtake each other now and then.
  static constexpr std::uint16_t kReordering = 3;
  // Of a longer silence only the end is named: the rest is found by those who wait for it.
  static constexpr std::uint16_t kMost = 256;

  std::uint64_t missing;  // bit i: number newest - i
  std::uint16_t newest;

  // Calls lost(number) for each that is taken for lost now.
  template <class Lost>
  void came(std::uint16_t number, Lost lost) {
    const auto ahead = static_cast<std::int16_t>(number - newest);
    if (ahead <= 0) {
      if (ahead > -64) missing &= ~(std::uint64_t{1} << -ahead);
      return;
    }
    // What has come between the oldest number that nothing was said of and `number`.
    const int first = std::max(1 - int{kReordering}, int{ahead} - int{kReordering} - int{kMost} + 1);
    for (int step = first; step <= ahead - int{kReordering}; ++step)
      if (step > 0 || (missing >> -step & 1) != 0) lost(static_cast<std::uint16_t>(newest + step));
    missing = ahead >= 64 ? ~std::uint64_t{1}
                          : (missing << ahead | ((std::uint64_t{1} << ahead) - 1)) & ~std::uint64_t{1};
    newest = number;
  }
};

}  // namespace talweg::protocol
