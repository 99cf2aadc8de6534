// The queue gives events back in one order, however its slots happen to lie.
#include "sim/event_queue.h"

#include <gtest/gtest.h>

#include <queue>

#include "base/random.h"

namespace talweg::sim {
namespace {

// What the queue is held to: (time, number of the push), kind and target.
struct Expected {
  Picoseconds time;
  std::uint64_t number;
  std::uint32_t target;
  bool operator>(const Expected& o) const { return time != o.time ? time > o.time : number > o.number; }
};
using Reference = std::priority_queue<Expected, std::vector<Expected>, std::greater<>>;

// Keeps about `pending` events waiting, each followed by one `gap(random)` later, for so many events.
template <class Gap>
void expect_same_order(int pending, int events, Gap&& gap) {
  Random random(5);
  EventQueue queue;
  Reference reference;
  std::uint64_t number = 0;
  const auto target = [&] { return static_cast<std::uint32_t>(random.below(EventQueue::kMaxTargets)); };
  const auto push = [&](Picoseconds time) {
    const std::uint32_t t = target();
    queue.push(time, EventKind::arrival, t);
    reference.push({time, number++, t});
  };
  for (int i = 0; i < pending; ++i) push(gap(random));
  for (int i = 0; i < events; ++i) {
    ASSERT_EQ(queue.size(), reference.size());
    const Expected expected = reference.top();
    ASSERT_EQ(queue.top().time, expected.time) << i;
    ASSERT_EQ(queue.top().target(), expected.target) << i;
    reference.pop();
    switch (random.below(3)) {
      case 0: {  // one takes the place of the other
        const std::uint32_t t = target();
        const Picoseconds time = expected.time + gap(random);
        queue.replace_top(time, EventKind::timer, t);
        reference.push({time, number++, t});
        break;
      }
      case 1:
        queue.pop();
        push(expected.time + gap(random));
        break;
      default:  // what happens causes another event, before it is over
        push(expected.time + gap(random));
        queue.pop();
    }
  }
  while (!queue.empty()) {
    ASSERT_EQ(queue.top().time, reference.top().time);
    ASSERT_EQ(queue.top().target(), reference.top().target);
    queue.pop();
    reference.pop();
  }
  EXPECT_TRUE(reference.empty());
}

TEST(EventQueue, KeepsTheOrderOfManyEventsCloseToEachOther) {
  expect_same_order(20'000, 100'000, [](Random& r) { return static_cast<Picoseconds>(r.below(1'300'000)); });
}

TEST(EventQueue, KeepsTheOrderOfFewEventsFarApart) {
  expect_same_order(10, 100'000,
                    [](Random& r) { return static_cast<Picoseconds>(r.below(kPicosecondsPerSecond)); });
}

TEST(EventQueue, KeepsTheOrderOfEventsAtTheSameTime) {
  expect_same_order(500, 50'000, [](Random& r) { return static_cast<Picoseconds>(r.below(2)) * 1'000'000; });
}

// Packets and timers: what is near and what is a thousand times as far.
TEST(EventQueue, KeepsTheOrderWhereSomeEventsAreFarAway) {
  expect_same_order(2000, 100'000, [](Random& r) {
    return static_cast<Picoseconds>(r.below(8) == 0 ? r.below(5'000'000'000) : r.below(2'000'000));
  });
}

// A burst at the start, then long pauses.
TEST(EventQueue, KeepsTheOrderWhenTheDensityOfEventsChanges) {
  int calls = 0;
  expect_same_order(5000, 150'000, [&](Random& r) {
    return static_cast<Picoseconds>(r.below(++calls < 60'000 ? 100'000 : 50'000'000'000));
  });
}

// Flows set their timers before they send anything. Were the timer's slot at hand from then on, a single heap
// would hold all that happens up to it.
TEST(EventQueue, GoesFromSlotToSlotThoughATimerOfLongAfterWasScheduledFirst) {
  constexpr int kEvents = 1000;
  EventQueue queue;
  queue.push(10'000'000'000, EventKind::timer, 1);
  queue.push(0, EventKind::arrival, 2);
  for (int i = 1; i < kEvents; ++i) {
    EXPECT_EQ(queue.top().time, (i - 1) * 1'000'000LL);
    queue.pop();  // the timer alone is left
    queue.push(i * 1'000'000LL, EventKind::arrival, 2);
  }
  EXPECT_EQ(queue.top().kind(), EventKind::arrival);
  EXPECT_EQ(queue.turns(), kEvents - 1U);
}

TEST(EventQueue, OffersEventsAfterItHasBeenEmpty) {
  EventQueue queue;
  queue.push(7'000'000'000, EventKind::timer, 1);
  queue.pop();
  EXPECT_TRUE(queue.empty());
  queue.push(5, EventKind::callback, 2);  // the queue itself knows no past
  queue.push(9'000'000'000'000, EventKind::port, 3);
  EXPECT_EQ(queue.top().target(), 2U);
  queue.pop();
  EXPECT_EQ(queue.top().kind(), EventKind::port);
  EXPECT_EQ(queue.top().time, 9'000'000'000'000);
  queue.pop();
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(queue.scheduled(), 3U);
}

}  // namespace
}  // namespace talweg::sim
