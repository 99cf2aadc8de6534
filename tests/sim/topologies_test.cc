// Generated networks: sizes from the literature, and every host reaches every other over equally many paths.
#include "sim/topologies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>

#include "base/random.h"
#include "cluster/routing.h"
#include "sim/forwarding.h"
#include "sim/shapes.h"
#include "talweg/error.h"

namespace talweg::sim {
namespace {

using ::testing::HasSubstr;

constexpr LinkShape kFar{Bandwidth{5e9}, Nanoseconds{5000}};

std::size_t switches(const cluster::Cluster& c) {
  return c.nodes.size() - static_cast<std::size_t>(c.workers());
}

// Follows the forwarding tables from one host to another; the nodes passed, or nothing when lost.
std::vector<int> walk(const cluster::Cluster& c, const Forwarding& f, int from, int to,
                      std::uint32_t spread) {
  std::vector<int> nodes{from};
  while (nodes.back() != to && nodes.size() < 64) {
    const int link = f.link(nodes.back(), to, spread);
    if (link < 0) return {};
    nodes.push_back(c.links[static_cast<std::size_t>(link)].to);
  }
  return nodes;
}

void expect_all_connected(const cluster::Cluster& c) {
  EXPECT_FALSE(cluster::find_problem(c).has_value());
  const Forwarding f(c);
  for (int a = 0; a < c.workers(); ++a)
    for (int b = 0; b < c.workers(); ++b) {
      const auto nodes = walk(c, f, a, b, 17);
      ASSERT_FALSE(nodes.empty()) << a << " " << b;
      ASSERT_EQ(nodes.back(), b);
      ASSERT_EQ(std::set<int>(nodes.begin(), nodes.end()).size(), nodes.size()) << "a loop";
    }
}

TEST(Topologies, AreValidAndConnectedWithAsManySwitchesAsTheyShould) {
  const auto check = [](const cluster::Cluster& c, int hosts, std::size_t expected) {
    EXPECT_EQ(c.workers(), hosts);
    EXPECT_EQ(switches(c), expected);
    expect_all_connected(c);
  };
  check(star(5, kTen), 5, 1);
  check(leaf_spine(4, 4, 4, kTen, kTen), 16, 8);
  check(fat_tree(16, 3, 1, kTen), 16, 20);    // k = 4: 5 k^2 / 4
  check(fat_tree(128, 3, 1, kTen), 128, 80);  // k = 8
  check(fat_tree(32, 2, 2, kTen), 32, 8 + 2);
  check(torus({3, 4}, kTen, kTen), 12, 12);
  check(torus({2, 2, 2}, kTen, kTen), 8, 8);
  check(dragonfly(4, 2, 2, kTen, kFar), 72, 36);  // 9 groups of 4
}

TEST(Topologies, AFatTreeOffersEveryPathOnceToACountingSpread) {
  const cluster::Cluster c = fat_tree(128, 3, 1, kTen);
  const Forwarding f(c);
  std::set<std::vector<int>> paths;
  for (std::uint32_t spread = 0; spread < 16; ++spread) paths.insert(walk(c, f, 0, 127, spread));
  EXPECT_EQ(paths.size(), 16U);  // (k/2)^2 cores
}

// Within the time of a test: with as many steps for each pair of hosts it would be minutes.
TEST(Topologies, ManyHostsAreFoundValid) {
  EXPECT_FALSE(cluster::find_problem(star(500'000, kTen)));
}

TEST(Topologies, OversubscriptionLeavesFewerLinksUp) {
  const auto up = [](int oversubscription) {
    const cluster::Cluster c = fat_tree(128, 3, oversubscription, kTen);
    int links = 0;
    for (const cluster::Link& l : c.links) links += l.from == 128 + 4 / oversubscription ? 1 : 0;  // a leaf
    return links;
  };
  EXPECT_EQ(up(1), 4 + 4);
  EXPECT_EQ(up(2), 4 + 2);
}

TEST(Topologies, ADragonflyJoinsEachPairOfGroupsOnce) {
  const cluster::Cluster c = dragonfly(4, 2, 2, kTen, kFar);
  std::set<std::pair<char, char>> pairs;
  int global = 0;
  for (const cluster::Link& l : c.links) {
    if (l.latency != kFar.latency) continue;
    ++global;
    pairs.emplace(c.nodes[static_cast<std::size_t>(l.from)].name[1],
                  c.nodes[static_cast<std::size_t>(l.to)].name[1]);
  }
  EXPECT_EQ(global, 9 * 8);
  EXPECT_EQ(pairs.size(), 72U);
}

TEST(Topologies, NumbersThatDoNotFitAreRefusedInOneLine) {
  const auto message = [](const std::function<void()>& call) -> std::string {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message([] { fat_tree(1000, 3, 1, kTen); }), HasSubstr("the next that is full has 1024"));
  EXPECT_THAT(message([] { fat_tree(128, 3, 3, kTen); }), HasSubstr("cannot be divided by 3"));
  EXPECT_THAT(message([] { star(0, kTen); }), HasSubstr("0 hosts"));
  EXPECT_THAT(message([] { torus({3, 0}, kTen, kTen); }), HasSubstr("0 in one dimension"));
  EXPECT_THAT(message([] { dragonfly(0, 1, 1, kTen, kTen); }), HasSubstr("needs routers"));
  // Also where the product of the numbers is one that would do: 65537 * 65536 mod 2^32 is 65536.
  for (const std::string& found : {message([] {
                                     torus({65537, 65536}, kTen, kTen);
                                   }),
                                   message([] {
                                     torus({1000, 1000, 1000}, kTen, kTen);
                                   }),
                                   message([] { leaf_spine(65537, 65536, 1, kTen, kTen); }),
                                   message([] { dragonfly(65536, 1, 65537, kTen, kTen); }),
                                   message([] { dragonfly(10, 100'000, 100, kTen, kTen); })})
    EXPECT_THAT(found, HasSubstr("expected at most 1048576 hosts and switches"));
  EXPECT_THAT(message([] { fat_tree(2'147'483'647, 3, 1, kTen); }), HasSubstr("the next that is full has"));
  EXPECT_THAT(message([] { leaf_spine(2000, 1, 2000, kTen, kTen); }),
              HasSubstr("expected at most 2097152 links"));
  EXPECT_THAT(message([] { dragonfly(300, 1, 1, kTen, kTen); }), HasSubstr("expected at most 2097152 links"));
}

TEST(Forwarding, WorkersForwardOnlyWhereNothingElseDoes) {
  cluster::Cluster c = star(3, kTen);
  c.links.push_back({0, 1, Bandwidth{10e9}, Nanoseconds{1}, {}});  // h0 -> h1 -> h2 would be quicker
  c.links.push_back({1, 2, Bandwidth{10e9}, Nanoseconds{1}, {}});
  const Forwarding f(c);
  EXPECT_EQ(walk(c, f, 0, 2, 0), (std::vector<int>{0, 3, 2}));
  EXPECT_EQ(walk(c, f, 0, 1, 0), (std::vector<int>{0, 1}));
}

// How many links carry some of several ways.
int expect_parts_that_plans_count_on(const cluster::Cluster& c) {
  constexpr std::uint32_t kSpreads = 64 * 81;  // every choice among 2, 3 or 4, one behind the other
  const Forwarding f(c);
  const cluster::Routes routes(c);
  int spread_over = 0;
  for (int from = 0; from < c.workers(); ++from) {
    for (int to = 0; to < c.workers(); ++to) {
      if (from == to) continue;
      std::vector<double> sent(c.links.size()), counted(c.links.size());
      for (std::uint32_t packet = 0; packet < kSpreads; ++packet) {
        std::uint32_t spread = packet;
        for (int node = from; node != to;) {
          const auto link = static_cast<std::size_t>(f.link(node, to, spread));
          sent[link] += 1.0 / kSpreads;
          node = c.links[link].to;
        }
      }
      routes.for_each_share(from, to, [&](int link, double part) {
        for (int other = 0; other < std::ssize(c.links); ++other)
          if (routes.leader(other) == link) counted[static_cast<std::size_t>(other)] += part;
      });
      for (std::size_t link = 0; link < c.links.size(); ++link) {
        EXPECT_NEAR(sent[link], counted[link], 1e-9) << from << " to " << to << " over " << link;
        spread_over += counted[link] > 0 && counted[link] < 1 ? 1 : 0;
      }
    }
  }
  return spread_over;
}

// The same without some links between switches, both ways, for as long as all hosts reach each other.
cluster::Cluster without_links(cluster::Cluster c, int count, Random& random) {
  for (; count > 0; --count) {
    const cluster::Link down = c.links[random.below(c.links.size())];
    if (down.from < c.workers() || down.to < c.workers()) continue;
    cluster::Cluster less = c;
    std::erase_if(less.links, [&](const cluster::Link& link) {
      return std::minmax(link.from, link.to) == std::minmax(down.from, down.to);
    });
    if (!cluster::find_problem(less)) c = less;
  }
  return c;
}

TEST(Forwarding, SpreadsPacketsAsPlansCountOnIt) {
  Random random(20);
  int spread_over = 0;
  for (int round = 0; round < 4; ++round) {
    for (const auto& c : {leaf_spine(4, 4, 2, kTen, kTen), fat_tree(16, 3, 1, kTen),
                          torus({3, 4}, kTen, kTen), fat_tree(32, 2, 2, kTen)})
      spread_over += expect_parts_that_plans_count_on(without_links(c, 3 * round, random));
  }
  EXPECT_GT(spread_over, 1000);
}

// A tree of hosts without switches, and as many links again.
cluster::Cluster hosts_that_forward(int hosts, Random& random) {
  cluster::Cluster c;
  for (int h = 0; h < hosts; ++h) c.nodes.push_back({.name = "h" + std::to_string(h)});
  const auto below = [&](int n) { return static_cast<int>(random.below(static_cast<std::uint64_t>(n))); };
  std::set<std::pair<int, int>> linked;
  const auto link = [&](int from, int to) {
    if (from != to && linked.insert({from, to}).second)
      c.links.push_back({from, to, kTen.capacity, kTen.latency, {}});
  };
  for (int h = 1; h < hosts; ++h) {
    const int other = below(h);
    link(h, other);
    link(other, h);
  }
  for (int l = 0; l < 2 * hosts; ++l) link(below(hosts), below(hosts));
  return c;
}

TEST(Forwarding, ThroughHostsKeepsToTheOnePathThatPlansCountOn) {
  Random random(21);
  for (const int hosts : {3, 5, 9, 16})
    EXPECT_EQ(expect_parts_that_plans_count_on(hosts_that_forward(hosts, random)), 0) << hosts;
}

}  // namespace
}  // namespace talweg::sim
