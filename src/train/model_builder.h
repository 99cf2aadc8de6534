// Builds a Job layer by layer from a network's definition. For models.cc and those beside it.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "train/job.h"
#include "train/models.h"

namespace talweg::train {

// What a layer has written: channels of height x width for images, features for `positions` tokens else.
struct Activation {
  int channels = 0;
  int height = 1;
  int width = 1;
  std::vector<int> from{};  // the layers that wrote it; empty: the input
  double size() const { return static_cast<double>(channels) * height * width; }
};

// Of a convolution or a pooling; the defaults are those of a 1 x 1 convolution.
struct Window {
  int height = 1, width = 1;
  int stride = 1;
  int pad_height = 0, pad_width = 0;
  int groups = 1;
  bool ceil = false;  // outputs that begin inside of the input are kept
};
// k x k with that padding.
constexpr Window square(int k, int stride = 1, int pad = 0) {
  return {.height = k, .width = k, .stride = stride, .pad_height = pad, .pad_width = pad};
}

class ModelBuilder {
 public:
  ModelBuilder(std::string name, const ModelOptions& options);

  // `channels`: of the output. With its bias.
  Activation conv(const std::string& name, const Activation& in, int channels, const Window& window = {},
                  bool bias = true);
  Activation linear(const std::string& name, const Activation& in, int features, bool bias = true);
  // Two parameters a channel: of batches (per channel) or of layers (per feature).
  Activation norm(const std::string& name, const Activation& in);
  // Element by element: activations, sums, dropout. `others` are read as well, and have the same size.
  Activation pointwise(const std::string& name, const Activation& in,
                       std::initializer_list<Activation> others = {});
  Activation pool(const std::string& name, const Activation& in, const Window& window);
  Activation global_pool(const std::string& name, const Activation& in);
  // A table of `rows` vectors, of which each token reads one.
  Activation embedding(const std::string& name, const Activation& tokens, int rows, int features);
  // The products of attention, without its weights: softmax(q k') v.
  Activation attention(const std::string& name, const Activation& query, const Activation& key,
                       const Activation& value);
  // A matrix product whose weights belong to another layer.
  Activation tied_linear(const std::string& name, const Activation& in, int features);
  // No layer: what follows reads all of them.
  static Activation concat(std::initializer_list<Activation> parts);
  // conv without bias, norm, ReLU.
  Activation conv_norm_relu(const std::string& name, const Activation& in, int channels,
                            const Window& window = {});

  // `input_bytes`: of one sample.
  Job finish(double input_bytes);

 private:
  struct Cost {
    double flops = 0;  // of one sample
    double moved = 0;  // elements of activations, of one sample
    double parameters = 0;
  };
  int add(const std::string& name, const std::vector<int>& from, const Cost& cost);
  Nanoseconds time_of(double flops, double bytes) const;

  Job job_;
  ModelOptions options_;
};

}  // namespace talweg::train
