#include "wire/traffic_class.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace talweg::wire
