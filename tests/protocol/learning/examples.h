// What is learned: a mixture that is made from a seed, and the handwritten digits of examples/demo.
#pragma once

#include <cmath>
#include <cstdint>
#include <filesystem>

#include "base/random.h"
#include "protocol/learning/perceptron.h"

namespace talweg::learning {

// Of mean 0 and variance 1 (Box and Muller).
class Gaussian {
 public:
  explicit Gaussian(std::uint64_t seed) : random_(seed) {}
  float next() {
    constexpr double kTurn = 6.283185307179586;
    const double radius = std::sqrt(-2 * std::log(1 - random_.uniform()));
    return static_cast<float>(radius * std::cos(kTurn * random_.uniform()));
  }

 private:
  Random random_;
};

// Ten classes of four prototypes each, and noise around them, all inputs of variance 1: 16000 examples to
// learn from, 4000 to try.
Examples mixture(std::uint64_t seed);

// Four fifths of the digits to learn from, which ones the seed says, the others to try. Pixels are 0 to 1.
// Throws Error{invalid_argument} for a file that is not of that form.
Examples digits(const std::filesystem::path& file, std::uint64_t seed);

}  // namespace talweg::learning
