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

// The greatest part that the lane of a rank has of a place that others could fill with it.
std::int64_t part_of(const BlockLanes& lanes, NodeId rank) {
  std::int64_t most = 0;
  for (const auto& [place, part] : lanes.lanes[at(lanes.of_rank[at(rank)])].shares)
    most = std::max(most, part);
  return most;
}

// Hosts behind a switch with links of `host`, the switch behind one of `rack`, the source with `source`.
cluster::Cluster rack_of(int hosts, double source, double rack, double host) {
  cluster::Cluster found;
  for (int i = 0; i <= hosts; ++i) found.nodes.push_back({.name = fmt::format("h{}", i)});
  for (int i = 0; i < 2; ++i)
    found.nodes.push_back({.name = fmt::format("s{}", i), .kind = cluster::NodeKind::switch_});
  const auto join = [&](int a, int b, double rate) {
    found.links.push_back({a, b, {rate}, {1000}});
    found.links.push_back({b, a, {rate}, {1000}});
  };
  join(0, hosts + 1, source);
  join(hosts + 1, hosts + 2, rack);
  for (int i = 1; i <= hosts; ++i) join(i, hosts + 2, host);
  return found;
}

TEST(BlockLanes, AreWhatIsNarrowestOnTheWay) {
  const BlockLanes even = lanes_in(gigabit_star(4));
  EXPECT_THAT(even.of_rank[1], even.of_rank[2]);
  EXPECT_THAT(even.of_rank[1], even.of_rank[3]) << "the source's own link";
  EXPECT_EQ(even.places, 0) << "which nobody else fills";

  const BlockLanes uneven = lanes_in(star_with(5, {{2, 0.25}, {3, 0.25}, {4, 0.95}}));
  EXPECT_NE(uneven.of_rank[2], uneven.of_rank[3]) << "each has a link of its own";
  EXPECT_EQ(uneven.of_rank[1], uneven.of_rank[4]) << "equal links are never measured to be quite equal";
  EXPECT_EQ(uneven.places, 1);
  EXPECT_EQ(part_of(uneven, 1), kWholeLane);
  EXPECT_EQ(part_of(uneven, 2), kWholeLane / 4);
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
  EXPECT_EQ(lanes.places, 2) << "the source's link and the link between the switches";
  EXPECT_EQ(part_of(lanes, 2), kWholeLane) << "of the latter";
  EXPECT_EQ(part_of(lanes, 4), kWholeLane / 2);
  EXPECT_DOUBLE_EQ(lanes.lanes[at(lanes.of_rank[2])].rate, 1e8 / 8);
}

TEST(BlockLanes, ShareNoPlaceThatTheyCannotFillTogether) {
  auto mesh = cluster::uniform_mesh(3, {1e9}, {1000});
  const BlockLanes apart = lanes_in(mesh);
  EXPECT_NE(apart.of_rank[1], apart.of_rank[2]);
  EXPECT_EQ(apart.places, 0);
  std::vector<int> card;
  for (int i = 0; i < static_cast<int>(mesh.links.size()); ++i)
    if (mesh.links[at(i)].from == 0) card.push_back(i);
  mesh.groups.push_back({"card", {5e8}, card});
  const BlockLanes together = lanes_in(mesh);
  EXPECT_EQ(together.of_rank[1], together.of_rank[2]) << "one card sends to both";
  mesh.groups[0].capacity = {1.5e9};
  EXPECT_EQ(lanes_in(mesh).places, 0) << "one leaves room";
  mesh.links[at(card[0])].capacity = {2e9};
  EXPECT_EQ(lanes_in(mesh).places, 1) << "one fills it";
}

TEST(BlockLanes, ShareAGroupOnceHoweverManyOthersHoldTheSameLink) {
  std::vector<std::pair<int, double>> slow;
  for (int rank = 1; rank <= 8; ++rank) slow.emplace_back(rank, 0.075);
  auto star = star_with(9, slow);
  const auto of_source = std::ranges::find(star.links, 0, &cluster::Link::from) - star.links.begin();
  for (int groups = 1; groups <= 3; ++groups) {
    star.groups.push_back({fmt::format("g{}", groups), {6e8}, {static_cast<int>(of_source)}});
    BlockTurns turns = turns_of(lanes_in(star), std::vector<std::int64_t>(8, kLargeBlock));
    EXPECT_THAT(ranks_next(turns), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8)) << "600 Mbit/s together";
  }
}

TEST(BlockLanes, AGroupIsAsWideAsWhatAllItsLinksCarryTogether) {
  for (const int spines : {1, 2, 4}) {
    // 0 behind switch 5, 1 and 2 behind 6, 3 and 4 behind 7; from all spines together a quarter into 6 and 7.
    cluster::Cluster leaves;
    for (int i = 0; i < 5; ++i) leaves.nodes.push_back({.name = fmt::format("h{}", i)});
    for (int i = 0; i < 3 + spines; ++i)
      leaves.nodes.push_back({.name = fmt::format("s{}", i), .kind = cluster::NodeKind::switch_});
    const auto join = [&](int a, int b) {
      leaves.links.push_back({a, b, {4e9}, {1000}});
      leaves.links.push_back({b, a, {4e9}, {1000}});
    };
    for (int host = 0; host < 5; ++host) join(host, 5 + (host + 1) / 2);
    for (int spine = 0; spine < spines; ++spine)
      for (int leaf = 5; leaf < 8; ++leaf) join(leaf, 8 + spine);
    for (int leaf = 6; leaf < 8; ++leaf) {
      leaves.groups.push_back({fmt::format("g{}", leaf), {1e9}, {}});
      for (std::size_t i = 0; i < leaves.links.size(); ++i)
        if (leaves.links[i].from >= 8 && leaves.links[i].to == leaf)
          leaves.groups.back().links.push_back(static_cast<int>(i));
    }
    const BlockLanes lanes = lanes_in(leaves);
    EXPECT_EQ(lanes.of_rank[1], lanes.of_rank[2]) << spines;
    EXPECT_EQ(lanes.of_rank[3], lanes.of_rank[4]) << spines;
    EXPECT_NE(lanes.of_rank[1], lanes.of_rank[3]) << spines;
    EXPECT_DOUBLE_EQ(lanes.lanes[at(lanes.of_rank[1])].rate, 1e9 / 8) << spines;
  }
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

// 1 Gbit/s for 20 ms, there and back.
TEST(BlockTurns, AsManyAreOnTheirWayAsFillALongWay) {
  auto star = gigabit_star(9);
  for (cluster::Link& link : star.links) link.latency = {5'000'000};
  const BlockLanes lanes = lanes_in(star);
  EXPECT_EQ(lanes.lanes.at(1).wire, 2'500'000);
  EXPECT_EQ(lanes.lanes.at(0).wire, 0) << "of the source itself";
  BlockTurns turns = turns_of(lanes, std::vector<std::int64_t>(8, kLargeBlock));
  EXPECT_THAT(ranks_next(turns), ElementsAre(1, 2, 3, 4, 5, 6)) << "five blocks are 2.6 MB, and one arrives";
  turns.arrived(0);
  EXPECT_THAT(ranks_next(turns), ElementsAre(7));
  BlockTurns longer =
      turns_of(lanes, {1 << 20, 1 << 20, 1 << 20, 1 << 20, 1 << 20, 1 << 20, 1 << 20, 1 << 20});
  EXPECT_THAT(ranks_next(longer), ElementsAre(1, 2, 3, 4)) << "three are 3.1 MB, and one arrives";
}

TEST(BlockTurns, OfShortBlocksMoreAreOnALongWay) {
  auto star = gigabit_star(9);
  for (cluster::Link& link : star.links) link.latency = {262'144};
  const BlockLanes lanes = lanes_in(star);
  ASSERT_EQ(lanes.lanes.at(1).wire, kAheadBytes);
  BlockTurns turns = turns_of(lanes, std::vector<std::int64_t>(8, kAheadBytes / 4));
  EXPECT_THAT(ranks_next(turns), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  BlockTurns others = turns_of(lanes, std::vector<std::int64_t>(8, kAheadBytes / 2));
  EXPECT_THAT(ranks_next(others), ElementsAre(1, 2, 3, 4));
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

TEST(BlockTurns, NoMoreGoAtOnceThanFillALinkOnTheWay) {
  BlockTurns turns =
      turns_of(lanes_in(rack_of(32, 1e11, 1e10, 2e9)), std::vector<std::int64_t>(32, kLargeBlock));
  EXPECT_THAT(ranks_next(turns), ElementsAre(1, 2, 3, 4, 5)) << "each a fifth";
  turns.arrived(2);
  EXPECT_THAT(ranks_next(turns), ElementsAre(6));
}

TEST(BlockTurns, NoMoreGoAtOnceThanFillTheSourcesLinkThoughAQuickOneIsBesideIt) {
  std::vector<std::pair<int, double>> half;
  for (int rank = 1; rank <= 9; ++rank) half.emplace_back(rank, 0.4);
  auto star = star_with(10, half);
  star.links.push_back({0, 1, {1e11}, {1000}});
  BlockTurns turns = turns_of(lanes_in(star), std::vector<std::int64_t>(9, kLargeBlock));
  EXPECT_THAT(ranks_next(turns), ElementsAre(2, 3, 4, 1));
}

TEST(BlockTurns, OneGoesThatNeedsHalfOfTheTimeThatIsLeftThoughLinksAreFull) {
  std::vector<std::pair<int, double>> fifths;
  for (int rank = 1; rank <= 9; ++rank) fifths.emplace_back(rank, 0.2);
  // Each takes 5, all of them 9.
  BlockTurns turns = turns_of(lanes_in(star_with(10, fifths)), std::vector<std::int64_t>(9, kLargeBlock));
  EXPECT_THAT(ranks_next(turns), ElementsAre(1, 2, 3, 4, 5, 6));
  turns.arrived(0);
  EXPECT_THAT(ranks_next(turns), IsEmpty()) << "five and the one";
  turns.arrived(5);
  EXPECT_THAT(ranks_next(turns), ElementsAre(7, 8)) << "four, one more, and one that needs half of the time";
  fifths.resize(5);
  for (int rank = 6; rank <= 8; ++rank) fifths.emplace_back(rank, 0.5);
  // Five take 5, three take 2, all of them 8.
  BlockTurns others = turns_of(lanes_in(star_with(9, fifths)), std::vector<std::int64_t>(8, kLargeBlock));
  EXPECT_THAT(ranks_next(others), ElementsAre(1, 2, 3, 4, 5)) << "no other needs half";
}

TEST(BlockTurns, OneGoesOnceHalfOfTheTimeThatIsLeftIsItsOwnThoughLinksAreFull) {
  const BlockLanes lanes = lanes_in(star_with(4, {{1, 0.8}, {2, 0.8}, {3, 0.8}}));
  BlockTurns turns;
  turns.reset(lanes, kAheadBytes);
  for (int i = 0; i < 8; ++i)
    for (const NodeId rank : {1, 2}) turns.add(rank, kLargeBlock);
  for (int i = 0; i < 3; ++i) turns.add(3, kLargeBlock);
  turns.begin();
  std::vector<std::size_t> on_way;
  std::size_t arrived = 0;
  // Three blocks of rank 3 take 3.75 of its link's times; all take as many as there are.
  for (;; ++arrived) {
    while (const auto block = turns.next()) on_way.push_back(*block);
    if (on_way.back() >= 16) break;
    ASSERT_LT(arrived, 16u);
    turns.arrived(on_way[arrived]);
  }
  EXPECT_EQ(arrived, 12u) << "seven are left, and three of them are its own";
}

TEST(BlockTurns, WhoFillsTheLinkUsesWhatOthersLeaveHoweverMuchItHas) {
  // Ranks 1 to 8 at the source's rate take 8; each of the others takes 5.3.
  BlockTurns turns = turns_of(lanes_in(star_with(13, {{9, 0.19}, {10, 0.19}, {11, 0.19}, {12, 0.19}})),
                              std::vector<std::int64_t>(12, kLargeBlock));
  EXPECT_THAT(ranks_next(turns), ElementsAre(9, 10, 11, 12, 1, 2));
}

TEST(BlockTurns, WhatIsMoreThanEveryNetworkCarriesIsNoLess) {
  constexpr std::int64_t kHuge = std::int64_t{1} << 61;
  BlockTurns turns = turns_of(lanes_in(star_with(5, {{2, 1e-9}, {3, 0.5}, {4, 0.5}})), {1, kHuge, kHuge, 1});
  EXPECT_THAT(ranks_next(turns), ElementsAre(2, 3, 4));
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
    lanes.places = static_cast<std::int32_t>(random.below(4));
    for (std::int32_t lane = 0; lane < count; ++lane) {
      lanes.lanes.push_back({.rate = 1e6 * static_cast<double>(1 + random.below(1000))});
      for (std::int32_t place = 0; place < lanes.places; ++place)
        if (random.below(2) == 0)
          lanes.lanes.back().shares.push_back(
              {place, static_cast<std::int64_t>(1 + random.below(kWholeLane))});
    }
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
