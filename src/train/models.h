// Ready-made jobs: well-known networks, for whoever has recorded nothing yet. Layers and parameters follow
// from the networks' definitions, so parameters add up to the published totals. Times are estimated
// (Origin::estimated) by a roofline: a layer takes as long as the greater of its arithmetic at the rate that
// a device reaches and its memory traffic (activations and weights, read and written once) at the memory's
// rate, and no less than a kernel needs to run at all. The backward pass does that twice, once for inputs and
// once for weights.
//
//   const Job job = make_model("resnet50", {.batch = 64});
//   const Job quick = make_model("bert-base", {.batch = 8, .device = find_device("a100")});
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/job.h"

namespace talweg::train {

// Rates that a device reaches, as its maker states its peaks, and the part of them that real kernels get.
struct Device {
  std::string name;
  double flops = 0;            // a second; a multiply and an add are two
  double memory = 0;           // bytes a second
  double efficiency = 0.5;     // of both
  double copy = 0;             // bytes a second from its host; 0: it is the host
  Nanoseconds least_kernel{};  // that a layer takes at least
  Bytes element{4};            // of activations, weights and gradients
  bool operator==(const Device&) const = default;
};
// k80, p100, v100, a100, h100, cpu.
const std::vector<Device>& devices();
// Throws Error{invalid_argument} that lists the names there are.
const Device& find_device(const std::string& name);

struct ModelOptions {
  int batch = 0;  // samples a rank; 0: as the network is usually trained
  Device device = find_device("v100");
  int sequence = 0;  // tokens a sample, for transformers; 0: as usual
};

struct Model {
  std::string name;             // "resnet50"
  std::string description;      // "ResNet-50 (He et al. 2015), 224 x 224 images"
  std::int64_t parameters = 0;  // as published
  int batch = 0;                // as usual
};
const std::vector<Model>& models();
// Throws Error{invalid_argument} for a name that none has (it lists those there are), or sizes below 1 or so
// large that a Job cannot hold them.
Job make_model(const std::string& name, const ModelOptions& options = {});

}  // namespace talweg::train
