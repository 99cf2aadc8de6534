// The measured layer tables of tests/train/layer_tables as jobs.
#pragma once

#include <cmath>
#include <fstream>
#include <stdexcept>
#include <string>

#include "train/job.h"

namespace talweg::train {

inline Job load_layer_table(const std::string& name) {
  const std::string path = std::string(TALWEG_SOURCE_DIR) + "/tests/train/layer_tables/" + name + ".txt";
  std::ifstream in(path);
  Job job{.name = name};
  std::string layer;
  double forward_ms = 0, backward_ms = 0;
  std::int64_t bytes = 0;
  const auto time = [](double ms) { return Nanoseconds{std::llround(ms * 1e6)}; };
  while (in >> layer >> forward_ms >> backward_ms >> bytes)
    job.layers.push_back(
        {.name = layer, .forward = time(forward_ms), .backward = time(backward_ms), .gradient = {bytes}});
  if (!in.eof() || job.layers.empty()) throw std::runtime_error("cannot read " + path);
  return job;
}

}  // namespace talweg::train
