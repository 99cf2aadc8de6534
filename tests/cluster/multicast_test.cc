// By which links one datagram comes to all, and where there are none.
#include "cluster/multicast.h"

#include <gmock/gmock.h>

#include <array>
#include <string>

namespace talweg::cluster {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Workers, and switches behind them; links both ways.
struct Net {
  explicit Net(int workers) {
    for (int w = 0; w < workers; ++w) cluster.nodes.push_back({"h" + std::to_string(w)});
  }
  int add_switch(bool can_multicast) {
    Node node{"s" + std::to_string(cluster.nodes.size()), NodeKind::switch_};
    node.can_multicast = can_multicast;
    cluster.nodes.push_back(node);
    return static_cast<int>(cluster.nodes.size()) - 1;
  }
  void link(int a, int b, std::int64_t latency_ns = 1000) {
    cluster.links.push_back({a, b, Bandwidth{1e9}, Nanoseconds{latency_ns}});
    cluster.links.push_back({b, a, Bandwidth{1e9}, Nanoseconds{latency_ns}});
  }
  // As "from>to", in their order.
  std::vector<std::string> tree(int from, std::span<const int> to) const {
    std::vector<std::string> links;
    for (const int l : multicast_tree(cluster, Routes(cluster), from, to)) {
      const Link& link = cluster.links[static_cast<std::size_t>(l)];
      links.push_back(cluster.nodes[static_cast<std::size_t>(link.from)].name + ">" +
                      cluster.nodes[static_cast<std::size_t>(link.to)].name);
    }
    return links;
  }
  Cluster cluster;
};

constexpr std::array kThree{0, 1, 2};

TEST(MulticastTree, PassesEachLinkOnceAndIsCopiedWhereWaysPart) {
  for (const bool can : {true, false}) {
    Net net(3);
    const int middle = net.add_switch(can), box = net.add_switch(true);
    for (const int w : kThree) net.link(w, middle);
    net.link(middle, box);
    if (can)
      EXPECT_THAT(net.tree(box, kThree), ElementsAre("s4>s3", "s3>h0", "s3>h1", "s3>h2"));
    else
      EXPECT_THAT(net.tree(box, kThree), IsEmpty());
    EXPECT_THAT(net.tree(box, std::span(kThree).first(1)), ElementsAre("s4>s3", "s3>h0")) << "no copies";
  }
}

TEST(MulticastTree, NeedsNoOtherSwitchWhereEachHasAPort) {
  Net net(3);
  const int box = net.add_switch(false);  // who sends copies anyway
  for (const int w : kThree) net.link(w, box);
  EXPECT_THAT(net.tree(box, kThree), ElementsAre("s3>h0", "s3>h1", "s3>h2"));
}

// Two spines and two leaves: whichever is taken, each node is reached once.
TEST(MulticastTree, IsATreeWherePathsAreEquallyGood) {
  Net net(4);
  const int leaf0 = net.add_switch(true), leaf1 = net.add_switch(true);
  const int spine0 = net.add_switch(true), spine1 = net.add_switch(true), box = net.add_switch(true);
  for (const int w : {0, 1}) net.link(w, leaf0);
  for (const int w : {2, 3}) net.link(w, leaf1);
  for (const int leaf : {leaf0, leaf1})
    for (const int spine : {spine0, spine1}) net.link(leaf, spine);
  net.link(box, leaf0);
  const std::array all{0, 1, 2, 3};
  EXPECT_THAT(net.tree(box, all), SizeIs(7)) << "to leaf 0, two workers, a spine, leaf 1 and two workers";
}

TEST(MulticastTree, IsNotThereThroughAWorkerNorWithoutAWay) {
  Net line(3);
  const int box = line.add_switch(true);
  line.link(0, box);
  line.link(0, 1);
  line.link(1, 2);
  EXPECT_THAT(line.tree(box, kThree), IsEmpty());
  Net apart(3);
  const int alone = apart.add_switch(true);
  apart.link(0, alone);
  EXPECT_THAT(apart.tree(alone, kThree), IsEmpty());
}

}  // namespace
}  // namespace talweg::cluster
