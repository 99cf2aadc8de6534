// Sparse sums that open with how many columns they are worth.
#include "protocol/aggregation/opening.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "protocol/worker_bench.h"

namespace talweg::protocol {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

// 40 blocks, of which the 21st holds something.
std::vector<float> almost_nothing() {
  std::vector<float> in(80);
  in[40] = 1;
  return in;
}

TEST(Opening, ASparseSumOpensWithHowManyColumnsItIsWorth) {
  Bench bench(10);
  bench.start(almost_nothing(), true);
  auto sent = bench.sink.take();
  ASSERT_THAT(sent, SizeIs(1)) << "no column but the first says anything yet";
  EXPECT_EQ(sent[0].entries[0].block, kNoBlock);
  EXPECT_EQ(sent[0].entries[0].next, 0U);
  EXPECT_EQ(Opening::slots_of(sent[0].entries[0].exponent), 10U) << "nothing has been measured yet";
  bench.now_ns += 2000;
  bench.result(0, kNoBlock, 0, {}, false, Opening::code_of(3));
  sent = bench.sink.take();
  ASSERT_THAT(sent, SizeIs(3)) << "as many as the result says";
  for (std::size_t slot = 0; slot < 3; ++slot) {
    EXPECT_EQ(sent[slot].header.own16, slot);
    EXPECT_EQ(sent[slot].entries[0].block, slot);
    EXPECT_FALSE(sent[slot].entries[0].data);
    EXPECT_EQ(sent[slot].entries[0].next, slot == 2 ? 20U : kNeverNext) << "blocks are dealt out among three";
    EXPECT_EQ(sent[slot].entries[0].version, slot == 0) << "the first column has had a round";
  }
  bench.now_ns += 20'000;
  bench.result(0, 0, kNeverNext, {}, true);
  bench.result(1, 1, kNeverNext, {});
  bench.result(2, 2, 20, {});
  EXPECT_THAT(bench.sink.take().at(0).values<float>(), ElementsAre(1, 0));
  bench.now_ns += 20'000;
  bench.result(2, 20, kNeverNext, {3, 4}, true);
  EXPECT_TRUE(bench.worker.done());
  std::vector<float> sum(80);
  sum[40] = 3;
  sum[41] = 4;
  EXPECT_EQ(bench.output, sum);
  // Four rounds in 40 us, and one takes 2 us when nothing else is under way: one column suffices for one
  // block.
  bench.start(almost_nothing(), true, AggregationFormat::f32, 2);
  EXPECT_EQ(Opening::slots_of(bench.sink.take().at(0).entries.at(0).exponent), 1U);
  bench.now_ns += 2000;
  bench.result(0, kNoBlock, 0, {}, false, Opening::code_of(1));
  ASSERT_EQ(bench.sink.take().size(), 1U);
  bench.result(0, 0, 20, {}, true);
  bench.now_ns += 20'000;
  bench.result(0, 20, kNeverNext, {5, 6});
  ASSERT_TRUE(bench.worker.done());
  bench.sink.take();
  // With 40 blocks a column is to have eight of them.
  bench.start(std::vector<float>(80, 1), true, AggregationFormat::f32, 3);
  EXPECT_EQ(Opening::slots_of(bench.sink.take().at(0).entries.at(0).exponent), 5U);
}

TEST(Opening, OpensNothingWhereThatSavesNothing) {
  const std::vector<float> in(80, 1);
  const auto opens = [&](std::uint16_t slots, bool sparse, AggregationFormat format,
                         std::size_t elements = 80) {
    Bench bench(slots);
    bench.format_ = format;
    bench.start({in.begin(), in.begin() + static_cast<std::ptrdiff_t>(elements)}, sparse, format);
    const auto sent = bench.sink.take();
    return sent.size() == 1 && sent[0].entries[0].block == kNoBlock && sent[0].entries[0].next == 0;
  };
  EXPECT_TRUE(opens(10, true, AggregationFormat::f32));
  EXPECT_FALSE(opens(10, false, AggregationFormat::f32)) << "dense: every round has data";
  EXPECT_FALSE(opens(7, true, AggregationFormat::f32)) << "few columns";
  EXPECT_FALSE(opens(10, true, AggregationFormat::f32, 40)) << "two blocks for each column";
  EXPECT_TRUE(opens(10, true, AggregationFormat::f32, 42));
  EXPECT_FALSE(opens(10, true, AggregationFormat::scaled));
  EXPECT_FALSE(opens(10, true, AggregationFormat::pairs));
}

TEST(Opening, OpensWithColumnsThatItHasWhateverTheResultSays) {
  for (const std::int16_t code :
       {wire::kZeroExponent, wire::kLeastExponent, wire::kMostExponent, wire::kNotFiniteExponent}) {
    Bench bench(10);
    bench.start(almost_nothing(), true);
    bench.sink.take();
    bench.result(0, kNoBlock, 0, {}, false, code);
    EXPECT_THAT(bench.sink.take(), SizeIs(code > 0 ? 10 : 1)) << code;
    EXPECT_FALSE(bench.worker.failure());
  }
  Bench bench(10);
  bench.start(almost_nothing(), true);
  bench.result(0, kNoBlock, kNeverNext, {});
  ASSERT_TRUE(bench.worker.failure()) << "it would pass over what we have";
  EXPECT_EQ(bench.worker.failure()->code, ErrorCode::corrupted);
}

TEST(Opening, AsksAboutTheRoundThatOpensASumAndSendsItAgain) {
  Bench bench(10);
  bench.start(almost_nothing(), true);
  const auto first = bench.sink.take().at(0);
  bench.now_ns = bench.worker.next_time_ns();
  bench.worker.on_time(bench.now_ns);
  const auto asked = bench.sink.take();
  ASSERT_THAT(asked, SizeIs(1));
  EXPECT_EQ(asked[0].header.type, static_cast<std::uint8_t>(AggregationType::query));
  AggregationEntry missed{kNoBlock, kNeverNext, wire::kZeroExponent, 0, 0, false};
  missed.yours = true;
  bench.say(AggregationType::missing, 0, missed, nullptr, {0});
  const auto again = bench.sink.take();
  ASSERT_THAT(again, SizeIs(1));
  EXPECT_EQ(again[0].entries, first.entries) << "the same, whatever has been measured meanwhile";
}

TEST(Opening, CodesSlotsAsSoManyOrSomewhatMore) {
  std::uint64_t before = 0;
  for (std::uint64_t slots = 1; slots <= 0x10000; ++slots) {
    const std::uint64_t coded = Opening::slots_of(Opening::code_of(slots));
    ASSERT_GE(coded, slots);
    ASSERT_LE(coded, slots + slots / 8 + 1);
    ASSERT_GE(coded, before) << "the largest of codes is that of the largest number";
    before = coded;
  }
}

TEST(Opening, HasAsManyColumnsAsKeepTheNetworkBusy) {
  constexpr std::uint64_t kMost = 500;
  Opening opening;
  EXPECT_EQ(opening.columns_for(8, kMost), kMost) << "nothing has been measured";
  opening.opened(1'000'000);
  opening.ended(1000, 100'000'000);  // ten rounds in the millisecond that one takes
  EXPECT_EQ(opening.columns_for(8, kMost), 40U) << "four times as many";
  EXPECT_EQ(opening.columns_for(800, kMost), 100U) << "eight blocks for each column";
  EXPECT_EQ(opening.columns_for(100'000, kMost), kMost);
  EXPECT_EQ(opening.columns_for(8, 20), 20U);
  opening.opened(30'000'000);  // another worker came late
  opening.ended(10, 100'000'000);
  EXPECT_LT(opening.columns_for(8, kMost), 45U) << "what was measured last does not hide what can be";
  for (int i = 0; i < 100; ++i) {
    opening.opened(30'000'000);
    opening.ended(1000, 100'000'000);
  }
  EXPECT_EQ(opening.columns_for(8, kMost), kMost) << "but a way that has grown long is learnt";
}

}  // namespace
}  // namespace talweg::protocol
