// How many columns a sparse sum has.
#include "protocol/aggregation/column_count.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "protocol/worker_bench.h"

namespace talweg::protocol {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

constexpr std::uint16_t kSlots = 10;
constexpr std::uint64_t kHeld = 20;  // the block that holds something

std::vector<float> almost_nothing() {
  std::vector<float> in(80);
  in[2 * kHeld] = 1;
  return in;
}

// Sums of 40 blocks, of which one holds something. Nobody else has anything.
struct SparseSums : Bench {
  SparseSums() : Bench(kSlots), versions(kSlots) {}

  void end(std::size_t slot, std::uint64_t block, std::uint64_t next, const std::vector<float>& values,
           std::int16_t exponent = wire::kZeroExponent) {
    result(static_cast<std::uint16_t>(slot), block, next, values, versions[slot], exponent);
    versions[slot] = !versions[slot];
  }
  // What the worker sends first. The last round of the first column ends with `code`, all rounds take so
  // long.
  std::vector<Caught> sum(std::int16_t code, std::int64_t round_ns) {
    start(almost_nothing(), true, AggregationFormat::f32, ++operations);
    const std::vector<Caught> sent = sink.take();
    const std::size_t columns = sent.size(), with = kHeld % columns;
    now_ns += round_ns;
    for (std::size_t slot = 0; slot < columns; ++slot)
      end(slot, slot, slot == with ? kHeld : kNeverNext, {},
          slot == 0 && slot != with ? code : wire::kZeroExponent);
    now_ns += 10 * round_ns;
    said = sink.take();
    end(with, kHeld, kNeverNext, {3, 4}, with == 0 ? code : wire::kZeroExponent);
    EXPECT_TRUE(worker.done());
    std::vector<float> sum(80);
    sum[2 * kHeld] = 3;
    sum[2 * kHeld + 1] = 4;
    EXPECT_EQ(output, sum);
    return sent;
  }

  std::vector<bool> versions;
  std::uint32_t operations = 0;
  std::vector<Caught> said;  // once the first rounds have ended
};

TEST(ColumnCount, IsWhatTheLastSumOfTheShapeHasEndedWith) {
  SparseSums sums;
  EXPECT_THAT(sums.sum(ColumnCount::code_of(3), 1000), SizeIs(kSlots)) << "nothing has been agreed on yet";
  const auto sent = sums.sum(ColumnCount::code_of(1), 1000);
  ASSERT_THAT(sent, SizeIs(3));
  for (std::size_t slot = 0; slot < 3; ++slot) {
    EXPECT_EQ(sent[slot].header.own16, slot);
    EXPECT_EQ(sent[slot].entries[0].block, slot);
    EXPECT_EQ(sent[slot].entries[0].next, slot == 2 ? kHeld : kNeverNext) << "dealt out among three";
  }
  EXPECT_THAT(sums.said.at(0).values<float>(), ElementsAre(1, 0));
  EXPECT_THAT(sums.sum(ColumnCount::code_of(1), 1000), SizeIs(1));
  sums.start(std::vector<float>(78), true, AggregationFormat::f32, ++sums.operations);
  EXPECT_THAT(sums.sink.take(), SizeIs(kSlots)) << "another shape";
}

TEST(ColumnCount, IsNoneOfSumsThatItSavesNothing) {
  const auto fewer = [](std::uint16_t slots, bool sparse, AggregationFormat format) {
    Bench bench(slots);
    bench.format_ = format;
    bench.start(std::vector<float>(2), sparse, format);
    if (format == AggregationFormat::scaled) {
      bench.result(0, kNoBlock, 0, {});
      bench.result(0, 0, kNeverNext, {}, true);
    } else {
      bench.result(0, 0, kNeverNext, {}, false, format == AggregationFormat::f32 ? 0 : wire::kZeroExponent);
    }
    EXPECT_TRUE(bench.worker.done());
    bench.sink.take();
    return bench.worker.slots_for({nullptr, nullptr, 2, format, 2, sparse}) < slots;
  };
  EXPECT_TRUE(fewer(kSlots, true, AggregationFormat::f32));
  EXPECT_FALSE(fewer(kSlots, false, AggregationFormat::f32)) << "dense: every round has data";
  EXPECT_FALSE(fewer(7, true, AggregationFormat::f32)) << "few columns";
  EXPECT_FALSE(fewer(kSlots, true, AggregationFormat::scaled)) << "has exponents of its own";
  const Rows rows;
  Sum sum{.sparse = true};
  EXPECT_TRUE(ColumnCount::is_for(sum, kSlots));
  sum.format = AggregationFormat::pairs;
  EXPECT_FALSE(ColumnCount::is_for(sum, kSlots)) << "goes from one key to another";
  sum.format = AggregationFormat::f32;
  sum.rows = &rows;
  EXPECT_FALSE(ColumnCount::is_for(sum, kSlots)) << "by rows: known from these";
}

TEST(ColumnCount, IsSaidInTheLastRoundOfTheFirstColumnAlone) {
  SparseSums sums;
  for (const Caught& sent : sums.sum(ColumnCount::code_of(5), 1000))
    EXPECT_EQ(sent.entries.at(0).exponent, wire::kZeroExponent) << "the first column has another round";
  EXPECT_EQ(ColumnCount::slots_of(sums.said.at(0).entries.at(0).exponent), kSlots)
      << "nothing has been measured yet";
  // Of five columns the first has two rounds again.
  sums.sum(ColumnCount::code_of(3), 1000);
  EXPECT_EQ(ColumnCount::slots_of(sums.said.at(0).entries.at(0).exponent), 4U)
      << "eleven rounds in the time of eleven: four times that";
  const auto sent = sums.sum(ColumnCount::code_of(3), 1000);
  ASSERT_THAT(sent, SizeIs(3));
  EXPECT_NE(sent[0].entries.at(0).exponent, wire::kZeroExponent) << "of three it has one";
  EXPECT_EQ(sent[1].entries.at(0).exponent, wire::kZeroExponent);
  EXPECT_EQ(sent[2].entries.at(0).exponent, wire::kZeroExponent);
}

TEST(ColumnCount, IsOneThatThereIsWhateverTheResultSays) {
  for (const std::int16_t code :
       {wire::kZeroExponent, wire::kLeastExponent, wire::kMostExponent, wire::kNotFiniteExponent}) {
    SparseSums sums;
    sums.sum(code, 1000);
    EXPECT_THAT(sums.sum(code, 1000), SizeIs(code > 0 ? kSlots : 1)) << code;
  }
}

TEST(ColumnCount, CodesSlotsAsSoManyOrSomewhatMore) {
  std::uint64_t before = 0;
  for (std::uint64_t slots = 1; slots <= 0x10000; ++slots) {
    const std::uint64_t coded = ColumnCount::slots_of(ColumnCount::code_of(slots));
    ASSERT_GE(coded, slots);
    ASSERT_LE(coded, slots + slots / 8 + 1);
    ASSERT_GE(coded, before) << "the largest of codes is that of the largest number";
    before = coded;
  }
}

TEST(ColumnCount, IsAsManyAsKeepTheNetworkBusy) {
  constexpr std::uint64_t kMost = 300;
  ColumnCount count;
  EXPECT_EQ(count.columns_for(8, kMost), kMost) << "nothing has been measured";
  count.ended(1000, 100'000'000, 1'000'000);  // ten rounds in the millisecond that one takes
  EXPECT_EQ(count.columns_for(8, kMost), 40U) << "four times as many";
  EXPECT_EQ(count.columns_for(800, kMost), 100U) << "eight blocks for each column";
  EXPECT_EQ(count.columns_for(100'000, kMost), kMost);
  EXPECT_EQ(count.columns_for(0, 1000), 125U) << "the next sum may hold more";
  EXPECT_EQ(count.columns_for(8, 20), 20U);
  count.ended(10, 100'000'000, 30'000'000);  // another worker came late
  EXPECT_LT(count.columns_for(8, kMost), 45U) << "what was measured last does not hide what can be";
  for (int i = 0; i < 100; ++i) count.ended(1000, 100'000'000, 30'000'000);
  EXPECT_EQ(count.columns_for(8, kMost), kMost) << "but a way that has grown long is learnt";
}

TEST(ColumnCount, RemembersTheShapesOfAStep) {
  ColumnCount count;
  Sum sum;
  for (sum.count = 1; sum.count <= 16; ++sum.count) count.agree(sum, ColumnCount::code_of(sum.count));
  for (sum.count = 1; sum.count <= 16; ++sum.count) EXPECT_GE(count.slots_for(sum), sum.count);
  sum.count = 3;
  sum.block = 1;
  EXPECT_EQ(count.slots_for(sum), 0U);
  count.agree(sum, 0);  // takes the place of the oldest one
  EXPECT_EQ(count.slots_for(sum), 1U);
  sum.block = 256;
  EXPECT_EQ(count.slots_for(sum), 3U);
  sum.format = AggregationFormat::i32;
  EXPECT_EQ(count.slots_for(sum), 0U);
  sum.format = AggregationFormat::f32;
  sum.count = 1;
  EXPECT_EQ(count.slots_for(sum), 0U);
}

}  // namespace
}  // namespace talweg::protocol
