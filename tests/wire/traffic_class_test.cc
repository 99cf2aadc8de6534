#include "wire/traffic_class.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <span>

#include "wire/probe_packet.h"

namespace talweg::wire {
namespace {

TEST(TrafficClass, SaysWhatTheNetworkMayDo) {
  EXPECT_EQ(traffic_class(0, false), 2);  // ECT(0)
  EXPECT_EQ(traffic_class(kDroppable, false), 0);
  EXPECT_EQ(traffic_class(0, true), 40 << 2 | 2);
  EXPECT_EQ(traffic_class(kOrdinary, true), 2);
  EXPECT_EQ(traffic_class(7 | kDroppable, true), 1 << 2);
}

TEST(TrafficClass, IsReadAsItWasWritten) {
  for (std::uint8_t priority = 0; priority < 8; ++priority)
    for (const std::uint8_t droppable : {std::uint8_t{0}, kDroppable}) {
      const auto octet = traffic_class(static_cast<std::uint8_t>(priority | droppable), true);
      EXPECT_EQ(priority_of(octet), priority);
      EXPECT_EQ(priority_of(octet | kEcnMarked), priority) << "marked on its way";
      EXPECT_EQ((octet & kEcnMask) == 0, droppable != 0);
    }
  EXPECT_EQ(priority_of(46 << 2), kOrdinary) << "a DSCP of somebody else";
}

TEST(ProbePacket, IsReadAsItWasWrittenByThoseOfItsRunAndTrialAlone) {
  std::array<std::byte, 64> bytes{};
  encode_probe(
      {.token = 7, .sent_ns = -5, .order = 3, .number = 2, .trial = 9, .sender = 1, .left_with = 0xa2},
      bytes);
  const auto packet = decode_probe(bytes, 7, 9);
  ASSERT_TRUE(packet.has_value());
  EXPECT_EQ(packet->sent_ns, -5);
  EXPECT_EQ(packet->order, 3U);
  EXPECT_EQ(packet->number, 2U);
  EXPECT_EQ(packet->sender, 1);
  EXPECT_EQ(packet->left_with, 0xa2);
  EXPECT_FALSE(decode_probe(bytes, 8, 9));
  EXPECT_FALSE(decode_probe(bytes, 7, 8));
  EXPECT_TRUE(decode_probe(std::span(bytes).first(32), 7, 9));
  EXPECT_FALSE(decode_probe(std::span(bytes).first(31), 7, 9));
  EXPECT_FALSE(decode_probe({}, 7, 9));
}

}  // namespace
}  // namespace talweg::wire
