#include "protocol/learning/problems.h"

#include <algorithm>
#include <cmath>

#include "protocol/learning/examples.h"

namespace talweg::learning {

namespace {

std::size_t context_of(const std::vector<std::uint8_t>& text, std::size_t i, std::size_t letters) {
  return (text[i - 3] * letters + text[i - 2]) * letters + text[i - 1];
}

}  // namespace

Regression::Regression(std::uint64_t seed) : optimum_(kWeights) {
  Gaussian gaussian(seed);
  for (float& x : optimum_) x = gaussian.next();
}

void Regression::gradient(const Parameters& at, Random& random, float* out) const {
  Gaussian gaussian(random.next());
  std::fill_n(out, kWeights, 0.0F);
  std::array<float, kWeights> x{};
  for (std::size_t b = 0; b < kBatch; ++b) {
    float error = kNoise * gaussian.next();
    for (std::size_t i = 0; i < kWeights; ++i) {
      x[i] = gaussian.next();
      error += x[i] * (at[i] - optimum_[i]);
    }
    for (std::size_t i = 0; i < kWeights; ++i) out[i] += error * x[i] / kBatch;
  }
}

double Regression::distance(const Parameters& at) const {
  double squares = 0;
  for (std::size_t i = 0; i < kWeights; ++i)
    squares += (double{at[i]} - double{optimum_[i]}) * (double{at[i]} - double{optimum_[i]});
  return std::sqrt(squares);
}

void Valley::gradient(const Parameters& at, Random& random, float* out) const {
  Gaussian gaussian(random.next());
  for (std::size_t i = 0; i < kCoordinates; ++i) out[i] = curvature(i) * at[i] + kNoise * gaussian.next();
}

double Valley::value(const Parameters& at) {
  double sum = 0;
  for (std::size_t i = 0; i < at.size(); ++i) sum += double{curvature(i)} * double{at[i]} * double{at[i]} / 2;
  return sum;
}

Text::Text(std::uint64_t seed) : truth_(kContexts * kLetters) {
  constexpr std::size_t kTrain = 100'000, kTest = 20'000;
  constexpr float kSpread = 2;
  Gaussian gaussian(seed);
  for (float& x : truth_) x = kSpread * gaussian.next();
  Random random(seed, 1);
  train_ = write(kTrain, random);
  test_ = write(kTest, random);
}

Text::Odds Text::odds(const float* logits) {
  Odds odds{};
  const float most = *std::max_element(logits, logits + kLetters);
  double sum = 0;
  for (std::size_t k = 0; k < kLetters; ++k) sum += odds[k] = std::exp(double{logits[k]} - double{most});
  for (double& o : odds) o /= sum;
  return odds;
}

std::vector<std::uint8_t> Text::write(std::size_t letters, Random& random) const {
  std::vector<std::uint8_t> text(3);
  while (text.size() < letters) {
    const Odds of = odds(&truth_[context_of(text, text.size(), kLetters) * kLetters]);
    double left = random.uniform();
    std::uint8_t letter = 0;
    while (letter + 1U < kLetters && (left -= of[letter]) >= 0) ++letter;
    text.push_back(letter);
  }
  return text;
}

void Text::gradient(const Parameters& at, Random& random, float* out) const {
  std::fill_n(out, kContexts * kLetters, 0.0F);
  for (std::size_t b = 0; b < kBatch; ++b) {
    const std::size_t i = 3 + random.below(train_.size() - 3);
    const std::size_t first = context_of(train_, i, kLetters) * kLetters;
    const Odds of = odds(&at[first]);
    for (std::size_t k = 0; k < kLetters; ++k)
      out[first + k] += static_cast<float>((of[k] - (k == train_[i] ? 1 : 0)) / kBatch);
  }
}

double Text::cross_entropy(const Parameters& at) const {
  double sum = 0;
  for (std::size_t i = 3; i < test_.size(); ++i)
    sum -= std::log(odds(&at[context_of(test_, i, kLetters) * kLetters])[test_[i]]);
  return sum / static_cast<double>(test_.size() - 3);
}

}  // namespace talweg::learning
