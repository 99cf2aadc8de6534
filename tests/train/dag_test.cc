#include "train/dag.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/at.h"
#include "base/random.h"
#include "talweg/error.h"

namespace talweg::train {
namespace {

TEST(Dag, TasksOfOneResourceFollowEachOtherAsAdded) {
  Dag dag;
  const int device = dag.add_resource({.name = "device"}), wire = dag.add_resource({.name = "wire"});
  const int a = dag.add({.resource = device, .seconds = 2});
  const int sent = dag.add({.resource = wire, .seconds = 5}, {a});
  const int b = dag.add({.resource = device, .seconds = 3}, {sent});
  const int c = dag.add({.resource = device, .seconds = 1}, {a});  // could run earlier, but b is before it
  const Schedule schedule = run(dag);
  EXPECT_EQ(schedule.tasks[2].start, 7);
  EXPECT_EQ(schedule.tasks[3].start, 10);
  EXPECT_EQ(critical_path(schedule, c, 0), (std::vector<int>{a, sent, b, c}));
  EXPECT_EQ(critical_path(schedule, c, 7), (std::vector<int>{b, c}));
}

TEST(Dag, TheMostUrgentOfThoseThatAreReadyGoesFirst) {
  Dag dag;
  const int device = dag.add_resource({.name = "device"});
  const int wire = dag.add_resource({.name = "wire", .order = Order::by_urgency});
  int last = -1;
  std::vector<int> sent;
  for (int i = 0; i < 3; ++i) {
    last = dag.add({.resource = device, .seconds = 1}, {last});
    sent.push_back(dag.add({.resource = wire, .seconds = 2.5, .bytes = 10, .urgency = 2 - i}, {last}));
  }
  const Schedule schedule = run(dag);
  EXPECT_EQ(schedule.tasks[static_cast<std::size_t>(sent[0])].start, 1);
  EXPECT_EQ(schedule.tasks[static_cast<std::size_t>(sent[2])].start, 3.5);
  EXPECT_EQ(schedule.tasks[static_cast<std::size_t>(sent[1])].start, 6);
}

// With credit for two, what was taken before is served before what is more urgent but came later; with two in
// flight, a start-up is hidden behind the one before.
TEST(Dag, CreditTakesTasksBeforeMoreUrgentOnesAreThere) {
  Dag dag;
  const int device = dag.add_resource({.name = "device"});
  const int wire =
      dag.add_resource({.name = "wire", .order = Order::by_urgency, .credit = 15, .in_flight = 2});
  const int at_once = dag.add({.resource = device, .seconds = 0});
  for (int i = 0; i < 3; ++i)
    dag.add({.resource = wire, .seconds = 4, .bytes = 10, .urgency = 5, .startup = 1}, {at_once});
  const int later = dag.add({.resource = device, .seconds = 1}, {at_once});
  const int urgent =
      dag.add({.resource = wire, .seconds = 4, .bytes = 10, .urgency = 0, .startup = 1}, {later});
  const Schedule schedule = run(dag);
  EXPECT_EQ(schedule.tasks[1].start, 0);
  EXPECT_EQ(schedule.tasks[1].end, 4);
  EXPECT_EQ(schedule.tasks[2].end, 7);  // 3, as its start-up was hidden
  EXPECT_EQ(schedule.tasks[static_cast<std::size_t>(urgent)].start, 4);
  EXPECT_EQ(schedule.tasks[static_cast<std::size_t>(urgent)].end, 10);
  EXPECT_EQ(schedule.tasks[3].end, 13);
}

// Start-ups of 3 together, then 2 of each in turn; the third begins when the first has ended.
TEST(Dag, StartupsOfTasksInFlightOverlap) {
  for (const auto& [in_flight, end] : {std::pair{1, 15.0}, {2, 10.0}, {3, 9.0}, {9, 9.0}}) {
    Dag dag;
    const int wire = dag.add_resource({.name = "wire", .in_flight = in_flight});
    for (int i = 0; i < 3; ++i) dag.add({.resource = wire, .seconds = 5, .startup = 3});
    const Schedule schedule = run(dag);
    EXPECT_EQ(schedule.tasks[2].end, end) << in_flight;
    const std::vector<int> path = critical_path(schedule, 2, 0);
    EXPECT_EQ(path.back(), 2);
    EXPECT_EQ(schedule.tasks[static_cast<std::size_t>(path.front())].start, 0);
  }
}

TEST(Dag, ABucketMakesNothingQuickerThatIsNotItsLinks) {
  for (const int in_flight : {1, 2}) {
    Dag dag;
    const int device = dag.add_resource({.name = "device"});
    const int wire = dag.add_resource({.name = "wire", .in_flight = in_flight, .burst = 9});
    const int computed = dag.add({.resource = device, .seconds = 20});
    const int sent = dag.add({.resource = wire, .seconds = 6, .startup = 1, .fixed = 2}, {computed});
    EXPECT_EQ(run(dag).tasks[at(sent)].end, 23);
  }
  // Nor longer, where more than it takes is said not to be.
  Dag dag;
  const int device = dag.add_resource({.name = "device"});
  const int wire = dag.add_resource({.name = "wire", .burst = 9});
  const int computed = dag.add({.resource = device, .seconds = 20});
  const int sent = dag.add({.resource = wire, .seconds = 6, .startup = 1, .fixed = 9}, {computed});
  EXPECT_EQ(run(dag).tasks[at(sent)].end, 26);
}

// While a call starts up its links are idle, however many may be under way.
TEST(Dag, ABucketFillsDuringAStartUp) {
  for (const int in_flight : {1, 2, 3}) {
    Dag dag;
    const int device = dag.add_resource({.name = "device"});
    const int wire = dag.add_resource({.name = "wire", .in_flight = in_flight, .burst = 9});
    const int computed = dag.add({.resource = device, .seconds = 4});
    const int sent = dag.add({.resource = wire, .seconds = 11, .startup = 3}, {computed});
    EXPECT_EQ(run(dag).tasks[at(sent)].end, 4 + 3 + 1) << in_flight;
  }
}

// Of the time in which nothing was served, a bucket makes as much good as it holds, once; start-ups stay.
TEST(Dag, ABucketMakesIdlenessGood) {
  const auto ends = [](double burst, int in_flight, double startup) {
    Dag dag;
    const int device = dag.add_resource({.name = "device"});
    const int wire = dag.add_resource({.name = "wire", .in_flight = in_flight, .burst = burst});
    const int computed = dag.add({.resource = device, .seconds = 4});
    const int first = dag.add({.resource = wire, .seconds = 3, .startup = startup}, {computed});
    const int second = dag.add({.resource = wire, .seconds = 3, .startup = startup}, {computed});
    const int later = dag.add({.resource = device, .seconds = 10}, {second});
    const int third = dag.add({.resource = wire, .seconds = 3, .startup = startup}, {later});
    const Schedule schedule = run(dag);
    return std::vector<double>{schedule.tasks[at(first)].end, schedule.tasks[at(second)].end,
                               schedule.tasks[at(third)].end - schedule.tasks[at(later)].end};
  };
  EXPECT_EQ(ends(0, 1, 0), (std::vector<double>{7, 10, 3}));
  EXPECT_EQ(ends(1, 1, 0), (std::vector<double>{6, 9, 2}));
  EXPECT_EQ(ends(1, 2, 0), (std::vector<double>{6, 9, 2}));
  EXPECT_EQ(ends(9, 1, 0), (std::vector<double>{4, 6, 0})) << "no longer than it was idle";
  EXPECT_EQ(ends(9, 1, 1), (std::vector<double>{5, 6, 1}));
  EXPECT_EQ(ends(1, 2, 1), (std::vector<double>{6, 8, 2}));
}

// Whatever the graph: nothing starts before what it waits for, a resource runs one task at a time, every
// start has its cause at that moment, and the end is no later than all tasks one behind the other.
TEST(Dag, SchedulesKeepToTheGraph) {
  Random random{7};
  for (int instance = 0; instance < 300; ++instance) {
    Dag dag;
    const int resources = 1 + static_cast<int>(random.below(4));
    for (int r = 0; r < resources; ++r)
      dag.add_resource({.name = "r",
                        .order = random.below(2) == 0 ? Order::as_added : Order::by_urgency,
                        .credit = static_cast<double>(random.below(3)) * 8,
                        .in_flight = instance % 2 == 0 ? 1 : 1 + static_cast<int>(random.below(4))});
    const int tasks = 1 + static_cast<int>(random.below(60));
    double all = 0;
    for (int t = 0; t < tasks; ++t) {
      std::vector<int> after;
      for (std::uint64_t i = random.below(4); i > 0 && t > 0; --i)
        after.push_back(static_cast<int>(random.below(static_cast<std::uint64_t>(t))));
      const auto seconds = static_cast<double>(random.below(5));
      const bool starts_up = instance % 2 == 1 && random.below(2) == 0;
      all += seconds;
      dag.add({.resource = static_cast<int>(random.below(static_cast<std::uint64_t>(resources))),
               .seconds = seconds,
               .bytes = static_cast<double>(random.below(10)),
               .urgency = static_cast<int>(random.below(5)),
               .startup = starts_up ? 1.0 : 0.0},
              after);
    }
    const Schedule schedule = run(dag);
    std::vector<std::vector<std::pair<double, double>>> of_resource(static_cast<std::size_t>(resources));
    for (std::size_t t = 0; t < schedule.tasks.size(); ++t) {
      const auto& its = schedule.tasks[t];
      for (const int before : dag.after(static_cast<int>(t)))
        EXPECT_GE(its.start, schedule.tasks[static_cast<std::size_t>(before)].end);
      const Task& task = dag.tasks()[t];
      const bool alone = dag.resources()[static_cast<std::size_t>(task.resource)].in_flight == 1;
      const double served = task.seconds - std::min(task.startup, task.seconds);
      if (alone) {
        EXPECT_EQ(its.end, its.start + task.seconds);
      } else {
        EXPECT_GE(its.end, its.start + task.seconds);
      }
      EXPECT_LE(its.end, all);
      EXPECT_GE(its.since, its.start);
      EXPECT_EQ(its.since, its.cause < 0 ? 0 : schedule.tasks[static_cast<std::size_t>(its.cause)].end);
      of_resource[static_cast<std::size_t>(task.resource)].emplace_back(alone ? its.start : its.end - served,
                                                                        its.end);
    }
    for (auto& spans : of_resource) {
      std::ranges::sort(spans);
      for (std::size_t i = 0; i + 1 < spans.size(); ++i) EXPECT_LE(spans[i].second, spans[i + 1].first);
    }
  }
}

TEST(Dag, RefusesWhatCannotRun) {
  Dag dag;
  EXPECT_THROW(dag.add({.resource = 0}), Error);
  dag.add_resource({.name = "device"});
  EXPECT_THROW(dag.add({.resource = 0, .seconds = -1}), Error);
  EXPECT_THROW(dag.add({.resource = 0}, {0}), Error);
  EXPECT_NO_THROW(dag.add({.resource = 0}, {-1}));
}

// A resource of another kind that has nothing to do leaves the quick way out.
TEST(Dag, OneTaskAfterTheOtherIsScheduledAsAnyOthersAre) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Random random(seed);
    const auto below = [&](int most) {
      return static_cast<int>(random.below(static_cast<std::uint64_t>(most)));
    };
    Dag quick, any;
    any.add_resource({.name = "idle", .order = Order::by_urgency});
    const int resources = 1 + below(4);
    for (int r = 0; r < resources; ++r) {
      quick.add_resource({.name = "one"});
      any.add_resource({.name = "one"});
    }
    for (int i = 0; i < 120; ++i) {
      std::vector<int> after;
      for (int k = below(4); k > 0 && i > 0; --k) after.push_back(below(i));
      // Few lengths, so that many end at once, and many that take no time at all.
      Task task{.resource = below(resources), .seconds = 0.25 * below(4)};
      quick.add(task, after);
      ++task.resource;
      any.add(task, after);
    }
    const Schedule a = run(quick), b = run(any);
    for (std::size_t i = 0; i < a.tasks.size(); ++i) {
      EXPECT_EQ(a.tasks[i].start, b.tasks[i].start) << "seed " << seed << ", task " << i;
      EXPECT_EQ(a.tasks[i].end, b.tasks[i].end) << "seed " << seed << ", task " << i;
      EXPECT_EQ(a.tasks[i].since, b.tasks[i].since) << "seed " << seed << ", task " << i;
      ASSERT_EQ(a.tasks[i].cause, b.tasks[i].cause) << "seed " << seed << ", task " << i;
    }
  }
}

}  // namespace
}  // namespace talweg::train
