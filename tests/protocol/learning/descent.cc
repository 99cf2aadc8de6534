#include "protocol/learning/descent.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

namespace talweg::learning {

namespace {

float rate_at(const Descent& descent, int step) {
  constexpr double kHalfTurn = 3.141592653589793;
  return static_cast<float>(descent.rate * (1 + std::cos(kHalfTurn * step / descent.steps)) / 2);
}

bool same_bits(const Parameters& a, const Parameters& b) {
  const auto one = std::as_bytes(std::span(a)), other = std::as_bytes(std::span(b));
  return std::memcmp(one.data(), other.data(), one.size()) == 0;
}

Random draws_of(std::uint64_t seed, std::size_t worker) {
  return Random(seed, 100 + worker);
}

class Momentum {
 public:
  explicit Momentum(std::size_t values) : velocity_(values) {}
  void step(Parameters& parameters, const std::vector<float>& gradient, float rate) {
    constexpr float kKept = 0.9F;
    for (std::size_t i = 0; i < velocity_.size(); ++i) {
      velocity_[i] = kKept * velocity_[i] + gradient[i];
      parameters[i] -= rate * velocity_[i];
    }
  }

 private:
  std::vector<float> velocity_;
};

}  // namespace

Descended descend(const Problem& problem, const Descent& descent, const Loss& loss, std::uint64_t seed,
                  const std::function<void(int step, const Parameters& parameters)>& look) {
  struct Replica {
    Parameters parameters;
    Momentum momentum;
    Random random;
  };
  const GradientSize size = problem.size();
  std::vector<Replica> replicas;
  for (std::size_t w = 0; w < kWorkers; ++w)
    replicas.push_back({problem.first(seed), Momentum(size.values), draws_of(seed, w)});
  std::vector gradients(kWorkers, std::vector<float>(size.values));
  LossyMean mean(loss, seed, size);
  Descended all;
  const Parameters& first = replicas[0].parameters;
  for (int step = 0; step < descent.steps; ++step) {
    for (std::size_t w = 0; w < kWorkers; ++w)
      problem.gradient(replicas[w].parameters, replicas[w].random, gradients[w].data());
    mean.step(gradients);
    for (std::size_t w = 0; w < kWorkers; ++w)
      replicas[w].momentum.step(replicas[w].parameters, gradients[w], rate_at(descent, step));
    if (std::ranges::all_of(replicas, [&](const Replica& r) { return same_bits(r.parameters, first); }))
      ++all.alike;
    if (look) look(step + 1, first);
  }
  all.parameters = first;
  all.lost = mean.lost();
  all.packets_again = mean.packets_again();
  return all;
}

Parameters descend_alone(const Problem& problem, const Descent& descent, std::uint64_t seed) {
  const std::size_t values = problem.size().values;
  Parameters parameters = problem.first(seed);
  Momentum momentum(values);
  std::vector<Random> randoms;
  for (std::size_t w = 0; w < kWorkers; ++w) randoms.push_back(draws_of(seed, w));
  std::vector<float> sum(values), one(values);
  for (int step = 0; step < descent.steps; ++step) {
    for (std::size_t w = 0; w < kWorkers; ++w) {
      problem.gradient(parameters, randoms[w], w == 0 ? sum.data() : one.data());
      for (std::size_t i = 0; w > 0 && i < values; ++i) sum[i] += one[i];
    }
    for (float& x : sum) x /= kWorkers;
    momentum.step(parameters, sum, rate_at(descent, step));
  }
  return parameters;
}

}  // namespace talweg::learning
