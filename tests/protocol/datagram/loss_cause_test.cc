// Losses of full queues are told from those that come whatever a flow does.
#include "protocol/datagram/loss_cause.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/random.h"
#include "protocol/datagram/lossy_pipe.h"
#include "protocol/datagram/rate_control.h"
#include "protocol/datagram/round_trip.h"

namespace talweg::protocol {
namespace {

// Packets come one by one, each with a queue between 0 and 1 ms; `lose(queue)` says how likely one is lost.
template <class Lose>
LossCause after(int packets, std::uint64_t seed, Lose lose) {
  LossCause cause;
  Random random(seed);
  for (int i = 0; i < packets; ++i) {
    const auto queue_ns = static_cast<std::int64_t>(random.below(1'000'000));
    if (random.below(1'000'000) < static_cast<std::uint64_t>(1e6 * lose(queue_ns)))
      cause.lost(1, queue_ns, 1, i);
    else
      cause.arrived(1, queue_ns, 0);
  }
  return cause;
}

TEST(LossCause, AtFirstEachIsTakenForAFullQueue) {
  LossCause cause;
  EXPECT_TRUE(cause.full());
  for (int i = 0; i < 100; ++i) cause.arrived(1, 1000 * i, 0);
  cause.lost(1, 0, 1, 0);
  EXPECT_TRUE(cause.full()) << "one says little";
}

TEST(LossCause, WhatComesAtAnyTimeIsNoFullQueue) {
  int wrong = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed)
    if (after(10'000, seed, [](std::int64_t) { return 0.01; }).full()) ++wrong;
  EXPECT_LE(wrong, 4);
}

TEST(LossCause, WhatComesInLongQueuesIsAFullOne) {
  int wrong = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed)
    if (!after(10'000, seed, [](std::int64_t ns) { return ns > 950'000 ? 0.2 : 0.0; }).full()) ++wrong;
  EXPECT_EQ(wrong, 0);
}

TEST(LossCause, NothingIsToldByLossesWhereAllDelaysAreLong) {
  LossCause cause;
  for (int i = 0; i < 10'000; ++i) {
    cause.arrived(1, 200'000 + i % 20'000, 0);
    if (i % 100 == 99) cause.lost(1, 200'000 + i % 20'000, 1, i);
  }
  EXPECT_TRUE(cause.full());
}

TEST(LossCause, AChangeIsNoticed) {
  LossCause cause = after(10'000, 1, [](std::int64_t) { return 0.01; });
  ASSERT_FALSE(cause.full());
  for (int i = 0; i < 11; ++i) cause.lost(1, 2'000'000, 1, 100'000 + i);
  EXPECT_TRUE(cause.full());
  for (int i = 0; i < 3; ++i) cause.lost(1, 0, 1, 200'000 + i);
  EXPECT_FALSE(cause.full());
}

// The first of a round trip tells what the queue was like.
TEST(LossCause, OnesThatAreNoticedTogetherCountOnce) {
  LossCause cause = after(10'000, 1, [](std::int64_t) { return 0.0; });
  cause.lost(1, 2'000'000, 1000, 100'000);
  for (int i = 0; i < 5; ++i) cause.lost(1, 0, 1000, 100'001 + i);
  EXPECT_TRUE(cause.full());
  for (int i = 0; i < 5; ++i) cause.lost(1, 0, 1000, 200'000 + i * 1000);
  EXPECT_FALSE(cause.full());
}

TEST(LossCause, ATenthOfAllPacketsIsTooManyWhateverTheCause) {
  EXPECT_TRUE(after(10'000, 1, [](std::int64_t) { return 0.1; }).full());
  EXPECT_FALSE(after(10'000, 1, [](std::int64_t) { return 0.02; }).full());
}

// Queues of switches that have room for few packets, and hosts that take some time to answer, as different
// from one to the next: it must not be thought that such losses come anyway.
TEST(LossCause, AShortFullQueueIsOneWhereHostsTakeAsLong) {
  for (const std::int64_t room_ns : {5'000, 20'000, 50'000, 80'000, 150'000})
    for (const double host_ns : {5e3, 20e3, 50e3, 100e3}) {
      int wrong = 0;
      for (std::uint64_t seed = 0; seed < 50; ++seed) {
        LossCause cause;
        RoundTrip rtt;
        Random random(seed);
        std::int64_t queue_ns = 0, now_ns = 0;
        for (int i = 0; i < 20'000; ++i) {
          now_ns += 12'000;
          queue_ns += room_ns / 300;
          const auto host = static_cast<std::int64_t>(-host_ns * std::log(1 - random.uniform()));
          rtt.sample(100'000 + queue_ns + host, 0, now_ns);
          cause.arrived(1, rtt.queue_ns(), rtt.more_ns());
          if (queue_ns < room_ns) continue;
          cause.lost(1, rtt.queue_ns(), rtt.smoothed_ns(), now_ns);
          queue_ns /= 2;
        }
        wrong += cause.full() ? 0 : 1;
      }
      EXPECT_LE(wrong, 1) << room_ns << " ns of queue, hosts " << host_ns;
    }
}

struct Ran {
  double part;  // of the bottleneck's rate
  std::uint64_t longest_queue_ns, lost, sent, alike;
};

// All of a flow that sends so many bytes, as fast as it may.
Ran run(const PipeNature& nature, std::uint64_t bytes, std::uint64_t seed) {
  LossyPipe pipe({}, nature, seed);
  const std::vector<std::byte> some(100'000);
  std::uint64_t written = 0, read = 0;
  while (read < bytes && pipe.now() < 100'000'000'000) {
    written += pipe.ends[0].flow.write(
        0, std::span(some).first(std::min<std::uint64_t>(some.size(), bytes - written)));
    for (auto got = pipe.ends[1].flow.readable(0); !got.empty(); got = pipe.ends[1].flow.readable(0)) {
      read += got.size();
      pipe.ends[1].flow.consumed(0, got.size());
    }
    for (const int side : {0, 1}) pipe.send_all(side);
    if (!pipe.step()) break;
  }
  EXPECT_EQ(read, bytes);
  const FlowStatistics& s = pipe.ends[0].flow.statistics();
  return {static_cast<double>(bytes) / (static_cast<double>(pipe.now()) * 1e-9) / nature.rate,
          static_cast<std::uint64_t>(pipe.longest_queue_ns), s.lost_by_gap, s.datagrams_sent, s.lost_alike};
}

PipeNature gigabit() {
  PipeNature nature;
  nature.rate = 1.25e8;
  nature.delay_ns = 100'000;
  return nature;
}

TEST(LossCause, AFlowKeepsItsRateWhereOnePacketInAHundredIsLost) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    PipeNature nature = gigabit();
    const Ran clean = run(nature, 40'000'000, seed);
    nature.loss = 0.01;
    const Ran lossy = run(nature, 40'000'000, seed);
    EXPECT_GT(lossy.part, 0.9 * clean.part) << seed;
    EXPECT_GT(lossy.alike, 0U);
  }
}

// A queue of 20 packets is soon full, and a flow learns to have less in it.
TEST(LossCause, AFlowStillHeedsAQueueThatIsFull) {
  PipeNature nature = gigabit();
  nature.queue_bytes = 30'000;
  const Ran ran = run(nature, 40'000'000, 1);
  EXPECT_GT(ran.part, 0.8);
  EXPECT_LT(static_cast<double>(ran.lost), 0.01 * static_cast<double>(ran.sent));
}

TEST(RateControl, RoomInQueuesIsSharedAnew) {
  RateOptions options;
  options.queue_bytes = 16'000;
  options.queue_ns = 0;
  RateControl rate(options, 1500);
  rate.on_lost(100'000, 1'000'000'000);  // half of the room is gone
  const double window = rate.window();
  // With 8000 bytes of 16000 in the queue at this window, twice the way's delay is too long ...
  const auto base = static_cast<std::int64_t>(1'000'000);
  RateControl same = rate;
  same.on_acknowledged(1500, 2 * base, 2 * base, base, true, 3'000'000'000);
  EXPECT_LT(same.window(), window);
  // ... but not for a flow that has eight times as much.
  rate.set_queue(128'000);
  rate.on_acknowledged(1500, 2 * base, 2 * base, base, true, 3'000'000'000);
  EXPECT_GT(rate.window(), window);
}

}  // namespace
}  // namespace talweg::protocol
