// How ranks agree to go on without a node that is lost, whatever the order in which they hear of it.
#include "steer/losses.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <deque>
#include <vector>

#include "base/random.h"

namespace talweg::steer {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Losers that begin calls, lose nodes at different moments and hear of each other late, but in order.
class Losers {
 public:
  Losers(int ranks, std::uint64_t seed) : random_(seed) {
    for (int r = 0; r < ranks; ++r) ranks_.push_back({Losses(ranks, r), 1, {}, {}});
    between_.resize(static_cast<std::size_t>(ranks) * static_cast<std::size_t>(ranks));
  }
  // All of it, in some order; then nothing is on its way any more.
  void run(int nodes, std::uint64_t calls) {
    std::vector<std::pair<int, int>> to_learn;
    for (int node = 0; node < nodes; ++node)
      for (int r = 0; r < size(); ++r) to_learn.emplace_back(r, kFirstNode + node);
    while (moved(to_learn, calls)) {
    }
  }
  int size() const { return static_cast<int>(ranks_.size()); }

  static constexpr int kFirstNode = 100;
  struct Rank {
    Losses losses;
    std::uint64_t next;                   // to begin
    std::vector<Losses::Agreed> agreed;   // in the order in which it was
    std::vector<std::vector<int>> begun;  // call i + 1: without which nodes
  };
  const Rank& rank(int r) const { return ranks_[static_cast<std::size_t>(r)]; }

 private:
  struct Said {
    int node;
    std::uint64_t next;
  };
  std::deque<Said>& from_to(int from, int to) {
    return between_[static_cast<std::size_t>(from * size() + to)];
  }
  void learn(int r, int node) {
    Rank& rank = ranks_[static_cast<std::size_t>(r)];
    if (rank.losses.knows(node)) return;
    rank.losses.lose(node, rank.next);
    for (int other = 0; other < size(); ++other)
      if (other != r) from_to(r, other).push_back({node, rank.next});
  }
  void settle(Rank& rank) {
    for (const Losses::Agreed& agreed : rank.losses.take()) rank.agreed.push_back(agreed);
  }
  // One thing happens, drawn from those that can. False when none can.
  bool moved(std::vector<std::pair<int, int>>& to_learn, std::uint64_t calls) {
    const auto n = static_cast<std::uint64_t>(size());
    for (int tries = 0; tries < 1000; ++tries) {
      const int r = static_cast<int>(random_.below(n)), from = static_cast<int>(random_.below(n));
      Rank& rank = ranks_[static_cast<std::size_t>(r)];
      switch (random_.below(3)) {
        case 0:
          if (rank.next > calls || rank.losses.open()) break;
          begin(rank);
          return true;
        case 1:
          if (to_learn.empty()) break;
          std::swap(to_learn[random_.below(to_learn.size())], to_learn.back());
          learn(to_learn.back().first, to_learn.back().second);
          to_learn.pop_back();
          settle(rank);
          return true;
        default:
          if (from_to(from, r).empty()) break;
          const Said said = from_to(from, r).front();
          from_to(from, r).pop_front();
          learn(r, said.node);
          rank.losses.hear(from, said.node, said.next);
          settle(rank);
          return true;
      }
    }
    return false;
  }
  static void begin(Rank& rank) {
    std::vector<int> without;
    for (const Losses::Agreed& agreed : rank.agreed)
      if (agreed.from <= rank.next) without.push_back(agreed.node);
    std::sort(without.begin(), without.end());
    rank.begun.push_back(without);
    ++rank.next;
  }

  Random random_;
  std::vector<Rank> ranks_;
  std::vector<std::deque<Said>> between_;  // from * ranks + to
};

TEST(Losses, AllRanksBeginEachCallWithTheSameNodesInWhateverOrderTheyHear) {
  constexpr std::uint64_t kCalls = 12;
  int agreed_late = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const int size = 2 + static_cast<int>(seed % 4);
    Losers ranks(size, seed);
    ranks.run(1 + static_cast<int>(seed % 3), kCalls);
    for (int r = 0; r < size; ++r) {
      ASSERT_THAT(ranks.rank(r).begun, SizeIs(kCalls)) << "seed " << seed << ": it waits for ever";
      ASSERT_EQ(ranks.rank(r).begun, ranks.rank(0).begun) << "seed " << seed;
    }
    for (const Losses::Agreed& agreed : ranks.rank(0).agreed) agreed_late += agreed.from > 1 ? 1 : 0;
  }
  EXPECT_GT(agreed_late, 100) << "or there was little to agree on";
}

TEST(Losses, NobodyWaitsForARankThatIsGone) {
  Losses losses(3, 0);
  losses.lose(3, 7);
  losses.hear(1, 3, 9);
  EXPECT_TRUE(losses.open());
  EXPECT_THAT(losses.missing(), ElementsAre(2));
  EXPECT_THAT(losses.take(), IsEmpty());
  losses.gone(2);
  EXPECT_FALSE(losses.open());
  ASSERT_THAT(losses.take(), SizeIs(1));
  losses.lose(4, 11);  // after that: nor does anybody wait for it then
  losses.hear(1, 4, 5);
  const auto agreed = losses.take();
  ASSERT_THAT(agreed, SizeIs(1));
  EXPECT_EQ(agreed[0].node, 4);
  EXPECT_EQ(agreed[0].from, 11U);
  EXPECT_THAT(losses.take(), IsEmpty()) << "told once";
}

}  // namespace
}  // namespace talweg::steer
