// One training, and what it comes to: eight workers, each with a replica of the model, whose gradients are
// averaged with losses (lossy_mean.h). The rate falls from its first value to 0 as a cosine does.
#pragma once

#include <cstdint>

#include "protocol/learning/lossy_mean.h"
#include "protocol/learning/perceptron.h"

namespace talweg::learning {

struct Training {
  const Examples& examples;
  int steps = 800;
  float rate = 0.2F;
  double target = 86;  // percent of the test's examples
};

struct Learned {
  Score score;              // of the test, at the end
  int steps_to_target = 0;  // looked at after every fifth one; all of them where it was not reached
  double lost = 0;          // 0 .. 1, of what the workers have sent
  std::uint64_t packets_again = 0;
  int alike = 0;  // after so many steps all replicas had the same bits
  Parameters parameters;
};

// The seed says which parameters are the first ones, what each worker looks at, and what is lost.
Learned learn(const Training& training, const Loss& loss, std::uint64_t seed);

// The same without packets: what learn() has to come to, bit for bit, where nothing may be missing.
Parameters learn_alone(const Training& training, std::uint64_t seed);

}  // namespace talweg::learning
