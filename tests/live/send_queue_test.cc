#include "live/send_queue.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace talweg::live
