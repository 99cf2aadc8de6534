// What a call makes a rank do, for every collective, as a program makes it.
#include "protocol/operation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/collectives.h"
#include "protocol/as_called.h"
#include "talweg/error.h"

namespace talweg::protocol {
namespace {

constexpr int kRanks = 4;

class EveryCollective : public testing::TestWithParam<int> {
 protected:
  Collective op() const { return static_cast<Collective>(GetParam()); }
};

TEST_P(EveryCollective, IsExpectedByEachRankAsTheOthersTellIt) {
  if (op() == Collective::send_recv) return;
  const forest::Request q = uneven_request(op(), kRanks);
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

TEST(Operation, HasThePriorityThatItsCallerGaveIt) {
  const forest::Request q{Collective::all_reduce, 2, 0, 0, {4}, 4};
  EXPECT_EQ(make_operation({.op = q.op, .options = {.priority = 5}}, 0, q).priority, 5);
  EXPECT_EQ(make_message({.op = Collective::send_recv, .options = {.priority = 6}}, 0).priority, 6);
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
