#include "train/models.h"

#include <gtest/gtest.h>

#include "talweg/error.h"
#include "train/strategies.h"

namespace talweg::train {
namespace {

TEST(Models, ParametersAddUpToThePublishedTotals) {
  ASSERT_GE(models().size(), 17u);
  for (const Model& model : models()) {
    const Job job = make_model(model.name);
    EXPECT_EQ(job.gradients().value, 4 * model.parameters) << model.name;
    EXPECT_EQ(job.name, model.name);
    EXPECT_EQ(job.origin, Origin::estimated);
    EXPECT_EQ(job.batch, model.batch);
  }
}

// Multiply-adds of one image as their papers and torchvision state them: at a rate that everything is
// measured by, forward passes take these times.
TEST(Models, ArithmeticIsWhatIsPublished) {
  Device device{.name = "plain", .flops = 1e12, .memory = 1e30, .efficiency = 1};
  const auto giga_multiply_adds = [&](const char* name) {
    return static_cast<double>(make_model(name, {.batch = 1, .device = device}).forward().value) * 1e-9 *
           1e12 / 2 * 1e-9;
  };
  EXPECT_NEAR(giga_multiply_adds("alexnet"), 0.71, 0.02);
  EXPECT_NEAR(giga_multiply_adds("vgg16"), 15.47, 0.1);
  EXPECT_NEAR(giga_multiply_adds("resnet18"), 1.81, 0.03);
  EXPECT_NEAR(giga_multiply_adds("resnet50"), 4.09, 0.1);
  EXPECT_NEAR(giga_multiply_adds("resnet152"), 11.51, 0.2);
  EXPECT_NEAR(giga_multiply_adds("densenet121"), 2.83, 0.1);
  EXPECT_NEAR(giga_multiply_adds("googlenet"), 1.5, 0.05);
  EXPECT_NEAR(giga_multiply_adds("inception_v3"), 5.71, 0.1);
  EXPECT_NEAR(giga_multiply_adds("resnext50"), 4.23, 0.1);
  EXPECT_NEAR(giga_multiply_adds("resnext101"), 16.41, 0.2);
  EXPECT_NEAR(giga_multiply_adds("nasnet_a_large"), 23.8, 0.4);
}

TEST(Models, TimesFollowTheRoofline) {
  const Device compute_bound{.name = "a", .flops = 1e12, .memory = 1e30, .efficiency = 0.5};
  const Job one = make_model("vgg16", {.batch = 1, .device = compute_bound});
  const Job eight = make_model("vgg16", {.batch = 8, .device = compute_bound});
  EXPECT_NEAR(static_cast<double>(eight.forward().value) / static_cast<double>(one.forward().value), 8, 0.01);
  EXPECT_NEAR(static_cast<double>(eight.backward().value) / static_cast<double>(eight.forward().value), 2,
              0.02);
  const Device launching{.name = "b", .flops = 1e30, .memory = 1e30, .least_kernel = {1000}};
  const Job launched = make_model("resnet50", {.device = launching});
  EXPECT_EQ(launched.forward().value, 1000 * static_cast<std::int64_t>(launched.layers.size()));
}

TEST(Models, LayersSayWhatTheyRead) {
  const Job job = make_model("resnet50");
  bool reads_two = false;
  for (const Layer& layer : job.layers) reads_two = reads_two || layer.after.size() == 2;
  EXPECT_TRUE(reads_two);
  for (const Model& model : models())
    EXPECT_EQ(parse_job(to_yaml(make_model(model.name)), "yaml"), make_model(model.name));
}

TEST(Models, CanBePredicted) {
  const Setting setting{.network = network_of("10GbE", 8, linear_times(500e-6, 0.86e-9))};
  for (const Model& model : models()) {
    const Prediction p = predict(make_model(model.name), find_strategy("ddp"), setting);
    EXPECT_GT(p.step, p.parts.busy()) << model.name;
  }
}

TEST(Models, WhatCannotBeMeantIsRefused) {
  EXPECT_THROW(make_model("resnet"), Error);
  EXPECT_THROW(find_device("tpu"), Error);
  EXPECT_THROW(make_model("resnet50", {.batch = -1}), Error);
  EXPECT_THROW(make_model("resnet50", {.sequence = 5}), Error);
  EXPECT_THROW(make_model("bert-base", {.sequence = 513}), Error);
  EXPECT_THROW(make_model("vgg16", {.device = {.name = "none"}}), Error);
  EXPECT_THROW(make_model("vgg16", {.batch = 1 << 20, .device = {.name = "slow", .flops = 1, .memory = 1}}),
               Error);
}

}  // namespace
}  // namespace talweg::train
