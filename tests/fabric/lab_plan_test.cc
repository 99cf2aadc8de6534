#include "fabric/lab_plan.h"

#include <gmock/gmock.h>

#include "cluster/routing.h"
#include "talweg/error.h"

namespace talweg::fabric {
namespace {

using cluster::Cluster;
using cluster::Node;
using cluster::NodeKind;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr Bandwidth kFast{1e9}, kSlow{2e8};

Cluster workers(int n) {
  Cluster cluster;
  for (int i = 0; i < n; ++i) cluster.nodes.push_back({"host" + std::to_string(i), NodeKind::worker});
  return cluster;
}

void link_both(Cluster& cluster, int a, int b, Bandwidth there, Bandwidth back, Nanoseconds latency = {}) {
  cluster.links.push_back({a, b, there, latency});
  cluster.links.push_back({b, a, back, latency});
}

// Three workers in a full mesh; link 2 * (index of pair) goes up.
Cluster mesh() {
  Cluster cluster = workers(3);
  link_both(cluster, 0, 1, kFast, kSlow);
  link_both(cluster, 0, 2, kFast, kFast);
  link_both(cluster, 1, 2, kSlow, kSlow);
  return cluster;
}

std::string refusal(const Cluster& cluster) {
  try {
    plan_lab(cluster, {});
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::unsupported);
    return e.what();
  }
  return "accepted";
}

TEST(LabPlan, GivesEachDirectionOfASwitchLinkItsOwnRate) {
  Cluster cluster = workers(2);
  cluster.nodes.push_back({"sw", NodeKind::switch_});
  link_both(cluster, 0, 2, kFast, kSlow);
  link_both(cluster, 1, 2, kFast, kFast);
  const LabPlan plan = plan_lab(cluster, {});
  EXPECT_THAT(plan.hosts[0].tc,
              Contains(HasSubstr("dev eth0 root handle 1: tbf rate 1000000000bit burst 131072b")));
  EXPECT_THAT(plan.ports_tc, Contains(HasSubstr("dev p0 root handle 1: tbf rate 200000000bit")));
  EXPECT_THAT(plan.ports_tc, Contains(HasSubstr("dev p1 root handle 1: tbf rate 1000000000bit")));
  EXPECT_THAT(plan.warnings, IsEmpty());
}

TEST(LabPlan, JoinsSwitchesThatFormATree) {
  Cluster cluster = workers(2);
  cluster.nodes.push_back({"left", NodeKind::switch_});
  cluster.nodes.push_back({"right", NodeKind::switch_});
  link_both(cluster, 0, 2, kFast, kFast);
  link_both(cluster, 1, 3, kFast, kFast);
  link_both(cluster, 2, 3, kSlow, kFast);
  const LabPlan plan = plan_lab(cluster, {});
  EXPECT_THAT(plan.ports_ip, Contains("link set t4a master br2 up"));
  EXPECT_THAT(plan.ports_ip, Contains("link set t4b master br3 up"));
  EXPECT_THAT(plan.ports_tc, Contains(HasSubstr("dev t4a root handle 1: tbf rate 200000000bit")));
  EXPECT_THAT(plan.ports_tc, Contains(HasSubstr("dev t4b root handle 1: tbf rate 1000000000bit")));
  EXPECT_THAT(plan.hosts[0].ip, Not(Contains(HasSubstr("unreachable"))));
}

// Two leaves of two hosts each under two spines; the second spine is as good as the first.
Cluster leaves_and_spines() {
  Cluster cluster = workers(4);
  for (const char* name : {"leaf0", "leaf1", "spine0", "spine1"})
    cluster.nodes.push_back({name, NodeKind::switch_});
  for (int host = 0; host < 4; ++host) link_both(cluster, host, 4 + host / 2, kFast, kFast);
  for (const int leaf : {4, 5})
    for (const int spine : {6, 7}) link_both(cluster, leaf, spine, kSlow, kFast);
  return cluster;
}

TEST(LabPlan, LeavesOutTheSpinesThatNoRouteTakes) {
  const LabPlan plan = plan_lab(leaves_and_spines(), {});
  // Of what is left leaf0-spine0 is link 8 and leaf1-spine0 10.
  EXPECT_THAT(plan.ports_ip, Contains("link set t8b master br6 up"));
  EXPECT_THAT(plan.ports_ip, Contains("link set t10b master br6 up"));
  EXPECT_THAT(plan.ports_ip, Not(Contains(HasSubstr("master br7 up"))));
  EXPECT_THAT(plan.ports_tc, Contains(HasSubstr("dev t8a root handle 1: tbf rate 200000000bit")));
  EXPECT_THAT(plan.ports_tc, Contains(HasSubstr("dev t8b root handle 1: tbf rate 1000000000bit")));
  EXPECT_EQ(plan.left_out,
            "a lab has one path between two hosts: its ranks plan for what is left without the links "
            "leaf0 - spine1, leaf1 - spine1");
  EXPECT_THAT(plan.warnings, IsEmpty());
}

TEST(LabPlan, SaysWhichNetworkIsLeft) {
  Cluster cluster = leaves_and_spines();  // leaf0-spine1 is link 10, leaf1-spine0 12, leaf1-spine1 14
  cluster.groups = {{"gone", kSlow, {10, 15}}, {"half", kFast, {8, 10, 12}}, {"whole", kFast, {0, 1}}};
  const LabPlan plan = plan_lab(cluster, {});
  EXPECT_EQ(plan.network.nodes, cluster.nodes);
  std::vector<cluster::Link> links = cluster.links;
  links.erase(links.begin() + 14, links.end());
  links.erase(links.begin() + 10, links.begin() + 12);
  EXPECT_EQ(plan.network.links, links);
  EXPECT_EQ(plan.network.groups,
            (std::vector<cluster::CapacityGroup>{{"half", kFast, {8, 10}}, {"whole", kFast, {0, 1}}}));
  const cluster::Routes routes(plan.network);
  for (int from = 0; from < 4; ++from)
    for (int to = 0; to < 4; ++to) EXPECT_FALSE(routes.spreads(from, to)) << from << " to " << to;
  EXPECT_EQ(plan_lab(plan.network, {}).left_out, "") << "nothing more is left out of it";
}

TEST(LabPlan, LeavesNothingOutWhereEachPairHasOnePath) {
  const LabPlan plan = plan_lab(mesh(), {});
  EXPECT_EQ(plan.network, mesh());
  EXPECT_EQ(plan.left_out, "");
}

TEST(LabPlan, EmulatesAGroupOfWhichOneLinkIsLeft) {
  Cluster cluster = leaves_and_spines();
  cluster.groups.push_back({"uplinks", Bandwidth{1e8}, {8, 10}});
  const LabPlan plan = plan_lab(cluster, {});
  EXPECT_THAT(plan.ports_tc, Contains(HasSubstr("dev t8a root handle 1: tbf rate 100000000bit")));
  EXPECT_THAT(plan.warnings, IsEmpty());
}

TEST(LabPlan, NamesSomeOfManyLinksThatAreLeftOut) {
  Cluster cluster = workers(2);
  for (const char* name : {"leaf0", "leaf1"}) cluster.nodes.push_back({name, NodeKind::switch_});
  for (int host = 0; host < 2; ++host) link_both(cluster, host, 2 + host, kFast, kFast);
  for (int spine = 0; spine < 8; ++spine) {
    cluster.nodes.push_back({"spine" + std::to_string(spine), NodeKind::switch_});
    for (const int leaf : {2, 3}) link_both(cluster, leaf, 4 + spine, kFast, kFast);
  }
  EXPECT_THAT(plan_lab(cluster, {}).left_out,
              testing::EndsWith("the links leaf0 - spine1, leaf1 - spine1, leaf0 - spine2, leaf1 - spine2, "
                                "leaf0 - spine3, leaf1 - spine3, leaf0 - spine4, leaf1 - spine4 and 6 more"));
}

TEST(LabPlan, ShapesDirectLinksByDestination) {
  const LabPlan plan = plan_lab(mesh(), {});
  EXPECT_THAT(plan.hosts[1].tc, Contains(HasSubstr("classid 1:1 htb rate 200000000bit ceil 200000000bit")));
  EXPECT_THAT(plan.hosts[0].tc, Contains(HasSubstr("u32 match ip dst 10.77.0.2/32 flowid 1:2")));
  EXPECT_THAT(plan.hosts[0].tc, Contains(HasSubstr("classid 1:2 htb rate 1000000000bit")));
  EXPECT_THAT(plan.ports_tc, IsEmpty());
}

TEST(LabPlan, SendsPairsWithoutALinkThroughOthersAndSaysSo) {
  Cluster cluster = workers(3);
  link_both(cluster, 0, 1, kFast, kFast);
  link_both(cluster, 1, 2, kSlow, kSlow);
  const LabPlan plan = plan_lab(cluster, {});
  EXPECT_THAT(plan.hosts[0].ip, Contains(HasSubstr("route add 10.77.0.3/32 via 10.77.0.2 dev eth0")));
  EXPECT_THAT(plan.hosts[0].tc, Contains(HasSubstr("dst 10.77.0.3/32 flowid 1:2")));
  EXPECT_TRUE(plan.hosts[1].forwards);
  EXPECT_FALSE(plan.hosts[0].forwards);
  EXPECT_THAT(plan.warnings, Contains(HasSubstr("2 pairs of hosts have no link of their own")));
}

TEST(LabPlan, RefusesPacketsWhereThereIsNoPath) {
  Cluster cluster = workers(3);
  link_both(cluster, 0, 1, kFast, kFast);
  const LabPlan plan = plan_lab(cluster, {});
  EXPECT_THAT(plan.hosts[0].ip, Contains("route add unreachable 10.77.0.3/32"));
  EXPECT_THAT(plan.warnings, Contains(HasSubstr("4 pairs of hosts have no path")));
}

TEST(LabPlan, NarrowsALinkByAGroupOfItsOwn) {
  Cluster cluster = mesh();
  cluster.groups.push_back({"cap", kSlow, {0}});
  const LabPlan plan = plan_lab(cluster, {});
  EXPECT_THAT(plan.hosts[0].tc, Contains(HasSubstr("classid 1:2 htb rate 200000000bit")));
  EXPECT_THAT(plan.warnings, IsEmpty());
}

TEST(LabPlan, LetsASendersLinksShareATotal) {
  Cluster cluster = mesh();
  cluster.groups.push_back({"nic0", kFast, {0, 2}});
  const LabPlan plan = plan_lab(cluster, {});
  EXPECT_THAT(plan.hosts[0].tc,
              Contains(HasSubstr("classid 1:8000 htb rate 1000000000bit ceil 1000000000bit")));
  EXPECT_THAT(plan.hosts[0].tc,
              Contains(HasSubstr("parent 1:8000 classid 1:2 htb rate 500000000bit ceil 1000000000bit")));
  EXPECT_THAT(plan.warnings, IsEmpty());
}

TEST(LabPlan, LimitsAReceiverAtItsPort) {
  Cluster cluster = mesh();
  cluster.groups.push_back({"nic2", kSlow, {2, 4}});
  const LabPlan plan = plan_lab(cluster, {});
  EXPECT_THAT(plan.ports_tc, Contains(HasSubstr("dev p2 root handle 1: tbf rate 200000000bit")));
  EXPECT_THAT(plan.warnings, IsEmpty());
}

TEST(LabPlan, NamesAGroupThatItCannotEmulate) {
  Cluster cluster = mesh();
  cluster.groups.push_back({"backplane", kSlow, {0, 4}});
  EXPECT_THAT(plan_lab(cluster, {}).warnings,
              Contains(HasSubstr("capacity group backplane is not emulated")));
}

TEST(LabPlan, SaysNothingOfAGroupThatLimitsNothing) {
  Cluster cluster = mesh();
  cluster.groups.push_back({"wide", Bandwidth{1e12}, {0, 4}});
  EXPECT_THAT(plan_lab(cluster, {}).warnings, IsEmpty());
}

TEST(LabPlan, SaysThatLatenciesAreNotEmulatedWhereTheKernelCannot) {
  const Cluster cluster = cluster::uniform_star(2, kFast, Nanoseconds{30'000});
  EXPECT_THAT(plan_lab(cluster, {}).warnings,
              Contains(HasSubstr("latencies (up to 30 us) are not emulated")));
}

TEST(LabPlan, DelaysWhereTheKernelCan) {
  LabMeans means;
  means.delay = true;
  const LabPlan plan = plan_lab(cluster::uniform_star(2, kFast, Nanoseconds{30'000}), means);
  EXPECT_THAT(plan.hosts[0].tc, Contains(HasSubstr("parent 1:1 netem delay 30000ns")));
  EXPECT_THAT(plan.warnings, IsEmpty());
}

TEST(LabPlan, MakesASwitchThatAggregatesAHostOnItsOwnBridge) {
  Cluster cluster = cluster::uniform_star(2, kFast, {});
  cluster.nodes[2].can_aggregate = true;
  const LabPlan plan = plan_lab(cluster, {});
  ASSERT_EQ(plan.hosts.size(), 3u);
  EXPECT_EQ(plan.hosts[2].name, "switch");
  EXPECT_FALSE(plan.hosts[2].worker);
  EXPECT_THAT(plan.ports_ip, Contains("link set p2 master br2 up"));
  EXPECT_THAT(plan.hosts[2].tc, IsEmpty());  // inside the switch there is no link
  EXPECT_THAT(plan.hosts[2].ip, Not(Contains(HasSubstr("via"))));
  EXPECT_THAT(plan.hosts[0].ip, Not(Contains(HasSubstr("unreachable"))));
}

// Where all that has to copy can, as the cluster says: each bridge floods.
TEST(LabPlan, NamesAGroupForASwitchThatReachesItsWorkersAtOnce) {
  Cluster cluster = cluster::uniform_star(3, kFast, {});
  Node box;
  box.name = "box";
  box.kind = NodeKind::switch_;
  box.switch_at = "10.0.0.9:4711";
  box.can_multicast = true;
  cluster.nodes.push_back(box);
  link_both(cluster, 3, 4, kFast, kFast);
  const auto group = [&] { return plan_lab(cluster, {}).hosts.at(3).group; };
  EXPECT_EQ(group(), "") << "the network's switch does not copy";
  cluster.nodes[3].can_multicast = true;
  EXPECT_EQ(group(), "239.77.4.0");
  cluster.nodes[4].can_multicast = false;
  EXPECT_EQ(group(), "");
  cluster.nodes[4].can_multicast = true;
  cluster.nodes[4].switch_at.clear();
  cluster.nodes[4].can_aggregate = true;
  EXPECT_EQ(group(), "") << "no switch sums there";
}

// Hosts with nothing but a port of the aggregator each: it carries what they send each other.
TEST(LabPlan, GivesAnAggregatorAPortForEachHost) {
  Cluster cluster = workers(2);
  cluster.nodes.push_back({"agg", NodeKind::aggregator});
  link_both(cluster, 0, 2, kFast, kFast);
  link_both(cluster, 1, 2, kFast, kSlow);
  const LabPlan plan = plan_lab(cluster, {});
  EXPECT_TRUE(plan.hosts[2].forwards);
  EXPECT_THAT(plan.hosts[0].ip, Contains(HasSubstr("10.77.0.2/32 via 10.77.0.3")));
  EXPECT_THAT(plan.hosts[2].tc, Contains(HasSubstr("200000000bit")));
}

TEST(LabPlan, ChoosesTheCongestionControlByRoute) {
  LabMeans means;
  means.congestion_control = "cubic";
  const LabPlan plan = plan_lab(cluster::uniform_star(2, kFast, {}), means);
  EXPECT_THAT(plan.hosts[0].ip, Contains("route add 10.77.0.0/24 dev eth0 src 10.77.0.1 congctl cubic"));
}

TEST(LabPlan, RefusesAClusterWithoutWorkers) {
  Cluster cluster;
  cluster.nodes.push_back({"sw", NodeKind::switch_});
  EXPECT_EQ(refusal(cluster), "cannot emulate the cluster: it has no workers");
}

TEST(LabPlan, RefusesASwitchLinkWithOneDirection) {
  Cluster cluster = workers(1);
  cluster.nodes.push_back({"sw", NodeKind::switch_});
  cluster.links.push_back({0, 1, kFast, {}});
  EXPECT_THAT(refusal(cluster), HasSubstr("link host0->sw has no counterpart sw->host0"));
}

TEST(LabPlan, RefusesALoopOfSwitches) {
  Cluster cluster = workers(3);  // one on each switch: routes use every link between them
  for (const char* name : {"a", "b", "c"}) cluster.nodes.push_back({name, NodeKind::switch_});
  for (int host = 0; host < 3; ++host) link_both(cluster, host, 3 + host, kFast, kFast);
  link_both(cluster, 3, 4, kFast, kFast);
  link_both(cluster, 4, 5, kFast, kFast);
  link_both(cluster, 3, 5, kFast, kFast);
  EXPECT_THAT(refusal(cluster), HasSubstr("the switches form a loop at link a->c"));
}

TEST(LabPlan, RefusesAHostOnTwoSwitches) {
  Cluster cluster = workers(1);
  for (const char* name : {"a", "b"}) cluster.nodes.push_back({name, NodeKind::switch_});
  link_both(cluster, 0, 1, kFast, kFast);
  link_both(cluster, 0, 2, kFast, kFast);
  EXPECT_THAT(refusal(cluster), HasSubstr("host0 has links to a and b"));
}

TEST(LabPlan, RefusesSeveralLinksFromOneNodeToAnother) {
  Cluster cluster = workers(2);
  link_both(cluster, 0, 1, kFast, kFast);
  cluster.links.push_back({0, 1, kSlow, {}});
  EXPECT_THAT(refusal(cluster), HasSubstr("several links host0->host1"));
}

TEST(LabPlan, RefusesMoreHostsThanASubnetHas) {
  EXPECT_THAT(refusal(cluster::uniform_star(kMaxLabHosts + 1, kFast, {})), HasSubstr("more than 250 hosts"));
}

}  // namespace
}  // namespace talweg::fabric
