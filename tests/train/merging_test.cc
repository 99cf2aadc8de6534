#include "train/merging.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/random.h"

namespace talweg::train {
namespace {

// Of all 2^(n-1) ways to cut n arrivals into groups.
double least_finish(const std::vector<Arrival>& arrivals, const TransferTimes& times, int in_flight = 1) {
  const std::size_t n = arrivals.size();
  double best = INFINITY;
  for (std::uint32_t cuts = 0; cuts < (std::uint32_t{1} << (n - 1)); ++cuts) {
    Groups groups;
    for (std::size_t i = 1; i < n; ++i)
      if ((cuts >> (i - 1)) & 1) groups.push_back(i);
    groups.push_back(n);
    best = std::min(best, finish(arrivals, groups, times, in_flight));
  }
  return best;
}

std::vector<Arrival> random_arrivals(Random& random, std::size_t n, bool with_waits = false) {
  std::vector<Arrival> arrivals;
  double now = 0;
  const double pace = std::exp(6 * random.uniform() - 10);
  for (std::size_t i = 0; i < n; ++i) {
    if (random.uniform() < 0.9) now += pace * random.uniform();
    const double bytes = random.uniform() < 0.05 ? 0 : std::floor(std::exp(16 * random.uniform()));
    const double wait = with_waits && random.uniform() < 0.7 ? 3 * pace * random.uniform() : 0;
    arrivals.push_back({now, bytes, wait});
  }
  return arrivals;
}

// Alpha-beta, or steps and lines as algorithms that change with the size make them: also such as get quicker
// where a piece begins.
TransferTimes random_times(Random& random) {
  const auto startup = [&] { return std::exp(5 * random.uniform() - 11); };
  const auto rate = [&] { return std::exp(4 * random.uniform() - 22); };
  if (random.uniform() < 0.4) return linear_times(startup(), rate());
  std::vector<TransferTimes::Piece> pieces{{0, startup(), rate()}};
  for (double from = 512; from < 8e6 && random.uniform() < 0.7; from *= 1 + 20 * random.uniform() + 0.5)
    pieces.push_back({from, startup(), rate()});
  return TransferTimes(std::move(pieces));
}

TEST(Merging, TheExactGroupsAreAsGoodAsTheBestOfAll) {
  Random random{20240501};
  int greedy_is_worse = 0, greedy_is_much_worse = 0;
  for (int i = 0; i < 4800; ++i) {
    const std::size_t n = i < 12 ? 15 : 1 + random.below(10);
    const auto arrivals = random_arrivals(random, n, i % 2 == 1);
    const TransferTimes times = random_times(random);
    const double least = least_finish(arrivals, times);
    EXPECT_NEAR(finish(arrivals, merge_exact(arrivals, times), times), least, 1e-12 * least)
        << "instance " << i;
    for (const Groups& groups : {merge_none(n), merge_all(n), merge_by_size(arrivals, {1 << 10}, {1 << 14})})
      EXPECT_GE(finish(arrivals, groups, times), least * (1 - 1e-12));
    const double greedy = finish(arrivals, merge_mg_wfbp(arrivals, times), times);
    EXPECT_GE(greedy, least * (1 - 1e-12));
    greedy_is_worse += greedy > least * 1.0001 ? 1 : 0;
    greedy_is_much_worse += greedy > least * 1.05 ? 1 : 0;
  }
  EXPECT_GT(greedy_is_worse, 200);
  EXPECT_GT(greedy_is_much_worse, 50);
}

// How often groups for several in flight gain a hundredth on those for one.
int expect_near_the_best(bool with_waits, double near) {
  Random random{20240617};
  int gains = 0;
  for (int i = 0; i < 300; ++i) {
    const std::size_t n = 2 + random.below(9);
    const auto arrivals = random_arrivals(random, n, with_waits);
    const TransferTimes times =
        linear_times(std::exp(5 * random.uniform() - 11), std::exp(4 * random.uniform() - 22));
    for (const int in_flight : {1, 2, 4, static_cast<int>(n)}) {
      const double least = least_finish(arrivals, times, in_flight);
      const double found = finish(arrivals, merge_in_flight(arrivals, times, in_flight), times, in_flight);
      const bool exact = in_flight == 1 || (in_flight == static_cast<int>(n) && !with_waits);
      EXPECT_LE(found, least * (exact ? 1 + 1e-12 : near)) << "instance " << i << ", " << in_flight;
      const double for_one = finish(arrivals, merge_exact(arrivals, times), times, in_flight);
      EXPECT_LE(found, for_one);
      EXPECT_LE(found, finish(arrivals, merge_mg_wfbp(arrivals, times), times, in_flight));
      gains += found < for_one * 0.99 ? 1 : 0;
    }
  }
  return gains;
}

// The best there is with one in flight, or with as many as there are; between them near it, and never worse
// than groups made for one.
TEST(Merging, GroupsForSeveralInFlightAreNearTheBest) {
  EXPECT_GT(expect_near_the_best(false, 1.1), 50);
}

// Whoever waits lets others by, so that the best order is no longer that of the layers.
TEST(Merging, GroupsForSeveralInFlightAreSomewhereNearTheBestWhereRanksAreLate) {
  expect_near_the_best(true, 1.35);
}

TEST(Merging, OthersGroupsAreTakenWhereTheyEndFirst) {
  Random random{7};
  int taken = 0;
  for (int i = 0; i < 300; ++i) {
    const auto arrivals = random_arrivals(random, 8);
    const TransferTimes times = linear_times(300e-6, 0.1e-9);
    std::vector<Groups> others;
    for (std::int64_t cap = 1 << 10; cap < 1 << 24; cap *= 2)
      others.push_back(merge_by_size(arrivals, {cap}, {cap}));
    const double alone = finish(arrivals, merge_in_flight(arrivals, times, 2), times, 2);
    const double found = finish(arrivals, merge_in_flight(arrivals, times, 2, others), times, 2);
    for (const Groups& groups : others) EXPECT_LE(found, finish(arrivals, groups, times, 2));
    EXPECT_LE(found, alone);
    taken += found < alone ? 1 : 0;
  }
  EXPECT_GT(taken, 0);
}

// By hand: each takes 30 us, of which 10 in turn.
TEST(Merging, OfGroupsUnderWayTogetherOnlyWhatIsServedInTurnAddsUp) {
  const TransferTimes times = linear_times(0, 3).in_turn(linear_times(0, 1));
  const std::vector<Arrival> arrivals{{0, 10, 0}, {0, 10, 0}, {0, 10, 0}};
  EXPECT_EQ(finish(arrivals, {1, 2, 3}, times, 1), 90);
  EXPECT_EQ(finish(arrivals, {1, 2, 3}, times, 2), 30 + 20 + 10) << "the third starts when the first ends";
  EXPECT_EQ(finish(arrivals, {1, 2, 3}, times, 3), 20 + 3 * 10);
  EXPECT_EQ(merge_in_flight(arrivals, times, 3), (Groups{1, 2, 3}));
}

// By hand: of a group the longest wait counts, before its start-up; with two in flight both are hidden behind
// what is sent before, and whoever waits lets others by.
TEST(Merging, AGroupWaitsAsLongAsTheLatestOfItsRanks) {
  const TransferTimes times = linear_times(10, 1);
  const std::vector<Arrival> arrivals{{0, 100, 5}, {20, 1, 30}, {20, 1, 40}};
  EXPECT_EQ(finish(arrivals, {1, 3}, times), 5 + 110 + 40 + 12);
  EXPECT_EQ(finish(arrivals, {1, 2, 3}, times), 5 + 110 + 30 + 11 + 40 + 11);
  EXPECT_EQ(finish(arrivals, {1, 3}, times, 2), 5 + 110 + 2);
  // The last is ready to be sent at 31, the one before it at 50.
  EXPECT_EQ(finish(std::vector<Arrival>{{0, 1, 40}, {20, 30, 1}}, {1, 2}, times, 2), 31 + 30 + 1);
}

// Gradients every 400 us where a start-up is 500 us: each one waits for the next, and nothing is sent before
// the end. Cut in two, most of it is hidden.
TEST(Merging, ThePublishedRulePutsOffTheWholeWhereLayersAreShorterThanStartups) {
  std::vector<Arrival> arrivals;
  for (int i = 1; i <= 100; ++i) arrivals.push_back({i * 400e-6, 1e6});
  const TransferTimes times = linear_times(500e-6, 0.3e-9);
  EXPECT_EQ(merge_mg_wfbp(arrivals, times), (Groups{100}));
  const Groups exact = merge_exact(arrivals, times);
  EXPECT_GT(exact.size(), 2u);
  EXPECT_LT(finish(arrivals, exact, times), 0.7 * finish(arrivals, {100}, times));
}

// By hand, with start-up 10 and 1 a byte, times as whole seconds.
TEST(Merging, ThePublishedRuleDoesWhatIsPublished) {
  const TransferTimes times = linear_times(10, 1);
  // The link is idle from 21 on, before the second is ready at 30: sent alone.
  EXPECT_EQ(merge_mg_wfbp(std::vector<Arrival>{{10, 1}, {30, 1}}, times), (Groups{1, 2}));
  // Ready at 20, 10 after the first could start: that is no less than a start-up.
  EXPECT_EQ(merge_mg_wfbp(std::vector<Arrival>{{10, 5}, {20, 1}}, times), (Groups{1, 2}));
  EXPECT_EQ(merge_mg_wfbp(std::vector<Arrival>{{10, 5}, {19, 1}}, times), (Groups{2}));
  // The link is busy with the first until 120, so the others gather for nothing.
  EXPECT_EQ(merge_mg_wfbp(std::vector<Arrival>{{10, 100}, {25, 1}, {50, 1}, {90, 1}}, times), (Groups{1, 4}));
}

TEST(Merging, BucketsCloseOnceTheyHoldTheirCap) {
  const std::vector<Arrival> arrivals{{1, 600}, {2, 500}, {3, 900}, {4, 3000}, {5, 100}, {6, 200}};
  EXPECT_EQ(merge_by_size(arrivals, {1000}, {3500}), (Groups{2, 4, 6}));
  EXPECT_EQ(merge_by_size(arrivals, {600}, {2000}), (Groups{1, 4, 6}));
  EXPECT_EQ(merge_by_size(arrivals, {}, {}), merge_none(6));
  EXPECT_EQ(merge_by_size({}, {1}, {1}), Groups{});
}

TEST(Merging, NothingToSendIsNoProblem) {
  const TransferTimes times = linear_times(1, 1);
  EXPECT_EQ(merge_exact({}, times), Groups{});
  EXPECT_EQ(merge_mg_wfbp({}, times), Groups{});
  EXPECT_EQ(merge_all(0), Groups{});
  EXPECT_EQ(finish({}, {}, times), 0);
}

}  // namespace
}  // namespace talweg::train
