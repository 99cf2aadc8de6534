// How long a worker waits before it asks, by the pauses that there are between results.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "protocol/worker_bench.h"

namespace talweg::protocol {
namespace {

constexpr std::uint16_t kEvenSlots = 64;
constexpr std::int64_t kApart = kOneMs / 4;
// An eighth of the round that 64 results make that are so far apart.
constexpr std::int64_t kSoon = 2 * kOneMs;

// Results come one by one, of the slots in turn. Sums have an even number of rounds.
struct EvenResults : Bench {
  EvenResults() : Bench(kEvenSlots) { longest_ns = 100'000 * kOneMs; }

  void begin(std::uint64_t of, std::uint32_t operation = 1) {
    rounds = of;
    ended = 0;
    start(std::vector<float>(rounds * kEvenSlots * 2, 1), false, AggregationFormat::f32, operation);
  }
  void end_next() {
    const std::uint64_t round = ended / kEvenSlots;
    const std::uint64_t next = round + 1 < rounds ? ended + kEvenSlots : kNeverNext;
    result(static_cast<std::uint16_t>(ended % kEvenSlots), ended, next, {1, 1}, round % 2 == 1);
    ++ended;
  }
  void go_on(std::uint64_t for_rounds) {
    for (std::uint64_t i = 0; i < for_rounds * kEvenSlots; ++i) {
      now_ns += kApart;
      end_next();
    }
  }
  // Nothing comes any more: in how long it asks.
  std::int64_t asks_in_ns() {
    const std::int64_t since_ns = now_ns;
    const auto asked = [&] {
      const std::vector<Caught> sent = sink.take();
      return std::ranges::any_of(sent, [](const Caught& c) { return c.type() == AggregationType::query; });
    };
    sink.take();
    while (!asked() && now_ns < since_ns + 1000 * kOneMs) {
      now_ns = std::max(now_ns, worker.next_time_ns());
      worker.on_time(now_ns);
    }
    return now_ns - since_ns;
  }

  std::uint64_t rounds = 0, ended = 0;  // rounds of all slots
};

TEST(WorkerPauses, WhatComesForItAloneAfterALossEndsNone) {
  EvenResults even;
  even.begin(20);
  even.go_on(10);
  EXPECT_EQ(even.asks_in_ns(), kSoon);
  even.now_ns += 6 * kOneMs;
  even.to_all = false;
  even.end_next();
  even.to_all = true;
  even.go_on(8);
  EXPECT_NEAR(static_cast<double>(even.asks_in_ns()), kSoon, kOneMs / 4);
}

TEST(WorkerPauses, ALongOneIsForgottenWithTime) {
  EvenResults even;
  even.begin(100);
  even.go_on(10);
  even.now_ns += 8 * kOneMs;
  even.go_on(1);
  EXPECT_GT(even.asks_in_ns(), 7 * kSoon) << "there may be another one";
  even.go_on(80);
  EXPECT_NEAR(static_cast<double>(even.asks_in_ns()), kSoon, kOneMs / 4);
}

TEST(WorkerPauses, TheTimeBetweenTwoSumsIsNone) {
  EvenResults even;
  even.begin(10);
  even.go_on(10);
  ASSERT_TRUE(even.worker.done());
  even.now_ns += 500 * kOneMs;
  even.begin(10, 2);
  even.go_on(6);
  EXPECT_NEAR(static_cast<double>(even.asks_in_ns()), kSoon, kOneMs / 4);
}

}  // namespace
}  // namespace talweg::protocol
