// Epochs of four ranks without a network between them: the test says what their connections have carried.
#include "steer/adaptation.h"

#include <gmock/gmock.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <future>
#include <limits>
#include <optional>
#include <thread>
#include <utility>

#include "forest/requests.h"
#include "steer/plan_chooser.h"
#include "talweg/error.h"

namespace talweg::steer {
namespace {

constexpr int kRanks = 4;
constexpr int kSlow = 1;
constexpr std::int64_t kCount = 1 << 20;  // as many bytes as the first epochs have

forest::Request all_reduce(std::int64_t count) {
  return forest::make_request(Collective::all_reduce, kRanks, count);
}
// Whatever the network, nothing is better than to take each byte from its root once.
forest::Request broadcast(std::int64_t count) {
  return forest::make_request(Collective::broadcast, kRanks, count, false, kSlow);
}

// All hosts are said to have 1 Gbit/s.
cluster::Cluster as_said() {
  return cluster::uniform_star(kRanks, {1e9}, {30000});
}

struct Ranks {
  Ranks() : rank0(as_said(), background), meters(kRanks, TrafficMeter(kRanks)) {}

  // Every pair has carried 16 MiB, and what comes from or goes to one host takes ten times as long as what
  // does not.
  std::vector<double> report(int r) {
    std::vector<live::PeerStatistics> peers;
    for (int p = 0; p < kRanks; ++p) {
      live::PeerStatistics s;
      s.rank = p;
      s.acked_bytes = p == r ? 0 : static_cast<std::uint64_t>(epochs) << 24;
      s.busy_seconds = p == r ? 0 : epochs * (p == kSlow || r == kSlow ? 5. : 0.5);
      peers.push_back(s);
    }
    return meters[static_cast<std::size_t>(r)].take(peers);
  }
  // The background answers at once.
  void everyone_reports() {
    everyone_says();
    wait();
  }
  void wait() const {
    for (int i = 0; i < 30'000 && !rank0.decided(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_TRUE(rank0.decided());
  }
  void everyone_says() {
    ++epochs;
    for (int r = kRanks - 1; r >= 0; --r) {
      std::vector<double> said = report(r);
      spoil(r, said);
      EXPECT_TRUE(rank0.hear(r, said, epochs * 10'000'000'000));
    }
  }
  // Epochs of these calls each, of which the first is another one's; whether plans change.
  bool change(const std::vector<forest::Request>& first, const std::vector<forest::Request>& others) {
    for (std::uint64_t epoch = 0; epoch < 6; ++epoch) {
      const auto turn = rank0.turn(epoch);
      EXPECT_TRUE(turn.report);
      if (!turn.rates.empty()) return true;
      everyone_reports();
      for (const forest::Request& request : epoch == 0 ? first : others) rank0.count(request);
    }
    return false;
  }
  // Calls until rank 0 asks for reports: how many that takes.
  int calls_of_epoch(std::int64_t count) {
    for (int calls = 0; calls < 10'000; ++calls, ++call) {
      if (call >= next) {
        const auto turn = rank0.turn(call);
        next = turn.next;
        if (turn.report) return calls;
      }
      rank0.count(all_reduce(count));
    }
    return -1;
  }
  // That little was carried for so long; of rank 0's connection to rank 1 nothing at all, for longer.
  void everyone_was_busy(double seconds) {
    ++epochs;
    for (int r = 0; r < kRanks; ++r) {
      std::vector<double> said;
      for (int to = 0; to < kRanks; ++to) {
        const bool idle = r == 0 && to == 1;
        said.insert(said.end(), {idle ? 0. : 1000., idle ? 10. : seconds});
      }
      EXPECT_TRUE(rank0.hear(r, said, epochs * 10'000'000'000));
    }
    wait();
  }

  Background background;
  Adaptation rank0;
  std::vector<TrafficMeter> meters;
  std::function<void(int rank, std::vector<double>& report)> spoil = [](int, auto&) {};
  int epochs = 0;
  std::uint64_t call = 0, next = 0;
};

TEST(Adaptation, ChangesPlansWhenAHostIsSlowerThanWasSaid) {
  Ranks ranks;
  std::optional<std::vector<double>> rates;
  std::uint64_t next = 0;
  for (std::uint64_t call = 0; call < 20 && !rates; ++call) {  // as no plan helps here, they go back
    if (call >= next) {
      const auto turn = ranks.rank0.turn(call);
      if (!turn.rates.empty()) rates = turn.rates;
      if (turn.report) ranks.everyone_reports();
      EXPECT_GT(turn.next, call);
      next = turn.next;
    }
    ranks.rank0.count(all_reduce(kCount));
  }
  ASSERT_TRUE(rates);
  EXPECT_EQ(with_rates(as_said(), *rates), ranks.rank0.network());
  EXPECT_EQ(*rates, rates_of(ranks.rank0.network()));
  for (const cluster::Link& link : ranks.rank0.network().links) {
    const bool slow = link.from == kSlow || link.to == kSlow;
    EXPECT_EQ(link.capacity.bits_per_second < 6e8, slow) << link.from << " to " << link.to;
  }
}

TEST(Adaptation, AsksForReportsOnlyWhenEnoughWasCarriedAndTheLastAreThere) {
  Ranks ranks;
  EXPECT_TRUE(ranks.rank0.turn(0).report);
  std::uint64_t next = 1;
  for (std::uint64_t call = 0; call < 10; ++call) ranks.rank0.count(all_reduce(kCount));
  auto turn = ranks.rank0.turn(next);
  EXPECT_FALSE(turn.report) << "nobody has reported yet";
  EXPECT_EQ(turn.next, next + 1);
  ranks.everyone_reports();
  turn = ranks.rank0.turn(turn.next);
  EXPECT_TRUE(turn.report);
  ranks.everyone_reports();
  EXPECT_FALSE(ranks.rank0.turn(turn.next).report) << "nothing was carried since";
}

TEST(Adaptation, MakesEpochsLongerAsLongAsTheirTimesAreTooShort) {
  Ranks ranks;
  std::vector<int> calls;
  for (int epoch = 0; epoch < 7; ++epoch) {
    calls.push_back(ranks.calls_of_epoch(kCount));
    ranks.everyone_was_busy(epoch < 3 ? 0.09 : 0.1);
  }
  EXPECT_THAT(calls, testing::ElementsAre(0, 1, 2, 4, 8, 8, 8));
}

TEST(Adaptation, MakesNoEpochLongerThanFourGibibytes) {
  Ranks ranks;
  std::vector<int> calls;
  for (int epoch = 0; epoch < 15; ++epoch) {
    calls.push_back(ranks.calls_of_epoch(std::int64_t{1} << 28));
    ranks.everyone_was_busy(0.01);
  }
  EXPECT_THAT(calls, testing::ElementsAre(0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 4, 4, 4));
}

TEST(Adaptation, LooksUpWhenEnoughMayHaveBeenCarriedAndSoonInAnyCase) {
  Ranks ranks;
  EXPECT_EQ(ranks.rank0.turn(0).next, 1u);
  EXPECT_EQ(ranks.rank0.turn(1).next, 1u + 64) << "nothing was carried";
  ranks.rank0.count(all_reduce(1));
  EXPECT_EQ(ranks.rank0.turn(2).next, 2u + 64) << "a million such calls would be an epoch";
  for (int i = 0; i < 8; ++i) ranks.rank0.count(all_reduce(kCount / 16));
  EXPECT_EQ(ranks.rank0.turn(8).next, 8u + 8) << "one half is there";
}

TEST(Adaptation, CountsOnlyWhatAllRanksKnow) {
  Ranks ranks;
  ranks.rank0.turn(0);
  ranks.everyone_reports();
  for (const Collective op : {Collective::gather, Collective::scatter, Collective::all_to_all})
    ranks.rank0.count(forest::make_request(op, kRanks, kCount));
  EXPECT_FALSE(ranks.rank0.turn(1).report);
  ranks.rank0.count(forest::make_request(Collective::all_gather, kRanks, kCount));
  EXPECT_TRUE(ranks.rank0.turn(2).report);
}

TEST(Adaptation, DecidesByTheLargestCallOfTheEpoch) {
  EXPECT_TRUE(Ranks().change({all_reduce(4 * kCount)}, {all_reduce(4 * kCount)}));
  EXPECT_FALSE(Ranks().change({broadcast(4 * kCount)}, {broadcast(4 * kCount)}));
  EXPECT_TRUE(Ranks().change({broadcast(kCount)}, {broadcast(kCount), all_reduce(4 * kCount)}));
  EXPECT_TRUE(Ranks().change({broadcast(kCount)}, {all_reduce(4 * kCount), broadcast(kCount)}));
  EXPECT_FALSE(Ranks().change({broadcast(kCount)}, {all_reduce(kCount), broadcast(4 * kCount)}));
  EXPECT_FALSE(Ranks().change({all_reduce(4 * kCount)}, {broadcast(kCount)})) << "that was before";
}

TEST(Adaptation, BelievesNoBytesThatTookNoTime) {
  for (const double seconds : {0., -1.}) {
    Ranks ranks;
    ranks.spoil = [&](int rank, std::vector<double>& report) {
      if (rank != 0) return;
      report[4] = 1e15;
      report[5] = seconds;
    };
    EXPECT_TRUE(ranks.change({all_reduce(kCount)}, {all_reduce(kCount)}));
  }
}

TEST(Adaptation, TakesAReportOncePerEpochAndOnlyOneThatMakesSense) {
  Ranks ranks;
  EXPECT_FALSE(ranks.rank0.hear(1, std::vector<double>(2 * kRanks), 0)) << "nobody was asked";
  ranks.rank0.turn(0);
  EXPECT_FALSE(ranks.rank0.hear(1, std::vector<double>(3), 0));
  EXPECT_FALSE(ranks.rank0.hear(kRanks, std::vector<double>(2 * kRanks), 0));
  EXPECT_FALSE(
      ranks.rank0.hear(1, std::vector<double>(2 * kRanks, std::numeric_limits<double>::quiet_NaN()), 0));
  EXPECT_TRUE(ranks.rank0.hear(1, std::vector<double>(2 * kRanks), 0));
  EXPECT_FALSE(ranks.rank0.hear(1, std::vector<double>(2 * kRanks), 0));
}

// The background does nothing else until it is let go on.
class Occupied {
 public:
  explicit Occupied(Background& background)
      : task_(background.start([until = go_on_.get_future().share()](forest::WorkLimit&) {
          until.wait();
          return 0;
        })) {}
  void let_go_on() { go_on_.set_value(); }

 private:
  std::promise<void> go_on_;
  Background::Task<int> task_;
};

// Calls go on. The decision holds from the first look on at which it is there, and the next epoch from there.
TEST(Adaptation, ADecisionThatComesLateIsTheSameAndIsLookedForEverMoreRarely) {
  Ranks at_once, late;
  bool changed = false;
  std::uint64_t now = 0;
  for (std::uint64_t epoch = 0; epoch < 8; ++epoch) {
    at_once.rank0.count(all_reduce(kCount));
    late.rank0.count(all_reduce(kCount));
    const NetworkWatch::Turn expected = at_once.rank0.turn(epoch);
    const NetworkWatch::Turn turn = late.rank0.turn(now);
    EXPECT_TRUE(expected.report && turn.report);
    EXPECT_EQ(turn.rates, expected.rates) << epoch;
    EXPECT_EQ(late.rank0.network(), at_once.rank0.network());
    changed = changed || !turn.rates.empty();
    at_once.everyone_reports();
    Occupied busy(late.background);
    late.everyone_says();
    EXPECT_FALSE(late.rank0.decided());
    const cluster::Cluster before = late.rank0.network();
    std::vector<std::uint64_t> looks;
    for (std::uint64_t calls = 0; calls < 40; ++calls) late.rank0.count(all_reduce(kCount));
    for (std::uint64_t call = ++now; now - call < 40;) {
      const NetworkWatch::Turn none = late.rank0.turn(now);
      EXPECT_TRUE(none.rates.empty() && !none.report && none.ahead == nullptr);
      looks.push_back(none.next - now);
      now = none.next;
    }
    EXPECT_THAT(looks, testing::ElementsAre(1, 1, 2, 4, 8, 16, 32));
    EXPECT_EQ(late.rank0.network(), before);
    EXPECT_FALSE(late.rank0.hear(0, std::vector<double>(2 * kRanks), 0)) << "it was asked once";
    busy.let_go_on();
    late.wait();
  }
  EXPECT_TRUE(changed);
}

// What calls have carried while a decision was waited for is news of the epoch in which they were.
TEST(Adaptation, WhatIsCarriedWhileADecisionIsLateIsReportedWhenItIsThere) {
  Ranks ranks;
  ranks.rank0.turn(0);
  ranks.everyone_reports();
  ranks.rank0.count(all_reduce(kCount));
  EXPECT_TRUE(ranks.rank0.turn(1).report);
  Occupied busy(ranks.background);
  ranks.everyone_says();
  ranks.rank0.count(all_reduce(kCount));
  EXPECT_FALSE(ranks.rank0.turn(2).report);
  ++ranks.epochs;  // as much again is carried
  busy.let_go_on();
  ranks.wait();
  EXPECT_TRUE(ranks.rank0.turn(3).report);
  ++ranks.epochs;
  EXPECT_THAT(ranks.report(0), testing::ElementsAre(0, 0, 2 << 24, 10, 2 << 24, 1, 2 << 24, 1));
}

TEST(Adaptation, WhoLetsGoOfItGivesUpWhatIsStillBeingDecided) {
  Background background;
  std::optional<Adaptation> rank0;
  rank0.emplace(as_said(), background);
  rank0->turn(0);
  Occupied busy(background);
  for (int r = 0; r < kRanks; ++r) EXPECT_TRUE(rank0->hear(r, std::vector<double>(2 * kRanks, 1e9), 1));
  EXPECT_FALSE(rank0->decided());
  rank0.reset();
  busy.let_go_on();
  auto next = background.start([](forest::WorkLimit&) { return 7; });
  for (int i = 0; i < 30'000 && !next.done(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  ASSERT_TRUE(next.done()) << "the background is stuck with what nobody waits for";
  EXPECT_EQ(*next.take(), 7);
}

// Rank 1 has failed and says nothing. Rank 0 waits for nobody.
TEST(Adaptation, WithoutTheReportOfARankThatHasFailedNothingIsDecided) {
  Ranks ranks;
  ranks.rank0.turn(0);
  ranks.everyone_reports();
  ranks.rank0.count(all_reduce(kCount));
  ranks.rank0.turn(1);
  for (const int r : {0, 2, 3}) EXPECT_TRUE(ranks.rank0.hear(r, ranks.report(r), 20'000'000'000));
  EXPECT_TRUE(ranks.rank0.decided());
  ranks.rank0.count(all_reduce(kCount));
  for (std::uint64_t call = 2; call < 200;) {
    const auto turn = ranks.rank0.turn(call);
    EXPECT_TRUE(turn.rates.empty() && !turn.report);
    call = turn.next;
  }
}

// Here: what counts cannot be planned among these ranks.
TEST(Adaptation, ADecisionThatFailsLeavesPlansAndTheNextOneIsMade) {
  Ranks ranks;
  const forest::Request wrong = forest::make_request(Collective::all_reduce, kRanks + 1, 4 * kCount);
  EXPECT_FALSE(ranks.change({wrong}, {wrong}));
  EXPECT_EQ(ranks.rank0.network(), as_said());
  for (std::uint64_t call = 6; call < 16 && ranks.rank0.network() == as_said(); ++call) {
    EXPECT_TRUE(ranks.rank0.turn(call).report);
    ranks.everyone_reports();
    ranks.rank0.count(all_reduce(kCount));
  }
  EXPECT_NE(ranks.rank0.network(), as_said());
}

// So that nothing is planned inside a call.
TEST(Adaptation, PlansAheadForAllThatHasBeenCalledOfLate) {
  Ranks ranks;
  std::vector<forest::Request> called;
  for (std::int64_t i = 0; i < 20; ++i) called.push_back(all_reduce(kCount - i));
  called.push_back(broadcast(kCount));
  NetworkWatch::Turn turn;
  for (std::uint64_t call = 0; call < 6 && turn.rates.empty(); ++call) {
    turn = ranks.rank0.turn(call);
    ranks.everyone_reports();
    for (const forest::Request& request : called) ranks.rank0.count(request);
  }
  ASSERT_TRUE(turn.ahead != nullptr && !turn.rates.empty());
  const cluster::Cluster network = with_rates(as_said(), turn.rates);
  EXPECT_EQ(turn.ahead->model->network(), network);
  PlanChooser anew(network, "", nullptr);
  EXPECT_EQ(turn.ahead->plans.size(), 17u) << "the largest one and sixteen of late";
  for (std::size_t i = 0; i < called.size(); ++i) {
    ASSERT_EQ(turn.ahead->plans.contains(called[i]), i == 0 || i >= 5) << i;
    if (i > 0 && i < 5) continue;
    EXPECT_EQ(*turn.ahead->plans.at(called[i]).forest, *anew.first(called[i]).forest) << i;
  }
}

TEST(Adaptation, RatesOfAnotherNetworkAreRefused) {
  EXPECT_THROW(with_rates(cluster::uniform_star(3, {1e9}, {30000}), {1e9}), Error);
}

}  // namespace
}  // namespace talweg::steer
