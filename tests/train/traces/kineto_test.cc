// What importing gives back of traces that were made with known times, sizes and waits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "base/random.h"
#include "train/traces/trace_folder.h"

namespace talweg::train {
namespace {

using KinetoImport = TraceFolder;

std::int64_t between(Random& random, std::int64_t least, std::int64_t most) {
  return least + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(most - least + 1)));
}

// Layers, gaps, parameters, buckets and waits from a seed.
MadeTrace random_trace(std::uint64_t seed, bool cuda) {
  Random random(seed);
  MadeTrace made;
  made.cuda = cuda;
  made.late = random.below(2) == 0;
  made.old_names = random.below(2) == 0;
  made.children_first = random.below(2) == 0;
  made.ids = random.below(2) == 0;
  made.compiled = seed % 3 == 0;
  made.children = static_cast<int>(random.below(4));
  made.strangers = static_cast<int>(random.below(3));
  made.input = between(random, 1, 1'000'000);
  made.copy = between(random, 1, 500'000);
  made.update = between(random, 10'000, 2'000'000);
  made.tail = between(random, 0, 100'000);
  made.broadcast = {{.elements = between(random, 1, 10'000), .time = 40'000, .waits = {5000, 0}},
                    {.elements = 53, .element_bytes = 8, .time = 20'000, .waits = {0, 700}}};
  static constexpr const char* kOps[] = {"aten::conv2d", "aten::batch_norm", "aten::relu", "aten::linear"};
  std::size_t parameters = 0;
  const auto layers = between(random, 2, 20);
  for (std::int64_t i = 0; i < layers; ++i) {
    MadeLayer l{.op = kOps[random.below(4)],
                .forward = between(random, 30'000, 900'000),
                .backward = between(random, 60'000, 900'000),
                .forward_gap = between(random, 0, 50'000),
                .backward_gap = between(random, 0, 50'000)};
    if (l.op != "aten::relu" || i == 0)
      for (std::uint64_t p = 0; p <= random.below(2); ++p)
        l.parameters.push_back(between(random, 1, 3'000'000));
    parameters += l.parameters.size();
    made.layers.push_back(std::move(l));
  }
  while (parameters > 0) {
    const auto held = static_cast<std::size_t>(between(random, 1, static_cast<std::int64_t>(parameters)));
    made.buckets.push_back(held);
    parameters -= held;
    made.reduced.push_back(
        {.time = between(random, 1, 3'000'000), .waits = {between(random, 0, 500'000) & ~1, 0}});
  }
  return made;
}

// By parameter, in the order in which they are ready: the layer. By layer: the calls made in its backward
// pass.
struct Truth {
  std::vector<int> layer_of;
  std::vector<std::int64_t> gradient, calls;
};
Truth truth_of(const MadeTrace& made) {
  Truth t;
  t.gradient.assign(made.layers.size(), 0);
  t.calls.assign(made.layers.size(), 0);
  for (std::size_t i = made.layers.size(); i-- > 0;)
    for (const std::int64_t p : made.layers[i].parameters) {
      t.layer_of.push_back(static_cast<int>(i));
      t.gradient[i] += p * 4;
    }
  std::size_t at = 0;
  for (const std::size_t held : made.buckets) {
    at += held;
    ++t.calls[static_cast<std::size_t>(t.layer_of[at - 1])];
  }
  return t;
}

void expect_layers(const MadeTrace& made, const Job& job) {
  const Truth truth = truth_of(made);
  ASSERT_EQ(job.layers.size(), made.layers.size());
  for (std::size_t i = 0; i < made.layers.size(); ++i) {
    const Layer& l = job.layers[i];
    EXPECT_EQ(l.forward.value, made.layers[i].forward) << i;
    EXPECT_EQ(l.backward.value, made.layers[i].backward) << i;
    EXPECT_EQ(l.forward_gap.value, made.layers[i].forward_gap) << i;
    // On the host, a call of a collective keeps the thread for 500 ns.
    EXPECT_EQ(l.backward_gap.value,
              (i > 0 ? made.layers[i].backward_gap : 0) + (made.cuda ? 0 : 500 * truth.calls[i]))
        << i;
    EXPECT_EQ(l.gradient.value, truth.gradient[i]) << i;
  }
}

void expect_exchanges(const MadeTrace& made, const Job& job) {
  const Truth truth = truth_of(made);
  ASSERT_EQ(job.exchanges.size(), made.broadcast.size() + made.reduced.size());
  for (std::size_t i = 0; i < made.broadcast.size(); ++i) {
    EXPECT_EQ(job.exchanges[i].op, Collective::broadcast);
    EXPECT_EQ(job.exchanges[i].bytes.value, made.broadcast[i].elements * made.broadcast[i].element_bytes);
    EXPECT_TRUE(job.exchanges[i].layers.empty());
  }
  std::size_t at = 0;
  for (std::size_t b = 0; b < made.reduced.size(); ++b) {
    const Exchange& e = job.exchanges[made.broadcast.size() + b];
    std::vector<int> layers;
    for (std::size_t i = 0; i < made.buckets[b]; ++i, ++at)
      if (layers.empty() || layers.back() != truth.layer_of[at]) layers.push_back(truth.layer_of[at]);
    EXPECT_EQ(e.op, Collective::all_reduce);
    EXPECT_EQ(e.layers, layers) << b;
    EXPECT_EQ(e.time.value, made.reduced[b].time) << b;
    EXPECT_EQ(e.wait.value, made.reduced[b].waits[0] / 2) << b;
  }
}

std::int64_t sum_of_parts(const TraceJob& read) {
  const Job& j = read.job;
  return j.input.value + j.copy.value + j.forward().value + j.forward_gaps().value + j.backward().value +
         j.backward_gaps().value + read.exposed.value + j.update.value + j.overhead.value;
}

TEST_F(KinetoImport, GivesTheTruthBackOfTwoRanksOnTheirHosts) {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(seed);
    const MadeTrace made = random_trace(seed, false);
    const TraceJob read = read_job(files(made, 2));
    expect_layers(made, read.job);
    expect_exchanges(made, read.job);
    EXPECT_EQ(read.job.input.value, made.input);
    EXPECT_EQ(read.job.update.value, made.update);
    EXPECT_EQ(read.job.ranks, 2);
    EXPECT_EQ(read.steps, made.steps);
    EXPECT_EQ(read.launch_gaps.value, read.job.forward_gaps().value + read.job.backward_gaps().value);
    EXPECT_EQ(sum_of_parts(read), read.job.step.value);
    EXPECT_TRUE(read.notes.empty()) << read.notes[0];
  }
}

TEST_F(KinetoImport, GivesTheTruthBackOfTwoRanksWithDevices) {
  for (std::uint64_t seed = 1; seed <= 24; ++seed) {
    SCOPED_TRACE(seed);
    MadeTrace made = random_trace(seed, true);
    made.host_runs = seed > 12;
    const TraceJob read = read_job(files(made, 2));
    expect_layers(made, read.job);
    expect_exchanges(made, read.job);
    EXPECT_EQ(read.job.copy.value, made.copy);
    EXPECT_EQ(read.job.update.value, made.update);
    EXPECT_EQ((made.late ? read.stream_gaps : read.launch_gaps).value, 0);
    EXPECT_EQ(read.launch_gaps.value + read.stream_gaps.value,
              read.job.forward_gaps().value + read.job.backward_gaps().value);
    EXPECT_EQ(sum_of_parts(read), read.job.step.value);
  }
}

TEST_F(KinetoImport, ReadsTheSameFromGzip) {
  const MadeTrace made = random_trace(77, false);
  const auto plain = files(made, 2);
  std::vector<std::string> packed;
  for (int r = 0; r < 2; ++r)
    packed.push_back(file("rank" + std::to_string(r) + ".json.gz", gzipped(kineto_text(made, r))));
  EXPECT_EQ(read_job(packed).job, read_job(plain).job);
}

// Parameters of ResNet-50, in the order in which their gradients are ready.
std::vector<MadeLayer> resnet50() {
  std::vector<MadeLayer> layers;
  const auto add = [&](std::int64_t weights, std::int64_t channels) {
    layers.push_back({.op = "aten::conv2d", .forward = 50'000, .backward = 90'000, .parameters = {weights}});
    layers.push_back({.op = "aten::batch_norm",
                      .forward = 20'000,
                      .backward = 40'000,
                      .parameters = {channels, channels}});
  };
  add(64 * 3 * 49, 64);
  std::int64_t in = 64;
  const int blocks[] = {3, 4, 6, 3};
  for (int stage = 0; stage < 4; ++stage) {
    const std::int64_t wide = 64 << stage;
    for (int b = 0; b < blocks[stage]; ++b) {
      add(in * wide, wide);
      add(wide * wide * 9, wide);
      add(wide * wide * 4, wide * 4);
      if (b == 0) add(in * wide * 4, wide * 4);
      in = wide * 4;
    }
  }
  layers.push_back(
      {.op = "aten::linear", .forward = 30'000, .backward = 60'000, .parameters = {1000, 2048 * 1000}});
  return layers;
}

// What PyTorch 1.x did with ResNet-50 on two A100, as HTA's test data have it (nccl_data, rank 0 of 2).
TEST_F(KinetoImport, SaysHowMuchOfTheFilesIsReadAndEndsWhereItIsTold) {
  const MadeTrace made = random_trace(1, false);
  const std::vector<std::string> paths{file("a.json", kineto_text(made, 0)),
                                       file("b.json.gz", gzipped(kineto_text(made, 1)))};
  const std::uint64_t held = std::filesystem::file_size(paths[0]) + std::filesystem::file_size(paths[1]);
  std::vector<std::uint64_t> seen;
  read_job(paths, find_device("v100"), [&](std::uint64_t read, std::uint64_t all) {
    seen.push_back(read);
    EXPECT_EQ(all, held);
  });
  EXPECT_TRUE(std::ranges::is_sorted(seen));
  ASSERT_FALSE(seen.empty());
  EXPECT_EQ(seen.back(), held);
  struct Enough {};
  int times = 0;
  const auto stop = [&](std::uint64_t, std::uint64_t) {
    ++times;
    throw Enough{};
  };
  EXPECT_THROW(read_job(paths, find_device("v100"), stop), Enough);
  EXPECT_EQ(times, 1);
}

TEST_F(KinetoImport, FindsTheBucketsOfDistributedDataParallel) {
  MadeTrace made{.layers = resnet50(), .steps = 2};
  made.cuda = made.old_names = true;
  made.broadcast = {{.elements = 53120, .time = 30'000},
                    {.elements = 53, .element_bytes = 8, .time = 20'000}};
  std::vector<Arrival> gradients;
  for (std::size_t i = made.layers.size(); i-- > 0;)
    for (const std::int64_t p : made.layers[i].parameters)
      gradients.push_back({0, static_cast<double>(p * 4)});
  std::size_t before = 0;
  for (const std::size_t end : merge_by_size(gradients, kFirstBucketCap, kBucketCap)) {
    made.buckets.push_back(end - before);
    before = end;
  }
  made.reduced.assign(made.buckets.size(), {.time = 1'000'000});
  const TraceJob read = read_job(files(made, 1));
  const std::int64_t golden[] = {2'049'000, 7'875'584, 6'563'840, 6'637'568, 2'431'040};
  ASSERT_EQ(read.job.exchanges.size(), 2 + std::size(golden));
  EXPECT_EQ(read.job.exchanges[0].bytes.value, 53120 * 4);
  EXPECT_EQ(read.job.exchanges[1].bytes.value, 53 * 8);
  for (std::size_t b = 0; b < std::size(golden); ++b)
    EXPECT_EQ(read.job.exchanges[2 + b].bytes.value, golden[b] * 4);
  EXPECT_EQ(read.job.exchanges[2].layers, std::vector<int>{static_cast<int>(made.layers.size()) - 1});
  EXPECT_EQ(read.bucket_caps, (BucketCaps{kFirstBucketCap, kBucketCap}));
  EXPECT_EQ(read.notes,
            std::vector<std::string>{"1 of 2 ranks are here: waits for the others count as transfer"});
}

TEST_F(KinetoImport, CountsATransferToTheLayerThatCompletesItWhereNoSizesAreKnown) {
  MadeTrace made = random_trace(5, false);
  made.shapes = false;
  const TraceJob read = read_job(files(made, 2));
  const Truth truth = truth_of(made);
  EXPECT_EQ(read.job.gradients().value,
            std::accumulate(truth.gradient.begin(), truth.gradient.end(), std::int64_t{0}));
  ASSERT_EQ(read.notes.size(), 1U);
  EXPECT_NE(read.notes[0].find("record_shapes"), std::string::npos);
}

TEST_F(KinetoImport, TakesStepsFromTheOptimiserWhereNothingMarksThem) {
  MadeTrace made = random_trace(6, false);
  made.marks = false;
  made.steps = 4;
  const TraceJob read = read_job(files(made, 2));
  EXPECT_EQ(read.steps, 4);
  expect_layers(made, read.job);
  EXPECT_NE(read.notes.at(0).find("no ProfilerStep"), std::string::npos);
  made.optimizer = false;
  const TraceJob without = read_job(files(made, 2));
  EXPECT_EQ(without.steps, 4);
  expect_layers(made, without.job);
}

TEST_F(KinetoImport, SaysThatOneRankHasNoCommunication) {
  MadeTrace made = random_trace(8, false);
  made.world = 1;
  made.broadcast.clear();
  made.reduced.clear();
  const TraceJob read = read_job(files(made, 1));
  EXPECT_TRUE(read.job.exchanges.empty());
  expect_layers(
      [&] {
        MadeTrace m = made;
        m.buckets.clear();
        return m;
      }(),
      read.job);
  EXPECT_EQ(read.notes.at(0), "there is no communication in it: it is of one rank");
}

// An hour on one rank: its ranks' means are of the other steps.
TEST_F(KinetoImport, LeavesOutAStepInWhichAClockJumped) {
  for (const bool cuda : {false, true}) {
    MadeTrace made = random_trace(9, cuda);
    made.steps = 5;
    const TraceJob steady = read_job(files(made, 2));
    MadeTrace jumped = made;
    jumped.jump_step = 2;
    jumped.jump = 3'600'000'000'000;
    const TraceJob read =
        read_job({file("a.json", kineto_text(made, 0)), file("b.json", kineto_text(jumped, 1))});
    EXPECT_EQ(read.job.step, steady.job.step);
    expect_layers(made, read.job);
    EXPECT_EQ(read.steps, 4);
    ASSERT_EQ(read.notes.size(), 1U);
    EXPECT_EQ(read.notes[0].find("1 of 5 steps are left out"), 0U) << read.notes[0];
  }
}

// Nothing tells which of so few steps is right.
TEST_F(KinetoImport, RefusesFewStepsThatAreNotAlike) {
  for (const int steps : {1, 2}) {
    MadeTrace made = random_trace(9, false);
    made.steps = steps;
    MadeTrace jumped = made;
    jumped.jump_step = steps - 1;
    jumped.jump = 60'000'000'000;
    EXPECT_EQ(refusal(files(made, 2)), "");
    EXPECT_EQ(refusal({file("a.json", kineto_text(made, 0)), file("b.json", kineto_text(jumped, 1))})
                  .find("b.json: a step takes 60"),
              0U)
        << steps;
  }
  MadeTrace alone = random_trace(9, false);
  alone.steps = 2;
  alone.jump_step = 1;
  alone.jump = 60'000'000'000;
  EXPECT_NE(refusal(files(alone, 1)).find("expected at least three steps, most of them alike"),
            std::string::npos);
}

TEST_F(KinetoImport, TakesTheWorldFromTheGroupsWhereNothingElseSaysIt) {
  MadeTrace made = random_trace(10, true);
  made.distributed = false;
  made.world = 8;
  const TraceJob read = read_job(files(made, 2));
  EXPECT_EQ(read.job.ranks, 8);
  ASSERT_EQ(read.notes.size(), 2U);
  EXPECT_EQ(read.notes[0].find("2 of 8 ranks are here"), 0U) << read.notes[0];
  EXPECT_EQ(read.notes[1].find("no distributedInfo: it is of 8 ranks"), 0U) << read.notes[1];
}

// The mean of a loss, as many scripts take it.
TEST_F(KinetoImport, FindsTheBucketsBesideATransferWithoutGradients) {
  MadeTrace made = random_trace(11, true);
  made.behind = {{.elements = 1, .time = 9000}};
  const TraceJob read = read_job(files(made, 2));
  ASSERT_EQ(read.notes.size(), 1U);
  EXPECT_NE(read.notes[0].find("carried no gradients"), std::string::npos) << read.notes[0];
  Job job = read.job;
  EXPECT_TRUE(job.exchanges.back().layers.empty());
  EXPECT_EQ(job.exchanges.back().bytes.value, 4);
  job.exchanges.pop_back();
  expect_exchanges(made, job);
}

}  // namespace
}  // namespace talweg::train
