// How much may be on its way, with hand-made acknowledgements.
#include "protocol/bounded/flight.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <vector>

namespace talweg::protocol {
namespace {

constexpr std::size_t kDatagram = 1000;
constexpr std::int64_t kTripNs = 1'000'000;

struct FlightTest : ::testing::Test {
  FlightTest() {
    options.datagram = kDatagram;
    options.other_credit = options.credit = 1 << 20;
  }
  // So long everything leaves that may; half a trip later it `arrives`, or not, and what is said to that
  // takes the other half.
  void run(Flight& from, Flight& to, std::int64_t for_ns, const std::function<bool(std::uint64_t)>& arrives) {
    for (const std::int64_t until = now + for_ns; now < until; now += 10'000) {
      while (from.allowed(now)) {
        from.sent(number, kDatagram, now);
        there.push_back({now + kTripNs / 2, number++});
      }
      for (; !there.empty() && there.front().arrives_ns <= now; there.pop_front())
        if (arrives(there.front().number)) to.received(there.front().number, true, mark, now, now);
      to.end_of_batch();
      if (to.acknowledgement_due(now)) {
        wire::DatagramHeader header;
        std::vector<std::byte> payload(wire::kMostAckBytes);
        to.acknowledge(now, header, payload.data());
        payload.resize(header.length);
        back.push_back({now + kTripNs / 2, std::move(payload)});
      }
      for (; !back.empty() && back.front().arrives_ns <= now; back.pop_front())
        from.on_acknowledgement(back.front().payload, now, now);
      if (from.next_time_ns(now, false) <= now) from.on_time(now);
    }
  }
  void answer(Flight& from, Flight& to) {
    if (!to.acknowledgement_due(now)) return;
    wire::DatagramHeader header;
    std::array<std::byte, wire::kMostAckBytes> payload;
    to.acknowledge(now, header, payload.data());
    from.on_acknowledgement({payload.data(), header.length}, now, now);
  }

  struct Sent {
    std::int64_t arrives_ns;
    std::uint64_t number;
  };
  struct Said {
    std::int64_t arrives_ns;
    std::vector<std::byte> payload;
  };
  std::deque<Sent> there;
  std::deque<Said> back;
  FlightOptions options;
  std::int64_t now = 1'000'000'000;
  std::uint64_t number = 0;
  bool mark = false;
};

TEST_F(FlightTest, GrowsWhereNoQueueDoes) {
  Flight a(options), b(options);
  const double before = a.congestion_window();
  run(a, b, 20 * kTripNs, [](std::uint64_t) { return true; });
  EXPECT_GT(a.congestion_window(), 2 * before);
  EXPECT_EQ(a.counters().lost, 0U);
  EXPECT_GT(a.counters().rate_waits, 0U);
}

// As where many nodes' first windows come to one: what left alone took no time to speak of.
TEST_F(FlightTest, WaitsForTheQueueOfAllFirstWindowsAndLaterNoMoreThanAnAnswerTakes) {
  constexpr std::int64_t kAloneNs = 50'000, kQueueNs = 20'000'000;
  Flight a(options), b(options);
  const auto one_more = [&] {
    a.sent(number, kDatagram, now);
    return number++;
  };
  ASSERT_TRUE(a.allowed(now));
  b.received(one_more(), true, false, now, now);
  b.end_of_batch();
  now += kAloneNs;
  answer(a, b);
  std::vector<std::uint64_t> window;
  for (const std::int64_t until = now + kTripNs; now < until; now += 10'000)
    while (a.allowed(now)) window.push_back(one_more());
  ASSERT_GT(window.size(), 5U);
  for (const std::int64_t until = now + kQueueNs; now < until; now += 10'000)
    if (a.next_time_ns(now, false) <= now) a.on_time(now);
  EXPECT_EQ(a.counters().timeouts, 0U);
  for (const std::uint64_t n : window) b.received(n, true, false, now, now);
  b.end_of_batch();
  answer(a, b);
  EXPECT_EQ(a.counters().lost, 0U);
  run(a, b, 100 * kTripNs, [](std::uint64_t) { return true; });
  run(a, b, 30 * kTripNs, [](std::uint64_t) { return false; });
  EXPECT_GT(a.counters().timeouts, 0U);
}

TEST_F(FlightTest, NeverHasMoreOnItsWayThanTheOtherNodeHasRoomFor) {
  options.rate.enabled = false;
  options.other_credit = 10 * kDatagram;
  Flight a(options), b(options);
  while (a.allowed(now)) a.sent(number++, kDatagram, now);
  EXPECT_EQ(a.bytes_on_their_way(), 10 * kDatagram);
  EXPECT_EQ(a.counters().credit_waits, 1U);
  // The other node has more room than it had.
  for (std::uint64_t n = 0; n < number; ++n) b.received(n, true, false, now, now);
  b.end_of_batch();
  answer(a, b);
  EXPECT_EQ(a.bytes_on_their_way(), 0U);
  while (a.allowed(now)) a.sent(number++, kDatagram, now);
  EXPECT_EQ(a.bytes_on_their_way(), (1U << 20) / kDatagram * kDatagram);
}

TEST_F(FlightTest, BearsLossesThatAreExpectedAndNoOthers) {
  Flight a(options), b(options), c(options), d(options);
  run(a, b, 40 * kTripNs, [](std::uint64_t n) { return n % 50 != 7; });
  EXPECT_GT(a.counters().lost, 0U);
  EXPECT_EQ(a.counters().heavy_losses, 0U);
  number = 0;
  there.clear();
  back.clear();
  run(c, d, 40 * kTripNs, [](std::uint64_t n) { return n % 2 == 0; });
  EXPECT_GT(c.counters().heavy_losses, 0U);
  EXPECT_LT(c.congestion_window(), a.congestion_window() / 4);
}

TEST_F(FlightTest, CountsAsGoneWhatNothingIsHeardOf) {
  Flight a(options), b(options);
  while (a.allowed(now)) a.sent(number++, kDatagram, now);
  const std::int64_t at = a.next_time_ns(now, true);
  EXPECT_GT(at, now);
  a.on_time(at - 1);
  EXPECT_GT(a.bytes_on_their_way(), 0U);
  a.on_time(at);
  EXPECT_EQ(a.bytes_on_their_way(), 0U);
  EXPECT_EQ(a.counters().timeouts, 1U);
  EXPECT_EQ(a.next_time_ns(at, false), SentPackets::kNever);
  EXPECT_TRUE(a.allowed(at));
}

TEST_F(FlightTest, BeginsAnewAfterALongSilence) {
  Flight a(options), b(options);
  run(a, b, 20 * kTripNs, [](std::uint64_t) { return true; });
  for (int i = 0; i < 3; ++i) {
    now = std::max(now, a.next_time_ns(now, true));
    while (a.allowed(now)) a.sent(number++, kDatagram, now);
    now = a.next_time_ns(now, false);
    a.on_time(now);
  }
  EXPECT_EQ(a.counters().timeouts, 3U);
  EXPECT_DOUBLE_EQ(a.congestion_window(), options.rate.least_window);
}

TEST_F(FlightTest, ShrinksWhereTheNetworkMarks) {
  Flight a(options), b(options);
  run(a, b, 20 * kTripNs, [](std::uint64_t) { return true; });
  const double before = a.congestion_window();
  mark = true;
  run(a, b, 2 * kTripNs, [](std::uint64_t) { return true; });
  EXPECT_GT(a.counters().marks, 0U);
  EXPECT_LT(a.congestion_window(), before);
}

TEST_F(FlightTest, NumbersOfOtherDatagramsMakeNoGaps) {
  Flight a(options);
  for (std::uint64_t n = 0; n < 60; ++n)
    if (n % 3 == 0)
      a.received(n, true, false, now, now);
    else
      a.passed(n);
  wire::DatagramHeader header;
  std::array<std::byte, wire::kMostAckBytes> payload;
  a.end_of_batch();
  a.acknowledge(now, header, payload.data());
  wire::Acknowledgement told;
  ASSERT_EQ(wire::decode({payload.data(), header.length}, told), nullptr);
  ASSERT_EQ(told.n_ranges, 1U);
  EXPECT_EQ(told.ranges[0], (wire::Acknowledgement::Range{0, 58})) << "the newest is one of data";
}

// So that the first one of all does not wait behind its own host's first windows.
TEST_F(FlightTest, SendsOneBeforeTheWayIsKnown) {
  Flight a(options), b(options);
  ASSERT_TRUE(a.allowed(now));
  a.sent(number++, kDatagram, now);
  EXPECT_FALSE(a.allowed(now));
  b.received(0, true, false, now, now);
  b.end_of_batch();
  now += kTripNs;
  answer(a, b);
  for (const std::int64_t until = now + kTripNs; now < until; now += 10'000)
    while (a.allowed(now)) a.sent(number++, kDatagram, now);
  EXPECT_GT(number, 4U);
}

TEST_F(FlightTest, SaysWhenNothingMoreMayLeaveBeforeAnAnswer) {
  options.rate.enabled = false;
  for (const int window : {4, 10}) {
    options.other_credit = static_cast<std::uint32_t>(window) * kDatagram;
    Flight a(options);
    for (int i = 0; i < window; ++i) {
      ASSERT_TRUE(a.allowed(now));
      // In a small window each one asks.
      EXPECT_EQ(a.fills(kDatagram), window == 4 || i == 9) << window << ' ' << i;
      a.sent(number++, kDatagram, now);
    }
    EXPECT_FALSE(a.allowed(now));
  }
}

TEST_F(FlightTest, BelievesNoAcknowledgementOfWhatWasNotSent) {
  Flight a(options), b(options);
  ASSERT_TRUE(a.allowed(now));
  a.sent(number++, kDatagram, now);
  b.received(5, true, false, now, now);
  b.end_of_batch();
  answer(a, b);
  EXPECT_EQ(a.counters().malformed, 1U);
  EXPECT_EQ(a.bytes_on_their_way(), kDatagram);
}

}  // namespace
}  // namespace talweg::protocol
