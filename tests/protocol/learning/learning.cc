#include "protocol/learning/learning.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <span>

namespace talweg::learning {

namespace {

constexpr int kLookAfter = 5;  // steps

float rate_at(const Training& training, int step) {
  constexpr double kHalfTurn = 3.141592653589793;
  return static_cast<float>(training.rate * (1 + std::cos(kHalfTurn * step / training.steps)) / 2);
}

bool same_bits(const Parameters& a, const Parameters& b) {
  const auto one = std::as_bytes(std::span(a)), other = std::as_bytes(std::span(b));
  return std::memcmp(one.data(), other.data(), one.size()) == 0;
}

// What one worker looks at.
class Batches {
 public:
  Batches(const Examples& examples, std::uint64_t seed, std::size_t worker)
      : train_(examples.train), random_(seed, 100 + worker) {}
  std::array<const Example*, kBatch> next() {
    std::array<const Example*, kBatch> batch{};
    for (const Example*& e : batch) e = &train_[random_.below(train_.size())];
    return batch;
  }

 private:
  const std::vector<Example>& train_;
  Random random_;
};

}  // namespace

Learned learn(const Training& training, const Loss& loss, std::uint64_t seed) {
  struct Replica {
    Parameters parameters;
    Momentum momentum;
    Batches batches;
  };
  std::vector<Replica> replicas;
  for (std::size_t w = 0; w < kWorkers; ++w)
    replicas.push_back({first_parameters(seed), {}, {training.examples, seed, w}});
  std::vector gradients(kWorkers, std::vector<float>(kParameters));
  LossyMean mean(loss, seed);
  Learned learned;
  for (int step = 0; step < training.steps; ++step) {
    for (std::size_t w = 0; w < kWorkers; ++w)
      gradient(replicas[w].parameters, replicas[w].batches.next(), gradients[w].data());
    mean.step(gradients);
    const float rate = rate_at(training, step);
    for (std::size_t w = 0; w < kWorkers; ++w)
      replicas[w].momentum.step(replicas[w].parameters, gradients[w].data(), rate);
    const Parameters& first = replicas[0].parameters;
    if (std::ranges::all_of(replicas, [&](const Replica& r) { return same_bits(r.parameters, first); }))
      ++learned.alike;
    if (learned.steps_to_target == 0 && (step + 1) % kLookAfter == 0 &&
        score(first, training.examples.test).accuracy >= training.target)
      learned.steps_to_target = step + 1;
  }
  if (learned.steps_to_target == 0) learned.steps_to_target = training.steps;
  learned.score = score(replicas[0].parameters, training.examples.test);
  learned.lost = mean.lost();
  learned.packets_again = mean.packets_again();
  learned.parameters = replicas[0].parameters;
  return learned;
}

Parameters learn_alone(const Training& training, std::uint64_t seed) {
  Parameters parameters = first_parameters(seed);
  Momentum momentum;
  std::vector<Batches> batches;
  for (std::size_t w = 0; w < kWorkers; ++w) batches.emplace_back(training.examples, seed, w);
  std::vector<float> sum(kParameters), one(kParameters);
  for (int step = 0; step < training.steps; ++step) {
    for (std::size_t w = 0; w < kWorkers; ++w) {
      gradient(parameters, batches[w].next(), w == 0 ? sum.data() : one.data());
      for (std::size_t i = 0; w > 0 && i < kParameters; ++i) sum[i] += one[i];
    }
    for (float& x : sum) x /= kWorkers;
    momentum.step(parameters, sum.data(), rate_at(training, step));
  }
  return parameters;
}

}  // namespace talweg::learning
