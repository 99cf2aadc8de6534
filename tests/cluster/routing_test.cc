#include "cluster/routing.h"

#include <gmock/gmock.h>

#include <vector>

namespace talweg::cluster {
namespace {

using testing::ElementsAre;

std::vector<int> path(const Routes& routes, int from, int to) {
  const auto links = routes.path(from, to);
  return {links.begin(), links.end()};
}

constexpr Bandwidth kGigabit{1e9};

TEST(Routes, LeadThroughTheSwitchOfAStar) {
  const Routes routes(uniform_star(3, kGigabit, {30000}));
  EXPECT_THAT(path(routes, 0, 2), ElementsAre(0, 5));
  EXPECT_THAT(path(routes, 3, 1), ElementsAre(3));
  EXPECT_EQ(routes.latency(0, 2), Nanoseconds{60000});
  EXPECT_EQ(routes.rate(0, 2), kGigabit);
}

TEST(Routes, ANodeReachesItselfByNoLinks) {
  const Routes routes(uniform_star(2, kGigabit, {30000}));
  EXPECT_TRUE(routes.reachable(1, 1));
  EXPECT_THAT(path(routes, 1, 1), ElementsAre());
  EXPECT_EQ(routes.latency(1, 1), Nanoseconds{0});
}

// Two workers joined by a direct slow link (0) and two switches (1, 2, 3).
Cluster detour(std::int64_t direct, std::int64_t each) {
  return {.nodes = {{.name = "a"},
                    {.name = "b"},
                    {.name = "s", .kind = NodeKind::switch_},
                    {.name = "t", .kind = NodeKind::switch_}},
          .links = {{0, 1, kGigabit, {direct}},
                    {0, 2, kGigabit, {each}},
                    {2, 3, {5e8}, {each}},
                    {3, 1, kGigabit, {each}}},
          .groups = {}};
}

TEST(Routes, PreferLatencyToHops) {
  EXPECT_THAT(path(Routes(detour(100, 30)), 0, 1), ElementsAre(1, 2, 3));
  EXPECT_THAT(path(Routes(detour(80, 30)), 0, 1), ElementsAre(0));
}

TEST(Routes, PreferFewHopsAtEqualLatency) {
  EXPECT_THAT(path(Routes(detour(90, 30)), 0, 1), ElementsAre(0));
}

TEST(Routes, HaveTheRateOfTheNarrowestLink) {
  EXPECT_EQ(Routes(detour(100, 30)).rate(0, 1), Bandwidth{5e8});
}

TEST(Routes, ShareACapacityGroupAmongItsLinksOnThePath) {
  Cluster cluster = uniform_star(2, kGigabit, {10});
  cluster.groups.push_back({"backplane", kGigabit, {0, 3}});
  EXPECT_EQ(Routes(cluster).rate(0, 1), Bandwidth{5e8});
  EXPECT_EQ(Routes(cluster).rate(1, 0), kGigabit);
}

TEST(Routes, DirectionsAreNotConfused) {
  const Routes routes(detour(80, 30));
  EXPECT_TRUE(routes.reachable(0, 1));
  EXPECT_FALSE(routes.reachable(1, 0));
  EXPECT_THAT(path(routes, 1, 0), ElementsAre());
}

TEST(Routes, PassAWorkerOnlyWhereNothingElseLeads) {
  // a - b - c in a row by quick links, and a slow switch between a and c.
  Cluster cluster{
      .nodes = {{.name = "a"}, {.name = "b"}, {.name = "c"}, {.name = "s", .kind = NodeKind::switch_}},
      .links = {{0, 1, kGigabit, {1}},
                {1, 2, kGigabit, {1}},
                {0, 3, kGigabit, {1000}},
                {3, 2, kGigabit, {1000}}},
      .groups = {}};
  EXPECT_THAT(path(Routes(cluster), 0, 2), ElementsAre(2, 3));
  cluster.links.resize(2);
  EXPECT_THAT(path(Routes(cluster), 0, 2), ElementsAre(0, 1));
}

}  // namespace
}  // namespace talweg::cluster
