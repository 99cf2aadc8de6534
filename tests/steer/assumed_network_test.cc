// What is planned for before anybody has measured.
#include "steer/assumed_network.h"

#include <gtest/gtest.h>

#include "cluster/routing.h"

namespace talweg::steer {
namespace {

TEST(AssumedNetwork, IsMemoryWithinAHostAndTheSameForAllBetweenHosts) {
  const cluster::Cluster network = assumed_network({0, 1, 0, 2});
  validate(network);
  ASSERT_EQ(network.workers(), 4);
  const cluster::Routes routes(network);
  EXPECT_EQ(routes.rate(0, 2), kMemory);
  EXPECT_EQ(routes.latency(0, 2), kMemoryLatency);
  EXPECT_LT(routes.rate(0, 1), kMemory);
  EXPECT_EQ(routes.rate(0, 1), routes.rate(3, 1));
  EXPECT_EQ(routes.latency(0, 1), routes.latency(3, 1));
  // The ranks of a host share its port.
  EXPECT_EQ(routes.path(0, 1)[1], routes.path(2, 3)[1]);
}

TEST(AssumedNetwork, OfHostsWithOneRankEachIsAStarAndOfOneHostAMesh) {
  const cluster::Cluster star = assumed_network({2, 0, 1});
  EXPECT_EQ(star.nodes.size(), 4u);
  const cluster::Cluster mixed = assumed_network({0, 0, 1, 1});
  EXPECT_EQ(cluster::Routes(star).rate(0, 1), cluster::Routes(mixed).rate(0, 2));
  EXPECT_EQ(cluster::Routes(star).latency(0, 1), Nanoseconds{50'000});
  EXPECT_EQ(cluster::Routes(mixed).latency(0, 2), Nanoseconds{27'500});
  const cluster::Cluster memory = assumed_network({0, 0, 0});
  EXPECT_EQ(memory.nodes.size(), 3u);
  EXPECT_EQ(cluster::Routes(memory).rate(0, 1), kMemory);
  EXPECT_EQ(cluster::Routes(memory).latency(0, 1), kMemoryLatency);
}

}  // namespace
}  // namespace talweg::steer
