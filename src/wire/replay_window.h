// ReplayWindow: which numbers of one sender's datagrams have been accepted.
//
//   if (const auto why = window.look(number); why != DatagramRefusal::none) refuse;
//   check the tag;  // a number that nobody vouches for must not move the window
//   window.accept(number);
//
// It remembers the kNumbers numbers up to the highest one; what is older is refused unseen, since it cannot
// be said whether it is new. So datagrams may overtake each other by so many, which at 1400 bytes each is 5
// MB.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "wire/datagram.h"

namespace talweg::wire {

class ReplayWindow {
 public:
  static constexpr std::uint64_t kNumbers = 4096;

  // DatagramRefusal::replayed, stale or none.
  DatagramRefusal look(std::uint64_t number) const {
    if (number >= next_) return DatagramRefusal::none;
    if (next_ - number > kNumbers) return DatagramRefusal::stale;
    return (words_[word_of(number)] & bit_of(number)) != 0 ? DatagramRefusal::replayed
                                                           : DatagramRefusal::none;
  }
  // After look() said none.
  void accept(std::uint64_t number) {
    if (number >= next_) advance(number);
    words_[word_of(number)] |= bit_of(number);
  }
  // One more than the highest number that was accepted.
  std::uint64_t next() const { return next_; }

 private:
  static constexpr std::size_t kWords = kNumbers / 64;
  static std::size_t word_of(std::uint64_t number) { return (number / 64) % kWords; }
  static std::uint64_t bit_of(std::uint64_t number) { return 1ULL << (number % 64); }

  // Numbers from next_ to `number` have not been accepted.
  void advance(std::uint64_t number) {
    if (number - next_ >= kNumbers) {
      words_.fill(0);
    } else {
      for (std::uint64_t n = next_; n <= number;) {
        if (n % 64 == 0 && number - n >= 63) {
          words_[word_of(n)] = 0;
          n += 64;
        } else {
          words_[word_of(n)] &= ~bit_of(n);
          ++n;
        }
      }
    }
    next_ = number + 1;
  }

  std::uint64_t next_ = 0;
  std::array<std::uint64_t, kWords> words_{};
};

}  // namespace talweg::wire
