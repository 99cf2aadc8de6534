// The small objects beneath a flow, each alone.
#include <gmock/gmock.h>

#include <set>
#include <vector>

#include "base/random.h"
#include "protocol/datagram/burst_pacer.h"
#include "protocol/datagram/channel_buffers.h"
#include "protocol/datagram/range_set.h"
#include "protocol/datagram/rate_control.h"
#include "protocol/datagram/round_trip.h"
#include "protocol/datagram/sent_packets.h"

namespace talweg::protocol {
namespace {

constexpr std::int64_t kMs = 1'000'000;

TEST(RangeSet, SaysWhatASetSays) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Random random{seed};
    const std::size_t most = 2 + random.below(10);
    RangeSet ranges(most);
    std::set<std::uint64_t> reference;
    bool was_full = false;
    for (int i = 0; i < 200; ++i) {
      const std::uint64_t begin = random.below(80), end = begin + random.below(12);
      const std::vector<RangeSet::Range> before(ranges.ranges().begin(), ranges.ranges().end());
      std::set<std::uint64_t> after = reference;
      const bool add = random.below(3) != 0;
      for (std::uint64_t n = begin; n < end; ++n) add ? (void)after.insert(n) : (void)after.erase(n);
      std::size_t pieces = 0;
      for (const auto n : after) pieces += after.contains(n - 1) ? 0 : 1;
      const bool fits = add ? ranges.add(begin, end) : ranges.remove(begin, end);
      ASSERT_EQ(fits, pieces <= most || pieces <= before.size()) << "seed " << seed;
      if (fits) reference = after;
      was_full = was_full || !fits;
      std::set<std::uint64_t> now;
      std::uint64_t last = 0;
      for (const auto& r : ranges.ranges()) {
        ASSERT_LT(r.begin, r.end);
        if (last > 0) {
          ASSERT_GT(r.begin, last);
        }
        last = r.end;
        for (std::uint64_t n = r.begin; n < r.end; ++n) now.insert(n);
      }
      ASSERT_EQ(now, reference) << "seed " << seed;
      const std::uint64_t from = random.below(80), to = from + random.below(5);
      bool contained = true;
      for (std::uint64_t n = from; n < to; ++n) contained = contained && reference.contains(n);
      ASSERT_EQ(ranges.contains(from, to), contained);
    }
    EXPECT_TRUE(was_full || most > 2);
  }
}

TEST(RoundTrip, IsEstimatedAsRfc6298Says) {
  RoundTrip rtt;
  EXPECT_EQ(rtt.timeout_ns(0, 0), RoundTrip::kFirstTimeoutNs);
  rtt.sample(10 * kMs, 0, 1);
  EXPECT_EQ(rtt.smoothed_ns(), 10 * kMs);
  EXPECT_EQ(rtt.variation_ns(), 5 * kMs);
  EXPECT_EQ(rtt.timeout_ns(0, 0), 30 * kMs);
  rtt.sample(18 * kMs, 0, 2);
  EXPECT_EQ(rtt.variation_ns(), 5'750'000);  // 3/4 * 5 + 1/4 * 8
  EXPECT_EQ(rtt.smoothed_ns(), 11 * kMs);
  EXPECT_EQ(rtt.base_ns(), 10 * kMs);
}

TEST(RoundTrip, WaitsTwoRoundTripsAtLeastAndTwiceAsLongEachTime) {
  RoundTrip rtt;
  for (int i = 0; i < 200; ++i) rtt.sample(10 * kMs, 0, i);
  EXPECT_EQ(rtt.timeout_ns(0, 0), 20 * kMs);
  EXPECT_EQ(rtt.timeout_ns(0, kMs), 21 * kMs);
  EXPECT_EQ(rtt.timeout_ns(1, 0), 40 * kMs);
  EXPECT_EQ(rtt.timeout_ns(3, 0), 160 * kMs);
  EXPECT_EQ(rtt.timeout_ns(60, 0), RoundTrip::kMostTimeoutNs);
  RoundTrip quick;
  quick.sample(1000, 0, 1);
  EXPECT_EQ(quick.timeout_ns(0, 0), RoundTrip::kLeastTimeoutNs);
}

TEST(RoundTrip, TellsTheWayFromABusyHost) {
  RoundTrip rtt;
  rtt.sample(10 * kMs, 9 * kMs, 1);
  rtt.sample(15 * kMs, 13 * kMs, 2);
  EXPECT_EQ(rtt.delay_ns(), 2 * kMs);
  EXPECT_EQ(rtt.base_ns(), kMs);
  EXPECT_GT(rtt.timeout_ns(0, 0), 20 * kMs);
  rtt.sample(5 * kMs, 500 * kMs, 3);  // whatever it says
  EXPECT_EQ(rtt.delay_ns(), 1);
}

TEST(RoundTrip, WhatOnlySomeWaitForIsNoQueue) {
  RoundTrip rtt;
  std::int64_t now = 1;
  for (int i = 0; i < 40; ++i) {
    rtt.sample(i % 8 == 7 ? kMs : 4 * kMs, 0, now += kMs / 2);
    EXPECT_EQ(rtt.standing_ns(), i < 7 ? 4 * kMs : kMs) << "one of eight, but in each round trip or two";
  }
  for (int i = 0; i < 40; ++i) rtt.sample(4 * kMs, 0, now += kMs / 2);
  EXPECT_EQ(rtt.standing_ns(), 4 * kMs);
  rtt.sample(kMs, 0, now);
  rtt.sample(4 * kMs, 0, now + 100 * kMs);
  EXPECT_EQ(rtt.standing_ns(), 4 * kMs) << "what was long ago is no sign";
}

TEST(RoundTrip, ForgetsTheShortestWayInTime) {
  RoundTrip rtt;
  rtt.sample(kMs, 0, 1);
  for (std::int64_t t = 1; t < 40; ++t) rtt.sample(5 * kMs, 0, t * 1'000 * kMs);
  EXPECT_EQ(rtt.base_ns(), 5 * kMs);
}

TEST(BurstPacer, SendsItsRateInBursts) {
  for (const double rate : {1e6, 1e8, 1.25e9}) {
    BurstPacer pacer;
    pacer.set_rate(rate, 0);
    double sent = 0;
    std::size_t bursts = 0, datagrams = 0;
    std::int64_t now = 0;
    const std::int64_t end = 200 * kMs;
    for (; now < end; now = std::max(now + 1, pacer.next(now))) {
      ++bursts;
      while (pacer.allowed(now)) {
        pacer.spent(1476);
        sent += 1476;
        ++datagrams;
      }
    }
    EXPECT_NEAR(sent / 0.2 / rate, 1, 0.05) << rate;
    EXPECT_GT(datagrams / bursts, 1U) << rate;
  }
}

TEST(BurstPacer, DoesNotMakeUpForAPause) {
  BurstPacer pacer;
  pacer.set_rate(1e8, 0);
  const std::int64_t now = 10'000 * kMs;
  double sent = 0;
  for (; pacer.allowed(now); sent += 1476) pacer.spent(1476);
  EXPECT_LE(sent, 2 * 1e8 * BurstPacer::kBurstSeconds + 1476);
}

TEST(BurstPacer, HasNoLimitWithoutARate) {
  BurstPacer pacer;
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(pacer.allowed(5));
    pacer.spent(1 << 20);
  }
  EXPECT_EQ(pacer.next(5), 5);
}

// Flows that share a link for a minute, each knowing of the way what it has seen itself.
struct Seeing {
  struct Flow {
    RateControl rate;
    RoundTrip rtt;
    std::int64_t begins_ns;
    std::int64_t clock_ns;  // what its host's time is ahead of others'
  };
  double bytes_per_second = 0;
  std::vector<Flow> flows;
  double longest = 0, used = 0;  // of the last 20 s

  // `apart_ns`: by which each one's wall clock is ahead of the one before.
  void add(std::size_t n, std::int64_t apart_ns) {
    for (std::size_t i = 0; i < n; ++i) {
      const auto at = static_cast<std::int64_t>(i);
      const std::int64_t clock = at * 617 * kMs;
      const RateOptions options{.wall_ns = at * apart_ns - clock};
      flows.push_back({RateControl(options, 1476), RoundTrip(options.wall_ns), at * 1'700 * kMs, clock});
    }
  }
  void run() {
    constexpr std::int64_t kBase = 50'000, kEnd = 60'000 * kMs, kJudged = 40'000 * kMs;
    double idle_ns = 0;
    for (std::int64_t now = kMs; now < kEnd;) {
      double offered = 0;
      for (const Flow& f : flows)
        if (now >= f.begins_ns) offered += f.rate.window();
      const double pipe = bytes_per_second * 1e-9 * static_cast<double>(kBase);
      const double queue = std::max(0.0, offered - pipe);
      const auto rtt = kBase + static_cast<std::int64_t>(queue / bytes_per_second * 1e9);
      if (now > kJudged) {
        longest = std::max(longest, queue);
        idle_ns += std::max(0.0, 1 - offered / pipe) * static_cast<double>(rtt);
      }
      now += rtt;
      for (Flow& f : flows) {
        if (now < f.begins_ns) continue;
        f.rtt.sample(rtt, 0, now + f.clock_ns);
        f.rate.on_acknowledged(f.rate.window(), f.rtt, rtt, true, now + f.clock_ns);
      }
    }
    used = 1 - idle_ns / static_cast<double>(kEnd - kJudged);
  }
};

TEST(RateControl, NoQueueIsTakenForTheWayHoweverLongItIsUsed) {
  // Clocks of hosts that are set by each other are less than this apart.
  for (const std::int64_t apart_ns : {0L, 1 * kMs})
    for (const double rate : {2.5e6, 1.25e8})
      for (const std::size_t n : {1UL, 3UL, 8UL}) {
        Seeing all;
        all.bytes_per_second = rate;
        all.add(n, apart_ns);
        all.run();
        EXPECT_LT(all.longest, 1.1 * static_cast<double>(n << 17)) << n << " flows at " << rate;
        EXPECT_GT(all.used, 0.99) << n << " flows at " << rate;
      }
}

// One that has left slow start, and hears something every millisecond.
struct Hearing {
  RoundTrip rtt;
  RateControl rate{RateOptions{}, 1476};
  std::int64_t now = kMs;

  Hearing() {
    rtt.sample(kMs, 0, now);
    rate.on_lost(kMs, now);
  }
  void hear(std::int64_t for_ns) {
    for (const std::int64_t until = now + for_ns; now < until; now += kMs) {
      rtt.sample(kMs, 0, now);
      rate.on_acknowledged(1476, rtt, kMs, false, now);
    }
  }
};

TEST(RateControl, WhoSendsAllTheTimeSendsLessForAWhileAndWhoHadAPauseDoesNot) {
  Hearing h;
  h.hear(4'990 * kMs);
  const double window = h.rate.window();
  h.hear(11 * kMs);
  EXPECT_LT(h.rate.window(), window);
  h.hear(15 * kMs);
  EXPECT_EQ(h.rate.window(), window);
  h.now += 5'000 * kMs;
  h.hear(2 * kMs);
  EXPECT_EQ(h.rate.window(), window) << "it has seen the way when it began again";
  h.hear(4'970 * kMs);
  EXPECT_EQ(h.rate.window(), window);
  h.hear(15 * kMs);
  EXPECT_LT(h.rate.window(), window);
  h.rate.on_silence();
  EXPECT_EQ(h.rate.window(), RateOptions{}.least_window);
  h.rate.on_acknowledged(30'000, h.rtt, kMs, true, h.now);
  EXPECT_GT(h.rate.window(), RateOptions{}.least_window) << "after a silence it begins anew at once";
}

// One flow over a way, in steps of a trip, of which hosts take a part.
struct Way {
  double rate = 0;  // bytes per second
  std::int64_t host_ns = 0;
  double room = 1e9;  // of its queue
  RateControl flow{RateOptions{}, 1476};
  double used = 0, longest = 0;
  int losses = 0;

  void run(int n) {
    constexpr std::int64_t kBase = 50'000;
    used = longest = losses = 0;
    std::int64_t now = 1000 * kMs;
    for (int i = 0; i < n; ++i) {
      const double window = flow.window();
      const double trip = std::max(static_cast<double>(kBase + host_ns), window / rate * 1e9);
      const double queue = std::max(0.0, window - rate * 1e-9 * static_cast<double>(kBase + host_ns));
      now += static_cast<std::int64_t>(trip);
      used += window / (rate * 1e-9 * trip) / n;
      longest = std::max(longest, queue);
      if (queue > room) {
        ++losses;
        flow.on_lost(static_cast<std::int64_t>(trip), now);
      } else {
        flow.on_acknowledged(window, kBase + static_cast<std::int64_t>(queue / rate * 1e9),
                             static_cast<std::int64_t>(trip), kBase, true, now);
      }
    }
  }
};

TEST(RateControl, FillsAWayOfAnyRateWhileHostsTakeTheirTime) {
  for (const double rate : {6.25e5, 6.25e6, 2.5e7, 1.25e8, 1.25e9})
    for (const std::int64_t host_ns : {0L, 1 * kMs, 5 * kMs, 30 * kMs}) {
      Way way{.rate = rate, .host_ns = host_ns};
      way.run(20'000);
      way.run(1000);
      EXPECT_GT(way.used, 0.95) << rate << " bytes/s, hosts take " << host_ns << " ns";
      EXPECT_LT(way.longest, std::max(1.1 * RateOptions{}.queue_bytes, rate * 300e-6))
          << rate << ' ' << host_ns;
    }
}

// A flow whose way is not full any more gets its share of it again: the port that marked was another's.
TEST(RateControl, AMarkDoesNotHideALossAndALossHidesAMark) {
  RateControl marked({}, 1476), lost({}, 1476), both({}, 1476);
  marked.on_marked(kMs, kMs);
  EXPECT_DOUBLE_EQ(marked.window(), 0.8 * RateOptions{}.first_window);
  lost.on_lost(kMs, kMs);
  EXPECT_DOUBLE_EQ(lost.window(), 0.5 * RateOptions{}.first_window);
  both.on_marked(kMs, kMs);
  both.on_lost(kMs, kMs + 1);
  EXPECT_DOUBLE_EQ(both.window(), lost.window()) << "both together no more than the loss";
  both.on_marked(kMs, kMs + 2);
  both.on_lost(kMs, kMs + 3);
  EXPECT_DOUBLE_EQ(both.window(), lost.window()) << "once in a round trip";
  both.on_lost(kMs, 2 * kMs + 1);
  EXPECT_DOUBLE_EQ(both.window(), 0.5 * lost.window());
}

TEST(RateControl, AMarkSaysNothingOfAQueuesRoomAsALossDoes) {
  const auto window_after = [](bool lost) {
    RateControl rate({}, 1476);
    std::int64_t now = 0;
    const std::int64_t trip = 2 * kMs;  // in a queue of its own host
    for (int i = 0; i < 30; ++i) {
      now += trip;
      if (lost)
        rate.on_lost(trip, now);
      else
        rate.on_marked(trip, now);
    }
    EXPECT_LE(rate.window(), 3000);
    for (int i = 0; i < 60; ++i) {
      now += trip;
      rate.on_acknowledged(rate.window(), trip, trip, 10'000, true, now);
    }
    return rate.window();
  };
  EXPECT_GT(window_after(false), 60 * 1476);
  EXPECT_LT(window_after(true), 20 * 1476);
}

TEST(RateControl, LearnsHowMuchRoomAQueueHas) {
  for (const double room : {8e3, 3e4, 1e5}) {
    Way way{.rate = 6.25e6, .host_ns = 200'000, .room = room};
    way.run(2000);
    way.run(10'000);
    // From half of what it held to all of it, a datagram at a time, is what it takes that only halves a
    // window.
    EXPECT_LT(way.losses, 10'000 / (room / 2 / 1476) / 4) << room;
    EXPECT_GT(way.losses, 0) << room << ": it looks for more now and then";
    EXPECT_GT(way.used, 0.9) << room;
  }
  Way deep{.rate = 6.25e6, .host_ns = 200'000};
  deep.run(2000);
  EXPECT_EQ(deep.losses, 0);
}

TEST(RateControl, SlowsDownForLossMarksAndSilenceAndNeverStops) {
  RateOptions options;
  RateControl rate(options, 1476);
  const double first = rate.window();
  rate.on_lost(kMs, 10 * kMs);
  EXPECT_DOUBLE_EQ(rate.window(), first / 2);
  rate.on_lost(kMs, 10 * kMs + 1);
  EXPECT_DOUBLE_EQ(rate.window(), first / 2) << "once per round trip";
  rate.on_marked(kMs, 12 * kMs);
  EXPECT_DOUBLE_EQ(rate.window(), first / 2 * 0.8);
  for (int i = 0; i < 100; ++i) rate.on_lost(kMs, (20 + 2 * i) * kMs);
  EXPECT_EQ(rate.window(), options.least_window);
  rate.on_acknowledged(3000, kMs, kMs, kMs, true, 1000 * kMs);
  EXPECT_GT(rate.window(), options.least_window);
  rate.on_silence();
  EXPECT_EQ(rate.window(), options.least_window);
}

TEST(RateControl, ALossCountsThoughTheDelayHasJustTakenALittle) {
  RateControl rate(RateOptions{.queue_bytes = 0}, 1476);
  rate.on_acknowledged(1476, 1'300'000, 1'300'000, kMs, true, 10 * kMs);
  const double less = rate.window();
  EXPECT_LT(less, RateOptions{}.first_window);
  rate.on_lost(kMs, 10 * kMs);
  EXPECT_DOUBLE_EQ(rate.window(), less / 2);
}

TEST(RateControl, TwoLargeDatagramsAreTheLeast) {
  RateControl rate(RateOptions{}, 9000);
  for (int i = 0; i < 100; ++i) rate.on_lost(kMs, (20 + 2 * i) * kMs);
  EXPECT_EQ(rate.window(), 18'000);
  rate.on_acknowledged(27'000, kMs, kMs, kMs, true, 1000 * kMs);
  EXPECT_EQ(rate.window(), 27'000) << "by one at most";
}

TEST(RateControl, DoesNotGrowForWhatWasNotUsed) {
  RateControl rate(RateOptions{}, 1476);
  const double first = rate.window();
  rate.on_acknowledged(1e6, kMs, kMs, kMs, false, kMs);
  EXPECT_EQ(rate.window(), first);
}

TEST(RateControl, PacesAWindowOverTheWayAndNotOverWhatAHostWasBusyFor) {
  const RateControl rate(RateOptions{}, 1476);
  const double window = rate.window();
  EXPECT_DOUBLE_EQ(rate.pace(kMs, kMs), 2 * window * 1000);
  EXPECT_DOUBLE_EQ(rate.pace(100 * kMs, kMs - 200'000), 2 * window * 1000);
  EXPECT_EQ(rate.pace(0, 0), 0) << "nothing is known yet";
}

TEST(RateControl, SwitchedOffItSaysNothing) {
  RateOptions options;
  options.enabled = false;
  RateControl rate(options, 1476);
  rate.on_lost(kMs, kMs);
  rate.on_marked(kMs, 3 * kMs);
  rate.on_silence();
  rate.on_acknowledged(1, 900 * kMs, 900 * kMs, kMs, true, 9 * kMs);
  EXPECT_EQ(rate.window(), options.most_window);
  EXPECT_EQ(rate.pace(kMs, kMs), 0);
}

struct Sending {
  Sending() {
    for (std::uint64_t n = 0; n < 20; ++n)
      packets.sent(
          {.number = 2 * n, .sent_ns = static_cast<std::int64_t>(n) * 1000, .length = 100, .bytes = 150});
    rtt.sample(10 * kMs, 0, 1);
  }
  void acknowledge(std::uint64_t begin, std::uint64_t end) {
    wire::Acknowledgement ack;
    ack.ranges[0] = {begin, end};
    ack.n_ranges = 1;
    packets.acknowledge(ack, [&](const SentPacket& p, bool was_lost) {
      arrived.push_back(p.number);
      late += was_lost ? 1 : 0;
    });
  }
  void look(std::int64_t now) {
    packets.find_lost(rtt, now, [&](const SentPacket& p) { lost.push_back(p.number); });
  }
  SentPackets packets{64};
  RoundTrip rtt;
  std::vector<std::uint64_t> arrived, lost;
  int late = 0;
};

TEST(SentPackets, CountAsLostBehindEnoughThatArrived) {
  Sending s;
  s.acknowledge(20, 21);
  EXPECT_THAT(s.arrived, ::testing::ElementsAre(20));
  s.look(1000);
  EXPECT_THAT(s.lost, ::testing::ElementsAre(0, 2, 4));  // 8 or more left later
  EXPECT_EQ(s.packets.on_their_way(), 16U);
  EXPECT_EQ(s.packets.bytes_on_their_way(), 16U * 150);
}

TEST(SentPackets, CountAsLostAfterALittleMoreThanARoundTrip) {
  Sending s;
  s.acknowledge(3, 7);  // 4 and 6
  EXPECT_THAT(s.arrived, ::testing::ElementsAre(4, 6));
  s.look(12 * kMs);
  EXPECT_TRUE(s.lost.empty());
  EXPECT_EQ(s.packets.lost_at_ns(), 12 * kMs + kMs / 2);
  s.look(12 * kMs + kMs / 2);
  EXPECT_THAT(s.lost, ::testing::ElementsAre(0));
  s.look(100 * kMs);
  EXPECT_THAT(s.lost, ::testing::ElementsAre(0, 2)) << "what has nothing newer behind it is late, not lost";
  EXPECT_EQ(s.packets.lost_at_ns(), SentPackets::kNever);
}

TEST(SentPackets, WhatCountedAsLostMayArriveAfterAll) {
  Sending s;
  s.acknowledge(38, 39);
  s.look(1000);
  EXPECT_EQ(s.lost.size(), 12U);
  s.acknowledge(0, 10);
  EXPECT_EQ(s.late, 5);
  EXPECT_EQ(s.packets.on_their_way(), 7U);
  s.acknowledge(0, 39);
  EXPECT_EQ(s.arrived.size(), 20U) << "each is told once";
  EXPECT_EQ(s.packets.on_their_way(), 0U);
  EXPECT_EQ(s.packets.bytes_on_their_way(), 0U);
  EXPECT_EQ(s.packets.oldest(), nullptr);
}

TEST(SentPackets, WhenFullTheOldestIsGivenUp) {
  SentPackets packets(4);
  for (std::uint64_t n = 0; n < 4; ++n) packets.sent({.number = n, .bytes = 10});
  ASSERT_TRUE(packets.full());
  std::vector<std::uint64_t> lost;
  packets.give_up_oldest([&](const SentPacket& p) { lost.push_back(p.number); });
  EXPECT_THAT(lost, ::testing::ElementsAre(0));
  EXPECT_FALSE(packets.full());
  EXPECT_EQ(packets.oldest()->number, 1U);
  EXPECT_EQ(packets.bytes_on_their_way(), 30U);
}

TEST(SendBuffer, SendsLostBytesFirstAndKnownOnesNoMore) {
  std::vector<std::byte> bytes(100);
  SendBuffer buffer(128, 80);
  EXPECT_EQ(buffer.write(bytes), 100U);
  EXPECT_EQ(buffer.write(bytes), 28U);
  const auto send = [&](std::size_t most) {
    const auto piece = buffer.next(most);
    if (piece.length > 0) buffer.sent(piece);
    return std::pair(piece.offset, piece.length);
  };
  EXPECT_EQ(send(50), std::pair(0UL, 50UL));
  EXPECT_EQ(send(50), std::pair(50UL, 30UL));
  EXPECT_TRUE(buffer.out_of_credit());
  buffer.on_arrived(10, 10);
  buffer.on_lost(0, 50);
  EXPECT_FALSE(buffer.out_of_credit());
  EXPECT_EQ(send(50), std::pair(0UL, 10UL));
  EXPECT_EQ(send(15), std::pair(20UL, 15UL));
  buffer.on_arrived(35, 15);  // after all
  EXPECT_EQ(send(50).second, 0U);
  buffer.on_limit(90);
  buffer.on_limit(85);
  EXPECT_EQ(send(50), std::pair(80UL, 10UL));
  buffer.on_arrived(0, 35);
  EXPECT_EQ(buffer.arrived(), 50U);
  EXPECT_EQ(buffer.room(), 50U);
}

}  // namespace
}  // namespace talweg::protocol
