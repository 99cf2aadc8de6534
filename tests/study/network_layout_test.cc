#include "study/network_layout.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "cluster/cluster.h"
#include "study/network_picture.h"

namespace talweg::study {
namespace {

using cluster::NodeKind;

void join(cluster::Cluster& network, int a, int b) {
  network.links.push_back({a, b, {1e10}, {1000}});
  network.links.push_back({b, a, {1e10}, {1000}});
}

cluster::Cluster nodes_of(int hosts, int switches) {
  cluster::Cluster network;
  for (int i = 0; i < hosts; ++i) network.nodes.push_back({.name = "h" + std::to_string(i)});
  for (int i = 0; i < switches; ++i)
    network.nodes.push_back({.name = "s" + std::to_string(i), .kind = NodeKind::switch_});
  return network;
}

// Hosts are dealt to the leaves in turn: their order is the layout's to find.
cluster::Cluster leaf_spine(int leaves, int hosts_each, int spines) {
  const int hosts = leaves * hosts_each;
  cluster::Cluster network = nodes_of(hosts, leaves + spines);
  for (int i = 0; i < hosts; ++i) join(network, i, hosts + i % leaves);
  for (int leaf = 0; leaf < leaves; ++leaf)
    for (int spine = 0; spine < spines; ++spine) join(network, hosts + leaf, hosts + leaves + spine);
  return network;
}

// Of `n` switches with a host each.
cluster::Cluster ring_of_switches(int n) {
  cluster::Cluster network = nodes_of(n, n);
  for (int i = 0; i < n; ++i) {
    join(network, i, n + i);
    join(network, n + i, n + (i + 1) % n);
  }
  return network;
}

TEST(NetworkLayout, NoTwoNodesMeet) {
  for (const auto& network :
       {leaf_spine(16, 4, 4), leaf_spine(4, 4, 1), leaf_spine(32, 32, 16), ring_of_switches(5),
        cluster::uniform_star(64, {1e9}, {0}), cluster::uniform_star(500, {1e9}, {0}),
        cluster::uniform_mesh(64, {1e9}, {0}), cluster::uniform_mesh(1, {1e9}, {0})}) {
    const Layout layout = lay_out(network);
    ASSERT_EQ(layout.places.size(), network.nodes.size());
    for (std::size_t a = 0; a < layout.places.size(); ++a)
      for (std::size_t b = 0; b < a; ++b)
        EXPECT_GT(
            std::hypot(layout.places[a].x - layout.places[b].x, layout.places[a].y - layout.places[b].y), 12)
            << network.nodes[a].name << network.nodes[b].name;
  }
}

TEST(NetworkLayout, HostsStandLowestAndThoseOfALeafNextToEachOtherBelowIt) {
  const auto network = leaf_spine(4, 4, 2);
  const Layout layout = lay_out(network);
  EXPECT_FALSE(layout.round);
  EXPECT_EQ(layout.tiers, 2);
  for (std::size_t node = 0; node < network.nodes.size(); ++node) {
    const int tier = node < 16 ? 0 : node < 20 ? 1 : 2;
    EXPECT_EQ(layout.places[node].tier, tier);
    EXPECT_EQ(layout.places[node].y, layout.places[tier == 0 ? 0 : tier == 1 ? 16 : 20].y);
  }
  EXPECT_LT(layout.places[20].y, layout.places[16].y);
  EXPECT_LT(layout.places[16].y, layout.places[0].y);
  for (std::size_t leaf = 0; leaf < 4; ++leaf) {
    double left = 1e9, right = -1e9;
    for (std::size_t host = leaf; host < 16; host += 4) {
      left = std::min(left, layout.places[host].x);
      right = std::max(right, layout.places[host].x);
    }
    EXPECT_NEAR(layout.places[16 + leaf].x, (left + right) / 2, 1e-6);
    for (std::size_t host = 0; host < 16; ++host) {
      if (host % 4 == leaf) continue;
      EXPECT_TRUE(layout.places[host].x < left || layout.places[host].x > right)
          << host << " of another leaf";
    }
  }
}

TEST(NetworkLayout, WhatHasNoTopStandsOnACircle) {
  for (const auto& network : {ring_of_switches(6), cluster::uniform_mesh(6, {1e9}, {0})}) {
    const Layout layout = lay_out(network);
    EXPECT_TRUE(layout.round);
    for (std::size_t host = 0; host < 6; ++host)
      EXPECT_NEAR(std::hypot(layout.places[host].x, layout.places[host].y), layout.radius, 1e-6);
  }
  EXPECT_FALSE(lay_out(cluster::uniform_star(2, {1e9}, {0})).round);
}

TEST(NetworkLayout, ThirtyTwoHostsFitAPageAndAThousandStandBelowEachOther) {
  const Layout few = lay_out(leaf_spine(8, 4, 4));
  EXPECT_EQ(few.host_rows, 1);
  EXPECT_LE(few.width, 1200);
  EXPECT_GE(few.steps[0], 20);  // there is room for names
  const Layout many = lay_out(leaf_spine(32, 32, 16));
  EXPECT_GT(many.host_rows, 1);
  EXPECT_LE(many.width, 1200);
}

TEST(NetworkLayout, TiersHaveTheNamesThatFabricsGiveThem) {
  EXPECT_EQ(tier_name(0, 0), "hosts");
  EXPECT_EQ(tier_name(1, 1), "switches");
  EXPECT_EQ(tier_name(1, 3), "leaves");
  EXPECT_EQ(tier_name(3, 3), "cores");
  EXPECT_EQ(tier_name(4, 4), "tier 4");
}

TEST(NetworkLayout, LongNamesAreShortenedBetweenCharacters) {
  EXPECT_EQ(short_name({.name = "abcdefghijklmnopqrst"}), "abcdefghijklmnopqrst");
  EXPECT_EQ(short_name({.name = "abcdefghijklmnopqrstu"}), "abcdefghijklmnopqrs\u2026");
  std::string umlauts;
  for (int i = 0; i < 30; ++i) umlauts += "\u00fc";
  EXPECT_EQ(short_name({.name = umlauts}), umlauts.substr(0, 38) + "\u2026");
  EXPECT_EQ(short_name({.name = "a\x1b"}), "a\\x1b");
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t i = 0; (i = text.find(part, i)) != std::string::npos; i += part.size()) ++n;
  return n;
}

TEST(NetworkPicture, HasEveryNodeAndLinkAndMarksWhatSetsTheBound) {
  const auto network = leaf_spine(4, 4, 2);
  std::vector<bool> priced(network.links.size());
  priced[3] = priced[5] = true;
  const std::string svg = network_picture(network, lay_out(network), priced);
  EXPECT_EQ(count(svg, "class=\"link\""), network.links.size());
  EXPECT_EQ(count(svg, "class=\"node "), network.nodes.size());
  EXPECT_EQ(count(svg, "class=\"priced\""), 2u);
  EXPECT_THAT(svg, testing::HasSubstr("<title>h0 \u2192 s0: 10 Gbit/s, 1 us</title>"));
  for (const auto& node : network.nodes) EXPECT_THAT(svg, testing::HasSubstr(">" + node.name + "</text>"));
}

TEST(NetworkPicture, QuotesNames) {
  cluster::Cluster network = nodes_of(2, 0);
  network.nodes[0].name = "<script>";
  join(network, 0, 1);
  const std::string svg = network_picture(network, lay_out(network));
  EXPECT_THAT(svg, testing::Not(testing::HasSubstr("<script>")));
  EXPECT_EQ(count(svg, "&lt;script&gt;"), 4u);  // the titles of two links and a node, and its name
}

}  // namespace
}  // namespace talweg::study
