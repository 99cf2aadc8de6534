// Epochs of four ranks without a network between them: the test says what their connections have carried.
#include "steer/adaptation.h"

#include <gmock/gmock.h>

#include <functional>
#include <limits>
#include <optional>

#include "forest/requests.h"
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
struct Ranks {
  Ranks() : rank0(cluster::uniform_star(kRanks, {1e9}, {30000})), meters(kRanks, TrafficMeter(kRanks)) {}

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
  void everyone_reports() {
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
  }

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
  EXPECT_EQ(with_rates(cluster::uniform_star(kRanks, {1e9}, {30000}), *rates), ranks.rank0.network());
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

TEST(Adaptation, RatesOfAnotherNetworkAreRefused) {
  EXPECT_THROW(with_rates(cluster::uniform_star(3, {1e9}, {30000}), {1e9}), Error);
}

}  // namespace
}  // namespace talweg::steer
