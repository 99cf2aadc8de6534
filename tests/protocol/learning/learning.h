// One training of the perceptron, and what it comes to (descent.h).
#pragma once

#include <cstdint>

#include "protocol/learning/descent.h"
#include "protocol/learning/perceptron.h"

namespace talweg::learning {

struct Training {
  const Examples& examples;
  int steps = 800;
  float rate = 0.2F;
  double target = 86;  // percent of the test's examples
};

struct Learned : Descended {
  Score score;              // of the test, at the end
  int steps_to_target = 0;  // looked at after every fifth one; all of them where it was not reached
};

Learned learn(const Training& training, const Loss& loss, std::uint64_t seed);

// The same without packets (descend_alone).
Parameters learn_alone(const Training& training, std::uint64_t seed);

}  // namespace talweg::learning
