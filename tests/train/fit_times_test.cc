#include "train/fit_times.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/random.h"
#include "talweg/error.h"

namespace talweg::train {
namespace {

double gaussian(Random& random) {
  double sum = -6;
  for (int i = 0; i < 12; ++i) sum += random.uniform();
  return sum;
}

TEST(FitTimes, FindsALineAgainAndIsSureOfIt) {
  std::vector<Sample> samples;
  for (double bytes = 1024; bytes < 1e8; bytes *= 2) samples.push_back({bytes, 50e-6 + 2e-9 * bytes});
  const Fit fit = fit_times(samples);
  ASSERT_EQ(fit.pieces.size(), 1u);
  EXPECT_NEAR(fit.pieces[0].startup, 50e-6, 1e-11);
  EXPECT_NEAR(fit.pieces[0].per_byte, 2e-9, 1e-15);
  EXPECT_LT(fit.pieces[0].startup_error, 1e-9);
  EXPECT_LT(fit.error, 1e-5);
}

// 95 % of the intervals hold what the samples were drawn from; of 400 that is 380, give or take 4 a
// deviation.
TEST(FitTimes, IntervalsHoldTheTruthAsOftenAsTheySay) {
  Random random{5};
  int startups = 0, rates = 0;
  for (int i = 0; i < 400; ++i) {
    std::vector<Sample> samples;
    for (double bytes = 4096; bytes < 3e7; bytes *= 3) {
      const double truth = 200e-6 + 1e-9 * bytes;
      samples.push_back({bytes, truth * (1 + 0.03 * gaussian(random))});
    }
    const Fit fit = fit_times(samples, 1);
    startups += std::abs(fit.pieces[0].startup - 200e-6) <= fit.pieces[0].startup_error ? 1 : 0;
    rates += std::abs(fit.pieces[0].per_byte - 1e-9) <= fit.pieces[0].per_byte_error ? 1 : 0;
  }
  EXPECT_GE(startups, 360);
  EXPECT_LE(startups, 396);
  EXPECT_GE(rates, 360);
  EXPECT_LE(rates, 396);
}

// Small calls by one algorithm, large ones by another; and one algorithm alone. Noise is rarely taken for a
// change of algorithm, and a change never for noise.
TEST(FitTimes, FindsWhereALibraryChangesItsAlgorithm) {
  int found = 0, alone = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    Random random{seed};
    std::vector<Sample> two, one;
    for (double bytes = 64; bytes < 3e7; bytes *= 1.5) {
      const double small = 20e-6 + 18e-9 * bytes, large = 700e-6 + 3e-9 * bytes;
      const double noise = 1 + 0.01 * gaussian(random);
      two.push_back({bytes, (bytes < 65536 ? small : large) * noise});
      one.push_back({bytes, small * noise});
    }
    alone += fit_times(one).pieces.size() == 1 ? 1 : 0;
    const Fit fit = fit_times(two);
    EXPECT_GE(fit.pieces.size(), 2u);
    // One line through both is worse by far.
    EXPECT_GT(fit_times(two, 1).error, 5 * fit.error);
    if (fit.pieces.size() != 2) continue;
    ++found;
    EXPECT_NEAR(fit.pieces[0].startup, 20e-6, 1e-6);
    EXPECT_NEAR(fit.pieces[0].per_byte, 18e-9, 0.5e-9);
    EXPECT_NEAR(fit.pieces[1].startup, 700e-6, 40e-6);
    EXPECT_NEAR(fit.pieces[1].per_byte, 3e-9, 0.15e-9);
    EXPECT_GT(fit.pieces[1].from, 65536 / 1.01);
    EXPECT_LT(fit.pieces[1].from, 65536 * 1.51);
  }
  EXPECT_GE(found, 85);
  EXPECT_GE(alone, 85);
}

TEST(FitTimes, FewSamplesSayLittle) {
  const Fit one = fit_times(std::vector<Sample>{{1000, 1e-3}});
  EXPECT_NEAR(one.times.seconds(1000), 1e-3, 1e-12);
  EXPECT_TRUE(std::isinf(one.pieces[0].startup_error));
  const Fit falling = fit_times(std::vector<Sample>{{1000, 2e-3}, {2000, 1e-3}, {3000, 1e-3}});
  EXPECT_GE(falling.pieces[0].per_byte, 0);
  EXPECT_GE(falling.pieces[0].startup, 0);
  EXPECT_THROW(fit_times({}), Error);
  EXPECT_THROW(fit_times(std::vector<Sample>{{0, 1}}), Error);
  EXPECT_THROW(fit_times(std::vector<Sample>{{1, -1}}), Error);
  EXPECT_THROW(fit_times(std::vector<Sample>{{1, 1}}, 0), Error);
}

// Whatever the samples: a valid table, no time below 0.
TEST(FitTimes, AnySamplesGiveATable) {
  Random random{8};
  for (int i = 0; i < 200; ++i) {
    std::vector<Sample> samples;
    for (std::uint64_t n = 1 + random.below(60); n > 0; --n)
      samples.push_back({std::floor(std::exp(20 * random.uniform())), std::exp(12 * random.uniform() - 14)});
    const Fit fit = fit_times(samples);
    for (double bytes = 1; bytes < 1e10; bytes *= 7) EXPECT_GE(fit.times.seconds(bytes), 0);
  }
}

TEST(FitTimes, AJobsExchangesAreSamples) {
  Job job{.name = "a", .layers = {{.name = "x", .gradient = {100}}}};
  job.exchanges = {{.bytes = {100}, .time = {5000}},
                   {.bytes = {200}},
                   {.op = Collective::broadcast, .bytes = {300}, .time = {1000}},
                   {.bytes = {400}, .time = {8000}, .wait = {100}}};
  const auto samples = samples_of(job, Collective::all_reduce);
  ASSERT_EQ(samples.size(), 2u);
  EXPECT_EQ(samples[0].bytes, 100);
  EXPECT_DOUBLE_EQ(samples[0].seconds, 5e-6);
  EXPECT_EQ(samples[1].bytes, 400);
  EXPECT_DOUBLE_EQ(samples[1].seconds, 8e-6);
  job.in_flight = 2;  // 500 bytes in 13 us
  const auto together = samples_of(job, Collective::all_reduce);
  ASSERT_EQ(together.size(), 2u);
  EXPECT_DOUBLE_EQ(together[0].seconds, 2.6e-6);
  EXPECT_DOUBLE_EQ(together[1].seconds, 10.4e-6);
}

// How times grow with the size is what the probes say; what the exchanges of a step take together is their
// own.
TEST(FitTimes, ProbesSayHowTimesGrow) {
  Job job{.name = "a",
          .layers = {{.name = "a"}},
          .exchanges = {{.bytes = {1000}, .time = {9000}}, {.bytes = {1000}, .time = {11000}}},
          .in_flight = 2,
          .probes = {{.bytes = {4}, .time = {4000}},
                     {.bytes = {1000}, .time = {5000}},
                     {.op = Collective::broadcast, .bytes = {7}, .time = {1}}}};
  const auto samples = samples_of(job, Collective::all_reduce);
  ASSERT_EQ(samples.size(), 2u);
  EXPECT_EQ(samples[0].bytes, 4);
  EXPECT_DOUBLE_EQ(samples[0].seconds, 8e-6) << "20 us were taken where the probes say 10";
  EXPECT_DOUBLE_EQ(samples[1].seconds, 10e-6);
  EXPECT_EQ(samples_of(job, Collective::broadcast).size(), 1u);
  job.exchanges.push_back({.bytes = {4001}, .time = {40'000}});
  EXPECT_EQ(samples_of(job, Collective::all_reduce).size(), 3u)
      << "probes that do not reach it say nothing of it";
  job.exchanges.back().bytes = {4000};
  EXPECT_EQ(samples_of(job, Collective::all_reduce).size(), 2u);
  job.exchanges.clear();
  EXPECT_DOUBLE_EQ(samples_of(job, Collective::all_reduce)[0].seconds, 4e-6) << "as they are";
}

TEST(FitTimes, ACallCostsWhatTheSmallestProbeOfTalwegTook) {
  Job job{.name = "a",
          .ranks = 2,
          .backend = "talweg",
          .probes = {{.bytes = {4096}, .time = {9000}}, {.bytes = {4}, .time = {4000}}}};
  EXPECT_DOUBLE_EQ(call_of(job), 4e-6);
  job.probes[0].time = {3000};  // for all that noise does
  job.probes.insert(job.probes.begin(), {.op = Collective::broadcast, .bytes = {1}, .time = {1}});
  EXPECT_DOUBLE_EQ(call_of(job), 4e-6) << "of the smallest all-reduce";
  job.probes.erase(job.probes.begin());
  job.ranks = 1;
  EXPECT_EQ(call_of(job), 0) << "which called nobody";
  job.ranks = 2;
  job.backend = "gloo";
  EXPECT_EQ(call_of(job), 0) << "which Talweg's calls do not cost";
  job.backend = "talweg";
  job.probes.pop_back();
  EXPECT_EQ(call_of(job), 0) << "the network may have taken as long";
  job.probes.clear();
  EXPECT_EQ(call_of(job), 0);
}

}  // namespace
}  // namespace talweg::train
