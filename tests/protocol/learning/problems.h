// Problems whose answers are known: what lost gradients cost is told by how far from these a descent ends.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "protocol/learning/descent.h"

namespace talweg::learning {

// Linear regression: y = <x, optimum> + noise, of inputs that are drawn anew for each gradient (mean 0,
// variance 1). 270 weights, 27 packets.
class Regression : public Problem {
 public:
  explicit Regression(std::uint64_t seed);
  GradientSize size() const override { return {kWeights, 10}; }
  Parameters first(std::uint64_t) const override { return Parameters(kWeights); }
  void gradient(const Parameters& at, Random& random, float* out) const override;
  double distance(const Parameters& at) const;  // from the optimum, of norm sqrt(270)

 private:
  static constexpr std::size_t kWeights = 270, kBatch = 16;
  static constexpr float kNoise = 0.1F;
  Parameters optimum_;
};

// The sum of curvature x^2 / 2 over 1080 coordinates, 27 packets of 40: a curvature of 1 for the first one
// and 0.1 for all others. Begins at (1, 1, ...). Gradients have noise.
class Valley : public Problem {
 public:
  GradientSize size() const override { return {kCoordinates, 40}; }
  Parameters first(std::uint64_t) const override { return Parameters(kCoordinates, 1); }
  void gradient(const Parameters& at, Random& random, float* out) const override;
  static float curvature(std::size_t i) { return i == 0 ? 1 : 0.1F; }
  static double value(const Parameters& at);

 private:
  static constexpr std::size_t kCoordinates = 1080;
  static constexpr float kNoise = 0.01F;
};

// A text of six letters in which each depends on the three before it, and the model of it that has a logit
// for each: 1296, 27 packets of 48.
class Text : public Problem {
 public:
  explicit Text(std::uint64_t seed);
  GradientSize size() const override { return {kContexts * kLetters, 48}; }
  Parameters first(std::uint64_t) const override { return Parameters(kContexts * kLetters); }
  void gradient(const Parameters& at, Random& random, float* out) const override;
  double cross_entropy(const Parameters& at) const;  // nats a letter, of a text that was not learned from
  double entropy() const { return cross_entropy(truth_); }  // of the same

 private:
  static constexpr std::size_t kLetters = 6, kContexts = kLetters * kLetters * kLetters, kBatch = 64;
  using Odds = std::array<double, kLetters>;
  static Odds odds(const float* logits);
  std::vector<std::uint8_t> write(std::size_t letters, Random& random) const;
  Parameters truth_;  // logits
  std::vector<std::uint8_t> train_, test_;
};

}  // namespace talweg::learning
