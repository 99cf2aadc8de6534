// In which turns the blocks of a scatter go.
#include "forest/block_turns.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/at.h"
#include "base/random.h"
#include "cluster/cluster.h"
#include "forest/flow_control.h"
#include "forest/requests.h"

namespace talweg::forest {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::int64_t kLargeBlock = 4 * kAheadBytes;

BlockLanes lanes_in(const cluster::Cluster& network, NodeId root = 0) {
  return lanes_of(make_request(Collective::scatter, network.workers(), 1000, false, root), network);
}

// Where to host `slow[i].first` leads so much of 1 Gbit/s.
cluster::Cluster star_with(int ranks, const std::vector<std::pair<int, double>>& slow) {
  auto star = gigabit_star(ranks);
  for (cluster::Link& link : star.links)
    for (const auto& [host, part] : slow)
      if (link.to == host) link.capacity = {part * 1e9};
  return star;
}

// One block for each rank but rank 0.
BlockTurns turns_of(const BlockLanes& lanes, const std::vector<std::int64_t>& bytes) {
  BlockTurns turns;
  turns.reset(lanes, kAheadBytes);
  for (std::size_t i = 0; i < bytes.size(); ++i) turns.add(static_cast<NodeId>(i + 1), bytes[i]);
  turns.begin();
  return turns;
}

// Whose blocks go now.
std::vector<std::size_t> ranks_next(BlockTurns& turns) {
  std::vector<std::size_t> ranks;
  while (const auto block = turns.next()) ranks.push_back(*block + 1);
  return ranks;
}

TEST(BlockLanes, AreWhatIsNarrowestOnTheWay) {
  const BlockLanes even = lanes_in(gigabit_star(4));
  EXPECT_THAT(even.of_rank[1], even.of_rank[2]);
  EXPECT_THAT(even.of_rank[1], even.of_rank[3]) << "the source's own link";
  EXPECT_EQ(even.parts[at(even.of_rank[1])], kWholeLane);

  const BlockLanes uneven = lanes_in(star_with(5, {{2, 0.25}, {3, 0.25}, {4, 0.95}}));
  EXPECT_NE(uneven.of_rank[2], uneven.of_rank[3]) << "each has a link of its own";
  EXPECT_EQ(uneven.parts[at(uneven.of_rank[2])], kWholeLane / 4);
  EXPECT_EQ(uneven.of_rank[1], uneven.of_rank[4]) << "equal links are never measured to be quite equal";
}

TEST(BlockLanes, AreSharedByThoseBehindOneLink) {
  cluster::Cluster racks;  // 0 and 1 here; 2, 3 and 4 behind a link of a tenth, 4 with less still
  for (int i = 0; i < 5; ++i) racks.nodes.push_back({.name = fmt::format("h{}", i)});
  for (int i = 0; i < 2; ++i)
    racks.nodes.push_back({.name = fmt::format("s{}", i), .kind = cluster::NodeKind::switch_});
  const auto join = [&](int a, int b, double rate) {
    racks.links.push_back({a, b, {rate}, {1000}});
    racks.links.push_back({b, a, {rate}, {1000}});
  };
  for (int host = 0; host < 4; ++host) join(host, 5 + host / 2, 1e9);
  join(5, 6, 1e8);
  join(4, 6, 5e7);
  const BlockLanes lanes = lanes_in(racks);
  EXPECT_EQ(lanes.of_rank[2], lanes.of_rank[3]);
  EXPECT_NE(lanes.of_rank[2], lanes.of_rank[1]);
  EXPECT_NE(lanes.of_rank[2], lanes.of_rank[4]);
  EXPECT_EQ(lanes.parts[at(lanes.of_rank[2])], 102);
  EXPECT_EQ(lanes.parts[at(lanes.of_rank[4])], 51);
}

TEST(BlockLanes, ArePartsOfAllThatTheSourceCanSend) {
  auto mesh = cluster::uniform_mesh(3, {1e9}, {1000});
  const BlockLanes apart = lanes_in(mesh);
  EXPECT_NE(apart.of_rank[1], apart.of_rank[2]);
  EXPECT_EQ(apart.parts[at(apart.of_rank[1])], kWholeLane / 2);
  std::vector<int> card;
  for (int i = 0; i < static_cast<int>(mesh.links.size()); ++i)
    if (mesh.links[at(i)].from == 0) card.push_back(i);
  mesh.groups.push_back({"card", {5e8}, card});
  const BlockLanes together = lanes_in(mesh);
  EXPECT_EQ(together.of_rank[1], together.of_rank[2]) << "one card sends to both";
  EXPECT_EQ(together.parts[at(together.of_rank[1])], kWholeLane);
}

TEST(BlockLanes, AreThereForScattersAlone) {
  const auto star = gigabit_star(4);
  EXPECT_EQ(lanes_of(make_request(Collective::gather, 4, 1000), star), BlockLanes{});
}

TEST(BlockTurns, OnEqualLinksTwoAreOnTheirWayInTheOrderOfRanks) {
  for (const BlockLanes& lanes : {lanes_in(gigabit_star(6)), BlockLanes{}}) {
    BlockTurns turns = turns_of(lanes, std::vector<std::int64_t>(5, kLargeBlock));
    EXPECT_THAT(ranks_next(turns), ElementsAre(1, 2));
    turns.arrived(1);
    EXPECT_THAT(ranks_next(turns), ElementsAre(3));
    EXPECT_TRUE(turns.held_up());
    turns.arrived(0);
    turns.arrived(2);
    EXPECT_THAT(ranks_next(turns), ElementsAre(4, 5));
    EXPECT_FALSE(turns.held_up());
  }
}

TEST(BlockTurns, OfShortBlocksMoreAreOnTheirWay) {
  BlockTurns turns = turns_of(lanes_in(gigabit_star(9)), std::vector<std::int64_t>(8, kAheadBytes / 4));
  EXPECT_THAT(ranks_next(turns), ElementsAre(1, 2, 3, 4));
}

TEST(BlockTurns, TheSlowestGoFirstAndQuickOnesBesideThem) {
  BlockTurns turns =
      turns_of(lanes_in(star_with(7, {{3, 0.2}, {6, 0.1}})), std::vector<std::int64_t>(6, kLargeBlock));
  EXPECT_THAT(ranks_next(turns), ElementsAre(6, 3, 1, 2));
  turns.arrived(0);
  EXPECT_THAT(ranks_next(turns), ElementsAre(4));
  turns.arrived(5);
  EXPECT_THAT(ranks_next(turns), IsEmpty()) << "two of those that the source's own link limits are there";
}

TEST(BlockTurns, NoMoreSlowOnesGoAtOnceThanFillTheSourcesLink) {
  std::vector<std::pair<int, double>> half;
  for (int rank = 1; rank <= 9; ++rank) half.emplace_back(rank, 0.4);
  BlockTurns turns = turns_of(lanes_in(star_with(10, half)), std::vector<std::int64_t>(9, kLargeBlock));
  EXPECT_THAT(ranks_next(turns), ElementsAre(1, 2, 3));
  turns.arrived(0);
  EXPECT_THAT(ranks_next(turns), ElementsAre(4));
}

TEST(BlockTurns, AllGoWhoNeedHalfOfTheTimeThatIsLeft) {
  // Ranks 1 to 8 at the source's rate take 8; each of the others takes 5.3, and 12 blocks are left.
  BlockTurns turns = turns_of(lanes_in(star_with(13, {{9, 0.19}, {10, 0.19}, {11, 0.19}, {12, 0.19}})),
                              std::vector<std::int64_t>(12, kLargeBlock));
  EXPECT_THAT(ranks_next(turns), ElementsAre(1, 2));
  turns.arrived(0);
  EXPECT_THAT(ranks_next(turns), ElementsAre(3)) << "11 are left";
  turns.arrived(1);
  EXPECT_THAT(ranks_next(turns), ElementsAre(4, 9, 10, 11, 12)) << "10 are left";
}

TEST(BlockTurns, LargeBlocksCountForWhatTheyTake) {
  BlockTurns turns = turns_of(lanes_in(star_with(5, {{1, 0.5}, {2, 0.4}, {3, 0.3}, {4, 0.2}})),
                              {20 * kLargeBlock, kLargeBlock, 5 * kLargeBlock, kLargeBlock});
  EXPECT_THAT(ranks_next(turns), ElementsAre(1, 3, 4)) << "these fill the source's link";
}

TEST(BlockTurns, EachBlockGoesOnceWhateverLanesThereAreAndHoweverTheyArrive) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Random random(seed);
    BlockLanes lanes;
    const auto ranks = static_cast<int>(2 + random.below(40));
    const auto count = static_cast<std::int32_t>(1 + random.below(8));
    for (std::int32_t lane = 0; lane < count; ++lane)
      lanes.parts.push_back(static_cast<std::int64_t>(1 + random.below(kWholeLane)));
    for (int rank = 0; rank < ranks; ++rank)
      lanes.of_rank.push_back(static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(count))));
    BlockTurns turns;
    turns.reset(lanes, kAheadBytes);
    std::vector<int> gone(at(ranks));
    for (NodeId rank = 0; rank < ranks; ++rank)
      turns.add(rank, static_cast<std::int64_t>(kAheadBytes / 8 + random.below(4 * kAheadBytes)));
    turns.begin();
    std::vector<std::size_t> on_way;
    for (int left = ranks; left > 0; --left) {
      while (const auto block = turns.next()) {
        ++gone[*block];
        on_way.push_back(*block);
      }
      ASSERT_FALSE(on_way.empty()) << seed;
      const auto which = random.below(on_way.size());
      turns.arrived(on_way[which]);
      on_way.erase(on_way.begin() + static_cast<std::ptrdiff_t>(which));
    }
    EXPECT_THAT(gone, testing::Each(1)) << seed;
    EXPECT_FALSE(turns.held_up());
    EXPECT_FALSE(turns.next());
  }
}

}  // namespace
}  // namespace talweg::forest
