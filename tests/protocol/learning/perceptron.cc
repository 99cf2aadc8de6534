#include "protocol/learning/perceptron.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "protocol/learning/examples.h"

namespace talweg::learning {

namespace {

// A value of each example of a batch; the compiler makes of it as many registers as it takes.
using Lanes = float __attribute__((vector_size(kBatch * sizeof(float))));

constexpr std::size_t kHiddenBias = kHidden * kInputs;
constexpr std::size_t kClassWeights = kHiddenBias + kHidden;
constexpr std::size_t kClassBias = kClassWeights + kClasses * kHidden;

// What a batch's examples come to, each in its lane.
struct Forward {
  Lanes inputs[kInputs] = {};
  Lanes hidden[kHidden];
  Lanes classes[kClasses];

  Forward(const Parameters& parameters, std::span<const Example* const> batch) {
    for (std::size_t b = 0; b < batch.size(); ++b)
      for (std::size_t i = 0; i < kInputs; ++i) inputs[i][b] = batch[b]->inputs[i];
    layer(parameters.data(), parameters.data() + kHiddenBias, inputs, kInputs, hidden, kHidden);
    for (Lanes& unit : hidden) unit = unit > 0.0F ? unit : Lanes{};
    layer(parameters.data() + kClassWeights, parameters.data() + kClassBias, hidden, kHidden, classes,
          kClasses);
  }
  static void layer(const float* weights, const float* biases, const Lanes* in, std::size_t ins, Lanes* out,
                    std::size_t outs) {
    for (std::size_t o = 0; o < outs; ++o) {
      Lanes sum = Lanes{} + biases[o];
      for (std::size_t i = 0; i < ins; ++i) sum += weights[o * ins + i] * in[i];
      out[o] = sum;
    }
  }
};

// out[i] += a * in[i]
void add_scaled(float* out, float a, const float* in, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) out[i] += a * in[i];
}

}  // namespace

Parameters first_parameters(std::uint64_t seed) {
  Parameters parameters(kParameters);
  Gaussian gaussian(seed);
  const float hidden = std::sqrt(2.0F / kInputs), classes = std::sqrt(2.0F / kHidden);
  for (std::size_t i = 0; i < kHiddenBias; ++i) parameters[i] = hidden * gaussian.next();
  for (std::size_t i = kClassWeights; i < kClassBias; ++i) parameters[i] = classes * gaussian.next();
  return parameters;
}

void gradient(const Parameters& parameters, std::span<const Example* const, kBatch> batch, float* out) {
  Forward f(parameters, batch);
  // Of the classes: softmax, less 1 for the right one, of the mean.
  for (std::size_t b = 0; b < kBatch; ++b) {
    float most = f.classes[0][b], sum = 0;
    for (const Lanes& c : f.classes) most = std::max(most, c[b]);
    for (Lanes& c : f.classes) sum += c[b] = std::exp(c[b] - most);
    for (std::size_t k = 0; k < kClasses; ++k)
      f.classes[k][b] = (f.classes[k][b] / sum - (k == batch[b]->label ? 1.0F : 0.0F)) / kBatch;
  }
  Lanes hidden[kHidden] = {};  // the hidden units' own gradients
  for (std::size_t k = 0; k < kClasses; ++k)
    for (std::size_t h = 0; h < kHidden; ++h)
      hidden[h] += parameters[kClassWeights + k * kHidden + h] * f.classes[k];
  for (std::size_t h = 0; h < kHidden; ++h) hidden[h] = f.hidden[h] > 0.0F ? hidden[h] : Lanes{};

  std::fill_n(out, kParameters, 0.0F);
  for (std::size_t b = 0; b < kBatch; ++b) {
    float units[kHidden];
    for (std::size_t h = 0; h < kHidden; ++h) units[h] = f.hidden[h][b];
    for (std::size_t k = 0; k < kClasses; ++k) {
      add_scaled(out + kClassWeights + k * kHidden, f.classes[k][b], units, kHidden);
      out[kClassBias + k] += f.classes[k][b];
    }
  }
  for (std::size_t h = 0; h < kHidden; ++h)
    for (std::size_t b = 0; b < kBatch; ++b) {
      add_scaled(out + h * kInputs, hidden[h][b], batch[b]->inputs.data(), kInputs);
      out[kHiddenBias + h] += hidden[h][b];
    }
}

Score score(const Parameters& parameters, std::span<const Example> examples) {
  std::size_t right = 0;
  double entropy = 0;
  for (std::size_t first = 0; first < examples.size(); first += kBatch) {
    const std::size_t n = std::min(kBatch, examples.size() - first);
    const Example* batch[kBatch];
    for (std::size_t b = 0; b < n; ++b) batch[b] = &examples[first + b];
    const Forward f(parameters, {batch, n});
    for (std::size_t b = 0; b < n; ++b) {
      std::size_t best = 0;
      double sum = 0;
      for (std::size_t k = 1; k < kClasses; ++k)
        if (f.classes[k][b] > f.classes[best][b]) best = k;
      for (const Lanes& c : f.classes) sum += std::exp(static_cast<double>(c[b] - f.classes[best][b]));
      const std::size_t label = batch[b]->label;
      right += best == label ? 1 : 0;
      entropy += std::log(sum) - static_cast<double>(f.classes[label][b] - f.classes[best][b]);
    }
  }
  const auto all = static_cast<double>(examples.size());
  return {100 * static_cast<double>(right) / all, entropy / all};
}

}  // namespace talweg::learning
