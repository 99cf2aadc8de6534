#include <fmt/format.h>
#include <gmock/gmock.h>

#include <map>
#include <utility>
#include <vector>

#include "base/at.h"
#include "cluster/routing.h"

namespace talweg::cluster {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

constexpr double kRounding = 1e-12;

// What part of the traffic travels over each link, those that follow a leader included.
std::map<int, double> parts(const Cluster& cluster, const Routes& routes, int from, int to) {
  std::map<int, double> led, result;
  routes.for_each_share(from, to, [&](int link, double part) { led[link] += part; });
  for (int link = 0; link < std::ssize(cluster.links); ++link)
    if (const auto leader = led.find(routes.leader(link)); leader != led.end()) result[link] = leader->second;
  return result;
}

class Fabric {
 public:
  int host() { return add("h", NodeKind::worker); }
  int spine() { return add("s", NodeKind::switch_); }
  // The number of the link there; that of the link back is one more.
  int join(int a, int b, double rate = 1e9, std::int64_t latency = 10) {
    cluster.links.push_back({a, b, {rate}, {latency}});
    cluster.links.push_back({b, a, {rate}, {latency}});
    return static_cast<int>(cluster.links.size()) - 2;
  }
  Cluster cluster;

 private:
  int add(const char* name, NodeKind kind) {
    cluster.nodes.push_back({.name = fmt::format("{}{}", name, cluster.nodes.size()), .kind = kind});
    return static_cast<int>(cluster.nodes.size()) - 1;
  }
};

// Six hosts in pairs on leaves 6, 7 and 8, and spines 9, 10 and 11 of uplinks that are half as wide as hosts.
// Host h's link to its leaf has the number 2 h; leaf i's to spine j 12 + 6 i + 2 j.
Fabric three_spines() {
  Fabric fabric;
  for (int i = 0; i < 6; ++i) fabric.host();
  for (int i = 0; i < 6; ++i) fabric.spine();
  for (int h = 0; h < 6; ++h) fabric.join(h, 6 + h / 2);
  for (int leaf = 6; leaf < 9; ++leaf)
    for (int spine = 9; spine < 12; ++spine) fabric.join(leaf, spine, 5e8);
  return fabric;
}

constexpr int kUplinks = 12;

int uplink(int leaf, int spine) {
  return kUplinks + 6 * leaf + 2 * spine;
}

TEST(Spreading, IsEvenOverTheSpines) {
  const Cluster cluster = three_spines().cluster;
  const Routes routes(cluster);
  EXPECT_FALSE(routes.spreads(0, 1));
  EXPECT_TRUE(routes.spreads(0, 2));
  const auto third = DoubleNear(1.0 / 3, kRounding);
  EXPECT_THAT(parts(cluster, routes, 0, 2),
              ElementsAre(Pair(0, 1), Pair(5, 1), Pair(uplink(0, 0), third), Pair(uplink(0, 1), third),
                          Pair(uplink(0, 2), third), Pair(uplink(1, 0) + 1, third),
                          Pair(uplink(1, 1) + 1, third), Pair(uplink(1, 2) + 1, third)));
  EXPECT_THAT(parts(cluster, routes, 0, 1), ElementsAre(Pair(0, 1), Pair(3, 1)));
  EXPECT_THAT(parts(cluster, routes, 1, 1), IsEmpty());
  // The hosts' own links hold it to 1 Gbit/s; the uplinks together have 1.5.
  EXPECT_EQ(routes.rate(0, 2), Bandwidth{1e9});
  EXPECT_EQ(routes.latency(0, 2), Nanoseconds{40});
  EXPECT_EQ(routes.path(0, 2).size(), 4u);
}

TEST(Spreading, OneUplinkLeadsThoseThatAreLoadedAlike) {
  const Routes routes(three_spines().cluster);
  for (int leaf = 0; leaf < 3; ++leaf) {
    for (int spine = 0; spine < 3; ++spine) {
      EXPECT_EQ(routes.leader(uplink(leaf, spine)), uplink(leaf, 0));
      EXPECT_EQ(routes.leader(uplink(leaf, spine) + 1), uplink(leaf, 0) + 1);
      EXPECT_EQ(routes.followers(uplink(leaf, spine)), 3);
    }
  }
  for (int own = 0; own < kUplinks; ++own) {
    EXPECT_EQ(routes.leader(own), own);
    EXPECT_EQ(routes.followers(own), 1);
  }
}

TEST(Spreading, GoesRoundALinkThatIsDown) {
  Fabric fabric = three_spines();
  // Leaf 7 loses spine 11: what was behind its links moves up by two.
  fabric.cluster.links.erase(fabric.cluster.links.begin() + uplink(1, 2),
                             fabric.cluster.links.begin() + uplink(1, 2) + 2);
  const Routes routes(fabric.cluster);
  const auto there = parts(fabric.cluster, routes, 0, 2), across = parts(fabric.cluster, routes, 0, 4);
  const auto part = [](const auto& all, int link) { return all.contains(link) ? all.at(link) : 0; };
  for (const int spine : {0, 1}) EXPECT_EQ(part(there, uplink(0, spine)), 0.5);
  EXPECT_EQ(part(there, uplink(0, 2)), 0);
  for (const int spine : {0, 1, 2}) EXPECT_NEAR(part(across, uplink(0, spine)), 1.0 / 3, kRounding);
  // Two of 500 Mbit/s at half of it each, so still the host's; the spines no longer carry the same.
  EXPECT_EQ(routes.rate(0, 2), Bandwidth{1e9});
  EXPECT_EQ(routes.followers(uplink(0, 0)), 2);
  EXPECT_EQ(routes.leader(uplink(0, 1)), uplink(0, 0));
  EXPECT_EQ(routes.leader(uplink(0, 2)), uplink(0, 2));
}

TEST(Spreading, IsWorkedOutFromTierToTier) {
  // Pods of one leaf (8, 9), two middles (10, 11 and 12, 13), and cores 14, 15 of the first middles, 16 of
  // the second ones.
  Fabric fabric;
  const int a = fabric.host(), b = fabric.host();
  std::vector<int> s;
  for (int i = 0; i < 9; ++i) s.push_back(fabric.spine());
  fabric.join(a, s[0]);
  fabric.join(b, s[1]);
  std::vector<int> up, core;
  for (const auto& [leaf, middle] : {std::pair(0, 2), {0, 3}, {1, 4}, {1, 5}})
    up.push_back(fabric.join(s[talweg::at(leaf)], s[talweg::at(middle)]));
  for (const auto& [middle, top] : {std::pair(2, 6), {2, 7}, {3, 8}, {4, 6}, {4, 7}, {5, 8}})
    core.push_back(fabric.join(s[talweg::at(middle)], s[talweg::at(top)]));
  const Routes routes(fabric.cluster);
  EXPECT_THAT(parts(fabric.cluster, routes, a, b),
              ElementsAre(Pair(0, 1), Pair(3, 1), Pair(up[0], 0.5), Pair(up[1], 0.5), Pair(up[2] + 1, 0.5),
                          Pair(up[3] + 1, 0.5), Pair(core[0], 0.25), Pair(core[1], 0.25), Pair(core[2], 0.5),
                          Pair(core[3] + 1, 0.25), Pair(core[4] + 1, 0.25), Pair(core[5] + 1, 0.5)));
  EXPECT_EQ(routes.followers(core[0]), 4);  // two up, two down behind them
  // What two cores send to one middle leaves it over one link.
  fabric.cluster.links[talweg::at(up[2] + 1)].capacity = {2e8};
  EXPECT_EQ(Routes(fabric.cluster).rate(a, b), Bandwidth{4e8});
}

TEST(Spreading, SharesAGroupAsOftenAsWaysLeadThroughIt) {
  Fabric fabric = three_spines();
  fabric.cluster.groups.push_back({"card", {3e8}, {uplink(0, 0), uplink(0, 1)}});
  fabric.cluster.groups.push_back({"host", {8e8}, {0}});
  const Routes routes(fabric.cluster);
  EXPECT_NEAR(routes.rate(0, 2).bits_per_second, 4.5e8, 1);  // two thirds of it through the card
  EXPECT_EQ(routes.rate(2, 0), Bandwidth{1e9});
  EXPECT_EQ(routes.leader(uplink(0, 1)), uplink(0, 1));
  EXPECT_EQ(routes.leader(uplink(1, 1)), uplink(1, 0));
}

TEST(Spreading, IsOnlyOverWaysThatAreEquallyShortAndQuick) {
  for (const auto& [detour, latency] : {std::pair(false, 10), {false, 11}, {true, 10}}) {
    Fabric fabric;
    const int a = fabric.host(), b = fabric.host(), near = fabric.spine(), other = fabric.spine(),
              behind = fabric.spine();
    fabric.join(a, near);
    fabric.join(near, b, 1e9, 20);
    fabric.join(a, other);
    fabric.join(other, detour ? behind : b, 1e9, detour ? 10 : latency + 10);
    fabric.join(behind, b);
    const Routes routes(fabric.cluster);
    EXPECT_EQ(routes.spreads(a, b), !detour && latency == 10) << detour << " " << latency;
    EXPECT_EQ(routes.latency(a, b), Nanoseconds{30});
  }
}

// As switches do: by what they hash, not by what a link carries.
TEST(Spreading, OfASwitchIsEvenOverLinksThatAreNotAlike) {
  Fabric fabric = three_spines();
  fabric.cluster.links[talweg::at(uplink(0, 1))].capacity = {2.5e8};
  fabric.cluster.links[talweg::at(uplink(1, 2))].burst = {1000};
  const Routes routes(fabric.cluster);
  const auto there = parts(fabric.cluster, routes, 0, 2);
  for (const int spine : {0, 1, 2}) EXPECT_NEAR(there.at(uplink(0, spine)), 1.0 / 3, kRounding);
  EXPECT_NEAR(routes.rate(0, 2).bits_per_second, 7.5e8, 1);
  EXPECT_EQ(routes.leader(uplink(0, 1)), uplink(0, 1)) << "it carries less";
  EXPECT_EQ(routes.leader(uplink(0, 2)), uplink(0, 0));
  EXPECT_EQ(routes.leader(uplink(1, 2)), uplink(1, 2)) << "it takes bursts";
  EXPECT_EQ(routes.followers(uplink(1, 0)), 2);
}

TEST(Spreading, IsAlsoOfWhatEndsAtASwitchThatSums) {
  Fabric fabric = three_spines();
  fabric.cluster.nodes[7].can_aggregate = true;
  const Routes routes(fabric.cluster);
  EXPECT_TRUE(routes.spreads(0, 7));
  EXPECT_FALSE(routes.spreads(0, 8));
}

TEST(Spreading, OfAHostIsOverPortsThatAreAlike) {
  for (const double second : {1e9, 1e8}) {
    Fabric fabric;
    const int a = fabric.host(), b = fabric.host(), left = fabric.spine(), right = fabric.spine();
    const int first = fabric.join(a, left), other = fabric.join(a, right, second);
    fabric.join(b, left);
    fabric.join(b, right, second);
    const Routes routes(fabric.cluster);
    if (second == 1e9) {
      EXPECT_THAT(parts(fabric.cluster, routes, a, b),
                  ElementsAre(Pair(first, 0.5), Pair(other, 0.5), Pair(5, 0.5), Pair(7, 0.5)));
      EXPECT_EQ(routes.rate(a, b), Bandwidth{2e9});
    } else {
      EXPECT_FALSE(routes.spreads(a, b));
      EXPECT_THAT(parts(fabric.cluster, routes, a, b), ElementsAre(Pair(first, 1), Pair(5, 1)));
    }
  }
}

TEST(Spreading, DoesNotLeadThroughOtherMachines) {
  for (const NodeKind kind : {NodeKind::worker, NodeKind::aggregator}) {
    Fabric fabric;
    const int a = fabric.host(), b = fabric.host(), c = fabric.host(), d = fabric.host();
    fabric.cluster.nodes.back().kind = fabric.cluster.nodes[talweg::at(c)].kind = kind;
    for (const int between : {c, d}) {
      fabric.join(a, between);
      fabric.join(between, b);
    }
    const Routes routes(fabric.cluster);
    EXPECT_FALSE(routes.spreads(a, b));
    EXPECT_EQ(routes.rate(a, b), Bandwidth{1e9});
    EXPECT_EQ(parts(fabric.cluster, routes, a, b).size(), 2u);
  }
}

TEST(Spreading, LeavesOutWaysThroughMachinesThatAreAsShort) {
  for (const bool longer : {false, true}) {
    Fabric fabric;
    const int a = fabric.host(), b = fabric.host(), machine = fabric.host();
    const int near = fabric.spine(), far = fabric.spine(), before = fabric.spine();
    fabric.join(a, near);
    fabric.join(near, longer ? far : b);
    fabric.join(far, b);
    fabric.join(a, longer ? before : machine);
    fabric.join(before, machine);
    fabric.join(machine, b);
    EXPECT_FALSE(Routes(fabric.cluster).spreads(a, b)) << longer;
  }
}

TEST(Spreading, EveryPathIsItsOwnLeaderWhereThereIsOneWay) {
  const Routes routes(uniform_star(5, {1e9}, {10}));
  for (int link = 0; link < 10; ++link) {
    EXPECT_EQ(routes.leader(link), link);
    EXPECT_EQ(routes.followers(link), 1);
  }
  EXPECT_FALSE(routes.spreads(0, 1));
}

}  // namespace
}  // namespace talweg::cluster
