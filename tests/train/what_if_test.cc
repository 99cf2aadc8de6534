#include "train/what_if.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "talweg/error.h"

namespace talweg::train {
namespace {

// A network of equal layers: 1 ms forward, 2 ms backward, 1 MB each.
Job even_job(int layers) {
  Job job{.name = "even", .batch = 32};
  for (int l = 0; l < layers; ++l)
    job.layers.push_back({.name = "l" + std::to_string(l),
                          .forward = {1'000'000},
                          .backward = {2'000'000},
                          .gradient = {1'000'000}});
  return job;
}

TEST(WhatIf, TheCurveOverRanksIsOfTheirOwnTimes) {
  const Job job = even_job(10);
  const Setting setting{.network = network_of("net", 2, linear_times(1e-3, 1e-9))};
  const std::vector<int> ranks{1, 2, 8, 64};
  const auto curve =
      scaling(job, find_strategy("wfbp"), setting, ranks, by_growth(setting.network, Growth::ring));
  ASSERT_EQ(curve.size(), 4u);
  EXPECT_NEAR(curve[0].step, 30e-3, 1e-9);
  EXPECT_NEAR(curve[0].speed_up, 1, 1e-9);
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    EXPECT_NEAR(curve[i].speed_up, ranks[i] * 30e-3 / curve[i].step, 1e-9);
    EXPECT_NEAR(curve[i].samples_per_second, 32 * ranks[i] / curve[i].step, 1e-6);
    Setting its = setting;
    its.network = at_ranks(setting.network, ranks[i]);
    EXPECT_NEAR(curve[i].step, predict(job, find_strategy("wfbp"), its).step, 1e-12);
  }
  EXPECT_LT(curve[3].efficiency, curve[1].efficiency);
}

TEST(WhatIf, BandwidthIsEnoughWhereTheRestGainsLessThanAHundredth) {
  const Job job = even_job(10);
  // All in one call of 10 MB behind the backward pass: 30 + 1 + 100 / x ms, so that 31 * 1.01 = 31 + 100 / x.
  const Setting setting{.network = network_of("net", 4, linear_times(1e-3, 10e-9))};
  const EnoughBandwidth answer = enough_bandwidth(job, find_strategy("one"), setting);
  EXPECT_NEAR(answer.step, 131e-3, 1e-9);
  EXPECT_NEAR(answer.at_best, 31e-3, 1e-9);
  ASSERT_TRUE(answer.enough);
  EXPECT_NEAR(*answer.enough, 100 / 0.31, 0.5);
  for (std::size_t i = 0; i + 1 < answer.curve.size(); ++i)
    EXPECT_GE(answer.curve[i].step, answer.curve[i + 1].step);
  // Where there is far more than enough, that is said, too.
  const Setting quick{.network = network_of("net", 4, linear_times(0, 1e-12))};
  EXPECT_LT(enough_bandwidth(job, find_strategy("wfbp"), quick).enough.value_or(1), 0.1);
}

TEST(WhatIf, TheBestPlanIsNoWorseThanAnyAndItsGainIsOfTheBaseline) {
  const Job job = even_job(24);
  const Setting setting{.network = network_of("net", 8, linear_times(2e-3, 1.5e-9))};
  const Strategy& ddp = find_strategy("ddp");
  const auto plans = best_plans(job, ddp, setting);
  ASSERT_GE(plans.size(), 6u);
  const double baseline = predict(job, ddp, setting).step;
  for (const Candidate& plan : plans) {
    EXPECT_GE(plan.step, plans.front().step);
    EXPECT_NEAR(plan.gain, 1 - plan.step / baseline, 1e-12);
    EXPECT_NEAR(predict(job, plan.strategy, setting).step, plan.step, 1e-15);
    EXPECT_THAT(to_words(plan), testing::HasSubstr(plan.strategy.name));
  }
  EXPECT_TRUE(std::ranges::any_of(plans, [](const Candidate& c) { return c.strategy.name == "ddp"; }));
  for (const Strategy& strategy : strategies()) {
    if (strategy.input != ddp.input) continue;
    EXPECT_GE(predict(job, strategy, setting).step * (1 + 1e-9), plans.front().step) << strategy.name;
  }
  const Candidate cap = best_cap(job, ddp, setting);
  EXPECT_LE(cap.step, baseline);
  EXPECT_EQ(cap.strategy.sending, Strategy::Sending::as_ready);
}

TEST(WhatIf, WhatHelpsIsInOrder) {
  Job job = even_job(10);
  for (Layer& layer : job.layers) layer.forward_gap = {5'000'000};
  const Setting setting{.network = network_of("net", 2, linear_times(0, 1e-9))};
  const auto changes = what_helps(job, find_strategy("wfbp"), setting);
  EXPECT_EQ(changes.front().what, "no gaps");
  EXPECT_NEAR(changes.front().step, 31e-3, 1e-9);
  for (std::size_t i = 0; i + 1 < changes.size(); ++i) EXPECT_LE(changes[i].step, changes[i + 1].step);
}

// By hand: read in 4 and copied in 2, forward 10 with a gap of 3, backward 20 with one of 2, then one call
// that waits for 5 and takes 1 + 10, all of which nothing hides.
TEST(WhatIf, EachChangeChangesWhatItSays) {
  Job job{.name = "one",
          .ranks = 2,
          .layers = {{.name = "a",
                      .forward = {10'000'000},
                      .backward = {20'000'000},
                      .forward_gap = {3'000'000},
                      .backward_gap = {2'000'000},
                      .gradient = {10'000'000}}}};
  job.input = {4'000'000};
  job.copy = {2'000'000};
  job.exchanges = {{.layers = {0}, .bytes = {10'000'000}, .time = {11'000'000}, .wait = {5'000'000}}};
  const Setting setting{.network = network_of("net", 2, linear_times(1e-3, 1e-9))};
  const Strategy strategy = find_strategy("naive");
  EXPECT_NEAR(predict(job, strategy, setting).step, 57e-3, 1e-12);
  const auto changes = what_helps(job, strategy, setting);
  const auto step = [&](const char* what) {
    const auto found = std::ranges::find(changes, what, &Change::what);
    return found == changes.end() ? 0 : found->step;
  };
  EXPECT_NEAR(step("twice the bandwidth"), 52e-3, 1e-12);
  EXPECT_NEAR(step("half the bytes"), 52e-3, 1e-12);
  EXPECT_NEAR(step("no start-ups"), 56e-3, 1e-12);
  EXPECT_NEAR(step("devices twice as fast"), 42e-3, 1e-12);
  EXPECT_NEAR(step("no rank late"), 52e-3, 1e-12);
  EXPECT_NEAR(step("no gaps"), 52e-3, 1e-12);
  EXPECT_NEAR(step("batches that are there"), 51e-3, 1e-12);
  EXPECT_EQ(changes.size(), 7u);
}

// PyTorch gives the first bucket the same cap where one is set.
TEST(WhatIf, TheCapThatIsSoughtIsOfAllBuckets) {
  const Job job = even_job(10);
  const Setting setting{.network = network_of("net", 2, linear_times(1e-3, 1e-9))};
  const std::vector<Bytes> caps{{4 << 20}};
  EXPECT_EQ(best_cap(job, find_strategy("ddp"), setting, caps).calls, 2) << "5 layers each";
}

TEST(WhatIf, PiecesOfWhichThereWouldBeTooManyAreNoPlan) {
  Job job = even_job(10);
  for (Layer& layer : job.layers) layer.gradient = {20'000'000'000};
  const Setting setting{.network = network_of("net", 4, linear_times(1e-3, 1e-12))};
  EXPECT_THROW(predict_numbers(job, find_strategy("p3"), setting), Error);
  const Bytes small{1 << 16}, large{1 << 30};
  const auto plans_of = [&](std::vector<Bytes> partitions) {
    std::vector<std::string> names;
    for (const Candidate& plan : best_plans(
             job, find_strategy("ddp"), setting,
             {.decoupled = false, .sharded = false, .caps = {large}, .partitions = std::move(partitions)}))
      names.push_back(plan.strategy.name);
    return names;
  };
  EXPECT_EQ(plans_of({small, large}), plans_of({large}));
  // So many of gradients that grow, too.
  Setting grown = setting;
  grown.compression = 1e-3;
  for (Layer& layer : job.layers) layer.gradient = {20'000'000'000 / 1000};
  EXPECT_THROW(predict_numbers(job, find_strategy("p3"), grown), Error);
  EXPECT_NO_THROW(predict_numbers(job, find_strategy("p3"), setting));
}

// Of two limits that nothing reaches the first is as good as the other, and is the one that is told.
TEST(WhatIf, PiecesLargerThanAllGradientsAreTriedOnce) {
  const Job job = even_job(10);
  const Setting setting{.network = network_of("net", 4, linear_times(1e-4, 1e-9))};
  const auto best = [&](std::vector<Bytes> partitions) {
    for (const Candidate& plan :
         best_plans(job, find_strategy("ddp"), setting, {.partitions = std::move(partitions)}))
      if (plan.strategy.sending == Strategy::Sending::by_priority) return plan;
    return Candidate{};
  };
  const Candidate few = best({{1 << 19}, {1 << 25}}),
                  many = best({{1 << 19}, {1 << 25}, {1 << 26}, {1 << 28}});
  EXPECT_EQ(few.strategy, many.strategy);
  EXPECT_EQ(few.step, many.step);
  // Not those that let more be under way.
  const Setting several{.network = network_of("net", 4, linear_times(1e-3, 4e-9)), .in_flight = 4};
  for (const Candidate& plan :
       best_plans(job, find_strategy("ddp"), several, {.partitions = std::vector<Bytes>{{1 << 18}}}))
    if (plan.strategy.sending == Strategy::Sending::by_priority) {
      EXPECT_GT(plan.strategy.credit, plan.strategy.partition);
    }
}

}  // namespace
}  // namespace talweg::train
