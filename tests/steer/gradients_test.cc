// Compressed gradients without a network: what all ranks of a job would do, one after another.
#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/random.h"
#include "steer/gradient_rows.h"
#include "steer/gradient_shards.h"
#include "talweg/error.h"

namespace talweg::steer {
namespace {

using Values = std::vector<float>;
using Words = std::vector<std::uint32_t>;
using testing::ElementsAre;
using testing::HasSubstr;

Values random_gradients(std::size_t count, std::uint64_t seed) {
  Random random(seed);
  Values values(count);
  for (float& value : values) value = static_cast<float>(random.uniform() - 0.5);
  return values;
}

struct OneRank {
  Values gradients;
  Values residual;
  Values shard_residual;
};

// One step of all ranks: what each of them ends with.
Values average_by_shards(const GradientShards& shards, std::vector<OneRank>& ranks,
                         const GradientRounding& rounding) {
  const int size = static_cast<int>(ranks.size());
  std::vector<std::vector<std::byte>> sent;
  for (int r = 0; r < size; ++r) {
    OneRank& rank = ranks[static_cast<std::size_t>(r)];
    sent.emplace_back(shards.total_bytes());
    rank.residual.resize(shards.count());
    shards.encode(r, rank.gradients.data(), rank.residual.data(), rounding, sent.back().data());
  }
  std::vector<std::byte> gathered;
  std::size_t begin = 0;
  for (int r = 0; r < size; ++r) {
    std::vector<std::byte> received;
    for (const auto& bytes : sent) {
      const auto from = bytes.begin() + static_cast<std::ptrdiff_t>(begin);
      received.insert(received.end(), from, from + static_cast<std::ptrdiff_t>(shards.bytes(r)));
    }
    begin += shards.bytes(r);
    OneRank& rank = ranks[static_cast<std::size_t>(r)];
    rank.shard_residual.resize(shards.shard_count(r));
    std::vector<std::byte> averaged(shards.bytes(r));
    shards.sum(r, received.data(), rank.shard_residual.data(), rounding, averaged.data());
    gathered.insert(gathered.end(), averaged.begin(), averaged.end());
  }
  Values out(shards.count());
  shards.decode(gathered.data(), out.data());
  return out;
}

TEST(GradientShards, SumWhatAllRanksHaveWhateverTheSizes) {
  const std::vector<GradientParameter> parameters{{1, 0}, {1000, 1}, {0, 2}, {17, 3}, {300, 4}, {5, 5}};
  for (int size = 1; size <= 5; ++size) {
    const GradientShards exact(parameters, size, {kernel::Code::f32, 16});
    const GradientShards coarse(parameters, size, {kernel::Code::int8, 16});
    std::vector<OneRank> ranks(static_cast<std::size_t>(size)), same;
    Values sum(exact.count());
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      ranks[r].gradients = random_gradients(exact.count(), r);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += ranks[r].gradients[i];
    }
    same = ranks;
    EXPECT_EQ(average_by_shards(exact, same, {}), sum);
    const Values near = average_by_shards(coarse, ranks, {});
    // Each rank's code and that of the sum err by half a step: of 0.5/127, and of the sum's.
    const float bound = 0.51f * static_cast<float>(size) / 127;
    for (std::size_t i = 0; i < sum.size(); ++i) ASSERT_NEAR(near[i], sum[i], bound) << i << " of " << size;
  }
}

TEST(GradientShards, AreOfAboutOneSize) {
  std::vector<GradientParameter> parameters;
  for (std::uint64_t number = 0; number < 40; ++number) parameters.push_back({100, number});
  const GradientShards small(parameters, 4, {kernel::Code::int8, 256});
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(small.shard_count(rank), 1000u);
  const GradientShards large(std::vector<GradientParameter>{{1 << 20, 7}}, 4, {kernel::Code::int8, 256});
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(large.shard_count(rank), std::size_t{1} << 18);
}

TEST(GradientShards, ComeToTheSameBitsHoweverABucketIsPutTogether) {
  const GradientParameter a{700, 0}, b{40, 1}, c{333, 2};
  const std::size_t counts[] = {700, 40, 333};
  const kernel::GradientFormat format{kernel::Code::int4, 32};
  const std::vector<GradientParameter> forward{a, b, c}, backward{c, b, a};
  const GradientShards one(forward, 3, format), other(backward, 3, format);
  std::vector<OneRank> ranks(3), turned(3);
  const auto turn = [&](const Values& values) {
    Values out(values.end() - 333, values.end());
    out.insert(out.end(), values.begin() + 700, values.begin() + 740);
    out.insert(out.end(), values.begin(), values.begin() + 700);
    return out;
  };
  for (std::uint64_t step = 0; step < 4; ++step) {
    for (std::size_t r = 0; r < 3; ++r) {
      ranks[r].gradients = random_gradients(one.count(), 10 * step + r);
      turned[r].gradients = turn(ranks[r].gradients);
    }
    const GradientRounding rounding{true, 9, step};
    ASSERT_EQ(turn(average_by_shards(one, ranks, rounding)), average_by_shards(other, turned, rounding));
    for (std::size_t r = 0; r < 3; ++r) ASSERT_EQ(turn(ranks[r].residual), turned[r].residual);
  }
  for (int rank = 0; rank < 3; ++rank)
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(one.shard_count(rank, i), other.shard_count(rank, 2 - i));
      EXPECT_LE(one.shard_count(rank, i), counts[i]);
    }
}

TEST(GradientShards, LoseNothingInTheLongRun) {
  const GradientShards shards(std::vector<GradientParameter>{{200, 0}}, 2, {kernel::Code::int4, 64});
  std::vector<OneRank> ranks(2);
  Values sum(200);
  for (std::size_t r = 0; r < 2; ++r) {
    ranks[r].gradients = random_gradients(200, r);
    for (std::size_t i = 0; i < 200; ++i) sum[i] += ranks[r].gradients[i];
  }
  std::vector<double> got(200);
  constexpr int kStepCount = 500;
  for (int step = 0; step < kStepCount; ++step) {
    const Values one = average_by_shards(shards, ranks, {});
    for (std::size_t i = 0; i < 200; ++i) got[i] += static_cast<double>(one[i]);
  }
  for (std::size_t i = 0; i < 200; ++i) ASSERT_NEAR(got[i] / kStepCount, sum[i], 1e-3) << i;
}

TEST(GradientShards, RefuseABlockThatIsNone) {
  const std::vector<GradientParameter> parameters{{10, 0}};
  for (const std::uint32_t block : {0u, 8u, 24u, 2048u})
    EXPECT_THROW(GradientShards(parameters, 2, {kernel::Code::int8, block}), Error) << block;
}

Words pack(const GradientRows& rows, const Values& values, const Words& chosen, Values* residual) {
  Words payload(rows.packed_words(chosen));
  rows.pack(values.data(), chosen, residual ? residual->data() : nullptr, payload.data());
  return payload;
}

TEST(GradientRows, TakeTheLargestOfEveryParameter) {
  const std::vector<std::size_t> counts{4, 6, 0, 1};
  const Values values{1, -9, 2, 3, 0.1f, 0.2f, -0.4f, 0.3f, 0, 0, 5};
  const GradientRows elements(counts, 1), blocks(counts, 2);
  EXPECT_THAT(elements.top(values.data(), 0.5), ElementsAre(1, 3, 5, 6, 7, 10));
  EXPECT_THAT(elements.top(values.data(), 1e-9), ElementsAre(1, 6, 10));
  EXPECT_THAT(blocks.top(values.data(), 0.3), ElementsAre(0, 6, 10));
  EXPECT_THAT(elements.at_least(values.data(), 2), ElementsAre(1, 2, 3, 10));
  EXPECT_THAT(blocks.at_least(values.data(), 3), ElementsAre(0, 2, 10));
}

TEST(GradientRows, AddUpToWhatWasSentAndKeepTheRest) {
  Random random(3);
  for (int round = 0; round < 100; ++round) {
    const std::size_t width = 1 + random.below(9);
    std::vector<std::size_t> counts(1 + random.below(4));
    for (std::size_t& count : counts) count = random.below(40);
    const GradientRows rows(counts, width);
    Values sums(rows.count()), expected(rows.count());
    for (std::uint64_t rank = 0; rank < 3; ++rank) {
      const Values values = random_gradients(rows.count(), random.next());
      Values residual(rows.count(), 7);
      const Words payload = pack(rows, values, rows.top(values.data(), 0.3), &residual);
      rows.add(payload, sums.data());
      for (std::size_t i = 0; i < values.size(); ++i) {
        // Either sent as it was, or kept as it was.
        ASSERT_TRUE(residual[i] == 0 || residual[i] == values[i]);
        expected[i] += residual[i] == 0 ? values[i] : 0;
      }
    }
    ASSERT_EQ(sums, expected);
  }
}

TEST(GradientRows, KeepNothingThatIsNotFinite) {
  const GradientRows rows(std::vector<std::size_t>{4}, 1);
  const float infinity = std::numeric_limits<float>::infinity();
  const Values values{infinity, std::nanf(""), -infinity, 2};
  Values residual{1, 2, 3, 4};
  const Words chosen = rows.top(values.data(), 0.25);
  EXPECT_THAT(chosen, ElementsAre(1));
  pack(rows, values, chosen, &residual);
  EXPECT_THAT(residual, ElementsAre(1, 0, 3, 2));
}

TEST(GradientRows, AreAtRandomTheSameForASeedWhateverTheBucket) {
  const GradientRows both(std::vector<std::size_t>{100, 50}, 1), second(std::vector<std::size_t>{50}, 1);
  const std::vector<std::uint64_t> numbers{3, 8}, one_number{8};
  const auto chosen = both.random(0.1, 77, numbers);
  ASSERT_EQ(chosen.size(), 15u);
  EXPECT_EQ(chosen, both.random(0.1, 77, numbers));
  EXPECT_NE(chosen, both.random(0.1, 78, numbers));
  auto alone = second.random(0.1, 77, one_number);
  for (std::uint32_t& element : alone) element += 100;
  EXPECT_EQ(Words(chosen.end() - 5, chosen.end()), alone);
}

TEST(GradientRows, RefusePayloadsThatAreNoneBeforeAnythingIsWritten) {
  const GradientRows rows(std::vector<std::size_t>{10, 5}, 4);
  const Values values = random_gradients(15, 1);
  const Words good = pack(rows, values, Words{4, 10}, nullptr);
  ASSERT_EQ(good.size(), 1u + 2 + 4 + 4);
  const auto refused = [&](Words payload) {
    Values sums(15);
    try {
      rows.add(payload, sums.data());
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr("not rows of this bucket"));
      EXPECT_EQ(sums, Values(15));
      return true;
    }
    return false;
  };
  EXPECT_FALSE(refused(good));
  EXPECT_TRUE(refused({}));
  EXPECT_TRUE(refused(Words(good.begin(), good.end() - 1)));
  const auto with = [&](std::size_t at, std::uint32_t word) {
    Words changed = good;
    changed[at] = word;
    return changed;
  };
  EXPECT_TRUE(refused(with(0, 3)));  // more rows than there are
  EXPECT_TRUE(refused(with(0, 0xffffffff)));
  EXPECT_TRUE(refused(with(1, 5)));   // no row's first element
  EXPECT_TRUE(refused(with(1, 12)));  // not ascending
  EXPECT_TRUE(refused(with(2, 4)));   // twice
  EXPECT_TRUE(refused(with(2, 15)));  // beyond the end
  EXPECT_TRUE(refused(with(2, 0x80000000)));
}

}  // namespace
}  // namespace talweg::steer
