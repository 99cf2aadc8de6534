#include "protocol/learning/learning.h"

#include <array>

namespace talweg::learning {

namespace {

constexpr int kLookAfter = 5;  // steps

class OfExamples : public Problem {
 public:
  explicit OfExamples(const Examples& examples) : train_(examples.train) {}
  GradientSize size() const override { return {kParameters}; }
  Parameters first(std::uint64_t seed) const override { return first_parameters(seed); }
  void gradient(const Parameters& at, Random& random, float* out) const override {
    std::array<const Example*, kBatch> batch{};
    for (const Example*& e : batch) e = &train_[random.below(train_.size())];
    learning::gradient(at, batch, out);
  }

 private:
  const std::vector<Example>& train_;
};

}  // namespace

Learned learn(const Training& training, const Loss& loss, std::uint64_t seed) {
  const std::vector<Example>& test = training.examples.test;
  int steps_to_target = 0;
  Learned learned;
  static_cast<Descended&>(learned) = descend(OfExamples(training.examples), {training.steps, training.rate},
                                             loss, seed, [&](int step, const Parameters& parameters) {
                                               if (steps_to_target == 0 && step % kLookAfter == 0 &&
                                                   score(parameters, test).accuracy >= training.target)
                                                 steps_to_target = step;
                                             });
  learned.steps_to_target = steps_to_target == 0 ? training.steps : steps_to_target;
  learned.score = score(learned.parameters, test);
  return learned;
}

Parameters learn_alone(const Training& training, std::uint64_t seed) {
  return descend_alone(OfExamples(training.examples), {training.steps, training.rate}, seed);
}

}  // namespace talweg::learning
