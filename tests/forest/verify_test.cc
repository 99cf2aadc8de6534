#include "forest/verify.h"

#include <gmock/gmock.h>

#include <functional>
#include <utility>
#include <vector>

#include "forest/requests.h"
#include "talweg/error.h"

namespace talweg::forest {
namespace {

using testing::HasSubstr;

// all_reduce of 8 elements over a star of three ranks, by hand.
Forest by_hand() {
  const Tree tree{.slice = {0, 8},
                  .root = 1,
                  .contributors = {0, 1, 2},
                  .receivers = {0, 1, 2},
                  .up = {{0, 1}, {2, 1}},
                  .down = {{0, 1}, {2, 1}},
                  .chunk = 8};
  return {
      .planner = "hand", .request = make_request(Collective::all_reduce, 3, 8), .nodes = 3, .trees = {tree}};
}

std::string refusal(const Forest& forest, const cluster::Cluster* cluster = nullptr) {
  try {
    verify(forest, cluster);
  } catch (const Error& error) {
    return error.code() == ErrorCode::invalid_argument ? error.what() : "wrong code";
  }
  return "accepted";
}

std::string refusal_of(const std::function<void(Forest&)>& spoil) {
  Forest forest = by_hand();
  spoil(forest);
  return refusal(forest);
}

std::string refusal_of_tree(const std::function<void(Tree&)>& spoil) {
  return refusal_of([&](Forest& forest) { spoil(forest.trees[0]); });
}

TEST(Verify, AcceptsAForestMadeByHand) {
  EXPECT_EQ(refusal(by_hand()), "accepted");
}

TEST(Verify, SaysWhichTreeIsWrongAndHow) {
  EXPECT_EQ(refusal_of_tree([](Tree& t) { t.up.pop_back(); }),
            "hand forest for all_reduce: tree 0 (slice 0+8, root 1): contributor 2 is not on the up edges");
}

TEST(Verify, RefusesBrokenEdges) {
  EXPECT_THAT(refusal_of_tree([](Tree& t) { t.down.pop_back(); }),
              HasSubstr("receiver 2 is not on the down edges"));
  EXPECT_THAT(refusal_of_tree([](Tree& t) { t.up.push_back({0, 2}); }), HasSubstr("node 0 has two parents"));
  EXPECT_THAT(refusal_of_tree([](Tree& t) { t.up[0] = {1, 0}; }), HasSubstr("the root has a parent"));
  EXPECT_THAT(refusal_of_tree([](Tree& t) {
                t.up = {{0, 2}, {2, 0}};
              }),
              HasSubstr("do not hang on the root"));
  EXPECT_THAT(refusal_of_tree([](Tree& t) { t.up[0] = {0, 0}; }), HasSubstr("do not hang on the root"));
  EXPECT_THAT(refusal_of_tree([](Tree& t) { t.up[0] = {0, 3}; }), HasSubstr("expected nodes below 3"));
  EXPECT_THAT(refusal_of_tree([](Tree& t) { t.up[0] = {0, -1}; }), HasSubstr("expected nodes below 3"));
  EXPECT_THAT(refusal_of([](Forest& f) {
                f.nodes = 4;
                f.trees[0].up.push_back({3, 1});
              }),
              HasSubstr("node 3 is a leaf but no contributor"));
  EXPECT_THAT(refusal_of([](Forest& f) {
                f.nodes = 4;
                f.trees[0].down.push_back({3, 1});
              }),
              HasSubstr("node 3 is a leaf but no receiver"));
}

TEST(Verify, RefusesWrongRanks) {
  EXPECT_THAT(refusal_of_tree([](Tree& t) {
                t.contributors = {0, 1, 1, 2};
              }),
              HasSubstr("sorted, each once"));
  EXPECT_THAT(refusal_of_tree([](Tree& t) { t.receivers = {2, 1, 0}; }), HasSubstr("sorted, each once"));
  EXPECT_THAT(refusal_of_tree([](Tree& t) { t.receivers = {}; }), HasSubstr("sorted, each once"));
  EXPECT_THAT(refusal_of_tree([](Tree& t) { t.receivers = {-1, 0, 1}; }), HasSubstr("sorted, each once"));
  EXPECT_THAT(refusal_of_tree([](Tree& t) {
                t.contributors = {0, 1};
                t.up = {{0, 1}};
              }),
              HasSubstr("expected all 3 ranks"));
  EXPECT_THAT(refusal_of_tree([](Tree& t) { t.root = 3; }), HasSubstr("expected a node below 3"));
  EXPECT_THAT(refusal_of_tree([](Tree& t) { t.root = -1; }), HasSubstr("expected a node below 3"));
  EXPECT_THAT(refusal_of([](Forest& f) { f.nodes = 2; }),
              HasSubstr("2 nodes: expected at least the 3 ranks"));
  EXPECT_THAT(refusal_of([](Forest& f) {  // a node that is no rank
                f.nodes = 4;
                f.trees[0].receivers = {0, 1, 2, 3};
                f.trees[0].down.push_back({3, 1});
              }),
              HasSubstr("sorted, each once"));
}

TEST(Verify, DataThatAreNotSummedComeFromOneRank) {
  Forest broadcast = find_planner("star").plan(make_request(Collective::broadcast, 3, 8), gigabit_star(3));
  broadcast.trees[0].contributors = {0, 1};
  broadcast.trees[0].up = {{1, 0}};
  EXPECT_THAT(refusal(broadcast), HasSubstr("contributors [0, 1]: expected one rank"));
}

TEST(Verify, RefusesSlicesThatDoNotCoverTheOutputExactlyOnce) {
  EXPECT_THAT(refusal_of_tree([](Tree& t) {
                t.slice = {0, 7};
              }),
              HasSubstr("rank 0 is never sent elements 7 to 7"));
  EXPECT_THAT(refusal_of_tree([](Tree& t) {
                t.slice = {1, 7};
              }),
              HasSubstr("rank 0 is never sent elements 0 to 0"));
  EXPECT_THAT(refusal_of_tree([](Tree& t) {
                t.slice = {0, 9};
              }),
              HasSubstr("leaves the vector of 8 elements"));
  EXPECT_THAT(refusal_of_tree([](Tree& t) { t.slice = {-1, 8}; }), HasSubstr("leaves the vector"));
  EXPECT_THAT(refusal_of_tree([](Tree& t) { t.slice = {8, INT64_MAX}; }), HasSubstr("leaves the vector"));
  EXPECT_THAT(refusal_of([](Forest& f) {
                f.trees.push_back(f.trees[0]);
                f.trees[1].slice = {4, -1};
              }),
              HasSubstr("leaves the vector"));
  EXPECT_THAT(refusal_of([](Forest& f) { f.trees.clear(); }), HasSubstr("never sent elements 0 to 7"));
  EXPECT_THAT(refusal_of([](Forest& f) { f.trees.push_back(f.trees[0]); }),
              HasSubstr("rank 0 is sent element 0 of its output by trees 0 and 1"));
}

TEST(Verify, RefusesChunksOfNothing) {
  EXPECT_THAT(refusal_of_tree([](Tree& t) { t.chunk = 0; }), HasSubstr("chunk 0"));
}

TEST(Verify, RefusesDataThatIsNotTheContributorsOrNotTheReceivers) {
  const auto cluster = gigabit_star(3);
  Forest gathered = find_planner("direct").plan(make_request(Collective::all_gather, 3, 4), cluster);
  std::swap(gathered.trees[0].slice, gathered.trees[1].slice);
  EXPECT_THAT(refusal(gathered), HasSubstr("contributor 0 does not have this slice"));
  Forest scattered = find_planner("direct").plan(make_request(Collective::reduce_scatter, 3, 4), cluster);
  std::swap(scattered.trees[0].slice, scattered.trees[1].slice);
  EXPECT_THAT(refusal(scattered), HasSubstr("receiver 0 has no place for this slice"));
}

TEST(Verify, ABarrierMustReachEveryoneByOneTree) {
  Forest barrier = find_planner("one_hop").plan(make_request(Collective::barrier, 3, 0), gigabit_star(3));
  EXPECT_EQ(refusal(barrier), "accepted");
  barrier.trees.push_back(barrier.trees.back());
  EXPECT_THAT(refusal(barrier), HasSubstr("rank 2 is reached by 2 trees"));
  barrier.trees.pop_back();
  barrier.trees.pop_back();
  EXPECT_THAT(refusal(barrier), HasSubstr("rank 2 is reached by 0 trees"));
  barrier.trees.clear();
  EXPECT_THAT(refusal(barrier), HasSubstr("rank 0 is reached by 0 trees"));
}

TEST(Verify, TheRootOfABroadcastMayReceiveToo) {
  Forest broadcast = find_planner("star").plan(make_request(Collective::broadcast, 3, 8), gigabit_star(3));
  EXPECT_EQ(refusal(broadcast), "accepted");
  broadcast.trees[0].receivers = {0, 1, 2};
  EXPECT_EQ(refusal(broadcast), "accepted");
  broadcast.trees[0].receivers = {0, 2};
  EXPECT_NE(refusal(broadcast), "accepted");
}

// The sum is made at the switch of a star: node 3.
Forest at_the_switch() {
  Forest forest = by_hand();
  forest.nodes = 4;
  forest.trees[0].root = 3;
  forest.trees[0].up = forest.trees[0].down = {{0, 3}, {1, 3}, {2, 3}};
  return forest;
}

TEST(Verify, ASwitchMayOnlyDoWhatItCan) {
  cluster::Cluster cluster = gigabit_star(3);
  EXPECT_THAT(refusal(at_the_switch(), &cluster),
              HasSubstr("switch would sum 3 inputs, but cannot aggregate"));
  cluster.nodes[3].can_aggregate = true;
  EXPECT_THAT(refusal(at_the_switch(), &cluster),
              HasSubstr("switch would make 3 copies, but cannot multicast"));
  cluster.nodes[3].can_multicast = true;
  EXPECT_EQ(refusal(at_the_switch(), &cluster), "accepted");
  cluster.nodes[3] = {.name = "sums", .kind = cluster::NodeKind::aggregator};
  EXPECT_EQ(refusal(at_the_switch(), &cluster), "accepted");
}

TEST(Verify, ASwitchThatCanDoNothingMayPassOn) {
  const cluster::Cluster cluster = gigabit_star(3);
  Forest forest = by_hand();
  forest.nodes = 4;
  forest.trees[0].up = {{0, 3}, {3, 1}, {2, 1}};
  forest.trees[0].down = {{0, 1}, {3, 1}, {2, 3}};
  EXPECT_EQ(refusal(forest, &cluster), "accepted");
}

TEST(Verify, ASumInTheNetworkLoadsEveryHostLinkOnce) {
  cluster::Cluster cluster = gigabit_star(3);
  cluster.nodes[3].can_aggregate = cluster.nodes[3].can_multicast = true;
  for (const Bytes bytes : verify(at_the_switch(), &cluster).link_bytes) EXPECT_EQ(bytes, Bytes{32});
}

TEST(Verify, RefusesAClusterOfAnotherShape) {
  const cluster::Cluster four = gigabit_star(4);
  EXPECT_THAT(refusal(by_hand(), &four), HasSubstr("do not fit a cluster of 4 workers"));
  const cluster::Cluster mesh = cluster::uniform_mesh(3, {1e9}, {0});
  EXPECT_THAT(refusal(at_the_switch(), &mesh), HasSubstr("do not fit a cluster"));
}

TEST(Verify, RefusesEdgesWithoutARoute) {
  cluster::Cluster cluster = gigabit_star(3);
  // An aggregator that can be reached, but cannot answer.
  cluster.nodes.push_back({.name = "agg", .kind = cluster::NodeKind::aggregator});
  cluster.links.push_back({3, 4, {1e9}, {0}});
  Forest forest = by_hand();
  forest.nodes = 5;
  forest.trees[0].root = 4;
  forest.trees[0].up = forest.trees[0].down = {{0, 4}, {1, 4}, {2, 4}};
  EXPECT_THAT(refusal(forest, &cluster), HasSubstr("no route leads from agg to host0"));
}

TEST(Verify, ARingPutsTheSameLeastLoadOnEveryLink) {
  for (const int ranks : {2, 4, 8}) {
    const auto cluster = gigabit_star(ranks);
    const std::int64_t count = 1 << 20;
    const Request request = make_request(Collective::all_reduce, ranks, count);
    for (const char* planner : {"ring", "halving_doubling", "sharded_star"}) {
      const auto load = verify(find_planner(planner).plan(request, cluster), &cluster).link_bytes;
      for (const Bytes bytes : load) EXPECT_EQ(bytes.value, 2 * (ranks - 1) * (count * 4 / ranks)) << planner;
    }
  }
}

// Two hosts, each on a leaf, and three spines between them.
TEST(Verify, WhatSpreadsLoadsEachWayWithItsPart) {
  cluster::Cluster cluster;
  for (const char* const name : {"h0", "h1"}) cluster.nodes.push_back({.name = name});
  for (const char* const name : {"leaf0", "leaf1", "spine0", "spine1", "spine2"})
    cluster.nodes.push_back({.name = name, .kind = cluster::NodeKind::switch_});
  for (const auto& [from, to] : {std::pair(0, 2), {2, 4}, {2, 5}, {2, 6}, {4, 3}, {5, 3}, {6, 3}, {3, 1}})
    cluster.links.push_back({from, to, {1e9}, {10}});
  for (int link = 0; link < 8; ++link) {
    const cluster::Link there = cluster.links[static_cast<std::size_t>(link)];
    cluster.links.push_back({there.to, there.from, {1e9}, {10}});
  }
  const Forest forest = find_planner("star").plan(make_request(Collective::broadcast, 2, 8), gigabit_star(2));
  std::vector<std::int64_t> load;
  for (const Bytes bytes : verify(forest, &cluster).link_bytes) load.push_back(bytes.value);
  EXPECT_THAT(load, testing::ElementsAre(32, 11, 11, 11, 11, 11, 11, 32, 0, 0, 0, 0, 0, 0, 0, 0));
}

TEST(Verify, GroupsCarryTheSumOfTheirLinks) {
  cluster::Cluster cluster = gigabit_star(3);
  cluster.groups = {{"host1", {1e9}, {2, 3}}, {"all", {1e9}, {0, 1, 2, 3, 4, 5}}};
  const auto load = verify(by_hand(), &cluster);
  // Two copies of 32 bytes pass host1 each way; every other host has one each way.
  EXPECT_EQ(load.link_bytes[2], Bytes{64});
  EXPECT_EQ(load.group_bytes[0], Bytes{128});
  EXPECT_EQ(load.group_bytes[1], Bytes{256});
}

}  // namespace
}  // namespace talweg::forest
