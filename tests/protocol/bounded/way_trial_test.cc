// Which datagrams pass between ranks, found out in virtual time.
#include "protocol/bounded/way_trial.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <vector>

#include "base/random.h"
#include "protocol/bounded/pair.h"

namespace talweg::protocol {
namespace {

using testing::ElementsAre;

constexpr std::size_t kBeside = 76, kLeast = 616, kMost = 8292;

struct Tried {
  int to;
  std::size_t packet;
  bool largest;
  bool operator==(const Tried&) const = default;
};

std::vector<Tried> leaving(WayTrial& trial, std::int64_t now) {
  std::vector<Tried> all;
  int to = -1;
  wire::BoundedTrial message;
  while (trial.next(now, to, message)) all.push_back({to, kBeside + message.bytes, message.largest});
  return all;
}

wire::BoundedTrial of(std::size_t packet, bool largest) {
  return {static_cast<std::uint16_t>(packet - kBeside), largest};
}

WayTrial of_three(int self, std::size_t to_2 = kMost) {
  return {self, std::vector<std::size_t>{kMost, kMost, to_2}, kLeast, kBeside, 0};
}

TEST(WayTrial, SendsOneDatagramToEachWhereAllIsWell) {
  WayTrial trial = of_three(1);
  EXPECT_EQ(trial.next_time_ns(0), 0);
  EXPECT_THAT(leaving(trial, 0), ElementsAre(Tried{2, kMost, true}, Tried{0, kMost, true}));
  EXPECT_FALSE(trial.ended(1));
  trial.on(0, of(kMost, true));
  trial.on(0, of(kMost, true));  // as the one before
  EXPECT_FALSE(trial.ended(1));
  trial.on(2, of(1500, true));  // its interface takes no more
  EXPECT_TRUE(trial.ended(1));
  EXPECT_EQ(trial.came(0), kMost);
  EXPECT_EQ(trial.came(2), 1500U);
}

TEST(WayTrial, TriesSmallerOnesBesideTheLargestWhereAnAnswerIsLate) {
  WayTrial trial = of_three(0, kLeast);
  leaving(trial, 0);
  EXPECT_THAT(leaving(trial, WayTrial::kFirstPauseNs - 1), ElementsAre());
  std::vector<std::size_t> to_1, to_2;
  for (const Tried& t : leaving(trial, WayTrial::kFirstPauseNs)) {
    (t.to == 1 ? to_1 : to_2).push_back(t.packet);
    EXPECT_EQ(t.largest, t.packet == (t.to == 1 ? kMost : kLeast));
  }
  EXPECT_THAT(to_1, ElementsAre(8292, 4096, 2048, 1500, 1450, 1400, 1280, 616));
  EXPECT_THAT(to_2, ElementsAre(616));
  trial.on(1, of(1450, false));
  trial.on(1, of(1280, false));
  EXPECT_EQ(trial.came(1), 1450U);
}

TEST(WayTrial, TakesAllPathsWhereAnAnswerIsLate) {
  WayTrial trial(0, std::vector<std::size_t>{kMost, kMost}, kLeast, kBeside, 0, 3);
  int to = -1;
  wire::BoundedTrial message;
  ASSERT_TRUE(trial.next(0, to, message));
  EXPECT_EQ(trial.path(), 0U);
  EXPECT_FALSE(trial.next(0, to, message));
  for (const int round : {1, 2}) {
    const std::int64_t now = trial.next_time_ns(0);
    for (const std::size_t packet : {8292U, 4096U, 2048U, 1500U, 1450U, 1400U, 1280U, 616U})
      for (std::size_t path = 0; path < 3; ++path) {
        ASSERT_TRUE(trial.next(now, to, message)) << round;
        EXPECT_EQ(to, 1);
        EXPECT_EQ(kBeside + message.bytes, packet);
        EXPECT_EQ(trial.path(), path);
      }
    EXPECT_FALSE(trial.next(now, to, message));
  }
}

TEST(WayTrial, SendsNothingWhereThereIsNoWay) {
  WayTrial trial = of_three(0, kLeast - 1);
  for (int round = 0; round < 5; ++round)
    for (const Tried& t : leaving(trial, trial.next_time_ns(0))) EXPECT_EQ(t.to, 1);
}

TEST(WayTrial, PausesLongerAndLonger) {
  WayTrial trial = of_three(0);
  std::vector<std::int64_t> pauses;
  std::int64_t now = 0;
  for (int round = 0; round < 8; ++round) {
    EXPECT_FALSE(leaving(trial, now).empty());
    pauses.push_back((trial.next_time_ns(now) - now) / kMs);
    now = trial.next_time_ns(now);
  }
  EXPECT_THAT(pauses, ElementsAre(5, 10, 20, 40, 80, 100, 100, 100));
}

// Who is late to begin has sent nothing yet.
TEST(WayTrial, GivesUpSomeTimeAfterAllHaveBegun) {
  WayTrial trial = of_three(0);
  std::int64_t now = 0;
  const auto go_to = [&](std::int64_t until) {
    int rounds = 0;
    while (trial.next_time_ns(now) < until) {
      now = std::max(now + 1, trial.next_time_ns(now));
      rounds += leaving(trial, now).empty() ? 0 : 1;
    }
    now = until;
    return rounds;
  };
  go_to(60'000 * kMs);
  EXPECT_FALSE(trial.ended(now));
  trial.all_have_begun(now);
  const std::int64_t end = now + WayTrial::kPatienceNs;
  EXPECT_GE(go_to(end - 1), 9);
  EXPECT_FALSE(trial.ended(now));
  EXPECT_LE(trial.next_time_ns(now), end);
  go_to(end);
  EXPECT_TRUE(trial.ended(now));
  EXPECT_EQ(trial.came(1), 0U);
  // And goes on for those who have not ended, at its own pace.
  EXPECT_GT(go_to(end + 500 * kMs), 4);
  EXPECT_GT(trial.next_time_ns(now), now);
}

// Every way has an MTU of its own, and loses a part of what passes.
TEST(WayTrial, FindsWhatPassesThoughAPartIsLost) {
  Random random{11};
  for (int seed = 0; seed < 200; ++seed) {
    const int ranks = 2 + static_cast<int>(random.below(4));
    const auto n = static_cast<std::size_t>(ranks);
    const std::vector<std::size_t> largest(n, kMost);
    std::vector<WayTrial> trials;
    std::vector<std::vector<std::size_t>> takes(n, std::vector<std::size_t>(n, kMost));
    for (int r = 0; r < ranks; ++r) {
      trials.emplace_back(r, largest, kLeast, kBeside, 0);
      trials.back().all_have_begun(0);
    }
    for (auto& row : takes)
      for (std::size_t& mtu : row)
        if (random.below(3) == 0) mtu = 400 + random.below(9000);
    for (std::int64_t now = 0; now < WayTrial::kPatienceNs; now += kMs)
      for (std::size_t from = 0; from < n; ++from)
        for (const Tried& t : leaving(trials[from], now))
          if (t.packet <= takes[from][static_cast<std::size_t>(t.to)] && random.below(10) != 0)
            trials[static_cast<std::size_t>(t.to)].on(static_cast<int>(from), of(t.packet, t.largest));
    for (std::size_t from = 0; from < n; ++from)
      for (std::size_t to = 0; to < n; ++to) {
        if (from == to) continue;
        std::size_t expected = 0;
        for (const std::size_t size : {616UL, 1280UL, 1400UL, 1450UL, 1500UL, 2048UL, 4096UL, 8292UL})
          if (size <= takes[from][to]) expected = size;
        EXPECT_EQ(trials[to].came(static_cast<int>(from)), expected) << seed;
      }
  }
}

}  // namespace
}  // namespace talweg::protocol
