// Who plans what, and what is planned in the background.
#include "steer/plan_chooser.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <future>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/at.h"
#include "forest/block_turns.h"
#include "forest/random_networks.h"
#include "forest/requests.h"
#include "protocol/forest/local_plan.h"
#include "protocol/operation.h"
#include "steer/adaptation.h"
#include "steer/plan_cache.h"
#include "talweg/error.h"

namespace talweg::steer {
namespace {

forest::Forest any_forest() {
  return forest::find_planner("ring").plan(forest::make_request(Collective::all_reduce, 3, 9),
                                           forest::gigabit_star(3));
}

// Looks now and then, as calls do.
template <class Result>
bool done_soon(const Background::Task<Result>& task) {
  for (int i = 0; i < 30'000 && !task.done(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return task.done();
}

TEST(Background, WorksOnOneTaskAfterTheOther) {
  Background background;
  std::promise<void> go;
  auto first = background.start([&go](forest::WorkLimit&) {
    go.get_future().wait();
    return any_forest();
  });
  auto second = background.start([](forest::WorkLimit&) { return any_forest(); });
  EXPECT_FALSE(first.done());
  EXPECT_FALSE(second.done());
  go.set_value();
  ASSERT_TRUE(done_soon(first) && done_soon(second));
  EXPECT_EQ(*first.take(), any_forest());
  EXPECT_EQ(*second.take(), any_forest());
}

TEST(Background, WorkThatThrowsLeavesNoForest) {
  Background background;
  auto task = background.start(
      [](forest::WorkLimit&) -> forest::Forest { throw Error(ErrorCode::unsupported, "no"); });
  auto larger = background.start([](forest::WorkLimit&) -> forest::Forest { throw std::bad_alloc(); });
  ASSERT_TRUE(done_soon(task) && done_soon(larger));
  EXPECT_EQ(task.take(), nullptr);
  EXPECT_EQ(larger.take(), nullptr);
}

TEST(Background, GivesUpWhatNobodyWaitsForAndWhatItIsAtWhenItEnds) {
  const auto for_ever = [](forest::WorkLimit& limit) -> forest::Forest {
    for (;;) limit.spend(1);
  };
  Background background;
  background.start(for_ever);  // let go of at once
  auto next = background.start([](forest::WorkLimit&) { return any_forest(); });
  EXPECT_TRUE(done_soon(next));
  const auto last = background.start(for_ever);
}

// A group may end at any moment of a search that takes minutes. Once nobody waits for it, the search goes on
// to where it asks the next time, and no further.
TEST(PlanChooser, LeavesASearchSoonWhereverItIs) {
  const auto network = forest::random_network(1, 64);
  const forest::Request request = forest::make_request(Collective::all_reduce, 64, 1 << 24);
  const forest::CostModel model(network);
  for (const std::int64_t last : {1, 2, 10, 100, 1000}) {
    forest::PackingMemo memo;
    std::int64_t asked = 0;
    forest::WorkLimit limit(std::numeric_limits<std::int64_t>::max(), [&] { return ++asked >= last; });
    EXPECT_THROW(forest::plan_best(request, model, memo, &limit), forest::WorkLimit::Reached) << last;
    EXPECT_EQ(asked, last) << "it went on";
  }
  // In the background: a search that stays is met by the test's time limit.
  for (const bool begun : {false, true}) {
    Background background;
    const auto before = background.start([](forest::WorkLimit&) { return any_forest(); });
    PlanChooser chooser(network, "", &background);
    ASSERT_FALSE(chooser.later(request).final);
    ASSERT_TRUE(!begun || done_soon(before));
  }
}

// What this process has worked: the same whatever else the machine does.
double worked_seconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

// So many times what the first plan takes, since seconds are others on each machine and under sanitizers.
// What else runs makes some tries longer, by the caches that it empties: a part that is long is so in each of
// them.
constexpr double kSoon = 8;
constexpr int kTries = 5;

// The longest part of a search, in times of what the first plan takes.
double longest_part() {
  const forest::CostModel model(forest::random_network(1, 64));
  const forest::Request request = forest::make_request(Collective::all_reduce, 64, 1 << 24);
  forest::PackingMemo at_once, memo;
  const double asked = worked_seconds();
  forest::plan_at_once(request, model, at_once);
  const double begin = worked_seconds(), first = begin - asked;
  double last = begin, longest = 0;
  forest::WorkLimit limit(std::numeric_limits<std::int64_t>::max(), [&] {
    const double now = worked_seconds();
    longest = std::max(longest, now - std::exchange(last, now));
    return now - begin > 12 * first;
  });
  EXPECT_THROW(forest::plan_best(request, model, memo, &limit), forest::WorkLimit::Reached);
  longest = std::max(longest, worked_seconds() - last);  // from the last question to the end
  return longest / first;
}

TEST(PlanChooser, NoPartOfASearchIsLongWithoutAskingWhetherItIsStillWanted) {
  double least = longest_part();
  for (int i = 1; i < kTries && least >= kSoon; ++i) least = std::min(least, longest_part());
  EXPECT_LT(least, kSoon);
}

// What planning in the background comes to.
PlanSource::Plan last_plan(PlanChooser& chooser, const forest::Request& request) {
  PlanSource::Plan plan;
  for (int i = 0; i < 600'000 && !(plan = chooser.later(request)).final; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return plan;
}

TEST(PlanChooser, PlansInTheBackgroundWhatTakesLongAndComesToWhatPlanBestSays) {
  const auto network = forest::random_network(1, 12);
  const forest::Request request = forest::make_request(Collective::all_reduce, 12, 1 << 24);
  Background background;
  PlanChooser chooser(network, "", &background);
  const PlanSource::Plan first = chooser.first(request);
  EXPECT_FALSE(first.final);
  const PlanSource::Plan later = last_plan(chooser, request);
  ASSERT_TRUE(later.final && later.forest != nullptr);
  EXPECT_EQ(*later.forest, forest::plan_best(request, network));
  EXPECT_EQ(chooser.best(request)(), *later.forest);
  EXPECT_TRUE(chooser.first(request).final) << "known by now";
  EXPECT_EQ(*chooser.first(request).forest, *later.forest);
}

TEST(PlanChooser, NothingIsLeftOfANetworkThatIsNoMore) {
  const auto network = forest::random_network(1, 12);
  cluster::Cluster other = network;
  for (cluster::Link& link : other.links)
    if (link.from == 1 || link.to == 1) link.capacity.bits_per_second /= 10;
  const forest::Request request = forest::make_request(Collective::all_reduce, 12, 1 << 24);
  const forest::Forest best = forest::plan_best(request, other);
  forest::PackingMemo memo;
  const forest::Forest at_once = forest::plan_at_once(request, forest::CostModel(other), memo).forest;
  Background background;
  PlanChooser chooser(network, "", &background);
  EXPECT_NE(*chooser.first(request).forest, at_once);
  EXPECT_NE(chooser.best(request)(), best);
  EXPECT_NE(*last_plan(chooser, request).forest, best);
  chooser.later(request);  // begins again
  chooser.change_to(rates_of(other), nullptr);
  EXPECT_EQ(*chooser.first(request).forest, at_once);
  EXPECT_EQ(chooser.best(request)(), best);
  EXPECT_EQ(*last_plan(chooser, request).forest, best);
  chooser.change_to(rates_of(network), nullptr);
  EXPECT_FALSE(chooser.first(request).final);
}

// Whoever asks for the best plan may run that on another thread.
TEST(PlanChooser, WhatBestReturnsPlansForTheNetworkThatWasWhateverBecomesOfTheChooser) {
  const auto network = forest::random_network(1, 6);
  cluster::Cluster other = network;
  for (cluster::Link& link : other.links) link.capacity.bits_per_second /= 1 + link.from % 3;
  const forest::Request request = forest::make_request(Collective::all_reduce, 6, 1 << 24);
  std::function<forest::Forest()> plan, named;
  {
    PlanChooser chooser(network, "", nullptr), ring(network, "ring", nullptr);
    plan = chooser.best(request);
    named = ring.best(request);
    chooser.change_to(other);
    EXPECT_EQ(chooser.best(request)(), forest::plan_best(request, other));
  }
  EXPECT_EQ(plan(), forest::plan_best(request, network));
  EXPECT_NE(plan(), forest::plan_best(request, other));
  EXPECT_EQ(named().planner, "ring");
}

TEST(PlanChooser, TakesWhatWasPlannedAheadForTheNetworkAndNothingElse) {
  const auto network = forest::random_network(1, 10);
  cluster::Cluster other = network;
  for (cluster::Link& link : other.links) link.capacity.bits_per_second /= 1 + link.from % 3;
  const forest::Request large = forest::make_request(Collective::all_reduce, 10, 1 << 24),
                        small = forest::make_request(Collective::all_reduce, 10, 1 << 10),
                        unplanned = forest::make_request(Collective::broadcast, 10, 1 << 20);
  Background background;
  PlanChooser anew(other, "", &background), chooser(network, "", &background);
  const auto ahead =
      std::make_shared<const PlannedAhead>(plan_ahead(other, std::vector{large, small, large}));
  EXPECT_EQ(ahead->plans.size(), 2u);
  chooser.change_to(rates_of(other), ahead);
  EXPECT_EQ(chooser.network(), other);
  for (const forest::Request& request : {large, small}) {
    const PlanSource::Plan plan = chooser.first(request);
    EXPECT_EQ(plan.forest, ahead->plans.at(request).forest) << "not planned again";
    EXPECT_EQ(*plan.forest, *anew.first(request).forest);
    EXPECT_EQ(plan.final, anew.first(request).final);
  }
  EXPECT_FALSE(chooser.first(large).final);
  EXPECT_EQ(*last_plan(chooser, large).forest, forest::plan_best(large, other)) << "as after any first plan";
  EXPECT_EQ(*chooser.first(unplanned).forest, *anew.first(unplanned).forest);
  chooser.change_to(rates_of(network), ahead);
  EXPECT_NE(chooser.first(small).forest, ahead->plans.at(small).forest);
  PlanChooser named(network, "ring", nullptr);
  named.change_to(rates_of(other), ahead);
  EXPECT_EQ(named.first(large).forest->planner, "ring");
}

TEST(PlanChooser, WhatTheUserNamesIsPlannedAtOnceAndStays) {
  PlanChooser chooser(forest::gigabit_star(4), "ring;broadcast:chain", nullptr);
  const auto planner_of = [&](Collective op) {
    const PlanSource::Plan plan = chooser.first(forest::make_request(op, 4, 1000));
    EXPECT_TRUE(plan.final);
    return plan.forest->planner;
  };
  EXPECT_EQ(planner_of(Collective::all_reduce), "ring");
  EXPECT_EQ(planner_of(Collective::broadcast), "chain");
  EXPECT_EQ(planner_of(Collective::all_to_all), "direct");
  EXPECT_THROW(PlanChooser(forest::gigabit_star(4), "rinq", nullptr), Error);
  EXPECT_THROW(PlanChooser(forest::gigabit_star(4), "dance:ring", nullptr), Error);
  EXPECT_THROW(PlanChooser(forest::gigabit_star(4), "broadcast:ring", nullptr), Error);
}

TEST(PlanCache, KeepsWhatRanksPlanForThemselves) {
  PlanChooser chooser(forest::gigabit_star(4), "", nullptr);
  PlanCache cache(1, chooser);
  const forest::Request request = forest::make_request(Collective::all_to_all, 4, 10);
  EXPECT_FALSE(is_shared(request));
  EXPECT_TRUE(is_shared(forest::make_request(Collective::all_gather, 4, 10)));
  EXPECT_FALSE(is_shared(forest::make_request(Collective::all_gather, 1, 10)));
  EXPECT_FALSE(is_shared(forest::make_request(Collective::send_recv, 4, 10)));
  const auto plan = cache.find(request);
  EXPECT_EQ(cache.find(request), plan);
  EXPECT_EQ(plan->digest, 0u);
}

TEST(PlanCache, BlocksOfAScatterTakeTurnsAnewWhereTheNetworkIsAnother) {
  PlanChooser chooser(forest::gigabit_star(4), "", nullptr);
  PlanCache source(0, chooser), other(1, chooser);
  const forest::Request scatter = forest::make_request(Collective::scatter, 4, 1 << 20);
  const forest::Request exchange = forest::make_request(Collective::all_to_all, 4, 10);
  const auto lanes = [&] { return dynamic_cast<const protocol::LocalPlan&>(*source.find(scatter)).lanes; };
  EXPECT_EQ(lanes().lanes.size(), 2u) << "the source's link and, of itself, none";
  const auto exchanged = source.find(exchange);
  const auto received = other.find(scatter);
  auto slow = forest::gigabit_star(4);
  for (cluster::Link& link : slow.links)
    if (link.to == 2) link.capacity = {1e8};
  chooser.change_to(slow);
  EXPECT_EQ(lanes(), forest::lanes_of(scatter, slow));
  EXPECT_EQ(lanes().lanes.size(), 3u);
  EXPECT_EQ(source.find(scatter), source.find(scatter));
  EXPECT_NE(source.find(exchange), exchanged) << "none outlives the network that it was made for";
  EXPECT_NE(other.find(scatter), received);
  chooser.change_to(forest::gigabit_star(4));
  EXPECT_EQ(lanes().lanes.size(), 2u);
}

TEST(PlanCache, AnExchangeGoesAsFarAheadAsItsNetworkHolds) {
  const auto waiting = [](const cluster::Cluster& network) {
    PlanChooser chooser(network, "", nullptr);
    PlanCache cache(1, chooser);
    const auto plan = cache.find(forest::make_request(Collective::all_to_all, 6, 256 << 10));  // 1 MiB blocks
    const auto& trees = dynamic_cast<const protocol::LocalPlan&>(*plan).trees;
    return std::ranges::count_if(trees, [](const protocol::LocalTree& tree) { return tree.waits; });
  };
  EXPECT_EQ(waiting(forest::gigabit_star(6)), 3) << "two of five are ahead";
  EXPECT_EQ(waiting(cluster::uniform_star(6, {1e9}, {5'000'000})), 1) << "four, of which three are 2.5 MB";
  EXPECT_EQ(waiting(cluster::uniform_mesh(6, {1e9}, {30'000})), 0);
}

// A link of less than 3 us between two workers counts as memory, for which chunks are shorter. A rank that
// sends or gets one block knows no other's length, so that a call may be new to the root alone.
TEST(PlanCache, BothEndsOfABlockExpectTheSameChunksOnANetworkMeasuredAnew) {
  const auto mesh = [](const std::string& latency) {
    std::string text =
        "nodes: [{name: a, kind: worker}, {name: b, kind: worker}, {name: c, kind: worker}]\nlinks:\n";
    for (const std::string_view ends : {"a, b", "b, c", "c, a"})
      text += fmt::format("  - {{between: [{}], capacity: 200Mbit/s, latency: {}}}\n", ends, latency);
    return cluster::parse_cluster(text, "mesh");
  };
  for (const Collective op : {Collective::scatter, Collective::gather}) {
    std::vector<std::unique_ptr<PlanChooser>> choosers;
    std::vector<std::unique_ptr<PlanCache>> caches;
    for (int rank = 0; rank < 2; ++rank) {
      choosers.push_back(std::make_unique<PlanChooser>(mesh("1us"), "", nullptr));
      caches.push_back(std::make_unique<PlanCache>(rank, *choosers.back()));
    }
    // In how long chunks a rank thinks that the block between ranks 0 and 1 goes.
    const auto chunk = [&](int rank, std::vector<std::size_t> counts) -> std::int64_t {
      Call call;
      call.op = op;
      call.counts = std::move(counts);
      const auto plan = caches[at(rank)]->find(protocol::request_of(call, rank, 3));
      for (const forest::Tree& tree : plan->forest->trees)
        if ((op == Collective::scatter ? tree.receivers : tree.contributors) ==
            std::vector<forest::NodeId>{1})
          return tree.chunk;
      return -1;
    };
    const std::vector<std::size_t> even{300'000, 300'000, 300'000}, uneven{300'000, 300'000, 200'000};
    const std::int64_t before = chunk(0, even);
    EXPECT_GT(before, 0) << name(op);
    EXPECT_EQ(chunk(1, even), before) << name(op);
    for (const auto& chooser : choosers) chooser->change_to(mesh("50us"));
    EXPECT_NE(chunk(0, uneven), before) << name(op) << ": these are others on the new network";
    EXPECT_EQ(chunk(1, uneven), chunk(0, uneven)) << name(op);
    EXPECT_EQ(chunk(1, even), chunk(0, even)) << name(op);
  }
}

}  // namespace
}  // namespace talweg::steer
