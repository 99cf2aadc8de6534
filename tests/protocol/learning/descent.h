// Gradient descent by eight workers, each with a replica of the model, whose gradients are averaged with
// losses (lossy_mean.h). The rate falls from its first value to 0 as a cosine does; momentum is 0.9.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/random.h"
#include "protocol/learning/lossy_mean.h"

namespace talweg::learning {

using Parameters = std::vector<float>;

// What is descended on.
class Problem {
 public:
  virtual ~Problem() = default;
  virtual GradientSize size() const = 0;
  virtual Parameters first(std::uint64_t seed) const = 0;
  // What one worker finds at the examples that it draws; `out` has size().values.
  virtual void gradient(const Parameters& at, Random& random, float* out) const = 0;
};

struct Descent {
  int steps = 800;
  float rate = 0.2F;
};

struct Descended {
  Parameters parameters;
  int alike = 0;    // after so many steps all replicas had the same bits
  double lost = 0;  // 0 .. 1, of what the workers have sent
  std::uint64_t packets_again = 0;
};

// The seed says which parameters are the first ones, what each worker draws, and what is lost. `look` is
// called after each step, from 1.
Descended descend(const Problem& problem, const Descent& descent, const Loss& loss, std::uint64_t seed,
                  const std::function<void(int step, const Parameters& parameters)>& look = {});

// The same without packets: what descend() has to come to, bit for bit, where nothing may be missing.
Parameters descend_alone(const Problem& problem, const Descent& descent, std::uint64_t seed);

}  // namespace talweg::learning
