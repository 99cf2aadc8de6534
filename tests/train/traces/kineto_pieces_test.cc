// Which call made which transfer, and what one step is taken apart into, of traces that are written out here.
#include <gtest/gtest.h>

#include "train/traces/kineto_step.h"
#include "train/traces/kineto_transfers.h"
#include "train/traces/turns.h"

namespace talweg::train {
namespace {

using Transfers = std::vector<KinetoTransfer>;

// Of the host: neither ids nor kernels say to which call it belongs.
KinetoTransfer transfer(std::int64_t begin, std::int64_t end, std::int64_t elements = -1) {
  KinetoTransfer made{.begin = begin, .end = end, .elements = elements, .called = begin};
  made.element_bytes = elements < 0 ? 0 : 4;
  return made;
}

// Of a device: its kernel was launched at `called`.
KinetoTransfer launched(std::int64_t called, std::int64_t begin, std::int64_t end) {
  KinetoTransfer made = transfer(begin, end);
  made.correlation = 7;
  made.called = called;
  return made;
}

TEST(Turns, OnlyWhatOverlapsIsUnderWayTogether) {
  const auto in_flight = [](std::vector<UnderWay> transfers) { return turns_of(transfers, 0).in_flight; };
  EXPECT_EQ(in_flight({}), 1);
  EXPECT_EQ(in_flight({{0, 10}, {10, 20}}), 1);
  EXPECT_EQ(in_flight({{0, 100}, {10, 20}, {20, 30}, {40, 50}}), 2)
      << "one after the other beside a long one";
  EXPECT_EQ(in_flight({{10, 30}, {0, 100}, {20, 40}, {29, 50}}), 4);
}

KinetoKernel copy(bool out, std::int32_t thread, std::int64_t launched, std::int64_t begin,
                  std::int64_t end) {
  return {.begin = begin,
          .end = end,
          .launched = launched,
          .thread = thread,
          .copies_in = !out,
          .copies_out = out};
}

// Thread 1 calls, thread 2 runs what is called; the device is late.
TEST(KinetoTransfers, WhatTheHostRunsForADeviceLastsFromCopyToCopy) {
  Transfers calls{transfer(100, 200, 11), transfer(300, 400, 22)};
  Transfers runs{transfer(210, 5000, 11), transfer(5010, 9000, 22)};
  for (KinetoTransfer& call : calls) call.thread = 1;
  for (KinetoTransfer& run : runs) run.thread = 2;
  pair_transfers(calls, {}, runs);
  std::deque<KinetoKernel> kernels{
      copy(true, 1, 150, 4000, 4010),    // of the first call
      copy(false, 2, 4900, 5020, 5040),  // back
      copy(true, 1, 350, 5000, 5030),    // of the second: done before it runs
      copy(true, 2, 4950, 6000, 6010),   // of whoever is called when the first ends
      copy(true, 1, 250, 6000, 6010),    // between the calls
      copy(false, 1, 350, 6000, 6010)};  // of a batch
  take_copies(calls, runs, kernels);
  EXPECT_EQ(runs[0].begin, 4000);
  EXPECT_EQ(runs[0].end, 5040);
  EXPECT_EQ(runs[1].begin, 5010);
  EXPECT_EQ(runs[1].end, 9000);
  EXPECT_EQ(kernels.size(), 3U);
}

TEST(KinetoTransfers, CopiesOfACallAreOfItsThread) {
  Transfers calls{transfer(100, 200, 11), transfer(100, 200, 22)};
  Transfers runs{transfer(210, 5000, 11), transfer(210, 5000, 22)};
  for (std::int32_t i = 0; i < 2; ++i) {
    calls[static_cast<std::size_t>(i)].thread = i;
    runs[static_cast<std::size_t>(i)].thread = 2 + i;
  }
  pair_transfers(calls, {}, runs);
  std::deque<KinetoKernel> kernels{copy(true, 0, 150, 1000, 1010), copy(true, 1, 150, 2000, 2010)};
  take_copies(calls, runs, kernels);
  EXPECT_EQ(runs[0].begin, 1000);
  EXPECT_EQ(runs[1].begin, 2000);
}

// As other backends do, whose thread then copies what it likes; and a copy behind the end is not of what was
// sent.
TEST(KinetoTransfers, CopiesThatMayBeAnybodysChangeNothing) {
  Transfers calls{transfer(100, 200, 11), transfer(5000, 5100, 22)};
  Transfers runs{transfer(110, 4000, 11), transfer(5200, 9000, 22)};
  for (KinetoTransfer& call : calls) call.thread = 1;
  runs[0].thread = 1;
  runs[1].thread = 2;
  pair_transfers(calls, {}, runs);
  std::deque<KinetoKernel> kernels{copy(true, 1, 150, 3000, 3010), copy(false, 1, 3500, 4500, 4600),
                                   copy(true, 1, 5050, 9001, 9002)};
  take_copies(calls, runs, kernels);
  EXPECT_EQ(runs[0].begin, 110);
  EXPECT_EQ(runs[0].end, 4000);
  EXPECT_EQ(runs[1].begin, 5200);
  EXPECT_EQ(runs[1].end, 9000);
}

TEST(KinetoTransfers, ACallThatHadEndedDidNotLaunchAKernel) {
  Transfers calls{transfer(100, 200, 11), transfer(300, 400, 22)};
  Transfers runs{launched(150, 500, 600), launched(200, 600, 700), launched(201, 700, 800),
                 launched(400, 800, 900)};
  pair_transfers(calls, {}, runs);
  EXPECT_EQ(runs[0].elements, 11);
  EXPECT_EQ(runs[1].elements, 11);
  EXPECT_EQ(runs[2].elements, -1) << "launched behind the first call, before the second one";
  EXPECT_EQ(runs[3].elements, 22);
}

TEST(KinetoTransfers, OfCallsOfOneSizeTheFirstThatIsFreeRanFirst) {
  Transfers calls{transfer(10, 11, 7), transfer(20, 21, 9), transfer(30, 31, 7), transfer(40, 41, 9)};
  Transfers runs{transfer(100, 110, 9), transfer(110, 120, 7), transfer(120, 130, 7), transfer(130, 140, 9)};
  pair_transfers(calls, {}, runs);
  const std::vector<std::pair<std::int64_t, std::int64_t>> called_and_begun{
      {10, 110}, {20, 100}, {30, 120}, {40, 130}};
  for (std::size_t i = 0; i < runs.size(); ++i) {
    EXPECT_EQ(runs[i].called, called_and_begun[i].first) << i;
    EXPECT_EQ(runs[i].begin, called_and_begun[i].second) << i;
  }
}

TEST(KinetoTransfers, OfAnotherSizeAloneTheFirstFreeCallIsTaken) {
  Transfers calls{transfer(10, 11, 7), transfer(20, 21), transfer(30, 31, 8)};
  calls[0].op = Collective::broadcast;
  Transfers runs{transfer(15, 25, 9), transfer(100, 110, 9), transfer(110, 120, 9)};
  pair_transfers(calls, {}, runs);
  EXPECT_EQ(runs[0].called, 15) << "nothing of its kind was called before it ran";
  EXPECT_EQ(runs[1].called, 20) << "the call of no known size comes first";
  EXPECT_EQ(runs[2].called, 30) << "what is left, whatever its size";
}

TEST(KinetoTransfers, WhatIsRecordedBehindACallIsNotOfIt) {
  Transfers calls{transfer(100, 200), transfer(300, 400)};
  Transfers runs;
  pair_transfers(calls, {transfer(200, 210, 5), transfer(401, 410, 6)}, runs);
  EXPECT_EQ(calls[0].elements, 5);
  EXPECT_EQ(calls[0].element_bytes, 4);
  EXPECT_EQ(calls[1].elements, -1);
}

// Sizes that never fit, and a first call that nobody takes: every run would look through all calls.
TEST(KinetoTransfers, TheWorkGrowsWithTheTraceAndNotWithItsSquare) {
  for (const bool same_kind : {true, false}) {
    constexpr std::int64_t kMany = 20'000;
    Transfers calls, runs;
    calls.push_back(transfer(0, 1, 1));
    calls[0].op = Collective::barrier;
    for (std::int64_t i = 1; i <= kMany; ++i) {
      calls.push_back(transfer(i, i, i));
      runs.push_back(transfer(kMany + i, kMany + i, same_kind ? kMany + i : kMany - i));
      if (!same_kind) runs.back().op = Collective::broadcast;
    }
    EXPECT_LE(pair_transfers(calls, {}, runs), 8 * static_cast<std::size_t>(kMany));
  }
}

// A layer of 2 us forward and 5 us backward, whose gradient of 100 floats is ready at 9.5 us; times in ns.
KinetoTrace trace_of_one_step() {
  KinetoTrace trace;
  trace.path = "made.json";
  trace.names = {"aten::linear", "evaluate_function: AddmmBackward0", "torch::autograd::AccumulateGrad"};
  trace.ops = {
      {.begin = 1000, .end = 3000, .sequence = 1, .name = 0, .thread = 1},
      {.begin = 4000, .end = 9000, .sequence = 1, .name = 1, .thread = 1, .kind = KinetoOp::Kind::backward},
      {.begin = 9000,
       .end = 9500,
       .elements = 100,
       .name = 2,
       .thread = 1,
       .kind = KinetoOp::Kind::accumulate,
       .element_bytes = 4}};
  trace.calls = {transfer(9200, 9400, 100)};
  trace.calls[0].thread = 1;
  trace.runs = {transfer(9600, 12'345, 100)};
  trace.runs[0].called = 9200;
  return trace;
}
constexpr KinetoStep kStep{.number = 3, .begin = 500, .end = 20'000};

TEST(KinetoStep, WhatIsExposedIsFromTheEndOfTheBackwardPassOn) {
  const auto seen = see_step(trace_of_one_step(), kStep);
  ASSERT_TRUE(seen.has_value());
  EXPECT_EQ(seen->times.exposed, 12'345 - 9500);
  EXPECT_EQ(seen->times.transfers, std::vector<std::int64_t>{12'345 - 9600});
  ASSERT_EQ(seen->times.layers.size(), 1U);
  EXPECT_EQ(seen->times.layers[0], (LayerTimes{2000, 5300, 1000, 200})) << "the call is a gap";
}

TEST(KinetoStep, ACallOnAnotherThreadTakesNothingFromALayer) {
  KinetoTrace trace = trace_of_one_step();
  trace.calls.insert(trace.calls.begin(), transfer(5000, 6000, 100));
  trace.calls[0].thread = 2;
  const auto seen = see_step(trace, kStep);
  ASSERT_TRUE(seen.has_value());
  EXPECT_EQ(seen->times.layers[0], (LayerTimes{2000, 5300, 1000, 200}));
}

TEST(KinetoStep, ABarrierIsNoTransfer) {
  KinetoTrace trace = trace_of_one_step();
  trace.runs.push_back(transfer(12'345, 15'000, 0));
  trace.runs[1].op = Collective::barrier;
  trace.runs[1].called = 9450;
  const auto seen = see_step(trace, kStep);
  ASSERT_TRUE(seen.has_value());
  ASSERT_EQ(seen->shape.transfers.size(), 1U);
  EXPECT_EQ(seen->shape.transfers[0].op, Collective::all_reduce);
  EXPECT_EQ(seen->times.exposed, 12'345 - 9500);
}

TEST(KinetoStep, TransfersAreInFlightTogetherWhereTheyOverlap) {
  KinetoTrace trace = trace_of_one_step();
  for (const auto& [begin, end] : {std::pair{10'000, 11'000}, {10'500, 13'000}, {13'000, 14'000}}) {
    trace.runs.push_back(transfer(begin, end, 100));
    trace.runs.back().called = 9200;
  }
  const auto seen = see_step(trace, kStep);
  ASSERT_TRUE(seen.has_value());
  EXPECT_EQ(seen->times.in_flight, 3);
}

}  // namespace
}  // namespace talweg::train
