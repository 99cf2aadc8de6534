#include "train/models.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/fail.h"
#include "train/model_definitions.h"

namespace talweg::train {
namespace {

constexpr int kMostBatch = 1 << 20;

struct Definition {
  Model model;
  int sequence;       // tokens as usual; 0: takes none
  int most_sequence;  // that its positions allow
  std::function<Job(const ModelOptions&)> make;
};

Definition network(const char* name, const char* description, std::int64_t parameters, int batch,
                   std::function<Job(const ModelOptions&)> make) {
  return {{name, description, parameters, batch}, 0, 0, std::move(make)};
}

Definition resnet(const char* name, const char* description, std::int64_t parameters,
                  const std::array<int, 4>& blocks, bool bottleneck, int groups = 1, int width = 64) {
  return network(name, description, parameters, 32,
                 [=, called = std::string(name)](const ModelOptions& options) {
                   return make_resnet(called, options, blocks, bottleneck, groups, width);
                 });
}

Definition bert(const char* name, const char* description, std::int64_t parameters, int batch, int layers,
                int hidden) {
  return {{name, description, parameters, batch},
          64,
          512,
          [=, called = std::string(name)](const ModelOptions& options) {
            return make_bert(called, options, layers, hidden);
          }};
}

const std::vector<Definition>& definitions() {
  static const std::vector<Definition> kDefinitions{
      network("alexnet", "AlexNet (Krizhevsky 2014), one column, 224 x 224 images", 61'100'840, 1024,
              make_alexnet),
      network("vgg16", "VGG-16 (Simonyan, Zisserman 2014)", 138'357'544, 32,
              [](const ModelOptions& options) { return make_vgg("vgg16", options, 16); }),
      network("vgg19", "VGG-19 (Simonyan, Zisserman 2014)", 143'667'240, 32,
              [](const ModelOptions& options) { return make_vgg("vgg19", options, 19); }),
      network("googlenet", "GoogLeNet (Szegedy et al. 2014) with batch norms, without auxiliary classifiers",
              6'624'904, 64, make_googlenet),
      resnet("resnet18", "ResNet-18 (He et al. 2015)", 11'689'512, {2, 2, 2, 2}, false),
      resnet("resnet50", "ResNet-50 (He et al. 2015)", 25'557'032, {3, 4, 6, 3}, true),
      resnet("resnet101", "ResNet-101 (He et al. 2015)", 44'549'160, {3, 4, 23, 3}, true),
      resnet("resnet152", "ResNet-152 (He et al. 2015)", 60'192'808, {3, 8, 36, 3}, true),
      network("densenet121", "DenseNet-121 (Huang et al. 2016)", 7'978'856, 32, make_densenet121),
      network("inception_v3",
              "Inception v3 (Szegedy et al. 2015), 299 x 299 images, without the auxiliary classifier",
              23'834'568, 32, make_inception_v3),
      resnet("resnext50", "ResNeXt-50 32x4d (Xie et al. 2016)", 25'028'904, {3, 4, 6, 3}, true, 32, 4),
      resnet("resnext101", "ResNeXt-101 32x8d (Xie et al. 2016)", 88'791'336, {3, 4, 23, 3}, true, 32, 8),
      network("nasnet_a_large",
              "NASNet-A-Large (Zoph et al. 2017), 331 x 331 images, without the auxiliary classifier",
              88'753'150, 32, make_nasnet_a_large),
      bert("bert-base", "BERT base, uncased (Devlin et al. 2018), with its pooler", 109'482'240, 64, 12, 768),
      bert("bert-large", "BERT large, uncased (Devlin et al. 2018), with its pooler", 335'141'888, 8, 24,
           1024),
      {{"gpt2", "GPT-2 small (Radford et al. 2019), embeddings tied", 124'439'808, 8}, 1024, 1024, make_gpt2},
      network("demo", "the network of examples/demo/train.py", 4'797'962, 120, make_demo),
  };
  return kDefinitions;
}

}  // namespace

const std::vector<Device>& devices() {
  constexpr Nanoseconds kKernel{5'000};
  static const std::vector<Device> kDevices{
      {.name = "k80",
       .flops = 4.37e12,
       .memory = 240e9,
       .copy = 12e9,
       .least_kernel = kKernel},  // one of its two
      {.name = "p100", .flops = 9.3e12, .memory = 732e9, .copy = 12e9, .least_kernel = kKernel},
      {.name = "v100", .flops = 15.7e12, .memory = 900e9, .copy = 12e9, .least_kernel = kKernel},
      {.name = "a100", .flops = 156e12, .memory = 1555e9, .copy = 24e9, .least_kernel = kKernel},  // TF32
      {.name = "h100", .flops = 494.7e12, .memory = 3350e9, .copy = 50e9, .least_kernel = kKernel},
      {.name = "cpu", .flops = 100e9, .memory = 12e9, .least_kernel = {10'000}},  // one core with AVX2
  };
  return kDevices;
}

const Device& find_device(const std::string& name) {
  std::vector<std::string> names;
  for (const Device& device : devices()) {
    if (device.name == name) return device;
    names.push_back(device.name);
  }
  refuse("no device is called \"{}\"; there are {}", name, fmt::join(names, ", "));
}

const std::vector<Model>& models() {
  static const std::vector<Model> kModels = [] {
    std::vector<Model> list;
    for (const Definition& definition : definitions()) list.push_back(definition.model);
    return list;
  }();
  return kModels;
}

Job make_model(const std::string& name, const ModelOptions& options) {
  const auto found =
      std::ranges::find_if(definitions(), [&](const Definition& d) { return d.model.name == name; });
  if (found == definitions().end()) {
    std::vector<std::string> names;
    for (const Model& model : models()) names.push_back(model.name);
    refuse("no model is called \"{}\"; there are {}", name, fmt::join(names, ", "));
  }
  ModelOptions complete = options;
  if (complete.batch == 0) complete.batch = found->model.batch;
  if (complete.sequence == 0) complete.sequence = found->sequence;
  if (complete.batch < 1 || complete.batch > kMostBatch)
    refuse("model {}: a batch has 1 to {} samples, not {}", name, kMostBatch, complete.batch);
  if (found->sequence == 0 && complete.sequence != 0) refuse("model {}: its samples are no sequences", name);
  if (found->sequence != 0 && (complete.sequence < 1 || complete.sequence > found->most_sequence))
    refuse("model {}: a sample has 1 to {} tokens, not {}", name, found->most_sequence, complete.sequence);
  const Device& device = complete.device;
  if (!(device.flops > 0 && std::isfinite(device.flops) && device.memory > 0 &&
        std::isfinite(device.memory)) ||
      !(device.efficiency > 0 && device.efficiency <= 1) || device.copy < 0 || device.element.value < 1 ||
      device.least_kernel.value < 0)
    refuse("device {}: its rates are above 0 and its efficiency is at most 1", device.name);
  return found->make(complete);
}

}  // namespace talweg::train
