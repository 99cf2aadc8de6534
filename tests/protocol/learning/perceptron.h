// A network of one hidden layer, 64 inputs, 128 hidden units (ReLU) and 10 classes, in plain C++: what learns
// where it is looked at what lost gradients cost. Its parameters are one vector, as those of a bucket are.
//
//   Parameters parameters = first_parameters(seed);
//   gradient(parameters, batch, out);               // of the mean cross entropy
//
// No operation depends on how many lanes a processor has: the bits are the same everywhere where std::exp's
// are.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "protocol/learning/descent.h"

namespace talweg::learning {

inline constexpr std::size_t kInputs = 64, kHidden = 128, kClasses = 10;
inline constexpr std::size_t kBatch = 16;
// The hidden layer's weights, by unit, and its biases; then those of the classes.
inline constexpr std::size_t kParameters = kHidden * kInputs + kHidden + kClasses * kHidden + kClasses;
struct Example {
  std::array<float, kInputs> inputs{};
  std::uint8_t label = 0;
};

struct Examples {
  std::vector<Example> train, test;
};

struct Score {
  double accuracy = 0;       // percent
  double cross_entropy = 0;  // nats, the mean
};

// By He's rule; biases are 0.
Parameters first_parameters(std::uint64_t seed);

// kBatch examples; `out` has kParameters.
void gradient(const Parameters& parameters, std::span<const Example* const, kBatch> batch, float* out);

Score score(const Parameters& parameters, std::span<const Example> examples);

}  // namespace talweg::learning
