// What waits to be sent to one rank.
#include "live/out_frame.h"

#include <gmock/gmock.h>

namespace talweg::live {
namespace {

OutFrame frame(std::uint32_t chunk, int priority, std::uint64_t run = 0) {
  OutFrame f;
  f.header.chunk = chunk;
  f.priority = priority;
  f.token.run = run;
  f.reported = false;
  return f;
}

TEST(SendQueue, UrgentFramesOvertakeAndEqualsKeepTheirOrder) {
  SendQueue queue;
  queue.push(frame(1, 0));
  queue.push(frame(2, 0));
  queue.push(frame(3, 5));
  queue.push(frame(4, 2));
  queue.push(frame(5, 5));
  std::vector<std::uint32_t> order;
  while (!queue.empty()) order.push_back(queue.pop().header.chunk);
  EXPECT_EQ(order, (std::vector<std::uint32_t>{3, 5, 4, 1, 2}));
}

TEST(SendQueue, CancelTakesOutOneRunAndLeavesTheRestInOrder) {
  SendQueue queue;
  for (std::uint32_t i = 0; i < 100; ++i) queue.push(frame(i, static_cast<int>(i % 3), i % 2));
  int dropped = 0;
  queue.cancel(0, 1, [&](const OutFrame& f) {
    EXPECT_EQ(f.token.run, 1U);
    ++dropped;
  });
  EXPECT_EQ(dropped, 50);
  EXPECT_EQ(queue.size(), 50U);
  std::uint32_t last = 0;
  int priority = 2;
  while (!queue.empty()) {
    const OutFrame f = queue.pop();
    EXPECT_EQ(f.token.run, 0U);
    if (f.priority == priority) {
      EXPECT_GE(f.header.chunk, last);
    }
    priority = f.priority;
    last = f.header.chunk;
  }
}

std::vector<std::uint32_t> order_of(SendQueue& queue) {
  std::vector<std::uint32_t> order;
  while (!queue.empty()) {
    const std::uint32_t next = queue.front().header.chunk;
    order.push_back(queue.pop().header.chunk);
    EXPECT_EQ(order.back(), next) << "front() tells what pop() takes";
  }
  return order;
}

OutFrame far_along(float progress, std::uint32_t chunk, std::uint64_t run = 0) {
  OutFrame f = frame(chunk, 0, run);
  f.token.progress = progress;
  return f;
}

TEST(SendQueue, OfARunWhatIsLeastFarAlongGoesFirst) {
  SendQueue queue;
  queue.push(far_along(0.5F, 1));
  queue.push(far_along(0.75F, 2));
  queue.push(far_along(0.25F, 3));
  queue.push(far_along(0.5F, 4));
  queue.push(far_along(0.0F, 5));
  EXPECT_THAT(order_of(queue), ::testing::ElementsAre(5, 3, 1, 4, 2));
}

TEST(SendQueue, RunsAndControlFramesKeepTheTurnsInWhichTheyCame) {
  SendQueue queue;
  OutFrame control = frame(100, 0);
  control.reported = true;
  queue.push(far_along(0.9F, 1, 7));
  queue.push(far_along(0.5F, 2, 8));
  queue.push(std::move(control));
  queue.push(far_along(0.1F, 3, 8));
  queue.push(far_along(0.2F, 4, 7));
  // The turns: run 7, run 8, control, run 8, run 7.
  EXPECT_THAT(order_of(queue), ::testing::ElementsAre(4, 3, 100, 2, 1));
}

TEST(SendQueue, ACancelledRunLeavesNoTurnBehind) {
  SendQueue queue;
  for (std::uint32_t i = 0; i < 9; ++i) queue.push(far_along(1.0F - 0.1F * static_cast<float>(i), i, i % 3));
  queue.cancel(0, 1, [](const OutFrame&) {});
  queue.push(far_along(0.0F, 20, 1));
  EXPECT_EQ(queue.size(), 7U);
  EXPECT_THAT(order_of(queue), ::testing::ElementsAre(6, 8, 3, 5, 0, 2, 20));
}

// A connection holds two milliseconds of its rate, within bounds.
TEST(SendQueue, WhatAConnectionHoldsGoesByItsRate) {
  EXPECT_EQ(protocol::unsent_limit(100'000, 0), 256 << 10) << "not measured yet";
  EXPECT_EQ(protocol::unsent_limit(100'000, 4'000'000), 50'000);
  EXPECT_EQ(protocol::unsent_limit(10'000, 16'000'000), 16 << 10);
  EXPECT_EQ(protocol::unsent_limit(1'000'000, 100'000), 256 << 10);
  EXPECT_EQ(protocol::paced_limit(10e6), 20'000);
  EXPECT_EQ(protocol::paced_limit(50e3), 4 << 10) << "the kernel sends so much at a time";
}

}  // namespace
}  // namespace talweg::live
