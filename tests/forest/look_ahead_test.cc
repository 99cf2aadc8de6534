// How far ahead exchanges go, by what wires hold.
#include "forest/look_ahead.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

#include "cluster/cluster.h"
#include "cluster/routing.h"
#include "forest/flow_control.h"
#include "forest/requests.h"

namespace talweg::forest {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

LookAhead ahead_in(const cluster::Cluster& network, Collective op) {
  return look_ahead(make_request(op, network.workers(), 1000), network);
}

TEST(LookAhead, OfAnExchangeIsTheMostThatAWayOfTheRankHoldsInARoundTrip) {
  auto star = cluster::uniform_star(4, {1e9}, {1'000'000});
  star.links[2].latency = {2'000'000};  // from rank 1, or to where others wait
  const LookAhead ahead = ahead_in(star, Collective::all_to_all);
  ASSERT_EQ(ahead.wires.size(), 4U);
  const cluster::Routes routes(star);
  for (NodeId rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(exchange_wire(rank, 4, star, routes), ahead.wires[static_cast<std::size_t>(rank)]) << rank;
    std::int64_t most = 0;
    for (NodeId to = 0; to < 4; ++to)
      if (to != rank)
        most = std::max(most, static_cast<std::int64_t>(routes.rate(rank, to).bytes_per_second() * 1e-9 *
                                                        static_cast<double>(routes.latency(rank, to).value +
                                                                            routes.latency(to, rank).value)));
    EXPECT_EQ(ahead.wires[static_cast<std::size_t>(rank)], most) << rank;
  }
  EXPECT_EQ(ahead.wires[3], 625'000) << "1 Gbit/s for 5 ms";
  EXPECT_EQ(ahead.wires[0], 625'000);
  EXPECT_TRUE(ahead.lanes.lanes.empty());
}

TEST(LookAhead, WhereSomeAreQuickerNoWayIsKeptFull) {
  auto star = cluster::uniform_star(4, {1e9}, {1'000'000});
  star.links[0].capacity = {0.8e9};  // from rank 0
  EXPECT_THAT(ahead_in(star, Collective::all_to_all).wires, ElementsAre(400'000, 500'000, 500'000, 500'000));
  star.links[0].capacity = {0.79e9};
  EXPECT_THAT(ahead_in(star, Collective::all_to_all).wires, Each(0));
  for (NodeId rank = 0; rank < 4; ++rank) EXPECT_EQ(exchange_wire(rank, 4, star, cluster::Routes(star)), 0);
}

TEST(LookAhead, WhereEachPairHasALinkNobodyWaits) {
  const auto mesh = cluster::uniform_mesh(4, {1e9}, {30'000});
  EXPECT_THAT(ahead_in(mesh, Collective::all_to_all).wires, Each(kNobodyWaits));
  EXPECT_EQ(exchange_wire(2, 4, mesh, cluster::Routes(mesh)), kNobodyWaits);
  auto sharing = mesh;
  sharing.groups.push_back({"card", {1e9}, {0, 1}});
  EXPECT_THAT(ahead_in(sharing, Collective::all_to_all).wires, Each(7500));
  const auto memory = cluster::uniform_mesh(4, {1e9}, {1'000});
  EXPECT_THAT(ahead_in(memory, Collective::all_to_all).wires, Each(250)) << "no queue is in front of it";
}

// Ranks 0 and 3 have no link, and pass those of rank 1.
TEST(LookAhead, WhereSomePairHasNoLinkOthersWaitToo) {
  cluster::Cluster mesh = cluster::uniform_mesh(4, {1e9}, {30'000});
  std::erase_if(mesh.links, [](const cluster::Link& link) {
    return (link.from == 0 && link.to == 3) || (link.from == 3 && link.to == 0);
  });
  EXPECT_THAT(ahead_in(mesh, Collective::all_to_all).wires, ElementsAre(15000, 7500, 7500, 15000));
}

TEST(LookAhead, IsOfScattersAndExchangesAlone) {
  const auto star = gigabit_star(4);
  EXPECT_EQ(ahead_in(star, Collective::gather), LookAhead{});
  EXPECT_EQ(ahead_in(star, Collective::all_reduce), LookAhead{});
  const LookAhead scatter = ahead_in(star, Collective::scatter);
  EXPECT_THAT(scatter.wires, IsEmpty());
  EXPECT_EQ(scatter.lanes, lanes_of(make_request(Collective::scatter, 4, 1000), star));
}

TEST(LookAhead, AnExchangeIsFilledByWhatTheWireAndAQueueHold) {
  constexpr std::int64_t kBlock = 100, kAhead = 150;
  EXPECT_FALSE(fills_exchange(kBlock, kBlock, 0, kAhead));
  EXPECT_TRUE(fills_exchange(2 * kBlock, kBlock, 0, kAhead));
  EXPECT_FALSE(fills_exchange(2 * kBlock, kBlock, 100, kAhead));
  EXPECT_TRUE(fills_exchange(3 * kBlock, kBlock, 100, kAhead));
  constexpr std::int64_t kLong = 1000;
  EXPECT_FALSE(fills_exchange(2 * kLong, kLong, 1100, kAhead))
      << "while one arrives, the other does not fill it";
  EXPECT_TRUE(fills_exchange(3 * kLong, kLong, 1100, kAhead));
}

}  // namespace
}  // namespace talweg::forest
