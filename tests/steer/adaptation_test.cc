// Epochs of four ranks without a network between them: the test says what their connections have carried.
#include "steer/adaptation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

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
  Ranks() {
    for (int r = 0; r < kRanks; ++r) all.emplace_back(r, cluster::uniform_star(kRanks, {1e9}, {30000}));
  }
  // An epoch ends: every pair has carried 16 MiB, and what comes from or goes to one host takes ten times as
  // long as what does not. Then all exchange what they have.
  void exchange() {
    ++epochs;
    for (int r = 0; r < kRanks; ++r) {
      std::vector<live::PeerStatistics> peers;
      for (int p = 0; p < kRanks; ++p) {
        live::PeerStatistics s;
        s.rank = p;
        s.acked_bytes = p == r ? 0 : static_cast<std::uint64_t>(epochs) << 24;
        s.busy_seconds = p == r ? 0 : epochs * (p == kSlow || r == kSlow ? 5. : 0.5);
        peers.push_back(s);
      }
      all[static_cast<std::size_t>(r)].take(peers, epochs * 10'000'000'000);
    }
    for (Adaptation& to : all) {
      double* row = to.all();
      for (const Adaptation& from : all) row = std::copy_n(from.own(), from.row(), row);
    }
  }
  std::deque<Adaptation> all;
  int epochs = 0;
};

TEST(Adaptation, ChangesAlikeOnAllRanksWhenAHostIsSlowerThanWasSaid) {
  Ranks ranks;
  for (int epoch = 0; epoch < 6; ++epoch) {
    for (Adaptation& rank : ranks.all) rank.count(all_reduce(kCount));
    ranks.exchange();
    for (Adaptation& rank : ranks.all) rank.decide();
  }
  EXPECT_GE(ranks.all[0].changes(), 1U);
  for (const Adaptation& rank : ranks.all) {
    EXPECT_FALSE(rank.disagreed());
    EXPECT_EQ(rank.changes(), ranks.all[0].changes());
    EXPECT_EQ(rank.network(), ranks.all[0].network());
  }
}

// A mismatch is an error of the program that it may survive: what one rank has counted alone must not lead it
// to other plans than those of the rest.
TEST(Adaptation, DecidesNothingAnyMoreOnAnyRankOnceOneHasMadeAnotherCall) {
  Ranks ranks;
  for (int epoch = 0; epoch < 6; ++epoch) {
    for (Adaptation& rank : ranks.all)
      rank.count(all_reduce(epoch == 0 && &rank == &ranks.all[2] ? 1 : kCount));
    ranks.exchange();
    for (Adaptation& rank : ranks.all) EXPECT_FALSE(rank.decide());
  }
  for (const Adaptation& rank : ranks.all) {
    EXPECT_TRUE(rank.disagreed());
    EXPECT_EQ(rank.changes(), 0U);
  }
}

}  // namespace
}  // namespace talweg::steer
