#include "wire/flow_packets.h"

#include <gmock/gmock.h>

#include <cstring>
#include <vector>

#include "base/random.h"

namespace talweg::wire {
namespace {

Acknowledgement random_ack(Random& random) {
  Acknowledgement ack;
  ack.held_us = static_cast<std::uint32_t>(random.next());
  ack.window = static_cast<std::uint32_t>(random.next());
  ack.marked = static_cast<std::uint32_t>(random.next());
  ack.n_ranges = 1 + random.below(kAckRanges);
  ack.n_limits = random.below(kFlowChannels + 1);
  std::uint64_t above = (1ULL << 40) + random.below(1ULL << 50);
  for (std::size_t i = 0; i < ack.n_ranges; ++i) {
    const std::uint64_t end = above - (i == 0 ? 0 : 1 + random.below(1000));
    ack.ranges[i] = {end - 1 - random.below(1ULL << 30), end};
    above = ack.ranges[i].begin;
  }
  for (std::size_t i = 0; i < ack.n_limits; ++i) ack.limits[i] = random.below(kFlowBytes);
  return ack;
}

std::vector<std::byte> ack_bytes(const Acknowledgement& ack) {
  std::vector<std::byte> bytes(kMostAckBytes);
  bytes.resize(encode(ack, bytes.data()));
  return bytes;
}

TEST(FlowPackets, AcknowledgementsSurviveTheWire) {
  Random random{1};
  for (int i = 0; i < 1000; ++i) {
    const Acknowledgement ack = random_ack(random);
    Acknowledgement got;
    ASSERT_STREQ(decode(ack_bytes(ack), got), nullptr);
    ASSERT_EQ(got.n_ranges, ack.n_ranges);
    ASSERT_EQ(got.n_limits, ack.n_limits);
    for (std::size_t r = 0; r < ack.n_ranges; ++r) ASSERT_EQ(got.ranges[r], ack.ranges[r]);
    for (std::size_t c = 0; c < ack.n_limits; ++c) ASSERT_EQ(got.limits[c], ack.limits[c]);
    ASSERT_EQ(got.held_us, ack.held_us);
    ASSERT_EQ(got.window, ack.window);
    ASSERT_EQ(got.marked, ack.marked);
    ASSERT_EQ(got.highest(), ack.highest());
  }
}

TEST(FlowPackets, AnAcknowledgementCutAnywhereIsRefused) {
  Random random{2};
  const auto good = ack_bytes(random_ack(random));
  Acknowledgement got;
  for (std::size_t n = 0; n < good.size(); ++n)
    EXPECT_NE(decode(std::span(good).first(n), got), nullptr) << n;
  auto longer = good;
  longer.push_back({});
  EXPECT_NE(decode(longer, got), nullptr);
}

// One field of a sound one, as 16-bit or 64-bit words.
template <class Word>
const char* with(std::size_t at, Word value) {
  Acknowledgement ack;
  ack.ranges[0] = {90, 100};
  ack.ranges[1] = {10, 20};
  ack.n_ranges = 2;
  ack.limits[0] = 5;
  ack.n_limits = 1;
  auto bytes = ack_bytes(ack);
  EXPECT_EQ(bytes.size(), 24U + 32 + 8);
  std::memcpy(bytes.data() + at, &value, sizeof value);
  Acknowledgement got;
  return decode(bytes, got);
}

TEST(FlowPackets, AcknowledgementsOfWhatCannotBeAreRefusedWithAReason) {
  using U16 = std::uint16_t;
  using U64 = std::uint64_t;
  EXPECT_EQ(with<U64>(0, 99), nullptr);
  EXPECT_STREQ(with<U64>(0, ~0ULL), "an acknowledgement of a number that nobody can have sent");
  EXPECT_STREQ(with<U64>(0, 50), "an acknowledgement of numbers below zero");
  EXPECT_STREQ(with<U16>(20, 0), "an acknowledgement of no or too many ranges");
  EXPECT_STREQ(with<U16>(20, 33), "an acknowledgement of no or too many ranges");
  EXPECT_STREQ(with<U16>(20, 3), "an acknowledgement of another length than it says");
  EXPECT_STREQ(with<U16>(22, 17), "an acknowledgement of too many channels");
  EXPECT_STREQ(with<U16>(22, 2), "an acknowledgement of another length than it says");
  EXPECT_STREQ(with<U64>(24, 1), "an acknowledgement whose ranges touch");
  EXPECT_STREQ(with<U64>(32, 0), "an acknowledgement of numbers below zero");
  EXPECT_STREQ(with<U64>(32, 101), "an acknowledgement of numbers below zero");
  EXPECT_STREQ(with<U64>(40, 0), "an acknowledgement whose ranges touch");
  EXPECT_STREQ(with<U64>(40, 91), "an acknowledgement of numbers below zero");
  EXPECT_STREQ(with<U64>(48, ~0ULL), "an acknowledgement of numbers below zero");
  EXPECT_STREQ(with<U64>(56, ~0ULL), "an acknowledgement with a limit beyond a channel's end");
}

}  // namespace
}  // namespace talweg::wire
