#include "train/job.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "header_sample.h"
#include "talweg/error.h"
#include "text/yaml_reader.h"
#include "train/strategies.h"

namespace talweg::train {
namespace {

const std::string kHeader = TALWEG_SOURCE_DIR "/src/train/job.h";

std::string error_of(const std::string& text) {
  try {
    parse_job(text, "job.yaml");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_file);
    return error.what();
  }
  return "no error";
}

TEST(Job, TheSampleInTheHeaderIsRead) {
  const Job job = parse_job(header_sample(kHeader), "job.h");
  EXPECT_EQ(job.name, "tiny");
  EXPECT_EQ(job.origin, Origin::measured);
  EXPECT_EQ(job.ranks, 2);
  EXPECT_EQ(job.batch, 64);
  EXPECT_EQ(job.input, Nanoseconds{3'000'000});
  EXPECT_EQ(job.copy, Nanoseconds{400'000});
  EXPECT_EQ(job.step, Nanoseconds{17'800'000});
  EXPECT_EQ(job.in_flight, 2);
  ASSERT_EQ(job.layers.size(), 3u);
  EXPECT_EQ(job.layers[1].backward_gap, Nanoseconds{120'000});
  EXPECT_EQ(job.layers[2].after, (std::vector<int>{0, 1}));
  ASSERT_EQ(job.exchanges.size(), 1u);
  EXPECT_EQ(job.exchanges[0].layers, (std::vector<int>{2, 0}));
  EXPECT_EQ(job.exchanges[0].wait, Nanoseconds{500'000});
  EXPECT_EQ(job.backend, "talweg");
  EXPECT_EQ(job.probes, (std::vector<Probe>{{.bytes = {4}, .time = {110'000}}}));
  // What the exchange says it carried is what its layers have.
  EXPECT_EQ(job.exchanges[0].bytes, job.gradients());
}

TEST(Job, TheSamplesStepIsWhatItsPartsComeTo) {
  const Job job = parse_job(header_sample(kHeader), "job.h");
  const double step = static_cast<double>(job.step.value) * 1e-9;
  EXPECT_NEAR(replay(job).step, step, 0.001 * step);
}

TEST(Job, TheDocumentationShowsTheSame) {
  const std::string page = text::read_file(TALWEG_SOURCE_DIR "/docs/training-model.md");
  const std::size_t begin = page.find("```\nname: ");
  ASSERT_NE(begin, std::string::npos);
  const std::size_t end = page.find("```", begin + 4);
  EXPECT_EQ(parse_job(page.substr(begin + 4, end - begin - 4), "training-model.md"),
            parse_job(header_sample(kHeader), "job.h"));
}

TEST(Job, SurvivesBothFileForms) {
  Job job = parse_job(header_sample(kHeader), "job.h");
  job.name = "colons: and \"quotes\"";
  job.layers[0].name = "- [1]";
  job.layers[1].forward = {1'234'567};
  job.exchanges[0].op = Collective::reduce_scatter;
  EXPECT_EQ(parse_job(to_yaml(job), "yaml"), job);
  EXPECT_EQ(parse_job(to_json(job), "json"), job);
}

TEST(Job, WhatIsWrongIsSaidWithItsLine) {
  EXPECT_EQ(error_of("name: a\norigin: measured\nlayers:\n  - {name: x, forward: fast}\n"),
            "job.yaml:4: layers[0].forward: expected a time such as 2ms, got \"fast\"");
  EXPECT_EQ(error_of("name: a\norigin: guessed\nlayers: [{name: x}]\n"),
            "job.yaml:2: origin: expected measured or estimated, got \"guessed\"");
  EXPECT_THAT(error_of("name: a\norigin: measured\nlayers:\n  - {name: x}\n  - {name: x}\n"),
              testing::StartsWith("job.yaml:5: layers[1]: another layer is called \"x\""));
  EXPECT_THAT(error_of("name: a\norigin: measured\nlayers: []\n"), testing::HasSubstr("no layers"));
  EXPECT_THAT(error_of("name: a\norigin: measured\nlayers:\n  - {name: x, gradient: 9TB}\n"),
              testing::HasSubstr("job.yaml:4"));
  EXPECT_THAT(error_of("name: a\norigin: measured\nlayers:\n  - {name: x, after: [y]}\n  - {name: y}\n"),
              testing::HasSubstr("expected the name of a layer that is listed before"));
  EXPECT_THAT(error_of("name: a\norigin: measured\nspeed: 1\nlayers: [{name: x}]\n"),
              testing::HasSubstr("speed"));
  EXPECT_THAT(error_of("name: a\norigin: measured\nlayers: [{name: x}]\nexchanges:\n  - {op: swap}\n"),
              testing::StartsWith("job.yaml:5: exchanges[0].op: expected a collective such as all_reduce"));
  EXPECT_THAT(error_of("name: a\norigin: measured\nlayers: [{name: x}]\nexchanges:\n  - {layers: [x, x]}\n"),
              testing::HasSubstr("one layer twice"));
  const std::string one = "name: a\norigin: measured\nlayers: [{name: x}]\nprobes:\n  - ";
  EXPECT_THAT(error_of(one + "{op: swap}\n"),
              testing::StartsWith("job.yaml:5: probes[0].op: expected a collective such as all_reduce"));
  EXPECT_THAT(error_of(one + "{bytes: 4B}\n"),
              testing::HasSubstr("job.yaml:5: probes[0]: a probe has bytes"));
  EXPECT_THAT(error_of(one + "{bytes: 4B, time: -1ns}\n"), testing::StartsWith("job.yaml:5: probes[0]"));
  EXPECT_THAT(error_of(one + "{bytes: 4B, time: 1us, wait: 1us}\n"), testing::HasSubstr("wait"));
  EXPECT_THAT(error_of("name: a\norigin: measured\nstep: 2h\nlayers: [{name: x}]\n"),
              testing::HasSubstr("job.yaml:3"));
}

// Few letters make much work: an alias of many names stands for all of them wherever it is written.
TEST(Job, NamesOfLayersAreLimitedInAll) {
  std::string text = "name: a\norigin: measured\nlayers:\n", names;
  for (int i = 0; i < 2000; ++i) {
    text += fmt::format("  - {{name: l{}}}\n", i);
    names += fmt::format("{}l{}", i > 0 ? ", " : "", i);
  }
  text += "  - {name: m, after: &all [" + names + "]}\n";
  for (int i = 0; i < 600; ++i) text += fmt::format("  - {{name: n{}, after: *all}}\n", i);
  EXPECT_THAT(error_of(text), testing::HasSubstr("expected at most 1048576 names of layers"));
}

TEST(Job, ValuesMadeInAProgramAreCheckedToo) {
  Job job{.name = "a", .layers = {{.name = "x"}, {.name = "y", .after = {0}}}};
  EXPECT_FALSE(find_problem(job));
  job.layers[1].after = {1};
  EXPECT_THROW(validate(job), Error);
  job.layers[1].after = {};
  job.layers[0].backward = {-1};
  ASSERT_TRUE(find_problem(job));
  EXPECT_EQ(find_problem(job)->section, JobSection::layers);
  job.layers[0].backward = {};
  job.exchanges.push_back({.layers = {7}});
  EXPECT_EQ(find_problem(job)->section, JobSection::exchanges);
  job.exchanges.clear();
  job.probes.assign(kMostProbes, {.bytes = {1}, .time = {1}});
  EXPECT_FALSE(find_problem(job));
  job.probes.back().time = {};
  ASSERT_TRUE(find_problem(job));
  EXPECT_EQ(find_problem(job)->section, JobSection::probes);
  job.probes.assign(kMostProbes + 1, {.bytes = {1}, .time = {1}});
  EXPECT_EQ(find_problem(job)->section, JobSection::job);
}

}  // namespace
}  // namespace talweg::train
