// Sums of sparse tensors by rows, by the switch of a group and by trees.
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/random.h"
#include "group/group_impl.h"
#include "group/row_prices.h"
#include "group/rows_switch.h"
#include "group/switch_stream.h"
#include "switched.h"
#include "talweg/sparse_rows.h"

namespace talweg {
namespace {

using ::testing::HasSubstr;

// What rank r has of so many rows: whole numbers, which every type holds and adds without rounding.
struct Drawn {
  std::int64_t limit = 1000;
  std::size_t width = 4;
  DataType type = DataType::f32;
  double density = 0.1;
  std::uint64_t seed = 1;
  int without = -1;         // rank that has no rows
  std::int64_t stride = 1;  // from one key to the next that there could be

  std::vector<std::int64_t> keys(int rank) const {
    Random random(seed, static_cast<std::uint64_t>(rank));
    std::vector<std::int64_t> drawn;
    for (std::int64_t key = 0; key < limit; key += stride)
      if (random.uniform() < density && rank != without) drawn.push_back(key);
    return drawn;
  }
  // Some rows are all zero.
  static int number(int rank, std::int64_t key, std::size_t i) {
    if (key % 7 == 3) return 0;
    return static_cast<int>((static_cast<std::size_t>(key) * 5 + i * 3 + static_cast<std::size_t>(rank)) %
                            9) -
           4;
  }
};

void put_number(DataType type, int number, std::vector<std::byte>& bytes) {
  const auto put = [&](auto value) {
    const std::size_t at = bytes.size();
    bytes.resize(at + sizeof value);
    std::memcpy(bytes.data() + at, &value, sizeof value);
  };
  const auto real = static_cast<float>(number);
  switch (type) {
    case DataType::f16:
      return put(kernel::f32_to_f16(real));
    case DataType::bf16:
      return put(kernel::f32_to_bf16(real));
    case DataType::i32:
      return put(std::int32_t{number});
    case DataType::f64:
      return put(double{real});
    default:
      return put(real);
  }
}

SparseRows sum_drawn(Group& group, const Drawn& drawn) {
  const std::vector<std::int64_t> keys = drawn.keys(group.rank());
  std::vector<std::byte> values;
  for (const std::int64_t key : keys)
    for (std::size_t i = 0; i < drawn.width; ++i)
      put_number(drawn.type, Drawn::number(group.rank(), key, i), values);
  return all_reduce_rows(group, {.keys = keys,
                                 .values = values.data(),
                                 .limit = drawn.limit,
                                 .width = drawn.width,
                                 .type = drawn.type});
}

void check_drawn(const SparseRows& sum, const Drawn& drawn, int ranks = kRanks) {
  std::map<std::int64_t, std::vector<int>> expected;
  for (int rank = 0; rank < ranks; ++rank)
    for (const std::int64_t key : drawn.keys(rank)) {
      std::vector<int>& row = expected[key];
      row.resize(drawn.width);
      for (std::size_t i = 0; i < drawn.width; ++i) row[i] += Drawn::number(rank, key, i);
    }
  std::vector<std::int64_t> keys;
  std::vector<std::byte> values;
  for (const auto& [key, row] : expected) {
    keys.push_back(key);
    for (const int number : row) put_number(drawn.type, number, values);
  }
  ASSERT_EQ(sum.keys, keys) << name(drawn.type) << ", rows of " << drawn.width;
  EXPECT_EQ(sum.keys.capacity(), sum.keys.size()) << "room for more than there is";
  ASSERT_TRUE(values.empty() || std::memcmp(sum.values.get(), values.data(), values.size()) == 0)
      << name(drawn.type) << ", rows of " << drawn.width;
}

bool by_switch(Group& group, const Drawn& drawn) {
  const SparseRows sum = sum_drawn(group, drawn);
  check_drawn(sum, drawn);
  return sum.by_switch;
}

// By all of the group's switches, on all ranks.
void sum_rows_until_there(Group& group, std::size_t switches = 1) {
  const std::int64_t deadline_ns = live::soon();
  const std::vector<int> before = sums_of_each(group);
  const auto all_have_summed = [&] {
    const std::vector<int> now = sums_of_each(group);  // of dense vectors first
    if (now.size() != 2 * switches) return false;
    for (std::size_t i = switches; i < now.size(); ++i)
      if (now[i] <= (i < before.size() ? before[i] : 0)) return false;
    return true;
  };
  for (;;) {
    by_switch(group, {.limit = 50'000, .density = 0.01});
    std::int64_t there = all_have_summed() ? 1 : 0, on_all = 0;
    group.all_reduce(&there, &on_all, 1, DataType::i64, ReduceOp::min);
    if (on_all == 1) return;
    std::int64_t late = live::now_ns() > deadline_ns ? 1 : 0, any = 0;
    group.all_reduce(&late, &any, 1, DataType::i64, ReduceOp::max);
    ASSERT_EQ(any, 0) << "it does not come: " << switch_line(group);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

TEST(SwitchedRows, ComeToTheSameByTheSwitchAndByTreesOfAllTypesAndLengths) {
  const live::Served served;
  run_ranks(
      kRanks,
      [](Group& group) {
        sum_rows_until_there(group);
        std::uint64_t seed = 10;
        for (const DataType type :
             {DataType::f32, DataType::f16, DataType::bf16, DataType::i32, DataType::f64})
          for (const std::size_t width : {1UL, 3UL, 16UL, 17UL, 64UL, 1000UL})
            for (const double density : {0.02, 1.0}) {
              const Drawn drawn{
                  .limit = 300, .width = width, .type = type, .density = density, .seed = ++seed};
              EXPECT_EQ(by_switch(group, drawn), type != DataType::f64) << name(type) << ' ' << width;
            }
        EXPECT_THAT(switch_line(group), HasSubstr("of sparse tensors: "));
        group.barrier();
      },
      through(at(served)));
}

TEST(SwitchedRows, RanksMayHaveNoneOrAllOfThemNone) {
  const live::Served served;
  run_ranks(
      kRanks,
      [](Group& group) {
        sum_rows_until_there(group);
        for (int rank = 0; rank < kRanks; ++rank) EXPECT_TRUE(by_switch(group, {.without = rank}));
        EXPECT_FALSE(by_switch(group, {.density = 0})) << "there is nothing to sum";
        EXPECT_FALSE(by_switch(group, {.limit = 0}));
        EXPECT_TRUE(by_switch(group, {.limit = 1, .width = 5, .density = 1}));
        group.barrier();
      },
      through(at(served)));
}

// Of more keys than the switch numbers trees take what it did not.
TEST(SwitchedRows, OfVeryManyKeysMemoryIsThatOfTheRows) {
  const live::Served served;
  run_ranks(
      kRanks,
      [](Group& group) {
        sum_rows_until_there(group);
        constexpr std::int64_t kMost = std::int64_t{1} << 31;
        for (const std::size_t width : {1UL, 20UL}) {
          const Drawn drawn{.limit = kMost, .width = width, .density = 0.3, .stride = kMost / 512};
          EXPECT_TRUE(by_switch(group, drawn));
        }
        const Drawn beyond{.limit = kMost + 1, .density = 0.3, .stride = kMost / 512};
        EXPECT_FALSE(by_switch(group, beyond));
        const Drawn far{.limit = std::int64_t{1} << 62, .density = 0.3, .stride = std::int64_t{1} << 53};
        EXPECT_FALSE(by_switch(group, far));
        group.barrier();
      },
      through(at(served)));
}

TEST(SwitchedRows, OfWhichOneHasNotEndedAnotherDoesNotWaitForLongerThanItMay) {
  const live::Served served;
  run_ranks(
      kRanks,
      [](Group& group) {
        if (group.rank() == 0) {
          auto* const own = dynamic_cast<group::GroupImpl*>(&group);
          ASSERT_NE(own->rows_switch(), nullptr);
          const auto held = own->rows_switch()->turn(live::soon());
          const RowsCall call{.limit = 10, .options = {.timeout = std::chrono::milliseconds(20)}};
          std::thread([&] {
            live::expect_error([&] { all_reduce_rows(group, call); }, ErrorCode::timeout, "has not ended");
          }).join();
        }
        sum_rows_until_there(group);  // nothing of it was said to anybody
      },
      through(at(served)));
}

// What merging takes is a part of what trees take.
TEST(RowPrices, TreesMergeWhatTheyBring) {
  group::TreePrices prices{1e-4, 1e-9};
  const double moved = group::seconds_by_trees(prices, 1000, 256);
  EXPECT_NEAR(moved, 2e-4 + 1e-9 * 1000 * 264, 1e-12);
  prices.merging = {1e-6F, 1e-8F};
  EXPECT_NEAR(group::seconds_by_trees(prices, 1000, 256) - moved, 1000 * (1e-6 + 256e-8), 1e-8);
  for (const std::size_t streams : {1U, 2U, 7U, 5000U}) {
    const group::MergePrices merging = group::measure_merging(streams);
    EXPECT_GT(merging.per_row, 0) << streams;
    EXPECT_GE(merging.per_byte, 0) << streams;
  }
}

TEST(SwitchedRows, RanksThatDisagreeAreToldAndGoOn) {
  const live::Served served;
  run_ranks(
      kRanks,
      [](Group& group) {
        sum_rows_until_there(group);
        const bool odd = group.rank() == 1;
        const std::int64_t shape = odd ? 7 : 8;
        RowsCall other_limit, other_width, other_type, other_shape;
        other_limit.limit = odd ? 10 : 11;
        other_width.width = odd ? 4 : 5;
        other_type.type = odd ? DataType::f16 : DataType::f32;
        other_shape.shape = {&shape, 1};
        for (const RowsCall& call : {other_limit, other_width, other_type, other_shape})
          live::expect_error(
              [&] { all_reduce_rows(group, call); }, ErrorCode::mismatch,
              "disagree about size, type or sparse dimensions in all_reduce of a sparse tensor");
        EXPECT_TRUE(by_switch(group, {.seed = 2})) << "it was passed on all ranks";
        group.barrier();
      },
      through(at(served)));
}

TEST(SwitchedRows, ThatCannotBeAreRefused) {
  run_ranks(1, [](Group& group) {
    const std::vector<float> values(8, 1.0F);
    const std::vector<std::int64_t> twice{3, 3}, back{3, 2}, negative{-1, 2}, beyond{3, 10}, right{3, 9};
    const std::vector<std::int64_t> shape(RowsCall::kMostShape + 1);
    RowsCall call{.keys = right, .values = values.data(), .limit = 10, .width = 4};
    const SparseRows sum = all_reduce_rows(group, call);
    EXPECT_EQ(sum.keys, right);
    EXPECT_FALSE(sum.by_switch);
    const auto refused = [&](const RowsCall& wrong, const char* text) {
      live::expect_error([&] { all_reduce_rows(group, wrong); }, ErrorCode::invalid_argument, text);
    };
    for (const auto* const keys : {&twice, &back, &negative, &beyond}) {
      call.keys = *keys;
      refused(call, "keys are out of order or out of range: expected 0 to 9, ascending");
    }
    call.keys = right;
    call.values = nullptr;
    refused(call, "the values are null but 2 rows are needed");
    call.values = values.data();
    call.limit = -1;
    refused(call, "-1 rows");
    call.limit = 10;
    call.shape = shape;
    refused(call, "a shape of 17 numbers");
    call.shape = {};
    call.width = std::size_t{1} << 61;
    refused(call, "are more than 2^62 bytes");
  });
}

TEST(SwitchedRows, InfinitiesAndNanAreValues) {
  const live::Served served;
  run_ranks(
      kRanks,
      [](Group& group) {
        sum_rows_until_there(group);
        constexpr float kInfinity = std::numeric_limits<float>::infinity();
        const bool first = group.rank() == 0;
        for (const std::size_t width : {2UL, 40UL}) {
          const std::vector<std::int64_t> keys{5, 6, 7};
          std::vector<float> values(3 * width, 1.0F);
          values[0] = first ? std::nanf("") : 1.0F;
          values[width] = kInfinity;
          values[2 * width] = first ? kInfinity : -kInfinity;
          const SparseRows sum =
              all_reduce_rows(group, {.keys = keys, .values = values.data(), .limit = 10, .width = width});
          EXPECT_TRUE(sum.by_switch);
          ASSERT_EQ(sum.keys, keys);
          std::memcpy(values.data(), sum.values.get(), values.size() * sizeof(float));
          EXPECT_TRUE(std::isnan(values[0]));
          EXPECT_EQ(values[width], kInfinity);
          EXPECT_TRUE(std::isnan(values[2 * width]));
          EXPECT_EQ(values[1], 3.0F) << "its neighbour is what it was";
        }
        group.barrier();
      },
      through(at(served)));
}

TEST(SwitchedRows, ASwitchThatFallsSilentIsLeftAndTheSumIsRight) {
  std::atomic<bool> silent{false};
  live::SwitchServiceOptions options;
  options.send = [&](int fd, mmsghdr* messages, unsigned n) {
    return silent ? static_cast<int>(n) : ::sendmmsg(fd, messages, n, 0);
  };
  const live::Served served(options);
  run_ranks(
      kRanks,
      [&](Group& group) {
        sum_rows_until_there(group);
        group.barrier();
        silent = true;
        EXPECT_FALSE(by_switch(group, {.seed = 3}));
        EXPECT_FALSE(by_switch(group, {.seed = 4}));
        group.barrier();
        silent = false;
        sum_rows_until_there(group);
        group.barrier();
      },
      through(at(served)));
}

TEST(SwitchedRows, OfWhichDatagramsAreLostAreRight) {
  live::SwitchServiceOptions options;
  std::atomic<unsigned> sent{0};
  options.send = [&](int fd, mmsghdr* messages, unsigned n) {
    unsigned begin = 0;
    for (unsigned i = 0; i < n; ++i)
      if (++sent % 50 == 0) {
        if (i > begin) ::sendmmsg(fd, messages + begin, i - begin, 0);
        begin = i + 1;
      }
    if (n > begin) ::sendmmsg(fd, messages + begin, n - begin, 0);
    return static_cast<int>(n);
  };
  const live::Served served(options);
  run_ranks(
      kRanks,
      [](Group& group) {
        sum_rows_until_there(group);
        for (const std::size_t width : {1UL, 32UL})
          for (std::uint64_t seed = 20; seed < 24; ++seed)
            check_drawn(sum_drawn(group, {.limit = 20'000, .width = width, .seed = seed}),
                        {.limit = 20'000, .width = width, .seed = seed});
        group.barrier();
      },
      through(at(served)));
}

TEST(SwitchedRows, OfSeveralSwitchesEachSumsThoseOfItsKeys) {
  const live::Served one, two;
  run_ranks(
      kRanks,
      [](Group& group) {
        sum_rows_until_there(group, 2);
        for (const std::size_t width : {1UL, 32UL}) {
          EXPECT_TRUE(by_switch(group, {.limit = 20'000, .width = width, .density = 0.01}));
          EXPECT_TRUE(by_switch(group, {.limit = 10, .width = width, .density = 0.5}));
        }
        group.barrier();
      },
      through(at(one) + "," + at(two)));
}

TEST(SwitchedRows, ExactSumsAndThoseInOrderHaveTheBitsOfThatInEveryRun) {
  const live::Served served;
  for (const char* const setting : {"TALWEG_SWITCH_EXACT", "TALWEG_SWITCH_ORDERED"}) {
    const Variable variable(setting, "1");
    std::vector<std::byte> before;
    for (int run = 0; run < 2; ++run) {
      run_ranks(
          kRanks,
          [&](Group& group) {
            sum_rows_until_there(group);
            Random random(7, static_cast<std::uint64_t>(group.rank()));
            std::vector<std::int64_t> keys;
            std::vector<float> values;
            for (std::int64_t key = 0; key < 500; ++key) {
              if (random.uniform() < 0.5) continue;
              keys.push_back(key);
              for (int i = 0; i < 20; ++i)
                values.push_back(std::ldexp(static_cast<float>(random.uniform() - 0.5),
                                            static_cast<int>(random.below(20))));
            }
            const SparseRows sum =
                all_reduce_rows(group, {.keys = keys, .values = values.data(), .limit = 500, .width = 20});
            EXPECT_TRUE(sum.by_switch);
            const std::vector<std::byte> bits(sum.values.get(), sum.values.get() + sum.keys.size() * 80);
            group.barrier();
            if (group.rank() != 0) return;
            if (!before.empty()) {
              EXPECT_EQ(bits, before) << setting;
            }
            before = bits;
          },
          through(at(served)));
    }
  }
}

TEST(SwitchedRows, GoByTheSwitchWhereItIsQuickerAndAllRanksFindTheSame) {
  const live::Served served;
  for (const char* const algorithm : {"", "ring"})
    run_ranks(
        kRanks,
        [&](Group& group) {
          for (std::uint64_t seed = 0; seed < 20; ++seed) {
            const Drawn drawn{.limit = 5000, .width = 1 + 40 * (seed % 2), .seed = seed};
            const SparseRows sum = sum_drawn(group, drawn);
            check_drawn(sum, drawn);
            std::int64_t most = sum.by_switch ? 1 : 0, least = most;
            const std::int64_t own = most;
            group.all_reduce(&own, &most, 1, DataType::i64, ReduceOp::max);
            group.all_reduce(&own, &least, 1, DataType::i64, ReduceOp::min);
            ASSERT_EQ(most, least);
            EXPECT_FALSE(*algorithm != '\0' && sum.by_switch);
            EXPECT_FALSE(by_switch(group, {.limit = 100, .width = 3, .density = 0.1})) << "it is short";
          }
          group.barrier();
        },
        through(at(served), algorithm));
}

TEST(SwitchedRows, GroupsThatAreSplitHaveJobsOfTheirOwn) {
  const live::Served served;
  run_ranks(
      kRanks,
      [](Group& group) {
        sum_rows_until_there(group);
        const std::vector<int> ranks{0, 2};
        const auto part = group.split(ranks);
        if (part != nullptr) {
          const std::int64_t deadline_ns = live::soon();
          for (bool there = false; !there;) {
            const SparseRows sum = sum_drawn(*part, {});
            check_drawn(sum, {}, 2);
            there = sum.by_switch;
            ASSERT_LT(live::now_ns(), deadline_ns) << switch_line(*part);
          }
        }
        group.barrier();
        EXPECT_TRUE(by_switch(group, {.seed = 5}));
        group.barrier();
      },
      through(at(served)));
}

TEST(SwitchedRows, AreSummedByASwitchForEachRack) {
  const live::Served top;
  live::SwitchServiceOptions options;
  options.above = live::SwitchAboveOptions{top.service().address()};
  const live::Served one(options), other(options);
  run_ranks(
      kRanks,
      [](Group& group) {
        sum_rows_until_there(group);
        for (const DataType type : {DataType::f32, DataType::bf16, DataType::i32})
          for (const std::size_t width : {1UL, 16UL, 500UL})
            EXPECT_TRUE(by_switch(group, {.limit = 3000, .width = width, .type = type, .density = 0.05}));
        group.barrier();
      },
      [&](GroupOptions& of_rank) {
        of_rank.switch_address = at(of_rank.rank < 2 ? one : other);
        of_rank.algorithm = "switch";
      });
}

TEST(SwitchedRows, GoByTreesWhereTheSwitchHasNoRoomForAJobOfTheirOwn) {
  live::SwitchServiceOptions options;
  options.quotas.jobs = 1;
  const live::Served served(options);
  run_ranks(
      kRanks,
      [](Group& group) {
        sum_until_there(group);
        EXPECT_FALSE(by_switch(group, {}));
        const std::int64_t deadline_ns = live::soon();
        // Refused, or not answered yet.
        while (switch_line(group).find("the switch is busy") == std::string::npos &&
               live::now_ns() < deadline_ns)
          std::this_thread::sleep_for(std::chrono::milliseconds(2));
        EXPECT_THAT(switch_line(group), HasSubstr("the switch is busy"));
        EXPECT_FALSE(by_switch(group, {.seed = 2}));
        check_floats(group, 1000, true);
        group.barrier();
      },
      through(at(served)));
}

// What lies between a short row and a whole block, by the bytes of each of its blocks.
TEST(SwitchedRows, CostWhatTheirBlocksDo) {
  using protocol::SumForm;
  constexpr auto kF32 = wire::AggregationFormat::f32;
  constexpr auto kF16 = wire::AggregationFormat::f16;
  const group::SwitchStream::Cost cost{
      .fixed = 1, .per_byte = 0.001, .per_pair = 0.006, .per_short_row = 0.1, .block = 64};
  const auto blocks = [&](std::size_t width, wire::AggregationFormat format) {
    return cost.seconds_of_rows(100, width, format, SumForm::blocks);
  };
  EXPECT_DOUBLE_EQ(blocks(64, kF32), 1 + 100 * 0.256);
  EXPECT_DOUBLE_EQ(blocks(128, kF32), 1 + 200 * 0.256);
  EXPECT_DOUBLE_EQ(blocks(8, kF32), 1 + 100 * 0.1);
  EXPECT_DOUBLE_EQ(blocks(1, kF32), 1 + 100 * 0.1);
  EXPECT_DOUBLE_EQ(blocks(36, kF32), 1 + 100 * 0.178);
  EXPECT_DOUBLE_EQ(blocks(16, kF16), blocks(8, kF32));
  EXPECT_DOUBLE_EQ(blocks(64, kF16), blocks(32, kF32));
  EXPECT_DOUBLE_EQ(cost.seconds_of_rows(100, 10, kF32, SumForm::pairs), 1 + 1000 * 0.006);
  EXPECT_TRUE(std::isinf(cost.seconds_of_rows(100, 1, kF16, SumForm::pairs)));
  // Where short rows were disturbed when they were measured they take no longer than whole blocks.
  const group::SwitchStream::Cost disturbed{.fixed = 1, .per_byte = 0.001, .per_short_row = 9, .block = 8};
  EXPECT_DOUBLE_EQ(disturbed.seconds_of_rows(100, 3, kF32, SumForm::blocks), 1 + 100 * 0.032);
}

TEST(SwitchedRows, WhatShortOnesCostIsMeasured) {
  const live::Served served;
  const auto address = served.service().address();
  group::SwitchWish wish;
  wish.wanted = wish.always = true;
  wish.at = {{address, to_string(address)}};
  for (const bool rows : {false, true}) {
    wish.rows = rows;
    const group::SwitchStream::Place place{0, 1, rows ? "rows" : "vectors"};
    const group::SwitchStream stream(wish, wish.at[0], place, Logger(0, LogLevel::none), [] {});
    live::wait_until([&] { return stream.cost().has_value(); });
    EXPECT_EQ(stream.cost()->per_short_row > 0, rows);
    EXPECT_EQ(stream.cost()->per_pair > 0, rows);
    EXPECT_EQ(stream.cost()->per_byte > 0, rows) << "all go by it, whatever they cost";
  }
}

}  // namespace
}  // namespace talweg
