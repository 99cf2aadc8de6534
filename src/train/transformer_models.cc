// Transformers as Hugging Face defines them: encoders with a pooler, and a decoder with tied embeddings.
#include <fmt/format.h>

#include "train/model_builder.h"
#include "train/model_definitions.h"

namespace talweg::train {
namespace {

constexpr double kTokenBytes = 8;

Activation tokens(int sequence) {
  return {1, sequence, 1, {}};
}

Activation attended(ModelBuilder& net, const std::string& at, const Activation& in, bool fused) {
  const int hidden = in.channels;
  Activation query, key, value;
  if (fused) {
    query = key = value = net.linear(at + ".qkv", in, 3 * hidden);
    query.channels = key.channels = value.channels = hidden;
    key.from.clear();
    value.from.clear();
  } else {
    query = net.linear(at + ".query", in, hidden);
    key = net.linear(at + ".key", in, hidden);
    value = net.linear(at + ".value", in, hidden);
  }
  return net.linear(at + ".out", net.attention(at + ".attention", query, key, value), hidden);
}

Activation feed_forward(ModelBuilder& net, const std::string& at, const Activation& in) {
  const Activation wide = net.pointwise(at + ".gelu", net.linear(at + ".ffn1", in, 4 * in.channels));
  return net.linear(at + ".ffn2", wide, in.channels);
}

}  // namespace

Job make_bert(const std::string& name, const ModelOptions& options, int layers, int hidden) {
  ModelBuilder net(name, options);
  const Activation in = tokens(options.sequence);
  const Activation words = net.embedding("embedding.word", in, 30522, hidden);
  const Activation positions = net.embedding("embedding.position", in, 512, hidden);
  const Activation types = net.embedding("embedding.type", in, 2, hidden);
  Activation x = net.norm("embedding.norm", net.pointwise("embedding.add", words, {positions, types}));
  for (int i = 0; i < layers; ++i) {
    const std::string at = fmt::format("layer{}", i);
    x = net.norm(at + ".norm1", net.pointwise(at + ".add1", attended(net, at, x, false), {x}));
    x = net.norm(at + ".norm2", net.pointwise(at + ".add2", feed_forward(net, at, x), {x}));
  }
  x.height = 1;  // of the first token
  net.pointwise("tanh", net.linear("pooler", x, hidden));
  return net.finish(kTokenBytes * 3 * options.sequence);
}

Job make_gpt2(const ModelOptions& options) {
  constexpr int kHidden = 768, kLayers = 12, kWords = 50257;
  ModelBuilder net("gpt2", options);
  const Activation in = tokens(options.sequence);
  const Activation words = net.embedding("embedding.word", in, kWords, kHidden);
  Activation x =
      net.pointwise("embedding.add", words, {net.embedding("embedding.position", in, 1024, kHidden)});
  for (int i = 0; i < kLayers; ++i) {
    const std::string at = fmt::format("layer{}", i);
    x = net.pointwise(at + ".add1", attended(net, at, net.norm(at + ".norm1", x), true), {x});
    x = net.pointwise(at + ".add2", feed_forward(net, at, net.norm(at + ".norm2", x)), {x});
  }
  // Its weights are those of the words' embedding, whose gradient is complete at the very end only.
  net.tied_linear("head", net.norm("norm", x), kWords);
  return net.finish(kTokenBytes * 2 * options.sequence);
}

}  // namespace talweg::train
