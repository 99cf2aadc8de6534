#include "cluster/cluster.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "cluster/racks.h"
#include "talweg/error.h"

namespace talweg::cluster {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Cluster star() {
  return uniform_star(3, parse_bandwidth("1Gbit/s"), parse_nanoseconds("30us"));
}

// What is said about a star of three after `spoil`.
std::string problem_of(const std::function<void(Cluster&)>& spoil) {
  Cluster cluster = star();
  spoil(cluster);
  const auto problem = find_problem(cluster);
  return problem ? problem->text : "nothing wrong";
}

TEST(Cluster, AUniformStarHasEveryHostOnOneSwitch) {
  const Cluster cluster = star();
  EXPECT_EQ(cluster.workers(), 3);
  EXPECT_EQ(cluster.nodes.size(), 4u);
  EXPECT_EQ(cluster.links.size(), 6u);
  EXPECT_FALSE(find_problem(cluster));
}

TEST(Cluster, AUniformMeshHasALinkEachWayForEveryPair) {
  const Cluster cluster = uniform_mesh(4, parse_bandwidth("10GB/s"), parse_nanoseconds("500ns"));
  EXPECT_EQ(cluster.workers(), 4);
  EXPECT_EQ(cluster.links.size(), 12u);
  EXPECT_FALSE(find_problem(cluster));
}

TEST(Cluster, ALoneWorkerIsACluster) {
  EXPECT_FALSE(find_problem(uniform_mesh(1, {1e9}, {0})));
  EXPECT_FALSE(find_problem(uniform_star(1, {1e9}, {0})));
}

TEST(Cluster, SwitchesCanOnlyDoWhatIsWrittenAndOthersEverything) {
  EXPECT_FALSE(can_multicast({.name = "s", .kind = NodeKind::switch_}));
  EXPECT_FALSE(can_aggregate({.name = "s", .kind = NodeKind::switch_, .can_multicast = true}));
  EXPECT_TRUE(can_multicast({.name = "s", .kind = NodeKind::switch_, .can_multicast = true}));
  EXPECT_TRUE(can_aggregate({.name = "a", .kind = NodeKind::aggregator}));
  EXPECT_TRUE(can_multicast({.name = "w"}));
}

TEST(Cluster, ItsAggregatorsAreInnerNodesThatSumAndThatWorkersReach) {
  Cluster cluster = uniform_star(2, {1e9}, {0});
  const auto add = [&](Node node, bool there, bool back) {
    const int added = static_cast<int>(cluster.nodes.size());
    cluster.nodes.push_back(std::move(node));
    if (there) cluster.links.push_back({2, added, {1e9}, {0}});
    if (back) cluster.links.push_back({added, 2, {1e9}, {0}});
  };
  add({.name = "both", .kind = NodeKind::aggregator}, true, true);
  add({.name = "in", .kind = NodeKind::aggregator}, true, false);
  add({.name = "out", .kind = NodeKind::aggregator}, false, true);
  add({.name = "asic", .kind = NodeKind::switch_, .can_aggregate = true}, true, true);
  EXPECT_THAT(aggregators(cluster), ElementsAre(3, 6));
  EXPECT_THAT(aggregators(uniform_star(2, {1e9}, {0})), ElementsAre());

  // What sums there is no aggregator that trees could lead through.
  add({.name = "box", .kind = NodeKind::switch_, .switch_at = "10.0.0.9:4711"}, true, true);
  EXPECT_THAT(nodes_that_sum(cluster), ElementsAre(3, 6, 7));
  EXPECT_THAT(aggregators(cluster), ElementsAre(3, 6));
  EXPECT_TRUE(can_multicast(cluster.nodes[7]));

  const Cluster left = without(cluster, std::vector<int>{3});
  EXPECT_THAT(aggregators(left), ElementsAre(6));
  EXPECT_EQ(left.nodes[3], (Node{.name = "both", .kind = NodeKind::switch_}));
  EXPECT_EQ(left.links, cluster.links);  // whoever is not summing may still forward
}

TEST(Cluster, WorkersAreInTheRackWhoseSwitchIsNearest) {
  const Cluster cluster = load_cluster(TALWEG_SOURCE_DIR "/examples/clusters/racks2x2.yaml");
  EXPECT_THAT(racks_of(cluster), ElementsAre(4, 4, 5, 5));
  EXPECT_EQ(racks_of(parse_cluster(to_yaml(cluster), "again")), racks_of(cluster));
  EXPECT_THAT(racks_of(uniform_star(2, {1e9}, {0})), ElementsAre());
}

TEST(Cluster, SaysWhatIsWrongWithNodes) {
  const auto racks = [](const char* of_first, const char* of_second, const char* second_switch) {
    return problem_of([&](Cluster& c) {
      c.nodes.push_back({.name = "top", .kind = NodeKind::switch_, .switch_at = "top:1"});
      c.nodes.push_back({.name = "r0", .kind = NodeKind::switch_, .switch_at = "r0:1", .above = of_first});
      c.nodes.push_back(
          {.name = "r1", .kind = NodeKind::switch_, .switch_at = second_switch, .above = of_second});
    });
  };
  EXPECT_EQ(racks("top", "top", ""),
            "above of node r1: it is for nodes that are no workers and have a switch");
  EXPECT_EQ(
      racks("r1", "top", "r1:1"),
      "above of node r0: expected a node that is no worker and has a switch with none above it, got \"r1\"");
  EXPECT_EQ(racks("top", "", "r1:1"),
            "the switch of node r1 is not below top as that of r0 is: expected all of them to be");
  EXPECT_EQ(problem_of([](Cluster& c) { c.nodes[1].switch_at = "10.0.0.9"; }),
            "switch of node host1: expected an address and a port, such as 10.0.0.9:4711, got \"10.0.0.9\"");
  EXPECT_THAT(problem_of([](Cluster& c) { c.nodes[1].name = "host0"; }), HasSubstr("\"host0\" is taken"));
  EXPECT_THAT(problem_of([](Cluster& c) { c.nodes[1].name = ""; }), HasSubstr("expected a word"));
  EXPECT_THAT(problem_of([](Cluster& c) { c.nodes[1].name = "a->b"; }), HasSubstr("without \"->\""));
  EXPECT_THAT(problem_of([](Cluster& c) { std::swap(c.nodes[0], c.nodes[3]); }), HasSubstr("workers first"));
  EXPECT_THAT(problem_of([](Cluster& c) { c = {}; }), HasSubstr("at least one node of kind worker"));
}

TEST(Cluster, SaysWhatIsWrongWithLinks) {
  EXPECT_THAT(problem_of([](Cluster& c) { c.links[0].to = 4; }), HasSubstr("expected nodes 0 to 3"));
  EXPECT_THAT(problem_of([](Cluster& c) { c.links[0].from = -1; }), HasSubstr("expected nodes 0 to 3"));
  EXPECT_THAT(problem_of([](Cluster& c) { c.links[0].to = 0; }), HasSubstr("from a node to itself"));
  EXPECT_THAT(problem_of([](Cluster& c) { c.links.push_back(c.links[0]); }), HasSubstr("written twice"));
  EXPECT_THAT(problem_of([](Cluster& c) { c.links[0].capacity = {0}; }), HasSubstr("capacity above zero"));
  EXPECT_THAT(problem_of([](Cluster& c) { c.links[0].capacity = {-1}; }), HasSubstr("capacity above zero"));
  EXPECT_THAT(problem_of([](Cluster& c) { c.links[0].capacity = {0.5}; }),
              HasSubstr("1 bit/s to 1000 Tbit/s"));
  EXPECT_THAT(problem_of([](Cluster& c) { c.links[0].capacity = {2e15}; }),
              HasSubstr("1 bit/s to 1000 Tbit/s"));
  EXPECT_THAT(problem_of([](Cluster& c) { c.links[0].latency = {3'600'000'000'001}; }), HasSubstr("an hour"));
  EXPECT_THAT(problem_of([](Cluster& c) { c.links[0].capacity = {std::numeric_limits<double>::infinity()}; }),
              HasSubstr("capacity above zero"));
  EXPECT_THAT(problem_of([](Cluster& c) { c.links[0].latency = {-1}; }), HasSubstr("zero or more"));
}

TEST(Cluster, SaysWhatIsWrongWithGroups) {
  const CapacityGroup good{"nic", {1e9}, {0, 1}};
  const auto with = [&](const std::function<void(CapacityGroup&)>& spoil) {
    return problem_of([&](Cluster& c) {
      c.groups.push_back(good);
      spoil(c.groups[0]);
    });
  };
  EXPECT_EQ(with([](CapacityGroup&) {}), "nothing wrong");
  EXPECT_THAT(with([](CapacityGroup& g) { g.name = ""; }), HasSubstr("expected a name"));
  EXPECT_THAT(with([](CapacityGroup& g) { g.capacity = {0}; }), HasSubstr("capacity above zero"));
  EXPECT_THAT(with([](CapacityGroup& g) { g.links = {}; }), HasSubstr("at least one link"));
  EXPECT_THAT(with([](CapacityGroup& g) { g.links = {6}; }), HasSubstr("expected 0 to 5"));
  EXPECT_THAT(with([](CapacityGroup& g) { g.links = {1, 1}; }), HasSubstr("listed twice"));
  EXPECT_THAT(problem_of([&](Cluster& c) { c.groups = {good, good}; }), HasSubstr("is taken"));
}

TEST(Cluster, NamesTheWorkerThatCannotReachTheOthers) {
  // host2 can send (link 4) but not receive (link 5), then the other way round.
  EXPECT_EQ(problem_of([](Cluster& c) { c.links.erase(c.links.begin() + 5); }),
            "worker host2 cannot be reached from host0, host1, and every collective needs it: expected a "
            "path of links");
  EXPECT_EQ(problem_of([](Cluster& c) { c.links.erase(c.links.begin() + 4); }),
            "worker host2 cannot reach host0, host1, and every collective needs it: expected a path of "
            "links");
}

TEST(Cluster, TheFewThatAreCutOffAreTheCauseAlsoWhereTheFirstIsOneOfThem) {
  const auto without_links_of = [](const std::vector<int>& hosts) {
    return problem_of([&](Cluster& c) {
      c = uniform_star(6, {1e9}, {1000});
      std::erase_if(c.links, [&](const Link& link) {
        return std::ranges::count(hosts, link.from) + std::ranges::count(hosts, link.to) > 0;
      });
    });
  };
  EXPECT_EQ(without_links_of({0}),
            "worker host0 is cut off from host1, host2, host3 and 2 more, and every collective needs it: "
            "expected a path of links");
  EXPECT_EQ(without_links_of({3, 4}),
            "workers host3, host4 are cut off from host0, host1, host2 and 1 more, and every collective "
            "needs them: expected a path of links");
}

TEST(Cluster, ValidateThrowsTheProblem) {
  Cluster cluster = star();
  EXPECT_NO_THROW(validate(cluster));
  cluster.links[0].capacity = {0};
  try {
    validate(cluster);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_STREQ(error.what(), "cluster: link host0->switch: expected a capacity above zero");
  }
}

}  // namespace
}  // namespace talweg::cluster
