#include "forest/shared_sums.h"

#include <gmock/gmock.h>

#include <functional>

#include "forest/cost.h"
#include "forest/requests.h"
#include "forest/verify.h"
#include "talweg/error.h"

namespace talweg::forest {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Forest doubling(int ranks, std::int64_t count = 8) {
  return find_planner("recursive_doubling")
      .plan(make_request(Collective::all_reduce, ranks, count), gigabit_star(ranks));
}

std::size_t sums_sent(const Forest& forest) {
  const SharedSums shared(forest);
  std::size_t sent = 0;
  for (std::size_t t = 0; t < forest.trees.size(); ++t)
    for (const Edge& edge : forest.trees[t].up) sent += shared.first(t, edge.child) == t ? 1 : 0;
  return sent;
}

TEST(SharedSums, OfRecursiveDoublingTravelOnceEachWay) {
  EXPECT_EQ(sums_sent(doubling(2)), 2u);
  EXPECT_EQ(sums_sent(doubling(4)), 8u);
  EXPECT_EQ(sums_sent(doubling(8)), 24u);
  EXPECT_EQ(sums_sent(doubling(3)), 3u);   // one hands over, two exchange
  EXPECT_EQ(sums_sent(doubling(7)), 11u);  // three hand over, four exchange twice
}

TEST(SharedSums, AreAddedNearestFirstWithTheLowestContributorOnTheLeft) {
  const SharedSums shared(doubling(8));
  EXPECT_THAT(shared.steps(0), ElementsAre(SharedSums::Step{1, false}, SharedSums::Step{2, false},
                                           SharedSums::Step{4, false}));
  EXPECT_THAT(shared.steps(7),
              ElementsAre(SharedSums::Step{6, true}, SharedSums::Step{5, true}, SharedSums::Step{3, true}));
}

TEST(SharedSums, CountOnceInLoadAndCost) {
  const auto cluster = gigabit_star(8);
  Forest forest = doubling(8, 16384);
  const auto bytes = 3 * 16384 * forest.request.element_size;
  for (const Bytes& load : verify(forest, &cluster).link_bytes) EXPECT_EQ(load.value, bytes);
  const double once = predict_seconds(forest, cluster);
  forest.sums_once = false;
  EXPECT_GT(predict_seconds(forest, cluster), 2 * once);
}

std::string refusal(const std::function<void(Forest&)>& spoil) {
  Forest forest = doubling(4);
  spoil(forest);
  try {
    verify(forest);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(SharedSums, RefuseWhatCannotBeShared) {
  EXPECT_EQ(refusal([](Forest&) {}), "accepted");
  EXPECT_THAT(refusal([](Forest& f) { f.trees[1].chunk = 4; }),
              HasSubstr("tree 1 has 2 chunks, expected one"));
  Forest apart = doubling(4);
  apart.trees[3].slice = {2, 6};
  EXPECT_THROW(SharedSums{apart}, Error);
  // A chain instead of the binomial tree: right as a tree, but it adds in another order.
  EXPECT_THAT(refusal([](Forest& f) {
                f.trees[3].up = {{0, 1}, {1, 2}, {2, 3}};
              }),
              HasSubstr("sums_once: tree 3 adds in another order than tree 0"));
  EXPECT_THAT(refusal([](Forest& f) {
                f.trees.pop_back();
                f.trees[0].receivers = {0, 3};
                f.trees[0].down = {{3, 0}};
              }),
              HasSubstr("is not the beginning of what it sums as a root"));
  EXPECT_THAT(refusal([](Forest& f) {
                f.trees[0].receivers = {0, 2};
                f.trees[0].down = {{2, 0}};
                f.trees.erase(f.trees.begin() + 2);
              }),
              HasSubstr("tree 0: node 2 sums, but is not the root, and receives the result"));
}

}  // namespace
}  // namespace talweg::forest
