#include "cluster/routing.h"

#include <gmock/gmock.h>

#include <utility>
#include <vector>

#include "cluster/stubs.h"

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

// Hosts 0 and 1 on leaf 4, host 2 on leaf 5, host 3 on both; two spines, 6 and 7, the second one nearer.
Cluster leaves_and_spines() {
  Cluster cluster;
  for (const char* const name : {"a", "b", "c", "d"}) cluster.nodes.push_back({.name = name});
  for (const char* const name : {"l", "m", "s", "t"})
    cluster.nodes.push_back({.name = name, .kind = NodeKind::switch_});
  const auto join = [&](int a, int b, std::int64_t latency) {
    cluster.links.push_back({a, b, kGigabit, {latency}});
    cluster.links.push_back({b, a, kGigabit, {latency}});
  };
  join(0, 4, 10);
  join(1, 4, 20);
  join(2, 5, 10);
  join(3, 4, 500);
  join(3, 5, 500);
  for (const int leaf : {4, 5}) {
    join(leaf, 6, 40);
    join(leaf, 7, 30);
  }
  return cluster;
}

TEST(Routes, OfHostsOnOneLeafAreAlike) {
  const Routes routes(leaves_and_spines());
  EXPECT_THAT(path(routes, 0, 1), ElementsAre(0, 3));
  EXPECT_THAT(path(routes, 0, 2), ElementsAre(0, 12, 17, 5));
  EXPECT_THAT(path(routes, 1, 2), ElementsAre(2, 12, 17, 5));
  EXPECT_THAT(path(routes, 2, 1), ElementsAre(4, 16, 13, 3));
  EXPECT_THAT(path(routes, 1, 3), ElementsAre(2, 7));
  EXPECT_THAT(path(routes, 3, 2), ElementsAre(8, 5));
  EXPECT_THAT(path(routes, 1, 4), ElementsAre(2));
  EXPECT_THAT(path(routes, 4, 1), ElementsAre(3));
  EXPECT_THAT(path(routes, 1, 1), ElementsAre());
  EXPECT_EQ(routes.latency(1, 2), Nanoseconds{90});
}

TEST(Stubs, AreWorkersWithOneSwitchAndNothingElse) {
  const auto stubs = find_stubs(leaves_and_spines());
  EXPECT_EQ(stubs[1].at, 4);
  EXPECT_EQ(stubs[1].up, 2);
  EXPECT_EQ(stubs[1].down, 3);
  EXPECT_EQ(stubs[2].at, 5);
  for (std::size_t node = 3; node < stubs.size(); ++node) EXPECT_EQ(stubs[node].at, -1) << node;
  for (const Stub& stub : find_stubs(uniform_mesh(2, kGigabit, {10}))) EXPECT_EQ(stub.at, -1);
  Cluster one_way = uniform_star(2, kGigabit, {10});
  one_way.links.pop_back();
  EXPECT_EQ(find_stubs(one_way)[0].at, 2);
  EXPECT_EQ(find_stubs(one_way)[1].at, -1);
  EXPECT_EQ(find_stubs(detour(80, 30))[0].at, -1);
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

// From a to d through b or c, equally good; from b on over e or f, which are hosts as well.
TEST(Routes, ThroughHostsEachOnTheWayTakesTheFirstLinkOfThoseEquallyGood) {
  Cluster hosts;
  for (const char* name : {"a", "b", "c", "d", "e", "f"}) hosts.nodes.push_back({.name = name});
  for (const auto& [from, to] : {std::pair{0, 2}, {0, 1}, {1, 5}, {1, 4}, {2, 4}, {2, 5}, {4, 3}, {5, 3}})
    hosts.links.push_back({from, to, kGigabit, {1000}});
  hosts.links[6].capacity = {1e8};
  const Routes routes(hosts);
  EXPECT_THAT(path(routes, 1, 3), ElementsAre(2, 7)) << "over f, whose link from b is written first";
  EXPECT_THAT(path(routes, 2, 3), ElementsAre(4, 6));
  EXPECT_THAT(path(routes, 0, 3), ElementsAre(0, 4, 6)) << "and from c on as c sends by itself";
  EXPECT_EQ(routes.rate(0, 3), Bandwidth{1e8});
  EXPECT_EQ(routes.rate(1, 3), kGigabit);
}

}  // namespace
}  // namespace talweg::cluster
