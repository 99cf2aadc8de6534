// Epochs of four ranks without a network between them: the test says what their connections have carried.
#include "steer/adaptation.h"

#include <gtest/gtest.h>

#include <limits>
#include <optional>

#include "talweg/error.h"

namespace talweg::steer {
namespace {

constexpr int kRanks = 4;
constexpr int kSlow = 1;
constexpr std::int64_t kCount = 1 << 20;

forest::Request all_reduce(std::int64_t count) {
  return {.op = Collective::all_reduce, .ranks = kRanks, .counts = {count}, .element_size = 4};
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
    for (int r = kRanks - 1; r >= 0; --r) EXPECT_TRUE(rank0.hear(r, report(r), epochs * 10'000'000'000));
  }

  Adaptation rank0;
  std::vector<TrafficMeter> meters;
  int epochs = 0;
};

TEST(Adaptation, ChangesPlansWhenAHostIsSlowerThanWasSaid) {
  Ranks ranks;
  std::optional<std::vector<double>> rates;
  std::uint64_t next = 0;
  for (std::uint64_t call = 0; call < 20; ++call) {
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
    EXPECT_EQ(link.capacity.bits_per_second < 3e8, slow) << link.from << " to " << link.to;
  }
}

TEST(Adaptation, AsksForReportsOnlyWhenEnoughWasCarriedAndTheLastAreThere) {
  Ranks ranks;
  EXPECT_TRUE(ranks.rank0.turn(0).report);
  std::uint64_t next = 1;
  for (std::uint64_t call = 0; call < 10; ++call) ranks.rank0.count(all_reduce(kCount));
  auto turn = ranks.rank0.turn(next);
  EXPECT_FALSE(turn.report) << "nobody has reported yet";
  ranks.everyone_reports();
  turn = ranks.rank0.turn(turn.next);
  EXPECT_TRUE(turn.report);
  ranks.everyone_reports();
  EXPECT_FALSE(ranks.rank0.turn(turn.next).report) << "nothing was carried since";
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
