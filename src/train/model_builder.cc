#include "train/model_builder.h"

#include <algorithm>
#include <cmath>

#include "base/at.h"
#include "base/fail.h"

namespace talweg::train {
namespace {

// SGD with momentum reads gradients, and reads and writes weights and momenta.
constexpr double kUpdateTraffic = 5;

Nanoseconds in_nanoseconds(double seconds) {
  const double ns = std::ceil(seconds * 1e9);
  if (!(ns <= static_cast<double>(kLongest.value))) refuse("a model's layer would take {} s", seconds);
  return {static_cast<std::int64_t>(ns)};
}

int outputs(int size, int kernel, int stride, int pad, bool ceil) {
  const int span = size + 2 * pad - kernel;
  int count = (ceil ? (span + stride - 1) / stride : span / stride) + 1;
  if (ceil && (count - 1) * stride >= size + pad) --count;
  return count;
}

Activation windowed(const Activation& in, int channels, const Window& w) {
  return {channels,
          outputs(in.height, w.height, w.stride, w.pad_height, w.ceil),
          outputs(in.width, w.width, w.stride, w.pad_width, w.ceil),
          {}};
}

}  // namespace

ModelBuilder::ModelBuilder(std::string name, const ModelOptions& options) : options_(options) {
  job_.name = std::move(name);
  job_.origin = Origin::estimated;
  job_.batch = options.batch;
}

Nanoseconds ModelBuilder::time_of(double flops, double bytes) const {
  const Device& device = options_.device;
  const double seconds = std::max(flops / device.flops, bytes / device.memory) / device.efficiency;
  return std::max(in_nanoseconds(seconds), device.least_kernel);
}

int ModelBuilder::add(const std::string& name, const std::vector<int>& from, const Cost& cost) {
  const int number = static_cast<int>(job_.layers.size());
  const auto element = static_cast<double>(options_.device.element.value);
  const double flops = cost.flops * job_.batch;
  const double bytes = (cost.moved * job_.batch + cost.parameters) * element;
  Layer layer{.name = name, .forward = time_of(flops, bytes)};
  // Gradients of inputs and, where there are weights, of weights.
  const double passes = cost.parameters > 0 ? 2 : 1;
  layer.backward = time_of(passes * flops, passes * bytes);
  if (cost.parameters > 0) {
    const double gradient = cost.parameters * element;
    layer.update =
        in_nanoseconds(kUpdateTraffic * gradient / options_.device.memory / options_.device.efficiency);
    layer.gradient = {static_cast<std::int64_t>(gradient)};
  }
  if (!from.empty() && from != std::vector{number - 1}) layer.after = from;
  job_.layers.push_back(std::move(layer));
  return number;
}

Activation ModelBuilder::conv(const std::string& name, const Activation& in, int channels,
                              const Window& window, bool bias) {
  Activation out = windowed(in, channels, window);
  const double weights =
      static_cast<double>(channels) * in.channels / window.groups * window.height * window.width;
  out.from = {
      add(name, in.from,
          {2 * weights * out.height * out.width, in.size() + out.size(), weights + (bias ? channels : 0)})};
  return out;
}

Activation ModelBuilder::linear(const std::string& name, const Activation& in, int features, bool bias) {
  Activation out{features, in.height, in.width, {}};
  const double weights = static_cast<double>(features) * in.channels;
  out.from = {
      add(name, in.from,
          {2 * weights * in.height * in.width, in.size() + out.size(), weights + (bias ? features : 0)})};
  return out;
}

Activation ModelBuilder::tied_linear(const std::string& name, const Activation& in, int features) {
  Activation out{features, in.height, in.width, {}};
  out.from = {add(name, in.from, {2.0 * features * in.size(), in.size() + out.size(), 0})};
  return out;
}

Activation ModelBuilder::norm(const std::string& name, const Activation& in) {
  Activation out = in;
  // Means and deviations first, then each element: read twice, written once.
  out.from = {add(name, in.from, {8 * in.size(), 3 * in.size(), 2.0 * in.channels})};
  return out;
}

Activation ModelBuilder::pointwise(const std::string& name, const Activation& in,
                                   std::initializer_list<Activation> others) {
  Activation out = in;
  std::vector<int> from = in.from;
  for (const Activation& other : others) from.insert(from.end(), other.from.begin(), other.from.end());
  const auto read = static_cast<double>(1 + others.size());
  out.from = {add(name, from, {read * in.size(), (read + 1) * in.size(), 0})};
  return out;
}

Activation ModelBuilder::pool(const std::string& name, const Activation& in, const Window& window) {
  Activation out = windowed(in, in.channels, window);
  out.from = {add(name, in.from, {out.size() * window.height * window.width, in.size() + out.size(), 0})};
  return out;
}

Activation ModelBuilder::global_pool(const std::string& name, const Activation& in) {
  return pool(name, in, {.height = in.height, .width = in.width});
}

Activation ModelBuilder::embedding(const std::string& name, const Activation& tokens, int rows,
                                   int features) {
  Activation out{features, tokens.height, tokens.width, {}};
  const double table = static_cast<double>(rows) * features;
  const int number = add(name, tokens.from, {0, 2 * out.size(), table});
  // Only the rows of the batch's tokens are read; the gradient, which is of all rows, is written in full.
  const auto element = static_cast<double>(options_.device.element.value);
  job_.layers[at(number)].forward = time_of(0, 2 * out.size() * job_.batch * element);
  out.from = {number};
  return out;
}

Activation ModelBuilder::attention(const std::string& name, const Activation& query, const Activation& key,
                                   const Activation& value) {
  Activation out = query;
  std::vector<int> from = query.from;
  for (const Activation* other : {&key, &value})
    from.insert(from.end(), other->from.begin(), other->from.end());
  const double tokens = static_cast<double>(query.height) * query.width;
  // Two products of tokens x tokens x features.
  out.from = {add(name, from, {4 * tokens * tokens * query.channels, 4 * query.size(), 0})};
  return out;
}

Activation ModelBuilder::concat(std::initializer_list<Activation> parts) {
  Activation out = *parts.begin();
  out.channels = 0;
  out.from.clear();
  for (const Activation& part : parts) {
    out.channels += part.channels;
    for (const int layer : part.from)
      if (std::ranges::find(out.from, layer) == out.from.end()) out.from.push_back(layer);
  }
  return out;
}

Activation ModelBuilder::conv_norm_relu(const std::string& name, const Activation& in, int channels,
                                        const Window& window) {
  return pointwise(name + ".relu", norm(name + ".norm", conv(name, in, channels, window, false)));
}

Job ModelBuilder::finish(double input_bytes) {
  if (options_.device.copy > 0) job_.copy = in_nanoseconds(input_bytes * job_.batch / options_.device.copy);
  validate(job_);
  return std::move(job_);
}

}  // namespace talweg::train
