#include "train/strategies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/random.h"
#include "talweg/error.h"

namespace talweg::train {
namespace {

constexpr std::int64_t kMillisecond = 1'000'000;

Nanoseconds ms(double value) {
  return {static_cast<std::int64_t>(value * kMillisecond)};
}

Job random_job(Random& random, int layers) {
  Job job{.name = "random"};
  for (int l = 0; l < layers; ++l) {
    Layer layer{.name = "l" + std::to_string(l)};
    layer.forward = ms(3 * random.uniform());
    layer.backward = ms(5 * random.uniform());
    if (random.uniform() < 0.8) layer.gradient = {static_cast<std::int64_t>(8e6 * random.uniform())};
    if (random.uniform() < 0.3) layer.forward_gap = ms(random.uniform());
    if (random.uniform() < 0.3) layer.backward_gap = ms(random.uniform());
    if (random.uniform() < 0.3) layer.update = ms(0.2 * random.uniform());
    job.layers.push_back(std::move(layer));
  }
  job.update = ms(random.uniform());
  job.overhead = ms(random.uniform());
  return job;
}

Setting random_setting(Random& random) {
  return {.network = network_of("random", 8, linear_times(1e-3 * random.uniform(), 2e-9 * random.uniform()))};
}

// Seconds of a job's parts.
struct Sums {
  explicit Sums(const Job& job)
      : forward(static_cast<double>(job.forward().value + job.forward_gaps().value) * 1e-9),
        backward(static_cast<double>(job.backward().value + job.backward_gaps().value) * 1e-9),
        rest(static_cast<double>(job.all_updates().value + job.overhead.value) * 1e-9) {}
  double forward, backward, rest;
};

double all_transfers(const Job& job, const Setting& setting) {
  double seconds = 0;
  for (const Layer& layer : job.layers)
    seconds += setting.network.all_reduce.seconds(static_cast<double>(layer.gradient.value));
  return seconds;
}

// The equations of the DAG model's authors, for jobs drawn at random whose input is now the bottleneck and
// now not.
TEST(Strategies, StepsTakeWhatTheClosedFormsSay) {
  Random random{11};
  for (int i = 0; i < 60; ++i) {
    Job job = random_job(random, 1 + static_cast<int>(random.below(12)));
    job.input = ms(60 * random.uniform());
    job.copy = ms(20 * random.uniform());
    const Setting setting = random_setting(random);
    const Sums sums(job);
    const double read = static_cast<double>(job.input.value) * 1e-9,
                 copy = static_cast<double>(job.copy.value) * 1e-9;
    const double compute = sums.forward + sums.backward + sums.rest;
    const double sent = all_transfers(job, setting);
    const auto step = [&](const char* name) { return predict(job, find_strategy(name), setting).step; };
    EXPECT_NEAR(step("naive"), read + copy + compute + sent, 1e-9);
    EXPECT_NEAR(step("io"), std::max(read, copy + compute + sent), 1e-9);
    EXPECT_NEAR(step("io-copy"), std::max(read + copy, compute + sent), 1e-9);
    EXPECT_NEAR(step("cntk"), std::max(read, copy + compute + sent), 1e-9);
    const Gradients gradients = gradients_of(job, setting);
    const double hidden = std::max(
        sums.backward,
        finish(gradients.arrivals, merge_none(gradients.arrivals.size()), setting.network.all_reduce));
    EXPECT_NEAR(step("wfbp"), std::max(read + copy, sums.forward + hidden + sums.rest), 1e-9);
    EXPECT_NEAR(step("caffe-mpi"), step("wfbp"), 1e-12);
    EXPECT_NEAR(step("mxnet"), std::max(read, copy + sums.forward + hidden + sums.rest), 1e-9);
    const double best = std::max(
        sums.backward, finish(gradients.arrivals, merge_exact(gradients.arrivals, setting.network.all_reduce),
                              setting.network.all_reduce));
    EXPECT_NEAR(step("exact"), std::max(read + copy, sums.forward + best + sums.rest), 1e-9);
  }
}

// While devices compute, buckets fill, and what is then sent is over as much sooner: at most what they hold.
TEST(Strategies, BucketsFillWhileNothingIsSent) {
  Random random{17};
  Job job = random_job(random, 6);
  job.layers[0].gradient = {1'000'000};
  Setting setting = random_setting(random);
  const double sent = setting.network.all_reduce.seconds(static_cast<double>(job.gradients().value));
  const double served = sent - setting.network.all_reduce.startup();
  const Sums sums(job);
  const double compute = sums.forward + sums.backward + sums.rest;
  for (const double burst : {0.0, 1e-3, compute + 1}) {
    setting.network.burst = burst;
    EXPECT_NEAR(predict(job, find_strategy("one"), setting).step,
                compute + sent - std::min({burst, compute + setting.network.all_reduce.startup(), served}),
                1e-9)
        << burst;
  }
  setting.network.burst = compute + 1;
  setting.network.least.all_reduce = linear_times(0, 1e-10);
  EXPECT_NEAR(predict(job, find_strategy("one"), setting).step,
              compute + setting.network.all_reduce.startup() +
                  std::max(1e-10 * static_cast<double>(job.gradients().value),
                           served - compute - setting.network.all_reduce.startup()),
              1e-9)
      << "what endless links would take is left";
  // Also what of that comes before their turn, where all of a transfer takes turns here.
  const double bytes = static_cast<double>(job.gradients().value);
  setting.network.all_reduce = linear_times(0, sent / bytes);
  setting.network.least.all_reduce = linear_times(0.9 * sent, 0);
  EXPECT_NEAR(predict(job, find_strategy("one"), setting).step, compute + 0.9 * sent, 1e-9);
  setting.network.burst = 1e-3;
  EXPECT_EQ(setting.network.with_bandwidth(4).burst, 0.25e-3) << "as many bytes";
}

// Of each collective its own, and a start-up counts once.
TEST(Strategies, WhatBucketsCannotHelpIsOfTheCollectiveAtHand) {
  const Job job{.name = "a",
                .layers = {{.name = "a", .forward = ms(10), .backward = ms(20), .gradient = {10'000'000}}}};
  Setting setting{.network = network_of("n", 2, linear_times(1e-3, 1e-9))};
  setting.network.burst = 1;
  Setting summed = setting, scattered = setting;
  summed.network.least.all_reduce = linear_times(1e-3, 1e-10);
  EXPECT_NEAR(predict(job, find_strategy("one"), summed).step, 32e-3, 1e-9);
  scattered.network.least.reduce_scatter = linear_times(0, 2e-10);
  EXPECT_NEAR(predict(job, find_strategy("dear"), scattered).step, 33e-3, 1e-9);
}

// Whatever the strategy: the parts and the critical path make up the step; nothing in the picture overlaps
// what uses the same resource; all gradients are sent; no step is shorter than its busiest resource.
TEST(Strategies, PredictionsAddUp) {
  Random random{12};
  for (int i = 0; i < 12; ++i) {
    Job job = random_job(random, 2 + static_cast<int>(random.below(15)));
    job.layers[0].gradient = {1'000'000};
    job.input = ms(30 * random.uniform());
    job.copy = ms(5 * random.uniform());
    if (i % 3 == 1) job.exchanges.push_back({.layers = {0}, .bytes = job.layers[0].gradient, .wait = ms(2)});
    Setting setting = random_setting(random);
    if (i % 3 == 2) setting.slowness = {1, 1.3, 1, 1, 2, 1, 1, 1};
    if (i % 4 == 0) setting.network.burst = 2e-3;
    for (const Strategy& strategy : strategies()) {
      const Prediction p = predict(job, strategy, setting);
      SCOPED_TRACE(strategy.name + " on job " + std::to_string(i));
      EXPECT_NEAR(p.parts.total(), p.step, 1e-9 + 0.02 * p.step);
      if (setting.slowness.empty()) {
        EXPECT_NEAR(p.parts.total(), p.step, 1e-9);
      }
      double path = 0;
      for (const PathPart& part : p.critical) path += part.seconds;
      EXPECT_NEAR(path, p.step, 1e-9 + 0.02 * p.step);
      EXPECT_GE(p.step * (1 + 1e-9), p.transfers);
      EXPECT_GE(p.step * (1 + 1e-9), p.parts.busy() + p.parts.gap + p.parts.overhead);
      const auto all = static_cast<double>(job.gradients().value);
      const double share = strategy.sending == Strategy::Sending::sharded     ? 2
                           : strategy.sending == Strategy::Sending::decoupled ? 2
                                                                              : 1;
      EXPECT_GE(p.sent * (1 + 1e-9), share * all);
      EXPECT_LE(p.sent, 3 * all + 1);
      EXPECT_THAT(p.bottleneck, testing::HasSubstr("a step"));
      for (std::size_t s = 0; s + 1 < p.timeline.size(); ++s) {
        const Span &a = p.timeline[s], &b = p.timeline[s + 1];
        EXPECT_GT(a.end, a.start);
        if (a.rank == b.rank && a.resource == b.resource) {
          EXPECT_LE(a.end, b.start + 1e-12);
        }
      }
      EXPECT_TRUE(std::ranges::any_of(p.timeline, [](const Span& s) { return s.critical; }));
    }
  }
}

TEST(Strategies, NumbersAloneAreThoseOfTheWholePrediction) {
  Random random{23};
  for (const Strategy& strategy : strategies()) {
    const Job job = random_job(random, 6);
    const Setting setting = random_setting(random);
    if (strategy.merging.rule == Merging::Rule::recorded) continue;
    Prediction whole = predict(job, strategy, setting);
    const Prediction numbers = predict_numbers(job, strategy, setting);
    EXPECT_TRUE(numbers.timeline.empty() && numbers.critical.empty() && numbers.bottleneck.empty());
    whole.timeline.clear();
    whole.critical.clear();
    whole.bottleneck.clear();
    EXPECT_EQ(numbers, whole) << strategy.name;
  }
}

TEST(Strategies, OneRankSendsNothing) {
  Random random{13};
  const Job job = random_job(random, 6);
  const Sums sums(job);
  for (const Strategy& strategy : strategies()) {
    const Prediction p = predict(job, strategy, {.network = no_network(1)});
    EXPECT_NEAR(p.step, sums.forward + sums.backward + sums.rest, 1e-9) << strategy.name;
    EXPECT_EQ(p.calls, 0);
    EXPECT_EQ(p.parts.exposed, 0);
  }
}

// Two layers; the gradient of the second, large one is ready first. In order, the first layer's waits behind
// it, and with it the next step; by priority it overtakes after one piece, and the next forward pass hides
// the rest.
TEST(Strategies, PriorityLetsTheNextForwardPassBeginBeforeAllIsSent) {
  const Job job{
      .name = "two",
      .layers = {{.name = "first", .forward = ms(10), .backward = ms(2), .gradient = {1'000'000}},
                 {.name = "second", .forward = ms(1), .backward = ms(1), .gradient = {10'000'000}}}};
  const Setting setting{.network = network_of("net", 2, linear_times(0, 1e-9))};
  // Forward 11, then backward until 14; sent from 12 to 22 and to 23.
  EXPECT_NEAR(predict(job, find_strategy("wfbp"), setting).step, 23e-3, 1e-12);
  Strategy strategy = find_strategy("bytescheduler");
  strategy.partition = {1'000'000};
  strategy.credit = {};
  // The first layer's is sent from 14 to 15, and forward goes on; the second's is there at 23, before 25.
  const Prediction p = predict(job, strategy, setting);
  EXPECT_NEAR(p.step, 15e-3, 1e-9);
  EXPECT_EQ(p.calls, 11);
  // With credit for all of it, the first layer's waits behind all that was taken before.
  strategy.credit = {10'000'000};
  EXPECT_NEAR(predict(job, strategy, setting).step, 23e-3, 2e-3);
  EXPECT_GT(predict(job, strategy, setting).step, 21e-3);
}

// Reduce-scatter hides behind backward, all-gather behind forward: no less than the greater of each pair, and
// with one group per layer near it, where in-order all-reduce exposes what is longer than backward.
TEST(Strategies, DecoupledHalvesHideBehindBothPasses) {
  Job job{.name = "even"};
  for (int l = 0; l < 20; ++l)
    job.layers.push_back(
        {.name = std::to_string(l), .forward = ms(2), .backward = ms(2), .gradient = {2'000'000}});
  const Setting setting{.network =
                            network_of("net", 4, linear_times(0, 1.8e-9))};  // 3.6 ms a layer, 1.8 each half
  Strategy strategy = find_strategy("dear");
  strategy.merging.first_cap = strategy.merging.cap = {};
  const Prediction dear = predict(job, strategy, setting);
  EXPECT_GE(dear.step, 80e-3);
  EXPECT_LE(dear.step, 84e-3);
  EXPECT_EQ(dear.calls, 40);
  EXPECT_NEAR(predict(job, find_strategy("wfbp"), setting).step, 40e-3 + 2e-3 + 72e-3, 1e-9);
}

// With a network that is slower than compute, all-gathers that need not wait for the barrier fill what
// reduce-scatters leave free while the first layers' long backward runs.
TEST(Strategies, TheBarrierAndTheLookAheadAreSwitchedApart) {
  const Job job{.name = "tail",
                .layers = {{.name = "a", .forward = ms(1), .backward = ms(30), .gradient = {1'000'000}},
                           {.name = "b", .forward = ms(1), .backward = ms(1), .gradient = {10'000'000}}}};
  const Setting setting{.network = network_of("net", 2, linear_times(0, 2e-9))};
  Strategy strategy = find_strategy("dear");
  strategy.merging.first_cap = strategy.merging.cap = {};
  // Backward ends at 33; a's halves take 1 each, b's all-gather 10.
  const double step = predict(job, strategy, setting).step;
  EXPECT_NEAR(step, (31 + 1 + 1 + 10 + 1) * 1e-3, 1e-9);
  strategy.barrier = false;
  EXPECT_NEAR(predict(job, strategy, setting).step, step, 1e-9);  // still not asked for
  strategy.look_ahead = 0;
  EXPECT_NEAR(predict(job, strategy, setting).step, (31 + 1 + 1 + 1 + 1) * 1e-3, 1e-9);
  strategy.barrier = true;
  EXPECT_NEAR(predict(job, strategy, setting).step, step, 1e-9);
}

// By hand: two units, each 4 MB, 4 ms to gather and 4 ms to scatter.
TEST(Strategies, ShardedWeightsAreGatheredBeforeTheirUse) {
  const Job job{.name = "two",
                .layers = {{.name = "a", .forward = ms(5), .backward = ms(10), .gradient = {4'000'000}},
                           {.name = "b", .forward = ms(5), .backward = ms(10), .gradient = {4'000'000}}}};
  const Setting setting{.network = network_of("net", 2, linear_times(0, 2e-9))};
  Strategy strategy = find_strategy("fsdp");
  strategy.merging.first_cap = strategy.merging.cap = {};
  // Gather a until 4; forward a until 9 while b is gathered; forward b until 14; backward b until 24 while a
  // is gathered again; backward a until 34 while b is scattered; scatter a until 38.
  Prediction p = predict(job, strategy, setting);
  EXPECT_NEAR(p.step, 38e-3, 1e-9);
  EXPECT_NEAR(p.parts.exposed, 8e-3, 1e-9);
  EXPECT_EQ(p.calls, 5);
  strategy.look_ahead = 0;  // b is asked for at 9, and again a at 28
  EXPECT_NEAR(predict(job, strategy, setting).step, 46e-3, 1e-9);
  // Who asks does so once its host comes to it: b at 11, and a again at 33, behind b's gap, while b is
  // scattered until 34.
  Job late = job;
  late.layers[0].forward_gap = ms(2);
  late.layers[1].backward_gap = ms(3);
  EXPECT_NEAR(predict(late, strategy, setting).step, 52e-3, 1e-9);
  // Gradients are sent in a tenth of their bytes, weights as they are.
  Setting compressed = setting;
  compressed.compression = 10;
  EXPECT_NEAR(predict(job, strategy, compressed).step, 46e-3 - 3.6e-3, 1e-9);
  // Of two ranks each updates a half.
  Job updated = job;
  updated.update = ms(6);
  EXPECT_NEAR(predict(updated, strategy, setting).step, 49e-3, 1e-9);
}

TEST(Strategies, WaitsForPeersAreNeitherBusyNorTransfers) {
  Job job{.name = "late",
          .ranks = 2,
          .layers = {{.name = "a", .forward = ms(2), .backward = ms(3), .gradient = {1'000'000}}}};
  job.exchanges = {{.layers = {0}, .bytes = {1'000'000}, .time = ms(4), .wait = ms(6)}};
  const Setting setting{.network = network_of("net", 2, linear_times(0, 4e-9))};
  const Prediction p = predict(job, find_strategy("ddp"), setting);
  EXPECT_NEAR(p.step, 15e-3, 1e-12);
  EXPECT_NEAR(p.parts.peer_wait, 6e-3, 1e-12);
  EXPECT_NEAR(p.parts.exposed, 4e-3, 1e-12);
  EXPECT_NEAR(p.transfers, 4e-3, 1e-12);
  EXPECT_THAT(p.bottleneck, testing::HasSubstr("late"));
  for (const char* name : {"p3", "bytescheduler", "dear", "fsdp"})
    EXPECT_NEAR(predict(job, find_strategy(name), setting).parts.peer_wait, 6e-3, 1e-12) << name;
  Setting punctual = setting;
  punctual.peer_waits = false;
  EXPECT_NEAR(predict(job, find_strategy("ddp"), punctual).step, 9e-3, 1e-12);
}

// What merging is told groups come to is what a step comes to.
TEST(Strategies, StepsEndWhenMergingSaysThatGroupsDo) {
  Random random{31};
  for (int i = 0; i < 100; ++i) {
    Job job = random_job(random, 2 + static_cast<int>(random.below(8)));
    job.update = job.overhead = {};
    for (Layer& layer : job.layers) layer.update = {};
    for (int l = static_cast<int>(job.layers.size()) - 1; l >= 0; --l)
      if (random.uniform() < 0.8) job.exchanges.push_back({.layers = {l}, .wait = ms(4 * random.uniform())});
    Setting setting = random_setting(random);
    setting.in_flight = 1 + static_cast<int>(random.below(4));
    const Gradients gradients = gradients_of(job, setting);
    const Sums sums(job);
    for (const char* name : {"wfbp", "exact"}) {
      const Prediction predicted = predict(job, find_strategy(name), setting);
      Groups groups;
      std::size_t end = 0;
      for (const auto& group : predicted.groups) groups.push_back(end += group.size());
      const double exchanged =
          finish(gradients.arrivals, groups, setting.network.all_reduce, setting.in_flight);
      EXPECT_NEAR(predicted.step, sums.forward + std::max(sums.backward, exchanged), 1e-12)
          << name << ", " << i;
    }
  }
}

// Each recorded exchange waited: fewer wait less often, which merging must know.
TEST(Strategies, TheExactMergingIsNotBeatenWhereRanksAreLate) {
  Random random{29};
  for (int i = 0; i < 100; ++i) {
    Job job = random_job(random, 2 + static_cast<int>(random.below(8)));
    for (int l = static_cast<int>(job.layers.size()) - 1; l >= 0; --l)
      if (random.uniform() < 0.8) job.exchanges.push_back({.layers = {l}, .wait = ms(4 * random.uniform())});
    Setting setting = random_setting(random);
    setting.in_flight = 1 + static_cast<int>(random.below(3));
    setting.compression = i % 2 == 0 ? 1 : 4;
    const double exact = predict(job, find_strategy("exact"), setting).step;
    for (const char* name : {"one", "wfbp", "mg-wfbp", "ddp"})
      EXPECT_LE(exact, predict(job, find_strategy(name), setting).step * (1 + 1e-12)) << name << ", " << i;
  }
}

TEST(Strategies, ASlowRankHoldsUpTheOthers) {
  const Job job{.name = "slow",
                .layers = {{.name = "a", .forward = ms(2), .backward = ms(3), .gradient = {1'000'000}}}};
  Setting setting{.network = network_of("net", 2, linear_times(0, 4e-9))};
  setting.slowness = {1, 3};
  const Prediction p = predict(job, find_strategy("wfbp"), setting);
  EXPECT_NEAR(p.step, 19e-3, 1e-12);
  EXPECT_NEAR(p.parts.busy(), 10e-3, 1e-12);    // 5 and 15
  EXPECT_NEAR(p.parts.peer_wait, 5e-3, 1e-12);  // 10 and 0
  EXPECT_NEAR(p.parts.exposed, 4e-3, 1e-12);
  setting.slowness = {1};
  EXPECT_THROW(predict(job, find_strategy("wfbp"), setting), Error);
}

TEST(Strategies, SettingsScaleWhatTheySay) {
  Random random{14};
  Job job = random_job(random, 8);
  const Sums sums(job);
  Setting setting{.network = no_network(1)};
  setting.compute = 2;
  const double gaps =
      static_cast<double>(job.forward_gaps().value + job.backward_gaps().value + job.overhead.value) * 1e-9;
  const double busy = sums.forward + sums.backward + sums.rest - gaps;
  EXPECT_NEAR(predict(job, find_strategy("wfbp"), setting).step, gaps + busy / 2, 1e-9);
  setting = {.network = network_of("net", 4, linear_times(0, 1e-6))};  // the network is all that counts
  const double step = predict(job, find_strategy("one"), setting).parts.exposed;
  setting.compression = 10;
  EXPECT_NEAR(predict(job, find_strategy("one"), setting).parts.exposed, step / 10, 1e-9);
}

// Two buckets, a broadcast before the forward pass; times as recorded, whatever the sizes would say.
// Caps are of gradients as they lie in memory.
TEST(Strategies, CompressionMakesNoOtherBuckets) {
  Random random{5};
  const Job job = random_job(random, 40);
  Setting plain = random_setting(random), compressed = plain;
  compressed.compression = 4;
  for (const char* name : {"ddp", "dear", "fsdp"}) {
    Strategy strategy = find_strategy(name);
    strategy.merging.first_cap = strategy.merging.cap = {10 << 20};
    const auto groups = predict(job, strategy, plain).groups;
    EXPECT_GT(groups.size(), 3u);
    EXPECT_EQ(predict(job, strategy, compressed).groups, groups) << name;
  }
}

// By hand: three ranks read one after the other from a disk, each twice as many samples.
TEST(Strategies, ReadersAndTheBatchMakeTheInputLonger) {
  Job job{.name = "read", .layers = {{.name = "a", .forward = ms(1), .backward = ms(1)}}};
  job.input = ms(10);
  job.copy = ms(2);
  Setting setting{.network = no_network(2)};
  setting.readers = 3;
  setting.batch = 2;
  EXPECT_NEAR(predict(job, find_strategy("naive"), setting).step, 60e-3 + 4e-3 + 4e-3, 1e-12);
  EXPECT_NEAR(predict(job, find_strategy("io"), setting).step, 60e-3, 1e-12);
}

// By hand: of three calls of 1 + 4 ms that are ready together, two start-ups are hidden.
TEST(Strategies, OnlyStartupsThatNothingHidesAreCounted) {
  Job job{.name = "three"};
  for (const char* name : {"a", "b", "c"})
    job.layers.push_back({.name = name, .backward = {}, .gradient = {4'000'000}});
  job.layers[0].forward = ms(1);
  Setting setting{.network = network_of("net", 2, linear_times(1e-3, 1e-9))};
  EXPECT_NEAR(predict(job, find_strategy("wfbp"), setting).startups, 3e-3, 1e-12);
  setting.in_flight = 3;
  EXPECT_NEAR(predict(job, find_strategy("wfbp"), setting).startups, 1e-3, 1e-12);
}

TEST(Strategies, AReplayTakesWhatWasRecorded) {
  Job job{.name = "recorded", .ranks = 2};
  for (int l = 0; l < 4; ++l)
    job.layers.push_back({.name = std::to_string(l), .forward = ms(1), .backward = ms(2), .gradient = {100}});
  job.exchanges = {{.op = Collective::broadcast, .bytes = {8}, .time = ms(0.5)},
                   {.layers = {3, 2}, .bytes = {200}, .time = ms(3), .wait = ms(1)},
                   {.layers = {1, 0}, .bytes = {200}, .time = ms(5)}};
  job.overhead = ms(0.25);
  // 0.5, forward until 4.5, backward until 12.5; first bucket from 8.5 to 12.5, second until 17.5, then the
  // rest.
  const Prediction p = replay(job);
  EXPECT_NEAR(p.step, 17.75e-3, 1e-9);
  EXPECT_EQ(p.calls, 3);
  EXPECT_EQ(p.groups, (std::vector<std::vector<int>>{{3, 2}, {1, 0}}));
  job.exchanges.clear();
  EXPECT_THROW(replay(job), Error);
}

// As DDP's caps cut an LSTM: no gradient is split, but a layer has several. All are sent once its backward
// pass has ended; the update waits for the last.
TEST(Strategies, AReplayTakesALayerInSeveralExchanges) {
  Job job{.name = "split", .ranks = 2, .update = ms(1)};
  job.layers = {{.name = "lstm", .forward = ms(2), .backward = ms(4), .gradient = {60}},
                {.name = "fc", .forward = ms(2), .backward = ms(4), .gradient = {10}}};
  job.exchanges = {{.layers = {1, 0}, .bytes = {30}, .time = ms(2), .wait = ms(0.5)},
                   {.layers = {0}, .bytes = {25}, .time = ms(5), .wait = ms(0.25)},
                   {.layers = {0}, .bytes = {15}, .time = ms(3)}};
  const Prediction p = replay(job);
  EXPECT_NEAR(p.step, (12 + 2.5 + 5.25 + 3 + 1) * 1e-3, 1e-9);
  EXPECT_EQ(p.calls, 3);
  EXPECT_NEAR(p.sent, 70, 1e-9);
  EXPECT_EQ(p.groups, (std::vector<std::vector<int>>{{1, 0}, {0}, {0}}));
  const Strategy given{.merging = {.rule = Merging::Rule::given, .groups = {{1, 0}, {0}}}};
  EXPECT_THROW(predict(job, given, {.network = no_network(2)}), Error);
}

// Buffers' broadcasts on the job's own network take what they took; on one of half the bandwidth twice that,
// for want of start-ups. Elsewhere they count as all-gathers.
TEST(Strategies, ATransferWithoutGradientsKeepsItsTimeAndItsName) {
  Job job{.name = "buffers", .ranks = 2};
  job.layers = {{.name = "a", .forward = ms(1), .backward = ms(1), .gradient = {1000}}};
  job.exchanges = {{.op = Collective::broadcast, .bytes = {4000}, .time = ms(0.25)}};
  Setting setting{.network = network_of("net", 2, linear_times(0, 1e-6))};
  EXPECT_NEAR(predict(job, find_strategy("ddp"), setting).parts.exposed, 1e-3 + 2e-3, 1e-9);
  setting.recorded_on = setting.network;
  const Prediction own = predict(job, find_strategy("ddp"), setting);
  EXPECT_NEAR(own.parts.exposed, 1e-3 + 0.25e-3, 1e-9);
  EXPECT_TRUE(std::ranges::any_of(own.timeline,
                                  [](const Span& span) { return span.label == "broadcast (3.906 KiB)"; }));
  setting.network = setting.network.with_bandwidth(0.5);
  EXPECT_NEAR(predict(job, find_strategy("ddp"), setting).parts.exposed, 2e-3 + 0.5e-3, 1e-9);
}

// Small layers, each with a start-up longer than itself: in turn they are best merged, in flight as they are.
TEST(Strategies, MergingGainsNothingWhereStartupsOverlap) {
  Job job{.name = "small", .ranks = 4};
  for (int l = 0; l < 40; ++l)
    job.layers.push_back(
        {.name = std::to_string(l), .forward = ms(0.1), .backward = ms(0.2), .gradient = {20'000}});
  Setting setting{.network = network_of("net", 4, linear_times(1e-3, 8e-9))};
  const auto step = [&](const char* name) { return predict(job, find_strategy(name), setting).step; };
  EXPECT_LT(step("exact"), 0.5 * step("wfbp"));
  setting.in_flight = 64;
  EXPECT_LT(step("wfbp"), step("one"));
  EXPECT_NEAR(step("exact"), step("wfbp"), 1e-9);
  const Prediction p = predict(job, find_strategy("wfbp"), setting);
  EXPECT_NEAR(p.parts.total(), p.step, 1e-9);
  EXPECT_GE(p.step, p.transfers);
  setting.in_flight = 0;
  EXPECT_THROW(step("wfbp"), Error);
}

TEST(Strategies, GivenGroupsAreTakenAsTheyAre) {
  Random random{15};
  Job job = random_job(random, 5);
  for (Layer& layer : job.layers) layer.gradient = {1000};
  const Setting setting = random_setting(random);
  const Merging merging{.rule = Merging::Rule::given, .groups = {{0, 1}, {4, 3}}};
  EXPECT_EQ(groups_of(job, merging, setting), (std::vector<std::vector<int>>{{4, 3}, {2}, {1, 0}}));
  EXPECT_THROW(groups_of(job, {.rule = Merging::Rule::given, .groups = {{0}, {0}}}, setting), Error);
  EXPECT_THROW(groups_of(job, {.rule = Merging::Rule::given, .groups = {{9}}}, setting), Error);
}

TEST(Strategies, WhatCannotBeMeantIsRefused) {
  Random random{16};
  const Job job = random_job(random, 3);
  const Setting setting = random_setting(random);
  EXPECT_THROW(find_strategy("magic"), Error);
  EXPECT_THROW(predict({.name = "no layers"}, find_strategy("ddp"), setting), Error);
  for (const auto& change : {+[](Setting& s) { s.compute = 0; }, +[](Setting& s) { s.batch = -1; },
                             +[](Setting& s) { s.compression = 0; }, +[](Setting& s) { s.readers = 0; },
                             +[](Setting& s) { s.network.ranks = 0; }}) {
    Setting wrong = setting;
    change(wrong);
    EXPECT_THROW(predict(job, find_strategy("ddp"), wrong), Error);
  }
  Strategy strategy = find_strategy("p3");
  strategy.partition = {1};
  Job large = job;
  large.layers[0].gradient = {std::int64_t{1} << 40};
  EXPECT_THROW(predict(large, strategy, setting), Error);
}

}  // namespace
}  // namespace talweg::train
