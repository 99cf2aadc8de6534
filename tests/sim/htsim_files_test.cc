#include "sim/htsim_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "talweg/error.h"

namespace talweg::sim {
namespace {

using ::testing::HasSubstr;

const std::string kTopo = R"(# two tiers
Nodes 32
Tiers 2
Podsize 32

Tier 0
Downlink_speed_Gbps 100
Radix_Down 8
Radix_Up 2
Downlink_Latency_ns 1000
Switch_Latency_ns 0
Oversubscribed 4

Tier 1
Downlink_speed_Gbps 200
Radix_Down 4
Downlink_Latency_ns 500
)";

std::string message(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_file);
    return error.what();
  }
  return "";
}

TEST(HtsimTopo, IsReadAsTheNetworkThatItMeans) {
  const cluster::Cluster c = clos(parse_topo(kTopo, "a.topo"));
  EXPECT_EQ(c.workers(), 32);
  EXPECT_EQ(c.nodes.size(), 32U + 4 + 2);
  EXPECT_EQ(c.links.size(), 2U * (32 + 4 * 2));
  EXPECT_EQ(c.links[0].capacity, Bandwidth{100e9});
  EXPECT_EQ(c.links[0].latency, Nanoseconds{1000});
  EXPECT_EQ(c.links[16].capacity, Bandwidth{200e9});
}

TEST(HtsimTopo, ThreeTiersMakePodsAndCores) {
  const cluster::Cluster c = clos(parse_topo(
      "Nodes 16\nTiers 3\nPodsize 4\nTier 0\nDownlink_speed_Gbps 100\nRadix_Down 2\nRadix_Up 2\n"
      "Downlink_Latency_ns 1000\nTier 1\nDownlink_speed_Gbps 100\nRadix_Down 2\nRadix_Up 2\nBundle 1\n"
      "Downlink_Latency_ns 1000\nTier 2\nDownlink_speed_Gbps 100\nRadix_Down 4\nDownlink_Latency_ns 1000\n",
      "b.topo"));
  EXPECT_EQ(c.nodes.size(), 16U + 20);
  EXPECT_EQ(c.links.size(), 2U * 48);
}

TEST(HtsimTopo, WhatIsWrongIsNamedWithItsLine) {
  EXPECT_THAT(message([] { parse_topo("Nodes x\n", "a.topo"); }),
              HasSubstr("a.topo:1: expected a number of hosts of at least 1, got \"x\""));
  EXPECT_THAT(message([] { parse_topo("Nodes 4\nTier 0\nSpeed 3\n", "a.topo"); }),
              HasSubstr("a.topo:3: \"Speed\" is not known here"));
  EXPECT_THAT(message([] { parse_topo("Nodes 4\nTiers 2\nPodsize 4\nTier 0\n", "a.topo"); }),
              HasSubstr("expected 2 tiers, got 1"));
  EXPECT_THAT(message([] { parse_topo("Tiers 2\nTier 0\nRadix_Down 2\nTier 1\nRadix_Down 2\n", "a.topo"); }),
              HasSubstr("no Downlink_speed_Gbps"));
}

TEST(HtsimMatrix, IsRead) {
  const Matrix m =
      parse_matrix("Nodes 4\nConnections 2\n0->1 id 7 start 5 size 100\n2->3 size 9 prio 2\n", "m");
  ASSERT_EQ(m.connections.size(), 2U);
  EXPECT_EQ(m.nodes, 4);
  EXPECT_EQ(m.connections[0].id, 7);
  EXPECT_EQ(m.connections[0].start, 5);
  EXPECT_EQ(m.connections[0].bytes, 100);
  EXPECT_EQ(m.connections[1].from, 2);
  EXPECT_EQ(m.connections[1].to, 3);
  EXPECT_EQ(m.connections[1].priority, 2);
}

TEST(HtsimMatrix, WhatIsWrongIsNamedWithItsLine) {
  const auto text = [](const std::string& lines) {
    return message([&] { parse_matrix("Nodes 4\n" + lines, "m.cm"); });
  };
  EXPECT_THAT(text("0->9 size 1\n"), HasSubstr("m.cm:2: there is no host 9: Nodes 4"));
  EXPECT_THAT(text("1->1 size 1\n"), HasSubstr("m.cm:2: 1->1 to itself"));
  EXPECT_THAT(text("0->1 id 3\n"), HasSubstr("m.cm:2: a connection without a size"));
  EXPECT_THAT(text("0->1 size -3\n"), HasSubstr("got \"-3\""));
  EXPECT_THAT(text("0->1 size 1 speed 3\n"), HasSubstr("\"speed\" is not known here"));
  EXPECT_THAT(text("Connections 3\n0->1 size 1\n"), HasSubstr("3 connections were announced, 1 came"));
  EXPECT_THAT(text("0->1 size 1 trigger 4\n"), HasSubstr("trigger 4 is not defined"));
  EXPECT_THAT(text("hello\n"), HasSubstr("got \"hello\""));
}

}  // namespace
}  // namespace talweg::sim
