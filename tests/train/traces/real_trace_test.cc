// Traces that PyTorch recorded (tests/train/traces/recorded, made by record.py there).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "train/strategies.h"
#include "train/traces/trace_folder.h"

namespace talweg::train {
namespace {

using testing::HasSubstr;

using RecordedTrace = TraceFolder;

std::string recorded(const std::string& name) {
  return std::string(TALWEG_SOURCE_DIR) + "/tests/train/traces/recorded/" + name;
}

std::string unpacked(const std::string& name) {
  const gzFile in = ::gzopen(recorded(name).c_str(), "rb");
  std::string text;
  char part[4096];
  for (int n; (n = ::gzread(in, part, sizeof(part))) > 0;) text.append(part, static_cast<std::size_t>(n));
  ::gzclose(in);
  return text;
}

void expect_network(const Job& job) {
  std::vector<std::string> names;
  for (const Layer& l : job.layers) names.push_back(l.name);
  EXPECT_EQ(names, (std::vector<std::string>{"conv2d_1", "batch_norm_1", "relu_1", "flatten_1", "linear_1",
                                             "relu_2", "linear_2", "cross_entropy_loss_1"}));
  const std::int64_t elements[] = {216 + 8, 8 + 8, 0, 0, 409'600 + 200, 0, 2000 + 10, 0};
  for (std::size_t i = 0; i < job.layers.size(); ++i)
    EXPECT_EQ(job.layers[i].gradient.value, elements[i] * 4) << i;
  ASSERT_EQ(job.exchanges.size(), 4U);
  EXPECT_EQ(job.exchanges[0].op, Collective::broadcast);  // of what batch_norm keeps
  EXPECT_EQ(job.exchanges[2].bytes.value, (409'600 + 200 + 2000 + 10) * 4);
  EXPECT_EQ(job.exchanges[2].layers, (std::vector<int>{6, 4}));
  EXPECT_EQ(job.exchanges[3].bytes.value, (216 + 8 + 16) * 4);
  EXPECT_EQ(job.exchanges[3].layers, (std::vector<int>{1, 0}));
}

TEST_F(RecordedTrace, OfTwoRanksIsJoined) {
  const TraceJob read = read_job({recorded("ddp1.json.gz"), recorded("ddp0.json.gz")});
  expect_network(read.job);
  EXPECT_EQ(read.kind, TraceKind::kineto);
  EXPECT_EQ(read.steps, 2);
  EXPECT_EQ(read.job.ranks, 2);
  EXPECT_EQ(read.job.name, "ddp0");
  EXPECT_TRUE(read.notes.empty()) << read.notes[0];
  for (const Layer& l : read.job.layers) {
    EXPECT_GT(l.forward.value, 0) << l.name;
    EXPECT_GT(l.backward.value, 0) << l.name;
  }
  for (const Exchange& e : read.job.exchanges) EXPECT_GT(e.time.value, 0);
  const Job& j = read.job;
  EXPECT_EQ(j.step.value, j.input.value + j.update.value + j.overhead.value + j.forward().value +
                              j.backward().value + j.forward_gaps().value + j.backward_gaps().value +
                              read.exposed.value);
  EXPECT_EQ(parse_job(to_yaml(j), "again.yaml"), j);
}

// Gloo's two threads wait for a late rank together, and the forward pass waits for broadcasts: each is in the
// step once.
TEST_F(RecordedTrace, PlayedBackTakesWhatItTook) {
  const Job job = read_job({recorded("ddp0.json.gz"), recorded("ddp1.json.gz")}).job;
  EXPECT_EQ(job.in_flight, 2);
  const double measured = static_cast<double>(job.step.value) * 1e-9;
  EXPECT_NEAR(replay(job).step, measured, 0.1 * measured);
}

// Its threads wait in a transfer until the device has computed what is sent.
TEST_F(RecordedTrace, WhatTheHostSendsForADevicePlaysBack) {
  const Job job = read_job({recorded("gpu0.json.gz"), recorded("gpu1.json.gz")}).job;
  ASSERT_EQ(job.layers.size(), 11U);
  EXPECT_EQ(job.layers[0].gradient.value, (1728 + 64) * 4);
  EXPECT_EQ(job.gradients().value, (1728 + 64 + 64 + 64 + 36'864 + 64 + 2'097'152 + 512 + 5120 + 10) * 4);
  std::int64_t sent = 0;
  for (const Exchange& e : job.exchanges)
    if (e.op == Collective::all_reduce) sent += e.bytes.value;
  EXPECT_EQ(sent, job.gradients().value);
  const double measured = static_cast<double>(job.step.value) * 1e-9;
  EXPECT_NEAR(replay(job).step, measured, 0.05 * measured);
}

TEST_F(RecordedTrace, TransfersOfOneRankAreNoShorterThanTheLeastOfTwo) {
  const Job both = read_job({recorded("ddp0.json.gz"), recorded("ddp1.json.gz")}).job;
  const Job one = read_job({recorded("ddp0.json.gz")}).job;
  for (std::size_t i = 0; i < both.exchanges.size(); ++i)
    EXPECT_GE(one.exchanges[i].time.value, both.exchanges[i].time.value) << i;
}

// Without shapes, Kineto's trace lacks parameters' sizes; the execution trace beside it has them.
TEST_F(RecordedTrace, AnExecutionTraceAddsSizes) {
  std::string text = unpacked("ddp0.json.gz");
  for (const std::string_view field : {"\"Input Dims\"", "\"Input type\""})
    for (std::size_t at; (at = text.find(field)) != std::string::npos;)
      text.replace(at, field.size(), "\"gone\"");
  const std::string bare = file("bare.json", text);
  const TraceJob without = read_job({bare});
  EXPECT_EQ(without.job.exchanges[2].bytes.value, 0);
  const TraceJob with = read_job({bare, recorded("et0.json.gz")});
  const std::int64_t gradients = (409'600 + 200 + 2000 + 10 + 216 + 8 + 16) * 4;
  EXPECT_EQ(with.job.gradients().value, gradients);
  EXPECT_EQ(with.job.layers[4].gradient.value, (409'600 + 200) * 4);
  EXPECT_EQ(refusal({recorded("et0.json.gz")}).find("has no times") == std::string::npos, false);
  EXPECT_THAT(refusal({recorded("ddp1.json.gz"), recorded("et0.json.gz")}),
              HasSubstr("of which there is no Kineto trace"));
}

}  // namespace
}  // namespace talweg::train
