#include "study/perf_measure.h"

#include <gtest/gtest.h>

#include <set>

#include "study/lonely_group.h"

namespace talweg::study {
namespace {

PerfOptions small_options() {
  PerfOptions options;
  options.sizes = {4096};
  options.types = {DataType::f32};
  options.reductions = {ReduceOp::sum};
  options.iterations = 10;
  return options;
}

PerfCase small_case() {
  return {Collective::all_reduce, DataType::f32, ReduceOp::sum, 0, 1, 1024};
}

Timing measured(LonelyGroup& group, const PerfOptions& options, bool in_place = false) {
  return measure(group, small_case(), options, PerfBuffers(options, 1), in_place);
}

TEST(PerfMeasure, ARightResultHasNoWrongElements) {
  LonelyGroup group;
  EXPECT_EQ(measured(group, small_options()).wrong, 0u);
  EXPECT_EQ(measured(group, small_options(), true).wrong, 0u);
}

TEST(PerfMeasure, AWrongElementIsCounted) {
  LonelyGroup group;
  group.flips_a_bit = true;
  EXPECT_EQ(measured(group, small_options()).wrong, 1u);
  EXPECT_EQ(measured(group, small_options(), true).wrong, 1u);
}

TEST(PerfMeasure, AnOutputThatNobodyWroteIsWrongThoughTheLastRunLeftTheRightShape) {
  LonelyGroup group;
  group.forgets_to_write = true;
  EXPECT_EQ(measured(group, small_options()).wrong, 1024u);
}

TEST(PerfMeasure, AChangedInputIsCounted) {
  LonelyGroup group;
  group.scribbles_on_input = true;
  EXPECT_EQ(measured(group, small_options()).wrong, 1u);
}

TEST(PerfMeasure, WithoutChecksNothingIsSaidAboutWrongElements) {
  LonelyGroup group;
  PerfOptions options = small_options();
  options.check = 0;
  EXPECT_FALSE(measured(group, options).wrong.has_value());
}

TEST(PerfMeasure, EveryBlockingModeMakesTheSameCalls) {
  PerfOptions options = small_options();
  options.iterations = 10;
  options.aggregate = 3;
  options.warmup = 2;
  for (const auto mode :
       {Blocking::enqueue, Blocking::wait, Blocking::wait_barrier, Blocking::barrier_outside}) {
    LonelyGroup group;
    options.blocking = mode;
    const Timing timing = measured(group, options);
    // Timed and warm-up, one check, one agreement about times, one about wrong elements.
    EXPECT_EQ(group.calls, (10 + 2) * 3 + 1 + 1 + 1) << static_cast<int>(mode);
    EXPECT_LE(timing.p50_us, timing.p99_us);
    EXPECT_GT(timing.time_us, 0);
  }
}

TEST(PerfMeasure, SlotsOfCallsInFlightNeverOverlap) {
  PerfOptions options = small_options();
  options.sizes = {100, 4096};
  options.aggregate = 2;
  for (const bool misaligned : {false, true}) {
    options.misaligned = misaligned;
    const PerfBuffers buffers(options, 1);
    PerfCase c = small_case();
    c.count = 25;
    EXPECT_GE(buffers.slots(c), 2u * 4096 / 192);
    for (std::size_t i = 1; i < buffers.slots(c); ++i) {
      EXPECT_GE(buffers.slot(c, i).in - buffers.slot(c, i - 1).in, 100);
      EXPECT_GE(buffers.slot(c, i).out - buffers.slot(c, i - 1).out, 100);
    }
    EXPECT_EQ(buffers.slots(small_case()), 2u);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffers.slot(c, 0).in) % 64, misaligned ? 4u : 0u);
  }
}

}  // namespace
}  // namespace talweg::study
