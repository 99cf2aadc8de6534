// What a call makes a rank do, for every collective, from both of the ways in which it is asked.
#include "protocol/operation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "base/collectives.h"
#include "talweg/error.h"

namespace talweg::protocol {
namespace {

constexpr int kRanks = 4;

forest::Request request_with_all_counts(Collective op) {
  forest::Request q = forest::even_request(op, kRanks, facts(op).rooted ? 2 : 0, 100, 4);
  if (has_parts(op)) std::iota(q.counts.begin(), q.counts.end(), 1);  // no two the same
  return q;
}

// As a program calls it on one rank, which gives only the counts that it must.
Operation as_called(const forest::Request& q, int rank) {
  std::vector<std::size_t> counts;
  std::vector<std::size_t> out_counts;
  const auto n = static_cast<std::size_t>(q.ranks);
  const auto me = static_cast<std::size_t>(rank);
  const bool knows_all = facts(q.op).knows == Knows::all || rank == q.root;
  for (std::size_t r = 0; r < n && has_parts(q.op); ++r) {
    const bool pairs = facts(q.op).counts == Counts::per_pair;
    const std::int64_t count = pairs ? q.counts[me * n + r] : knows_all || r == me ? q.counts[r] : 0;
    counts.push_back(static_cast<std::size_t>(count));
    if (pairs) out_counts.push_back(static_cast<std::size_t>(q.counts[r * n + me]));
  }
  const Call call{.op = q.op,
                  .type = DataType::f32,
                  .count = has_parts(q.op) ? 0 : static_cast<std::size_t>(q.counts[0]),
                  .counts = counts,
                  .out_counts = out_counts,
                  .root = q.root};
  const forest::Request asked = request_of(call, rank, q.ranks);
  EXPECT_EQ(asked, known_to(q, rank));
  return make_operation(call, rank, asked);
}

// As the simulator does, which knows all of the request.
Operation as_simulated(const forest::Request& q, int rank) {
  return make_operation({.op = q.op, .type = DataType::f32}, rank, q);
}

class EveryCollective : public testing::TestWithParam<int> {
 protected:
  Collective op() const { return static_cast<Collective>(GetParam()); }
};

TEST_P(EveryCollective, IsTheSameOperationForAGroupAndForTheSimulator) {
  if (op() == Collective::send_recv) return;  // is a message
  const forest::Request q = request_with_all_counts(op());
  for (int rank = 0; rank < kRanks; ++rank) {
    const Operation called = as_called(q, rank);
    const Operation simulated = as_simulated(q, rank);
    EXPECT_EQ(called.signature, simulated.signature) << to_string(called.signature);
    EXPECT_EQ(called.tell, simulated.tell);
    EXPECT_EQ(called.expect, simulated.expect);
    EXPECT_EQ(called.all_contribute, simulated.all_contribute);
    EXPECT_EQ(called.operands.reduce, simulated.operands.reduce);
  }
}

TEST_P(EveryCollective, IsExpectedByEachRankAsTheOthersTellIt) {
  if (op() == Collective::send_recv) return;
  const forest::Request q = request_with_all_counts(op());
  std::vector<Operation> all;
  for (int rank = 0; rank < kRanks; ++rank) all.push_back(as_called(q, rank));
  for (std::size_t a = 0; a < all.size(); ++a)
    for (std::size_t b = 0; b < all.size(); ++b) {
      const std::int64_t told = all[a].tell.empty() ? all[a].signature.count : all[a].tell[b];
      const std::int64_t expected = all[b].expect.empty() ? all[b].signature.count : all[b].expect[a];
      if (a != b && told != kUnknownCount && expected != kUnknownCount) {
        EXPECT_EQ(told, expected) << a << " to " << b;
      }
      EXPECT_EQ(all[a].signature.layout, all[b].signature.layout);
    }
}

INSTANTIATE_TEST_SUITE_P(Operation, EveryCollective, testing::Range(0, kCollectives),
                         [](const auto& tested) { return name(static_cast<Collective>(tested.param)); });

bool data_carry_agreement(Collective op, const std::vector<std::int64_t>& counts) {
  return make_operation({.op = op, .type = DataType::f32}, 0, {op, 3, 0, 0, counts, 4}).all_contribute;
}

TEST(Operation, TheDataCarryTheAgreementWhereEveryRankWritesOnlyWhatItHasFromAll) {
  EXPECT_TRUE(data_carry_agreement(Collective::all_reduce, {5}));
  EXPECT_FALSE(data_carry_agreement(Collective::all_reduce, {0})) << "nothing is sent";
  EXPECT_TRUE(data_carry_agreement(Collective::reduce_scatter, {1, 2, 3}));
  EXPECT_FALSE(data_carry_agreement(Collective::reduce_scatter, {1, 0, 3})) << "rank 1 hears from nobody";
  EXPECT_TRUE(data_carry_agreement(Collective::barrier, {0}));
  EXPECT_FALSE(data_carry_agreement(Collective::reduce, {5})) << "only the root hears from all";
  EXPECT_FALSE(data_carry_agreement(Collective::broadcast, {5}));
  EXPECT_FALSE(data_carry_agreement(Collective::all_gather, {1, 1, 1}));
}

TEST(Operation, AReductionThatTheTypeDoesNotHaveIsRefused) {
  const forest::Request q{Collective::all_reduce, 2, 0, 0, {4}, 4};
  EXPECT_THROW(make_operation({.op = q.op, .type = DataType::f32, .reduction = ReduceOp::bit_xor}, 0, q),
               Error);
}

TEST(Operation, RanksAreAskedBeforeTheDeadlineAndNotTooEarly) {
  Operation op;
  op.set_deadline(10, 400'000'000);
  EXPECT_EQ(op.deadline_ns, 400'000'010);
  EXPECT_EQ(op.question_ns, 300'000'010);
  op.set_deadline(0, 60'000'000'000);
  EXPECT_EQ(op.question_ns, 59'000'000'000);
}

}  // namespace
}  // namespace talweg::protocol
