// The binary form of forests.
#include "forest/forest_bytes.h"

#include <gtest/gtest.h>

#include <set>

#include "base/random.h"
#include "forest/random_networks.h"
#include "forest/requests.h"
#include "forest/verify.h"
#include "sanitized.h"
#include "talweg/error.h"

namespace talweg::forest {
namespace {

std::string refusal(std::span<const std::byte> bytes) {
  try {
    forest_from_bytes(bytes);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::corrupted);
    return e.what();
  }
  return {};
}

Forest ring_of(int ranks, std::int64_t count = 100000) {
  return find_planner("ring").plan(make_request(Collective::all_reduce, ranks, count), gigabit_star(ranks));
}

TEST(ForestBytes, AreReadAsWhatWasWrittenForEveryPlannerOperationAndSize) {
  for (const int ranks : {1, 2, 3, 4, 7, 8, 13}) {
    for (const Collective op : all_operations()) {
      for (const std::int64_t count : {0, 1, 1000, 1000000}) {
        for (const bool uneven : {false, true}) {
          const Request request = make_request(op, ranks, count, uneven, ranks / 2);
          for (const Planner& planner : planners()) {
            if (!planner.serves(request) || !planner.suits(request)) continue;
            const Forest forest = planner.plan(request, gigabit_star(ranks));
            EXPECT_EQ(forest_from_bytes(to_bytes(forest)), forest) << describe(planner.name, request);
          }
        }
      }
    }
  }
}

TEST(ForestBytes, AreReadAsWhatWasWrittenForPackedTreesOnAnyNetwork) {
  for (std::uint64_t seed = 0; seed < fewer(20U); ++seed) {
    const auto network = random_network(seed, 3 + static_cast<int>(seed % 5));
    for (const Collective op : {Collective::all_reduce, Collective::all_gather, Collective::broadcast}) {
      const Forest forest =
          find_planner("packed").plan(make_request(op, network.workers(), 1 << 20, true), network);
      const auto bytes = to_bytes(forest);
      EXPECT_EQ(forest_from_bytes(bytes), forest) << seed;
      EXPECT_EQ(to_bytes(forest_from_bytes(bytes)), bytes) << seed;
    }
  }
}

TEST(ForestBytes, NameNodesThatAreNotRanks) {
  Forest forest = ring_of(3);
  forest.nodes = 5;
  for (Tree& tree : forest.trees) {
    tree.root = 4;
    tree.up = tree.down = {{0, 4}, {1, 3}, {2, 3}, {3, 4}};
  }
  ASSERT_NO_THROW(verify(forest));
  EXPECT_EQ(forest_from_bytes(to_bytes(forest)), forest);
}

TEST(ForestBytes, AreShort) {
  EXPECT_LE(to_bytes(ring_of(8)).size(), 300u);
  EXPECT_LE(to_bytes(ring_of(256, 1 << 24)).size(), 12000u);
  const Request request = make_request(Collective::all_reduce, 64, 1 << 24);
  EXPECT_LE(to_bytes(find_planner("halving_doubling").plan(request, gigabit_star(64))).size(), 6500u);
}

TEST(ForestBytes, HaveDigestsThatTellForestsApart) {
  const Forest forest = ring_of(4);
  std::vector<Forest> others(14, forest);
  others[1].planner = "ping";
  others[2].request.op = Collective::barrier;
  others[2].request.counts = {0};
  others[3].request.root = 1;
  others[4].request.element_size = 8;
  others[5].request.counts[0] += 1;
  others[6].nodes = 5;
  others[7].sums_once = true;
  others[8].trees.pop_back();
  others[9].trees[2].chunk -= 1;
  others[10].trees[0].slice.count -= 1;
  others[11].trees[3].root = 0;
  others[12].trees[1].receivers.pop_back();
  std::swap(others[13].trees[1].up[0].parent, others[13].trees[1].up[1].parent);
  std::set<std::uint32_t> digests;
  for (const Forest& other : others) {
    EXPECT_NE(digest(other), 0u);
    digests.insert(digest(other));
  }
  EXPECT_EQ(digests.size(), others.size());
  EXPECT_EQ(digest(forest), digest(to_bytes(forest)));
}

TEST(ForestBytes, ThatEndTooSoonOrGoOnAreRefused) {
  auto bytes = to_bytes(ring_of(5));
  for (std::size_t length = 0; length < bytes.size(); ++length)
    EXPECT_NE(refusal(std::span(bytes).first(length)), "") << length;
  bytes.push_back(std::byte{0});
  EXPECT_EQ(refusal(bytes), "a forest's binary form: 1 bytes are left over");
}

TEST(ForestBytes, ThatAreDamagedAreRefusedOrReadAsAnotherForest) {
  Random random{7};
  const auto good = to_bytes(ring_of(6));
  for (int round = 0; round < fewer(3000); ++round) {
    auto bytes = good;
    for (int changes = 1 + static_cast<int>(random.below(3)); changes > 0; --changes)
      bytes[random.below(bytes.size())] = static_cast<std::byte>(random.below(256));
    if (!refusal(bytes).empty()) continue;
    const Forest forest = forest_from_bytes(bytes);
    EXPECT_EQ(forest_from_bytes(to_bytes(forest)), forest);
    for (const Tree& tree : forest.trees) {
      EXPECT_LT(tree.root, forest.nodes);
      EXPECT_GE(tree.chunk, 1);
      for (const auto& edges : {tree.up, tree.down})
        for (const Edge& edge : edges) EXPECT_TRUE(edge.child < forest.nodes && edge.parent < forest.nodes);
    }
  }
}

TEST(ForestBytes, ThatWouldUnfoldToGigabytesAreRefused) {
  ByteWriter out;
  out.number(1);
  out.text("bomb");
  out.number(0);
  write(out, make_request(Collective::barrier, 2, 0));
  out.number(1 << 16);  // nodes
  out.number(4000);     // trees, each of which says that all nodes contribute and receive
  for (int tree = 0; tree < 4000; ++tree) {
    for (const int field : {0, 0, 0, 1}) out.number(static_cast<std::uint64_t>(field));
    for (int twice = 0; twice < 2; ++twice)
      for (const int field : {1, 0, 1 << 16}) out.number(static_cast<std::uint64_t>(field));
    for (const int field : {0, 0, 0}) out.number(static_cast<std::uint64_t>(field));
  }
  EXPECT_NE(refusal(out.take()).find("unfolds to more than"), std::string::npos);
}

TEST(ForestBytes, AreNotMadeOfForestsThatDoNotKeepTheirLists) {
  Forest forest = ring_of(3);
  std::swap(forest.trees[0].contributors[0], forest.trees[0].contributors[1]);
  EXPECT_THROW(to_bytes(forest), Error);
  forest = ring_of(3);
  forest.trees[0].up[0].child = 3;
  EXPECT_THROW(to_bytes(forest), Error);
}

}  // namespace
}  // namespace talweg::forest
