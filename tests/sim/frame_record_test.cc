#include "sim/frame_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "forest/planner.h"
#include "sim/collectives.h"
#include "sim/shapes.h"
#include "sim/topologies.h"
#include "wire/frames.h"

namespace talweg::sim {
namespace {

class FrameRecords : public testing::Test {
 protected:
  void add(std::uint64_t call, bool up, int from, int to, std::uint32_t chunk, Picoseconds sent,
           Picoseconds received) {
    wire::Header header = wire::encode(wire::CallId{1, call, {}}, wire::Chunk{up, 0, chunk, 100});
    record_.add({from, to, header, sent, received});
  }
  std::vector<std::pair<int, int>> path_to(int node) const {
    std::vector<std::pair<int, int>> ends;
    for (const auto& frame : record_.critical_path(node)) ends.emplace_back(frame.from, frame.to);
    return ends;
  }
  FrameRecord record_{8};
};

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

TEST_F(FrameRecords, ThePathGoesBackThroughTheChildThatCameLast) {
  add(0, true, 1, 0, 0, 10, 20);  // to the root
  add(0, true, 2, 0, 0, 10, 50);  // the later child
  add(0, true, 3, 0, 1, 10, 55);  // of another chunk
  add(0, false, 0, 1, 0, 60, 70);
  add(0, false, 1, 3, 0, 80, 90);
  EXPECT_THAT(path_to(3), ElementsAre(Pair(2, 0), Pair(0, 1), Pair(1, 3)));
  EXPECT_THAT(path_to(2), IsEmpty());
}

TEST_F(FrameRecords, WhatCameAfterAFrameWasSentIsNotWhatItWaitedFor) {
  add(0, true, 1, 0, 0, 10, 20);
  add(0, true, 2, 0, 0, 10, 65);
  add(0, false, 0, 3, 0, 60, 70);
  EXPECT_THAT(path_to(3), ElementsAre(Pair(1, 0), Pair(0, 3)));
}

TEST_F(FrameRecords, OnlyTheLastCallIsKept) {
  add(0, true, 1, 0, 0, 10, 20);
  add(1, true, 2, 0, 0, 30, 40);
  add(0, true, 3, 0, 0, 10, 50);  // a straggler
  ASSERT_EQ(record_.frames().size(), 1u);
  EXPECT_EQ(record_.frames()[0].from, 2);
}

TEST_F(FrameRecords, OtherFramesThanChunksArePassedOver) {
  const wire::Header header = wire::encode(wire::CallId{1, 0, {}}, wire::Credit{0, 1});
  record_.add({1, 0, header, 10, 20});
  EXPECT_THAT(record_.frames(), IsEmpty());
}

TEST_F(FrameRecords, PastTheLimitThereIsNoPath) {
  for (std::uint32_t chunk = 0; chunk < 9; ++chunk) add(0, true, 1, 0, chunk, 10, 20 + chunk);
  EXPECT_EQ(record_.frames().size(), 8u);
  EXPECT_FALSE(record_.complete());
  EXPECT_THAT(path_to(0), IsEmpty());
  add(1, true, 1, 0, 0, 100, 110);
  EXPECT_TRUE(record_.complete());
}

// A chain of four sums up and comes back: the path passes every host, and time goes forward along it.
TEST(FrameRecord, OfAChainThePathGoesUpAndDownAllOfIt) {
  const cluster::Cluster cluster = star(4, kTen);
  const auto request = forest::even_request(Collective::all_reduce, 4, 0, 1000, 4);
  auto forest = std::make_shared<forest::Forest>(forest::find_planner("chain").plan(request, cluster));
  forest::choose_chunks(*forest, cluster);
  Simulation simulation(cluster, {});
  RanksOptions options;
  options.carry_payloads = false;
  Ranks ranks(simulation, options);
  FrameRecord record;
  ranks.on_frame([&](const FrameNote& note) { record.add(note); });
  run_calls(simulation, ranks, forest, DataType::f32, {1, 2, 0}, kNever);
  Picoseconds end = 0;
  int last = -1;
  for (const CollectiveResult& result : ranks.results())
    if (result.ended >= end) {
      end = result.ended;
      last = ranks.node(result.rank);
    }
  const auto path = record.critical_path(last);
  ASSERT_EQ(path.size(), 6u);
  std::set<int> passed;
  for (std::size_t i = 0; i < path.size(); ++i) {
    passed.insert(path[i].from);
    EXPECT_LT(path[i].sent, path[i].received);
    EXPECT_EQ(path[i].up, i < 3);
    if (i == 0) continue;
    EXPECT_EQ(path[i].from, path[i - 1].to);
    EXPECT_LE(path[i - 1].received, path[i].sent);
  }
  EXPECT_EQ(passed.size(), 4u);
  EXPECT_EQ(path.back().received, end);
}

}  // namespace
}  // namespace talweg::sim
