// A small deterministic random stream for tests and simulations: the same numbers for a seed on every machine
// and with every standard library (which std::uniform_int_distribution does not promise). Not for secrets.
//
//   Random random{seed};              // or {seed, i}: the i-th of many independent streams
//   if (random.uniform() < loss) ...
#pragma once

#include <cstdint>

namespace talweg {

// xoshiro256** of Blackman and Vigna (2018), its state filled by splitmix64 as they advise.
class Random {
 public:
  constexpr explicit Random(std::uint64_t seed, std::uint64_t stream = 0) {
    std::uint64_t mix = seed;
    mix = split_mix(mix) ^ (stream * 0x9E3779B97F4A7C15);
    for (auto& word : state_) word = split_mix(mix);
  }

  // All 64 bits are random.
  constexpr std::uint64_t next() {
    const std::uint64_t result = rotate(state_[1] * 5, 7) * 9;
    const std::uint64_t shifted = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= shifted;
    state_[3] = rotate(state_[3], 45);
    return result;
  }

  // Uniform in [0, n), without bias; n > 0. (Lemire 2019: the high half of a product, rejecting the uneven
  // rest.)
  constexpr std::uint64_t below(std::uint64_t n) {
    const std::uint64_t uneven = (0 - n) % n;
    while (true) {
      const Wide product = Wide{next()} * n;
      if (static_cast<std::uint64_t>(product) >= uneven) return static_cast<std::uint64_t>(product >> 64);
    }
  }

  // Uniform in [0, 1), a multiple of 2^-53.
  constexpr double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }

 private:
  __extension__ using Wide = unsigned __int128;

  static constexpr std::uint64_t rotate(std::uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }
  static constexpr std::uint64_t split_mix(std::uint64_t& state) {
    std::uint64_t z = (state += 0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  }

  std::uint64_t state_[4]{};
};

}  // namespace talweg
