// All_reduces of a group through a switch: what of a vector travels, and by which form or way it goes.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>

#include "group/switch_stream.h"
#include "live/aggregation/switch_line.h"
#include "switched.h"

namespace talweg {
namespace {

// Blocks that the only job of a switch has had.
live::SwitchServiceOptions counting() {
  live::SwitchServiceOptions options;
  options.describe = [](const live::SwitchStatus& status) {
    return status.jobs.empty() ? "0" : std::to_string(status.jobs[0].counters.contributions);
  };
  return options;
}
std::uint64_t blocks_of(const live::Served& served) {
  return std::stoull(live::give_order(served.service().address(), {}, wire::SwitchDo::status, live::soon()));
}

TEST(Switched, WhatASumCostsIsMeasuredWithAllBlocksTravelling) {
  const Variable exact("TALWEG_SWITCH_EXACT", "1"), sparse("TALWEG_SWITCH_SPARSE", "1");
  const live::Served served(counting());
  run_ranks(
      kRanks,
      [&](Group& group) {
        sum_until(group, 1, [&] { return switch_line(group).find("not now") == std::string::npos; });
        EXPECT_GE(blocks_of(served), 100U * kRanks);
        group.barrier();
      },
      through(at(served), ""));
}

TEST(Switched, BlocksThatAreZeroDoNotTravelWhereAskedForNorWhatIsZeroInThem) {
  const live::Served served(counting());
  for (const std::string sparse : {"0", "1", "pairs"}) {
    const Variable setting("TALWEG_SWITCH_SPARSE", sparse);
    constexpr std::size_t kCount = 1'000'000;
    std::uint64_t sent = 0;
    run_ranks(
        kRanks,
        [&](Group& group) {
          sum_until_there(group);
          group.barrier();
          const std::uint64_t before = blocks_of(served);
          group.barrier();
          std::vector<float> data(kCount, 0.0F), out(kCount, -1.0F);
          const auto mine = static_cast<std::size_t>(group.rank());
          // In one block, and of two columns of pairs.
          data[256'000 * mine] = data[256'000 * mine + 100] = data[500'000] = 1;
          group.all_reduce(data.data(), out.data(), kCount, DataType::f32, ReduceOp::sum);
          for (std::size_t i = 0; i < kCount; ++i)
            ASSERT_EQ(out[i], i == 500'000                                              ? 3.0F
                              : (i % 256'000 == 0 || i % 256'000 == 100) && i < 700'000 ? 1.0F
                                                                                        : 0.0F)
                << i;
          if (group.rank() == 0) sent = blocks_of(served) - before;
          group.barrier();
        },
        through(at(served)));
    if (sparse != "0")
      EXPECT_EQ(sent, (sparse == "pairs" ? 3U : 2U) * kRanks);
    else
      EXPECT_GE(sent, 100U * kRanks);
  }
}

TEST(Switched, BlocksAreAsLongAsIsAskedForAndSumsInTheOrderOfRanks) {
  const live::Served served(counting());
  const Variable sparse("TALWEG_SWITCH_SPARSE", "1"), block("TALWEG_SWITCH_BLOCK", "1000"),
      ordered("TALWEG_SWITCH_ORDERED", "1");
  constexpr std::size_t kCount = 1'000'000;
  std::uint64_t sent = 0;
  run_ranks(
      kRanks,
      [&](Group& group) {
        sum_until_there(group);
        EXPECT_THAT(switch_line(group), ::testing::ContainsRegex("sums?, in order, sparse"));
        group.barrier();
        const std::uint64_t before = blocks_of(served);
        group.barrier();
        std::vector<float> data(kCount, 0.0F);
        // Two ends of a row of each rank, and rows that all have, whose sums are others in another order.
        const std::size_t mine = 7'000 * (static_cast<std::size_t>(group.rank()) + 1);
        data[mine] = data[mine + 999] = 1;
        constexpr std::size_t kRows = 30, kFirst = 500'000, kRow = 1000;
        for (std::size_t row = 0; row < kRows; ++row)
          data[kFirst + row * kRow] = group.rank() == 2 ? 1.0F : 0x1p-24F;
        group.all_reduce(data.data(), data.data(), kCount, DataType::f32, ReduceOp::sum);
        EXPECT_EQ(data[7'000] + data[7'999] + data[21'000] + data[21'999], 4);
        for (std::size_t row = 0; row < kRows; ++row) EXPECT_EQ(data[kFirst + row * kRow], 1.0F + 0x1p-23F);
        if (group.rank() == 0) sent = blocks_of(served) - before;
        group.barrier();
      },
      through(at(served)));
  EXPECT_EQ(sent, 31U * kRanks);
}

// Whole numbers up to a scale's top, one of which is the largest, have codes of their own, and so have sums
// that are some times as large.
TEST(Switched, FloatsTravelAsCodesWhereAskedForAndAllElseAsItIs) {
  const live::Served served;
  for (const auto& [name, top] : {std::pair("block8", 127), std::pair("block4", 7)}) {
    const Variable format("TALWEG_SWITCH_FORMAT", name);
    run_ranks(
        kRanks,
        [&, largest = top](Group& group) {
          constexpr std::size_t kCount = 100'000;
          std::vector<float> data(kCount), out(kCount), ones(1000, 1.0F), sum(1000);
          for (std::size_t i = 0; i < kCount; ++i)
            data[i] = static_cast<float>(i % 64 == 0 ? largest : static_cast<int>(i % 5) - 2);
          // A sum of ones has a code of its own, too.
          const std::int64_t deadline_ns = live::soon();
          const int before = sums(group);
          for (std::int64_t there = 0; there == 0;) {
            group.all_reduce(ones.data(), sum.data(), ones.size(), DataType::f32, ReduceOp::sum);
            ASSERT_EQ(sum, std::vector<float>(sum.size(), kRanks));
            const std::int64_t own = sums(group) > before ? 1 : 0;
            group.all_reduce(&own, &there, 1, DataType::i64, ReduceOp::min);
            ASSERT_LT(live::now_ns(), deadline_ns) << switch_line(group);
          }
          const int made = sums(group);
          group.all_reduce(data.data(), out.data(), kCount, DataType::f32, ReduceOp::sum);
          for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(out[i], kRanks * data[i]) << i;
          // A third of a unit: most of it is rounded, and not in the same way everywhere.
          for (std::size_t i = 0; i < kCount; ++i)
            data[i] = static_cast<float>(i % 64 == 0 ? largest : 1.0 / 3);
          group.all_reduce(data.data(), out.data(), kCount, DataType::f32, ReduceOp::sum);
          double mean = 0;
          for (const float x : out) mean += static_cast<double>(x) / kCount;
          EXPECT_NEAR(mean, kRanks * (largest / 64.0 + 63.0 / 64 / 3), 0.05);
          EXPECT_NE(out[1], kRanks * data[1]);
          reduce_and_check<std::int32_t>(group, kCount, DataType::i32, ReduceOp::sum, true,
                                         [](float x) { return static_cast<std::int32_t>(x); });
          EXPECT_EQ(sums(group), made + 3) << switch_line(group);
          EXPECT_THAT(switch_line(group), ::testing::HasSubstr(std::string(", float as ") + name));
        },
        through(at(served)));
  }
}

TEST(Switched, SettingsThatCannotBeAreRefusedInOneLine) {
  const auto join = [] {
    run_ranks(
        2, [](Group&) {}, through("127.0.0.1:4711"));
  };
  {
    const Variable block("TALWEG_SWITCH_BLOCK", "100");
    EXPECT_THAT(join, ::testing::ThrowsMessage<Error>(::testing::HasSubstr(
                          "TALWEG_SWITCH_BLOCK: a block has a multiple of 8 elements, and no more than")));
  }
  {
    const Variable format("TALWEG_SWITCH_FORMAT", "block2");
    EXPECT_THAT(join, ::testing::ThrowsMessage<Error>(::testing::HasSubstr(
                          "TALWEG_SWITCH_FORMAT: expected type, block8 or block4, got \"block2\"")));
  }
  const Variable format("TALWEG_SWITCH_FORMAT", "block8");
  {
    const Variable pairs("TALWEG_SWITCH_SPARSE", "pairs");
    EXPECT_THAT(join, ::testing::ThrowsMessage<Error>(::testing::HasSubstr(
                          "TALWEG_SWITCH_FORMAT=block8: pairs have floats as they are")));
  }
  {
    const Variable exact("TALWEG_SWITCH_EXACT", "1");
    EXPECT_THAT(join, ::testing::ThrowsMessage<Error>(
                          ::testing::HasSubstr("TALWEG_SWITCH_FORMAT=block8: codes are rounded")));
  }
  const Variable exact("TALWEG_SWITCH_EXACT", "1"), ordered("TALWEG_SWITCH_ORDERED", "1");
  EXPECT_THAT(join, ::testing::ThrowsMessage<Error>(::testing::HasSubstr("TALWEG_SWITCH_ORDERED: sums of")));
}

// "; chosen: 1 dense, 0 blocks, 5 pairs, 0 by trees"
std::vector<int> chosen(const Group& group) {
  std::vector<int> counts(4, -1);
  const std::string line = switch_line(group);
  const std::size_t at = line.find("chosen: ");
  if (at != std::string::npos)
    std::sscanf(line.c_str() + at, "chosen: %d dense, %d blocks, %d pairs, %d by trees", &counts[0],
                &counts[1], &counts[2], &counts[3]);
  return counts;
}
// Of every rank's vector the elements from its place on that `held` says, every `step`th; and their sum, in
// place and not.
void sum_some(Group& group, std::size_t held, std::size_t step, DataType type = DataType::f32) {
  constexpr std::size_t kCount = 400'000;
  const auto check = [&]<class T>(T one, auto of) {
    std::vector<T> data(kCount, T{}), out(kCount, one);
    std::vector<int> sum(kCount);
    for (int r = 0; r < group.size(); ++r)
      for (std::size_t i = 0; i < held; ++i) {
        const std::size_t at = (static_cast<std::size_t>(r) * 1001 + i * step) % kCount;
        if (r == group.rank()) data[at] = one;
        ++sum[at];
      }
    group.all_reduce(data.data(), out.data(), kCount, type, ReduceOp::sum);
    group.all_reduce(data.data(), data.data(), kCount, type, ReduceOp::sum);
    ASSERT_EQ(out, data);
    for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(of(out[i]), sum[i]) << i;
  };
  if (type == DataType::f32)
    check(1.0F, [](float x) { return static_cast<int>(x); });
  else
    check(kernel::f32_to_f16(1), [](std::uint16_t x) { return static_cast<int>(kernel::f16_to_f32(x)); });
}

// A switch whose time is that of the bytes that it sends: so long for each.
live::SwitchServiceOptions slow(std::chrono::nanoseconds a_byte) {
  live::SwitchServiceOptions options;
  options.threads = 1;
  options.send = [=](int fd, mmsghdr* messages, unsigned n) {
    std::size_t bytes = 0;
    for (unsigned i = 0; i < n; ++i)
      for (std::size_t part = 0; part < messages[i].msg_hdr.msg_iovlen; ++part)
        bytes += messages[i].msg_hdr.msg_iov[part].iov_len;
    std::this_thread::sleep_for(bytes * a_byte);
    return ::sendmmsg(fd, messages, n, 0);
  };
  return options;
}

TEST(Switched, TheFormIsChosenByWhatIsNotZero) {
  const Variable sparse("TALWEG_SWITCH_SPARSE", "auto");
  const live::Served served(slow(std::chrono::nanoseconds(10)));
  const live::Served other(slow(std::chrono::nanoseconds(10)));
  for (const std::string& address : {at(served), at(served) + "," + at(other)})
    run_ranks(
        kRanks,
        [&](Group& group) {
          sum_until_all(group, address == at(served) ? 1 : 2);
          const std::vector<int> before = chosen(group);
          EXPECT_GE(before[0], 1);
          sum_some(group, 400'000, 1);  // dense
          sum_some(group, 4'000, 99);   // in every block, but little of it
          std::vector<int> now = chosen(group);
          EXPECT_EQ(now[0], before[0] + 2);
          EXPECT_EQ(now[2], before[2] + 2);
          sum_some(group, 4'000, 1, DataType::f16);
          EXPECT_EQ(chosen(group)[1], before[1] + 2) << "of two bytes";
          reduce_and_check<std::int32_t>(group, 300'000, DataType::i32, ReduceOp::avg, true,
                                         [](float x) { return static_cast<std::int32_t>(x); });
          check_floats(group, 300'000, false);
          // Any of them, and no other number of sums.
          for (const std::size_t held : {0UL, 1UL, 4'000UL, 100'000UL, 200'000UL, 390'000UL})
            sum_some(group, held, 1);
          now = chosen(group);
          EXPECT_EQ(now[0] + now[1] + now[2], before[0] + before[1] + before[2] + 20);
          EXPECT_EQ(now[3], 0);
          group.barrier();
        },
        through(address));
}

TEST(Switched, AFormCostsWhatIsOnAnyRankTakes) {
  const group::SwitchStream::Cost cost{.fixed = 1, .per_byte = 0.5, .per_pair = 4, .block = 256};
  using protocol::SumForm;
  using wire::AggregationFormat;
  const protocol::Held held{0.5, 0.25};
  EXPECT_EQ(cost.seconds(100, AggregationFormat::f32, SumForm::dense, held), 1 + 0.5 * 400);
  EXPECT_EQ(cost.seconds(100, AggregationFormat::f32, SumForm::blocks, held), 1 + 0.5 * 200);
  EXPECT_EQ(cost.seconds(100, AggregationFormat::f32, SumForm::pairs, held), 1 + 4 * 25);
  EXPECT_EQ(cost.seconds(100, AggregationFormat::bf16, SumForm::dense, held), 1 + 0.5 * 200);
  EXPECT_EQ(cost.seconds(100, AggregationFormat::bf16, SumForm::blocks, held), 1 + 0.5 * 100);
  for (const AggregationFormat format :
       {AggregationFormat::f16, AggregationFormat::bf16, AggregationFormat::i32, AggregationFormat::scaled})
    EXPECT_TRUE(std::isinf(cost.seconds(100, format, SumForm::pairs, held)));
  const group::SwitchStream::Cost coded{.fixed = 1, .per_byte = 0.5, .per_coded = 2};
  const double bytes = 100 * wire::mean_bytes(AggregationFormat::block8);
  EXPECT_EQ(coded.seconds(100, AggregationFormat::block8, SumForm::dense, held), 1 + 2 * bytes);
  EXPECT_EQ(coded.seconds(100, AggregationFormat::block8, SumForm::blocks, held), 1 + 2 * bytes * 0.5);
  EXPECT_EQ(coded.seconds(100, AggregationFormat::bf16, SumForm::dense, held), 1 + 0.5 * 200);
  EXPECT_EQ(coded.seconds(100, AggregationFormat::i32, SumForm::dense, held), 1 + 0.5 * 400);
  const group::SwitchStream::Cost without{.fixed = 1, .per_byte = 0.5};
  EXPECT_TRUE(std::isinf(without.seconds(100, AggregationFormat::f32, SumForm::pairs, held)));
}

TEST(Switched, OfExactSumsBlocksMayBeChosenAndNoPairs) {
  const Variable sparse("TALWEG_SWITCH_SPARSE", "auto"), exact("TALWEG_SWITCH_EXACT", "1");
  const live::Served served;
  run_ranks(
      kRanks,
      [&](Group& group) {
        sum_until_there(group);
        const std::vector<int> before = chosen(group);
        sum_some(group, 4'000, 99);
        sum_some(group, 400, 1);
        const std::vector<int> now = chosen(group);
        EXPECT_EQ(now[0], before[0] + 2);
        EXPECT_EQ(now[1], before[1] + 2);
        EXPECT_EQ(now[2], 0);
        group.barrier();
      },
      through(at(served)));
}

// Dense vectors take 144 ms by the switch and a third of that by the trees of a network that it is not in.
TEST(Switched, WhatIsDenseMayGoByTreesAndWhatIsSparseThroughIt) {
  const Variable sparse("TALWEG_SWITCH_SPARSE", "auto");
  const live::Served served(slow(std::chrono::nanoseconds(30)));
  const TemporaryFile network;
  std::string nodes, links;
  for (int r = 0; r < kRanks; ++r) {
    nodes += fmt::format("{{name: h{}}}, ", r);
    links += fmt::format("  - {{between: [h{}, box], capacity: 340Mbit/s}}\n", r);
  }
  std::ofstream(network.path()) << fmt::format("nodes: [{}{{name: box, kind: switch}}]\nlinks:\n{}", nodes,
                                               links);
  run_ranks(
      kRanks,
      [&](Group& group) {
        sum_until(group, 8192, [&] { return switch_line(group).find("not now") == std::string::npos; });
        group.barrier();
        // A rank that hears of others' choice before it knows of its own may not count it.
        const auto by_trees = [&] {
          std::int64_t own = chosen(group)[3], all = 0;
          group.all_reduce(&own, &all, 1, DataType::i64, ReduceOp::sum);
          return all;
        };
        const std::int64_t before = by_trees();
        const int summed = sums(group);
        sum_some(group, 400'000, 1);
        const std::int64_t then = by_trees();
        EXPECT_GE(then, before + 2);
        EXPECT_EQ(sums(group), summed);
        sum_some(group, 400, 1);
        EXPECT_EQ(by_trees(), then);
        EXPECT_EQ(sums(group), summed + 2);
        EXPECT_THAT(
            group.explain(Collective::all_reduce, 400'000, DataType::f32),
            ::testing::MatchesRegex("switch, in the form that is quickest: predicted .* ms where all is "
                                    "zero, by trees where nothing is; without it .*"));
        group.barrier();
      },
      [&](GroupOptions& options) {
        options.cluster_file = network.path();
        through(at(served), "")(options);
      });
}

}  // namespace
}  // namespace talweg
