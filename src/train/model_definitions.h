// The networks behind models.h, each with its definition. Options are complete: batch and sequence are above
// 0.
#pragma once

#include <array>
#include <string>

#include "train/job.h"
#include "train/models.h"

namespace talweg::train {

Job make_alexnet(const ModelOptions& options);
Job make_vgg(const std::string& name, const ModelOptions& options, int layers);  // 16 or 19
Job make_googlenet(const ModelOptions& options);
Job make_resnet(const std::string& name, const ModelOptions& options, const std::array<int, 4>& blocks,
                bool bottleneck, int groups = 1, int width = 64);
Job make_densenet121(const ModelOptions& options);
Job make_inception_v3(const ModelOptions& options);
Job make_nasnet_a_large(const ModelOptions& options);
Job make_bert(const std::string& name, const ModelOptions& options, int layers, int hidden);
Job make_gpt2(const ModelOptions& options);
// That of examples/demo/train.py.
Job make_demo(const ModelOptions& options);

}  // namespace talweg::train
