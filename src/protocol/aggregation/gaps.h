// Which datagrams of a sender have not come. It numbers those that matter, 1, 2, ..., round and round in 16
// bits; one that has not come when one some numbers further on has is taken for lost, and said once. How many
// numbers are some is learnt: more than any was overtaken by that came after all.
//
// All zero: nothing has come yet. Lives in memory that a switch lends, and so has no constructor.
#pragma once

#include <algorithm>
#include <cstdint>

namespace talweg::protocol {

struct Gaps {
  // Datagrams overtake each other now and then: by so many numbers at least, and no more than are remembered.
  static constexpr int kReordering = 3, kMostReordering = 62;
  // Of a longer silence only the end is named: the rest is found by those who wait for it.
  static constexpr int kMost = 256;
  // What is learnt is unlearnt, by one for each so many numbers: a power of two.
  static constexpr unsigned kForget = 1024;

  std::uint64_t missing;  // bit i: number newest - i
  std::uint16_t newest;
  std::uint16_t judged;     // up to this number all that has not come has been said
  std::uint16_t overtaken;  // by so many numbers one was that came after it had been said

  // One of the sequence. Calls lost(number) for each that is taken for lost now.
  template <class Lost>
  void came(std::uint16_t number, Lost lost) {
    const auto ahead = static_cast<std::int16_t>(number - newest);
    if (ahead <= 0) {
      const bool said = static_cast<std::int16_t>(number - judged) <= 0;
      if (fill(number) && said && -ahead <= kMostReordering)
        overtaken = std::max(overtaken, static_cast<std::uint16_t>(-ahead));
      return;
    }
    if (number / kForget != newest / kForget && overtaken > 0) --overtaken;
    const int first = static_cast<std::int16_t>(judged - newest) + 1;  // in numbers from the newest one
    const int last = ahead - std::max(kReordering, overtaken + 1);
    for (int step = std::max(first, last - kMost + 1); step <= last; ++step)
      if (step > 0 || (missing >> -step & 1) != 0) lost(static_cast<std::uint16_t>(newest + step));
    if (last >= first) judged = static_cast<std::uint16_t>(newest + last);
    missing = ahead >= 64 ? ~std::uint64_t{1}
                          : (missing << ahead | ((std::uint64_t{1} << ahead) - 1)) & ~std::uint64_t{1};
    newest = number;
  }
  // One that was sent again, outside of the sequence: it says nothing of others. True if it had not come.
  bool fill(std::uint16_t number) {
    const auto behind = static_cast<std::int16_t>(newest - number);
    if (behind < 0 || behind >= 64 || (missing >> behind & 1) == 0) return false;
    missing &= ~(std::uint64_t{1} << behind);
    return true;
  }
};

}  // namespace talweg::protocol
