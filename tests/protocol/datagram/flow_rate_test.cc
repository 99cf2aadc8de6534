// What the rate of a flow follows: marks, delays and losses as acknowledgements tell of them, by hand.
#include <gtest/gtest.h>

#include <vector>

#include "protocol/datagram/flow.h"

namespace talweg::protocol {
namespace {

constexpr std::int64_t kTimeMs = 1'000'000;

struct AnsweredFlow {
  explicit AnsweredFlow(std::size_t channels = 1) : flow(with(channels)) {
    for (std::size_t c = 0; c < channels; ++c) flow.write(c, std::vector<std::byte>(500'000));
  }
  static FlowOptions with(std::size_t channels) {
    FlowOptions options;
    options.channels = channels;
    return options;
  }
  bool send(std::int64_t now) { return flow.next(sent, now, header, payload.data()) && ++sent > 0; }
  // Of the first datagram.
  void answer(std::int64_t now, std::uint32_t marked = 0, std::uint32_t held_us = 0,
              std::int64_t waited_ns = 0) {
    wire::Acknowledgement ack;
    ack.window = 1 << 20;
    ack.marked = marked;
    ack.held_us = held_us;
    ack.ranges[ack.n_ranges++] = {0, 1};
    ack.n_limits = 1;
    ack.limits[0] = 1 << 20;
    std::vector<std::byte> told(wire::kMostAckBytes);
    told.resize(encode(ack, told.data()));
    flow.on_datagram({.type = static_cast<std::uint8_t>(wire::FlowType::acknowledgement),
                      .length = static_cast<std::uint16_t>(told.size())},
                     told, false, now, waited_ns);
  }
  DatagramFlow flow;
  std::uint64_t sent = 0;
  wire::DatagramHeader header;
  std::vector<std::byte> payload = std::vector<std::byte>(wire::kMaxDatagramPayload);
};

TEST(FlowRate, MarksOfTheNetworkSlowItDown) {
  for (const std::uint32_t marked : {0U, 1U}) {
    AnsweredFlow a;
    ASSERT_TRUE(a.send(kTimeMs));
    const double before = a.flow.congestion_window();
    a.answer(2 * kTimeMs, marked);
    EXPECT_EQ(a.flow.congestion_window() < before, marked > 0);
  }
}

TEST(FlowRate, WhatHostsTakeIsNoDelayOfTheWay) {
  AnsweredFlow a;
  ASSERT_TRUE(a.send(kTimeMs));
  a.answer(2 * kTimeMs, 0, 400, 300'000);
  EXPECT_EQ(a.flow.round_trip().smoothed_ns(), 700'000) << "it waited 300 us here";
  EXPECT_EQ(a.flow.round_trip().delay_ns(), 300'000) << "and 400 us there";
}

TEST(FlowRate, ChannelsTakeTurns) {
  AnsweredFlow a(3);
  for (int i = 0; i < 9; ++i) {
    ASSERT_TRUE(a.send(kTimeMs));
    EXPECT_EQ(a.header.own16, i % 3);
  }
}

TEST(FlowRate, APaceThatIsGivenIsAnUpperBoundOfTheRateControls) {
  const auto sent_in_5_ms = [](double pace) {
    AnsweredFlow a;
    EXPECT_TRUE(a.send(0));
    a.answer(20 * kTimeMs);
    a.flow.set_pace(pace);
    for (std::int64_t now = 20 * kTimeMs; now < 25 * kTimeMs; now += kTimeMs / 10)
      while (a.send(now)) {
      }
    return a.sent - 1;
  };
  // 32 kB in 20 ms, while the window doubles twice as fast.
  EXPECT_GE(sent_in_5_ms(0), 5U);
  EXPECT_LE(sent_in_5_ms(0), 16U);
  EXPECT_EQ(sent_in_5_ms(1e12), sent_in_5_ms(0));
  EXPECT_LT(sent_in_5_ms(1e6), sent_in_5_ms(0));
}

TEST(FlowRate, AfterASilenceItDoublesAsInTheBeginning) {
  RateControl rate({}, 1476);
  rate.on_lost(kTimeMs, 10 * kTimeMs);
  rate.on_silence();
  const double least = rate.window();
  rate.on_acknowledged(least, kTimeMs, kTimeMs, kTimeMs, true, 20 * kTimeMs);
  EXPECT_EQ(rate.window(), 2 * least);
}

TEST(FlowRate, LossesThatAreNoneOfTheQueuesGiveItsRoomBack) {
  RateControl rate({.queue_ns = 0, .queue_bytes = 16'000}, 1476);
  rate.on_lost(kTimeMs, 10 * kTimeMs);  // half of the room is gone
  const auto grows = [](RateControl r) {
    const double before = r.window();
    r.on_acknowledged(1476, 2 * kTimeMs, 2 * kTimeMs, kTimeMs, true, 20 * kTimeMs);
    return r.window() > before;
  };
  EXPECT_FALSE(grows(rate));
  for (int i = 0; i < 30; ++i) rate.on_lost_alike();
  EXPECT_TRUE(grows(rate));
}

TEST(FlowRate, AHostThatIsBusyOnceIsNoQueue) {
  RateControl rate({.queue_bytes = 0}, 1476);
  rate.on_lost(kTimeMs, kTimeMs);  // it has begun
  const double window = rate.window();
  RoundTrip rtt;
  std::int64_t now = 10 * kTimeMs;
  for (int i = 0; i < 100; ++i) {
    const std::int64_t trip = i % 5 == 4 ? kTimeMs : kTimeMs / 5;
    rtt.sample(trip, 0, now += kTimeMs / 10);
    rate.on_acknowledged(1476, rtt, trip, false, now);
  }
  EXPECT_EQ(rate.window(), window);
  for (int i = 0; i < 100; ++i) {
    rtt.sample(kTimeMs, 0, now += kTimeMs / 10);
    rate.on_acknowledged(1476, rtt, kTimeMs, false, now);
  }
  EXPECT_LT(rate.window(), window);
}

}  // namespace
}  // namespace talweg::protocol
