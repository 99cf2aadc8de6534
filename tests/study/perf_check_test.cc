#include "study/perf_check.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "kernel/reduce.h"
#include "kernel/scalar.h"

namespace talweg::study {
namespace {

constexpr std::size_t kCount = 40000;  // more than two periods
constexpr std::uint64_t kSeed = 7;

using Bytes = std::vector<std::byte>;

PerfCase sum_case(int ranks, DataType type = DataType::f32, ReduceOp op = ReduceOp::sum) {
  return {Collective::all_reduce, type, op, 0, ranks, kCount};
}

Bytes input_of(const PerfCase& c, int rank) {
  Bytes data(input_elements(c, rank) * size_of(c.type));
  write_input(c, rank, kSeed, data.data());
  return data;
}

// The vectorised kernels, in another order than the reference's: from the last rank to the first.
Bytes reduced_backwards(const PerfCase& c) {
  Bytes sum = input_of(c, c.ranks - 1);
  const auto reduce = kernel::reduce_function(c.type, c.reduce);
  for (int rank = c.ranks - 2; rank >= 0; --rank)
    reduce(sum.data(), input_of(c, rank).data(), sum.data(), c.count);
  if (c.reduce == ReduceOp::avg) kernel::divide(c.type, sum.data(), c.count, c.ranks);
  return sum;
}

class EveryType : public testing::TestWithParam<int> {};

TEST_P(EveryType, IsExactForEveryReductionInAnyOrderOfTheRanks) {
  const auto type = static_cast<DataType>(GetParam());
  for (int i = 0; i < kReduceOps; ++i) {
    const auto op = static_cast<ReduceOp>(i);
    if (!kernel::reduce_function(type, op)) continue;
    for (const int ranks : {1, 2, 5, 8}) {
      const PerfCase c = sum_case(ranks, type, op);
      EXPECT_EQ(count_wrong_output(c, 0, kSeed, reduced_backwards(c).data()), 0u)
          << name(op) << " of " << ranks;
    }
  }
}

TEST_P(EveryType, HoldsWholeNumbersThatTheTypeHasExactly) {
  const auto type = static_cast<DataType>(GetParam());
  if (facts(type).fraction_bits == 0) return;
  const Bytes data = input_of(sum_case(2, type), 0);
  std::size_t others_than_zero = 0;
  kernel::visit_type(type, [&]<typename T>(T) {
    const auto part = [&](std::size_t i) {
      if constexpr (kernel::kIsComplex<T>)
        return static_cast<double>(kernel::load<decltype(T::real)>(data.data(), i));
      else
        return static_cast<double>(kernel::widen(kernel::load<T>(data.data(), i)));
    };
    for (std::size_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(part(i), std::trunc(part(i))) << i;
      ASSERT_LE(std::abs(part(i)), 127) << i;
      others_than_zero += part(i) != 0;
    }
  });
  EXPECT_GT(others_than_zero, kCount / 4);
}

std::string type_name(const testing::TestParamInfo<int>& info) {
  return name(static_cast<DataType>(info.param));
}

INSTANTIATE_TEST_SUITE_P(PerfCheck, EveryType, testing::Range(0, kDataTypes), type_name);

TEST(PerfCheck, StaysExactWithMoreRanksThanTheTypeCanCount) {
  const PerfCase c = sum_case(300, DataType::bf16);
  EXPECT_EQ(count_wrong_output(c, 0, kSeed, reduced_backwards(c).data()), 0u);
}

TEST(PerfCheck, FindsOneWrongElement) {
  const PerfCase c = sum_case(4);
  Bytes sum = reduced_backwards(c);
  sum[4 * 33333] ^= std::byte{1};
  EXPECT_EQ(count_wrong_output(c, 0, kSeed, sum.data()), 1u);
}

TEST(PerfCheck, FindsThatARankIsMissing) {
  PerfCase all = sum_case(4);
  PerfCase three = sum_case(3);
  const Bytes sum = reduced_backwards(three);
  EXPECT_GT(count_wrong_output(all, 0, kSeed, sum.data()), kCount / 2);
}

TEST(PerfCheck, FindsAChunkInThePlaceOfAnotherOne) {
  const PerfCase c = sum_case(2);
  const Bytes sum = reduced_backwards(c);
  for (const std::size_t shift : {std::size_t{1}, std::size_t{1024}, std::size_t{16384}}) {
    Bytes moved = sum;
    std::memmove(moved.data(), sum.data() + shift * 4, (kCount - shift) * 4);
    EXPECT_GT(count_wrong_output(c, 0, kSeed, moved.data()), (kCount - shift) / 2) << shift;
  }
}

TEST(PerfCheck, FindsDataOfAnotherSeedSoThatAnOldResultDoesNotPass) {
  const PerfCase c = sum_case(2);
  EXPECT_GT(count_wrong_output(c, 0, kSeed + 1, reduced_backwards(c).data()), kCount / 2);
}

TEST(PerfCheck, FindsAChangedInput) {
  const PerfCase c = sum_case(2);
  Bytes input = input_of(c, 1);
  EXPECT_EQ(count_wrong_input(c, 1, kSeed, input.data()), 0u);
  input[0] ^= std::byte{0x40};
  input.back() ^= std::byte{0x40};
  EXPECT_EQ(count_wrong_input(c, 1, kSeed, input.data()), 2u);
}

TEST(PerfCheck, KnowsWhichPartOfTheSumReduceScatterGivesToEachRank) {
  PerfCase c = sum_case(3);
  c.op = Collective::reduce_scatter;
  c.count = 1000;
  PerfCase whole = c;
  whole.count = vector_elements(c);
  whole.op = Collective::all_reduce;
  const Bytes sum = reduced_backwards(whole);
  for (int rank = 0; rank < 3; ++rank) {
    const std::byte* part = sum.data() + static_cast<std::size_t>(rank) * c.count * 4;
    EXPECT_EQ(count_wrong_output(c, rank, kSeed, part), 0u);
    EXPECT_GT(count_wrong_output(c, (rank + 1) % 3, kSeed, part), 0u);
  }
}

TEST(PerfCheck, KnowsTheColumnThatAllToAllGivesToEachRank) {
  PerfCase c{Collective::all_to_all, DataType::i16, ReduceOp::sum, 0, 3, 500};
  for (int rank = 0; rank < 3; ++rank) {
    Bytes column;
    for (int from = 0; from < 3; ++from) {
      const Bytes row = input_of(c, from);
      const auto block = static_cast<std::ptrdiff_t>(c.count * 2);
      column.insert(column.end(), row.begin() + rank * block, row.begin() + (rank + 1) * block);
    }
    EXPECT_EQ(count_wrong_output(c, rank, kSeed, column.data()), 0u);
    EXPECT_GT(count_wrong_output(c, (rank + 1) % 3, kSeed, column.data()), 0u);
  }
}

TEST(PerfCheck, KnowsThatSendRecvGivesEachRankItsPredecessorsMessage) {
  PerfCase c{Collective::send_recv, DataType::f64, ReduceOp::sum, 0, 4, 500};
  EXPECT_EQ(count_wrong_output(c, 0, kSeed, input_of(c, 3).data()), 0u);
  EXPECT_GT(count_wrong_output(c, 0, kSeed, input_of(c, 1).data()), 0u);
}

TEST(PerfCheck, HoldsNothingAgainstARankWithoutAnOutput) {
  PerfCase c{Collective::reduce, DataType::f32, ReduceOp::sum, 2, 4, 100};
  EXPECT_EQ(count_wrong_output(c, 0, kSeed, nullptr), 0u);
}

}  // namespace
}  // namespace talweg::study
