// Who sums in bounded sums, and their two halves as calls of their own: push and pull.
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "group/bounded.h"
#include "group/bounded_terms.h"
#include "lossy.h"
#include "ranks.h"
#include "talweg/bounded_loss.h"

namespace talweg::group {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

using Seconds = std::chrono::seconds;

std::vector<float> numbers_of(std::size_t count, int rank, int call) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = static_cast<float>((static_cast<int>(i) * 31 + rank * 17 + call * 7) % 199 - 99);
  return values;
}

std::vector<float> exact_sum(Group& group, const std::vector<float>& in) {
  std::vector<float> sum(in.size());
  group.all_reduce(in.data(), sum.data(), in.size(), DataType::f32, ReduceOp::sum);
  return sum;
}

BoundedSeams server_seams(const Group& group, double loss) {
  return lossy(loss, 70 + static_cast<unsigned>(group.rank()));
}

TEST(BoundedServers, HaveEqualPartsInTheOrderOfRanks) {
  run_ranks(4, [](Group& group) {
    const auto all = BoundedSums::make(group), two = BoundedSums::make(group, {.servers = {3, 1}});
    EXPECT_EQ(all->part_of(1, 10), (BoundedPart{3, 3}));
    EXPECT_EQ(all->part_of(3, 10), (BoundedPart{8, 2}));
    EXPECT_EQ(two->part_of(0, 11), (BoundedPart{0, 0}));
    EXPECT_EQ(two->part_of(1, 11), (BoundedPart{0, 6}));
    EXPECT_EQ(two->part_of(2, 11), (BoundedPart{6, 0}));
    EXPECT_EQ(two->part_of(3, 11), (BoundedPart{6, 5}));
    EXPECT_THAT(error_of([&] { two->part_of(4, 11); }), HasSubstr("a part of rank 4: expected 0 to 3"));
  });
}

// Who receives nothing hears from the server how long transfers take, and so when what it sends may be lost.
TEST(BoundedServers, TellAllOthersHowLongTransfersTake) {
  run_ranks(3, [](Group& group) {
    const auto sums = BoundedSums::make(group, {.p = 0.1, .servers = {0}});
    const std::vector<float> in(1000, 1.F);
    std::vector<float> out(in.size());
    for (int call = 1; call <= 25; ++call) {
      const LossReport report = sums->all_reduce({.in = in.data(), .out = out.data(), .count = in.size()});
      EXPECT_EQ(report.exact, call <= 20) << "call " << call << " of rank " << group.rank();
    }
  });
}

// With losses, which nobody may see.
TEST(BoundedServers, WithNothingToLoseGiveTheSumsOfTheGroup) {
  for (const int ranks : {2, 3, 5})
    for (const std::vector<int>& servers : {std::vector<int>{ranks - 1}, std::vector<int>{1, 0}})
      run_ranks(ranks, [&](Group& group) {
        const auto sums =
            make_bounded(group, {.p = 0, .packet_bytes = 512, .servers = servers}, server_seams(group, 0.1));
        for (const std::size_t count : {1UL, 7UL, 20'001UL})
          for (const bool in_place : {false, true}) {
            const std::vector<float> in = numbers_of(count, group.rank(), 0), expected = exact_sum(group, in);
            std::vector<float> out = in_place ? in : std::vector<float>(count, -7.F);
            const LossReport report = sums->all_reduce(
                {.in = in_place ? out.data() : in.data(), .out = out.data(), .count = count});
            EXPECT_EQ(std::memcmp(out.data(), expected.data(), count * sizeof(float)), 0) << count;
            EXPECT_TRUE(report.exact);
            const std::size_t own = sums->part_of(group.rank(), count).count;
            EXPECT_EQ(report.sent_bytes, (count - own) * sizeof(float));
          }
      });
}

// A training loop by parameter servers: pushes that lose a part and keep it, a step that each server makes
// alone, and a pull of what has come of it.
TEST(BoundedServers, TakePushesOfWhichNothingIsLostThatIsNotInAResidual) {
  constexpr std::size_t kCount = 30'000;
  constexpr int kCalls = 8;
  constexpr double kP = 0.05;
  std::atomic<std::uint64_t> lost{0};
  struct Case {
    std::vector<int> servers;
    bool dedicated, in_place;
  };
  for (const Case& c : {Case{{1}, false, false}, Case{{1}, false, true}, Case{{0, 3}, false, false},
                        Case{{0, 3}, false, true}, Case{{0, 3}, true, false}})
    run_ranks(4, [&](Group& group) {
      const auto sums =
          make_bounded(group, {.p = kP, .packet_bytes = 400, .servers = c.servers, .dedicated = c.dedicated},
                       server_seams(group, 0.03));
      const BoundedPart part = sums->part_of(group.rank(), kCount);
      const bool adds = !c.dedicated || part.count == 0;
      std::vector<float> residual(kCount), wanted(kCount), parameters(kCount), mine(part.count);
      for (int call = 0; call < kCalls; ++call) {
        std::vector<float> in = adds ? numbers_of(kCount, group.rank(), call) : std::vector<float>(kCount);
        std::vector<float> sum(part.count);
        const std::vector<float> exact = exact_sum(group, in);
        float* const out = c.in_place ? in.data() + part.first : sum.data();
        const LossReport report = sums->push({.in = adds ? in.data() : nullptr,
                                              .out = out,
                                              .count = kCount,
                                              .residual = adds ? residual.data() : nullptr});
        for (std::size_t i = 0; i < part.count; ++i) mine[i] += out[i];
        for (std::size_t i = 0; i < kCount; ++i) wanted[i] += exact[i];
        EXPECT_FALSE(report.exact);
        EXPECT_EQ(report.sent_bytes, adds ? (kCount - part.count) * sizeof(float) : 0);
        EXPECT_LE(static_cast<double>(report.lost_bytes), kP * static_cast<double>(report.sent_bytes));
        for (const std::uint64_t bytes : report.lost_of_sender)
          EXPECT_LE(static_cast<double>(bytes), kP * static_cast<double>(part.count) * sizeof(float));
        std::vector<std::uint64_t> missing(4);  // of each rank's data, at all servers
        group.all_reduce(report.lost_of_sender.data(), missing.data(), 4, DataType::u64, ReduceOp::sum);
        EXPECT_EQ(missing[static_cast<std::size_t>(group.rank())], report.lost_bytes);
        lost += report.lost_bytes;
        if (call % 3 != 2) continue;  // another push comes, and no pull before it
        sums->pull({.in = mine.data(), .out = parameters.data(), .count = kCount});
        EXPECT_TRUE(std::ranges::equal(mine, std::span(parameters).subspan(part.first, part.count)));
      }
      sums->pull({.in = mine.data(), .out = parameters.data(), .count = kCount});
      const std::vector<float> left = exact_sum(group, residual);
      for (std::size_t i = 0; i < kCount; ++i) parameters[i] += left[i];
      EXPECT_EQ(parameters, wanted);
    });
  EXPECT_GT(lost.load(), 0U);
}

// In place without a residual: what is sent is where the sum comes.
TEST(BoundedServers, SumWhereTheirOwnDataAre) {
  for (const LossPolicy policy : {LossPolicy::zero, LossPolicy::rescale})
    run_ranks(3, [&](Group& group) {
      const auto sums =
          make_bounded(group, {.p = 0, .policy = policy, .packet_bytes = 256, .servers = {2, 1}},
                       server_seams(group, 0.1));
      std::vector<float> values(5'001, static_cast<float>(group.rank() + 1));
      const BoundedPart part = sums->part_of(group.rank(), values.size());
      sums->push({.in = values.data(),
                  .out = values.data() + part.first,
                  .count = values.size(),
                  .reduction = ReduceOp::avg});
      for (std::size_t i = 0; i < values.size(); ++i) {
        const bool own = i >= part.first && i < part.first + part.count;
        EXPECT_EQ(values[i], own ? 2.F : static_cast<float>(group.rank() + 1)) << i;
      }
      sums->pull({.in = values.data() + part.first, .out = values.data(), .count = values.size()});
      EXPECT_THAT(values, Each(2.F));
    });
}

TEST(BoundedServers, GiveWhatTheyHaveWithNoPushBefore) {
  run_ranks(3, [](Group& group) {
    const auto sums = make_bounded(group, {.servers = {0, 2}}, server_seams(group, 0.2));
    const BoundedPart part = sums->part_of(group.rank(), 1'001);
    std::vector<std::int64_t> mine(part.count, group.rank() + 5), all(1'001);
    for (int call = 0; call < 3; ++call) {
      sums->pull({.in = mine.data(), .out = all.data(), .count = all.size(), .type = DataType::i64});
      EXPECT_EQ(std::ranges::count(all, 5), 501);
      EXPECT_EQ(std::ranges::count(all, 7), 500);
    }
    sums->pull({.in = nullptr, .out = nullptr, .count = 0});
  });
}

// Dedicated ones add nothing: a mean is that of the others, where datagrams pass and where none do.
TEST(BoundedServers, ThatAreDedicatedAddNothing) {
  for (const bool blocked : {false, true})
    run_ranks(4, [&](Group& group) {
      const auto sums =
          make_bounded(group, {.p = 0, .packet_bytes = 512, .servers = {1, 2}, .dedicated = true},
                       server_seams(group, blocked ? 1 : 0.05));
      const bool server = group.rank() == 1 || group.rank() == 2;
      const BoundedPart part = sums->part_of(group.rank(), 3'000);
      const std::vector<float> in(3'000, group.rank() == 0 ? 2.F : 4.F);
      std::vector<float> out(part.count), all(3'000);
      const float* const given = server ? nullptr : in.data();
      const LossReport report =
          sums->push({.in = given, .out = out.data(), .count = 3'000, .reduction = ReduceOp::avg});
      EXPECT_THAT(out, Each(3.F));
      EXPECT_EQ(report.sent_bytes, server ? 0 : 3'000 * sizeof(float));
      sums->pull({.in = out.data(), .out = all.data(), .count = 3'000});
      EXPECT_THAT(all, Each(3.F));
      sums->all_reduce({.in = given, .out = all.data(), .count = 3'000});
      EXPECT_THAT(all, Each(6.F));
      if (server) {
        EXPECT_THAT(error_of([&] { sums->all_reduce({.in = in.data(), .out = all.data(), .count = 3'000}); }),
                    HasSubstr("the input of a dedicated server is in no sum: expected null"));
      } else {
        EXPECT_THAT(error_of([&] { sums->all_reduce({.in = in.data(), .out = all.data(), .count = 3'000}); }),
                    HasSubstr("was refused there"));
      }
    });
}

TEST(BoundedServers, PushAndPullWhereNoDatagramsPass) {
  run_ranks(3, [](Group& group) {
    const auto sums = make_bounded(group, {.servers = {2}}, server_seams(group, 1));
    const std::vector<float> in(999, 1.F);
    std::vector<float> sum(sums->part_of(group.rank(), 999).count), residual(999, 1.F), all(999);
    EXPECT_TRUE(
        sums->push({.in = in.data(), .out = sum.data(), .count = 999, .residual = residual.data()}).exact);
    EXPECT_THAT(sum, Each(6.F));
    EXPECT_THAT(residual, Each(0.F));
    sums->pull({.in = sum.data(), .out = all.data(), .count = 999});
    EXPECT_THAT(all, Each(6.F));
  });
  run_ranks(1, [](Group& group) {
    const auto sums = BoundedSums::make(group, {.servers = {0}});
    const std::vector<float> in(9, 1.F);
    std::vector<float> sum(9), all(9);
    sums->push({.in = in.data(), .out = sum.data(), .count = 9});
    sums->pull({.in = sum.data(), .out = all.data(), .count = 9});
    EXPECT_EQ(all, in);
  });
}

TEST(BoundedServers, AreRefusedWhereTheyCannotBe) {
  run_ranks(2, [](Group& group) {
    const auto refused = [&](const BoundedLossOptions& options) {
      return error_of([&] { BoundedSums::make(group, options); });
    };
    EXPECT_THAT(refused({.servers = {2}}),
                AllOf(HasSubstr("invalid_argument"), HasSubstr("rank 2 as a server: expected 0 to 1")));
    EXPECT_THAT(refused({.servers = {-1}}), HasSubstr("rank -1 as a server"));
    EXPECT_THAT(refused({.servers = {1, 1}}), HasSubstr("rank 1 is a server twice"));
    EXPECT_THAT(refused({.servers = {0, 1}, .dedicated = true}), HasSubstr("nobody has anything to add"));
    EXPECT_THAT(refused({.dedicated = true}), HasSubstr("nobody has anything to add"));
    const auto sums = BoundedSums::make(group, {.servers = {1}});
    std::vector<float> a(8), b(8);
    const bool server = group.rank() == 1;
    EXPECT_THAT(error_of([&] { sums->push({.in = a.data(), .out = nullptr, .count = 8}); }),
                HasSubstr(server ? "bounded push: the output is null but 8 elements are needed"
                                 : "bounded push: the call of rank 1"));
    EXPECT_THAT(error_of([&] { sums->push({.in = a.data(), .out = a.data() + 1, .count = 8}); }),
                HasSubstr(server ? "overlap in part" : "was refused there"));
    EXPECT_THAT(error_of([&] { sums->pull({.in = a.data(), .out = nullptr, .count = 8}); }),
                HasSubstr("bounded pull: the output is null"));
    EXPECT_THAT(error_of([&] { sums->pull({.in = nullptr, .out = b.data(), .count = 8}); }),
                HasSubstr(server ? "bounded pull: the input is null" : "was refused there"));
    EXPECT_EQ(error_of([&] { sums->push({.in = a.data(), .out = b.data(), .count = 8}); }),
              "nothing was thrown");
  });
}

TEST(BoundedServers, ThatDifferByRankAreAnErrorOnAll) {
  run_ranks(3, [](Group& group) {
    const bool other = group.rank() == 2;
    EXPECT_THAT(error_of([&] {
                  BoundedSums::make(group, {.servers = other ? std::vector{1} : std::vector{1, 0}});
                }),
                AllOf(HasSubstr("mismatch"), HasSubstr("rank 0 has servers 0, 1, rank 2 has servers 1")));
    EXPECT_THAT(
        error_of([&] { BoundedSums::make(group, {.servers = {1}, .dedicated = other}); }),
        AllOf(HasSubstr("mismatch"), HasSubstr("rank 0 has servers 1, rank 2 has dedicated servers 1")));
    const auto sums = BoundedSums::make(group, {.servers = {1}});
    std::vector<float> in(100, 1.F), out(100, -1.F);
    const std::string error = error_of([&] {
      if (other)
        sums->pull({.in = in.data(), .out = out.data(), .count = 100});
      else
        sums->push({.in = in.data(), .out = out.data(), .count = 100});
    });
    EXPECT_THAT(error, AllOf(HasSubstr("mismatch"), HasSubstr("calls push: sum of 100 f32"),
                             HasSubstr("calls pull of 100 f32")));
    EXPECT_THAT(out, Each(-1.F));
    sums->push({.in = in.data(), .out = out.data(), .count = 100});
    EXPECT_THAT(out, Each(group.rank() == 1 ? 3.F : -1.F));
  });
}

TEST(BoundedServers, AreAlikeInWhateverOrderTheyAreNamed) {
  const auto digest = [](const BoundedLossOptions& options) { return digest_of_servers(options, 3); };
  EXPECT_EQ(digest({.servers = {2, 0}}), digest({.servers = {0, 2}}));
  EXPECT_EQ(digest({.servers = {2, 0, 1}}), digest({}));
  EXPECT_NE(digest({.servers = {0}}), digest({.servers = {1}}));
  EXPECT_NE(digest({.servers = {0}}), digest({}));
  EXPECT_NE(digest({.servers = {0}}), digest({.servers = {0}, .dedicated = true}));
  run_ranks(2, [](Group& group) {
    const auto sums =
        BoundedSums::make(group, {.servers = group.rank() == 0 ? std::vector<int>{} : std::vector{1, 0}});
    EXPECT_EQ(sums->part_of(1, 5), (BoundedPart{3, 2}));
  });
}

TEST(BoundedServers, WhoseDatagramsDoNotComeAreNamed) {
  run_ranks(3, [](Group& group) {
    std::atomic<bool> blocked{false};
    const auto sums =
        make_bounded(group, {.servers = {1}}, once(blocked, lossy(group.rank() == 1 ? 1 : 0, 30)));
    blocked = true;
    std::vector<float> in(1'000, 1.F), sum(1'000), residual(1'000);
    const auto push = [&] {
      return error_of([&] {
        sums->push({.in = in.data(),
                    .out = sum.data(),
                    .count = in.size(),
                    .residual = residual.data(),
                    .timeout = Seconds(2)});
      });
    };
    const std::string first = push();
    EXPECT_THAT(first, AllOf(HasSubstr("bounded push #1 of 1000 f32 on rank"), HasSubstr("rank 1")));
    EXPECT_THAT(residual, Each(1.F));
    EXPECT_EQ(error_of([&] { sums->pull({.in = sum.data(), .out = in.data(), .count = in.size()}); }), first);
    group.barrier();
  });
}

// A push is over for who has no part of the sum once its own data have come.
TEST(BoundedServers, TakePushesOfWhichTheOthersHearOnlyLaterThatTheyFailed) {
  run_ranks(3, [](Group& group) {
    std::atomic<bool> blocked{false};
    const auto sums =
        make_bounded(group, {.servers = {2}}, once(blocked, lossy(group.rank() == 0 ? 1 : 0, 31)));
    blocked = true;
    const std::vector<float> in(1'000, 1.F);
    std::vector<float> sum(1'000);
    const auto push = [&] {
      return error_of([&] {
        sums->push({.in = in.data(), .out = sum.data(), .count = in.size(), .timeout = Seconds(2)});
      });
    };
    const std::string first = push(), second = push();
    if (group.rank() == 1) {
      EXPECT_EQ(first, "nothing was thrown");
      EXPECT_THAT(second, AllOf(HasSubstr("bounded push #2"), HasSubstr("rank 0")));
    } else {
      EXPECT_THAT(first, HasSubstr(group.rank() == 0 ? "with rank 2" : "rank 0"));
      EXPECT_EQ(second, first);
    }
    group.barrier();
  });
}

TEST(BoundedServers, ThatHaveLeftAreNamedByAPull) {
  std::mutex mutex;
  std::vector<std::string> errors;
  run_ranks(3, [&](Group& group) {
    const auto sums = make_bounded(group, {.servers = {2}}, lossy(0, 41));
    std::vector<float> sum(100), all(100);
    const auto pull = [&] {
      return error_of([&] {
        sums->pull({.in = sum.data(), .out = all.data(), .count = all.size(), .timeout = Seconds(20)});
      });
    };
    EXPECT_EQ(pull(), "nothing was thrown");
    if (group.rank() == 2) return;
    const std::string error = pull();
    const std::lock_guard guard(mutex);
    errors.push_back(error);
  });
  EXPECT_THAT(errors,
              AllOf(::testing::SizeIs(2), Each(AllOf(HasSubstr("bounded pull #2"), HasSubstr("rank 2")))));
}

// Its record, and what is counted.
TEST(BoundedServers, HaveEachHalfInTheFlightRecord) {
  run_ranks(2, [](Group& group) {
    const auto sums = make_bounded(group, {.servers = {0}}, lossy(0, 42));
    std::vector<float> in(100, 1.F), sum(100);
    sums->push({.in = in.data(), .out = sum.data(), .count = 100});
    sums->pull({.in = sum.data(), .out = in.data(), .count = 100});
    const std::string record = sums->flight_record();
    EXPECT_THAT(record, AllOf(HasSubstr(R"("operation":"bounded_push","sequence":1)"),
                              HasSubstr(R"("operation":"bounded_pull","sequence":2)")));
    EXPECT_EQ(group.statistics().bounded_calls, 2U);
    EXPECT_EQ(group.statistics().bounded_sent_bytes, group.rank() == 1 ? 400U : 0U);
  });
}

}  // namespace
}  // namespace talweg::group
