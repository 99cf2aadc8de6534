#include "forest/forest.h"

#include <gmock/gmock.h>

#include "forest/requests.h"
#include "forest/walk.h"
#include "talweg/error.h"

namespace talweg::forest {
namespace {

Request request(Collective op, std::vector<std::int64_t> counts, int ranks = 3, NodeId root = 1,
                NodeId peer = 2) {
  return {
      .op = op, .ranks = ranks, .root = root, .peer = peer, .counts = std::move(counts), .element_size = 4};
}

std::int64_t chunks_of_five(const Slice& slice) {
  Tree tree;
  tree.slice = slice;
  tree.chunk = 5;
  return chunk_count(tree);
}

TEST(Tree, AnEmptySliceHasOneChunkThatSynchronises) {
  EXPECT_EQ(chunks_of_five({0, 0}), 1);
  EXPECT_EQ(chunks_of_five({3, 1}), 1);
  EXPECT_EQ(chunks_of_five({0, 5}), 1);
  EXPECT_EQ(chunks_of_five({0, 6}), 2);
}

TEST(Buffers, OfAllReduceAreTheWholeVector) {
  const Request r = request(Collective::all_reduce, {10});
  EXPECT_EQ(input_offset(r, 2, {4, 3}), 4);
  EXPECT_EQ(output_offset(r, 0, {4, 3}), 4);
  EXPECT_EQ(input_count(r, 0), 10);
  EXPECT_EQ(output_count(r, 2), 10);
}

TEST(Buffers, OfReduceAreWrittenOnTheRootOnly) {
  const Request r = request(Collective::reduce, {10});
  EXPECT_EQ(input_offset(r, 2, {4, 3}), 4);
  EXPECT_EQ(output_offset(r, 1, {4, 3}), 4);
  EXPECT_EQ(output_offset(r, 0, {4, 3}), -1);
  EXPECT_EQ(output_count(r, 0), 0);
}

TEST(Buffers, OfBroadcastAreReadOnTheRootOnly) {
  const Request r = request(Collective::broadcast, {10});
  EXPECT_EQ(input_offset(r, 1, {4, 3}), 4);
  EXPECT_EQ(input_offset(r, 0, {4, 3}), -1);
  EXPECT_EQ(input_count(r, 0), 0);
  EXPECT_EQ(output_offset(r, 2, {4, 3}), 4);
}

TEST(Buffers, OfReduceScatterAreTheWholeVectorAndTheOwnPart) {
  const Request r = request(Collective::reduce_scatter, {2, 3, 4});
  EXPECT_EQ(input_offset(r, 0, {2, 3}), 2);
  EXPECT_EQ(output_offset(r, 1, {2, 3}), 0);
  EXPECT_EQ(output_offset(r, 1, {4, 1}), 2);
  EXPECT_EQ(output_offset(r, 2, {2, 3}), -1);
  EXPECT_EQ(output_offset(r, 1, {2, 4}), -1);
  EXPECT_EQ(input_count(r, 1), 9);
  EXPECT_EQ(output_count(r, 1), 3);
}

TEST(Buffers, OfAllGatherAreTheOwnPartAndTheWholeVector) {
  const Request r = request(Collective::all_gather, {2, 3, 4});
  EXPECT_EQ(input_offset(r, 2, {6, 2}), 1);
  EXPECT_EQ(input_offset(r, 1, {6, 2}), -1);
  EXPECT_EQ(output_offset(r, 0, {6, 2}), 6);
  EXPECT_EQ(input_count(r, 2), 4);
  EXPECT_EQ(output_count(r, 2), 9);
}

TEST(Buffers, OfGatherAndScatterMirrorEachOther) {
  const Request gather = request(Collective::gather, {2, 3, 4});
  EXPECT_EQ(input_offset(gather, 2, {5, 4}), 0);
  EXPECT_EQ(output_offset(gather, 1, {5, 4}), 5);
  EXPECT_EQ(output_offset(gather, 2, {5, 4}), -1);
  const Request scatter = request(Collective::scatter, {2, 3, 4});
  EXPECT_EQ(output_offset(scatter, 2, {5, 4}), 0);
  EXPECT_EQ(input_offset(scatter, 1, {5, 4}), 5);
  EXPECT_EQ(input_offset(scatter, 2, {5, 4}), -1);
}

TEST(Buffers, OfAllToAllAreTheRowAndTheColumn) {
  //                                                 row 0     row 1     row 2
  const Request r = request(Collective::all_to_all, {1, 2, 3, 4, 5, 6, 7, 8, 9});
  EXPECT_EQ(input_count(r, 1), 15);
  EXPECT_EQ(output_count(r, 1), 15);
  EXPECT_EQ(output_count(r, 0), 12);
  const Slice from_1_to_2{15, 6};
  EXPECT_EQ(input_offset(r, 1, from_1_to_2), 9);
  EXPECT_EQ(output_offset(r, 2, from_1_to_2), 3);
  EXPECT_EQ(input_offset(r, 0, from_1_to_2), -1);
  EXPECT_EQ(output_offset(r, 1, from_1_to_2), -1);
  EXPECT_EQ(input_offset(r, 1, {14, 3}), -1) << "a slice across two blocks";
}

TEST(Buffers, OfSendRecvAreReadByTheRootAndWrittenByThePeer) {
  const Request r = request(Collective::send_recv, {10});
  EXPECT_EQ(input_offset(r, 1, {0, 10}), 0);
  EXPECT_EQ(input_offset(r, 2, {0, 10}), -1);
  EXPECT_EQ(output_offset(r, 2, {0, 10}), 0);
  EXPECT_EQ(output_offset(r, 0, {0, 10}), -1);
}

TEST(Buffers, OfBarriersAndOfNodesThatAreNoRanksAreEmpty) {
  const Request r = request(Collective::barrier, {0});
  EXPECT_EQ(input_offset(r, 2, {0, 0}), 0);
  EXPECT_EQ(output_offset(r, 2, {0, 0}), 0);
  EXPECT_EQ(output_count(r, 2), 0);
  EXPECT_EQ(input_offset(r, 3, {0, 0}), -1);
  EXPECT_EQ(input_count(request(Collective::all_reduce, {10}), 3), 0);
}

TEST(Requests, AreHeldToTheirShape) {
  for (const Collective op : all_operations()) {
    Request good = make_request(op, 4, 5);
    EXPECT_NO_THROW(validate(good)) << name(op);
    const auto refuses = [&](auto spoil) {
      Request bad = good;
      spoil(bad);
      EXPECT_THROW(validate(bad), Error) << name(op);
    };
    refuses([](Request& r) { r.ranks = 0; });
    refuses([](Request& r) { r.root = 4; });
    refuses([](Request& r) { r.root = -1; });
    refuses([](Request& r) { r.peer = 4; });
    refuses([](Request& r) { r.element_size = 0; });
    refuses([](Request& r) { r.counts.push_back(1); });
    refuses([](Request& r) { r.counts.clear(); });
    refuses([](Request& r) { r.counts[0] = -1; });
    refuses([](Request& r) { r.counts[0] = std::int64_t{1} << 61; });
  }
  EXPECT_THROW(validate(request(Collective::barrier, {1})), Error);
}

TEST(Outward, PutsEveryParentBeforeItsChildren) {
  EXPECT_THAT(outward({{3, 2}, {2, 1}, {0, 1}}, 1, 4),
              testing::ElementsAre(Edge{2, 1}, Edge{0, 1}, Edge{3, 2}));
}

TEST(Outward, LeavesOutWhatDoesNotHangOnTheRoot) {
  EXPECT_THAT(outward({{1, 0}, {2, 3}, {3, 2}}, 0, 4), testing::ElementsAre(Edge{1, 0}));
  EXPECT_THAT(outward({{2, 3}}, 0, 4), testing::IsEmpty());
}

}  // namespace
}  // namespace talweg::forest
