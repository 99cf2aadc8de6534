// Bounded sums of a group that a switch makes: it comes, goes, or is not for them.
#include "group/bounded_switch.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "bounded_switched.h"
#include "group/bounded.h"
#include "kernel/half.h"
#include "live/served_switch.h"
#include "lossy.h"
#include "ranks.h"
#include "switched.h"
#include "talweg/bounded_loss.h"

namespace talweg::group {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;

template <typename T>
void sum_bounded(Group& group, BoundedSums& sums, DataType type, ReduceOp reduction, bool in_place,
                 T (*of)(float), bool by_switch) {
  constexpr std::size_t kCount = 5000;
  std::vector<T> in(kCount), out(kCount), expected(kCount), residual(kCount, of(0.F));
  for (std::size_t i = 0; i < kCount; ++i) {
    int sum = 0;
    for (int r = 0; r < kSwitched; ++r) sum += value(r, i);
    in[i] = of(static_cast<float>(value(group.rank(), i)));
    expected[i] = of(static_cast<float>(reduction == ReduceOp::avg ? sum / kSwitched : sum));
  }
  if (in_place) out = in;
  const LossReport report = sums.all_reduce({.in = in_place ? out.data() : in.data(),
                                             .out = out.data(),
                                             .count = kCount,
                                             .type = type,
                                             .reduction = reduction,
                                             .residual = in_place ? nullptr : residual.data()});
  EXPECT_TRUE(out == expected) << talweg::name(type) << " " << talweg::name(reduction);
  EXPECT_TRUE(residual == std::vector<T>(kCount, of(0.F)));
  EXPECT_EQ(report.by_switch, by_switch) << talweg::name(type);
  EXPECT_EQ(last_bounded_way(sums), by_switch ? "dense" : "");
  EXPECT_EQ(report.lost_bytes, 0U);
  if (by_switch) {
    EXPECT_EQ(report.sent_bytes, kCount * sizeof(T));
  }
}

// Two groups that have no rank in common, and so may have a number in common.
TEST(BoundedSwitch, TwoHalvesHaveJobsOfTheirOwn) {
  const live::Served served;
  run_ranks(
      4,
      [](Group& group) {
        const bool first = group.rank() < 2;
        const auto half = group.split(first ? std::vector{0, 1} : std::vector{2, 3});
        const auto sums = BoundedSums::make(*half, {.p = 0.001});
        sum_until_by_switch(*half, *sums);
        group.barrier();
        for (int i = 0; i < 20; ++i) {
          std::vector<float> mine(20'000, first ? 1.F : 10.F);
          const LossReport report =
              sums->all_reduce({.in = mine.data(), .out = mine.data(), .count = mine.size()});
          EXPECT_TRUE(report.by_switch);
          EXPECT_TRUE(are_all(mine, first ? 2.F : 20.F)) << mine[0];
        }
        group.barrier();
      },
      through(at(served)));
}

// Of which less than a block may be missing.
TEST(BoundedSwitch, SumsWhatItCanAndDatagramsCarryTheRest) {
  const live::Served served;
  run_ranks(
      kSwitched,
      [](Group& group) {
        const auto sums = BoundedSums::make(group, {.p = 0.001});
        sum_until_by_switch(group, *sums);
        for (const bool in_place : {false, true})
          for (const ReduceOp reduction : {ReduceOp::sum, ReduceOp::avg}) {
            sum_bounded<float>(
                group, *sums, DataType::f32, reduction, in_place, [](float x) { return x; }, true);
            sum_bounded<std::uint16_t>(
                group, *sums, DataType::f16, reduction, in_place,
                [](float x) { return kernel::f32_to_f16(x); }, true);
            sum_bounded<std::uint16_t>(
                group, *sums, DataType::bf16, reduction, in_place,
                [](float x) { return kernel::f32_to_bf16(x); }, true);
            sum_bounded<double>(
                group, *sums, DataType::f64, reduction, in_place, [](float x) { return double{x}; }, false);
          }
        // The halves are the ranks' own.
        std::vector<float> ones(kSwitched * 100, 1.F), part(100);
        EXPECT_FALSE(sums->push({.in = ones.data(), .out = part.data(), .count = ones.size()}).by_switch);
        EXPECT_THAT(part, ::testing::Each(3.F));
        sums->pull({.in = part.data(), .out = ones.data(), .count = ones.size()});
        EXPECT_THAT(ones, ::testing::Each(3.F));
        EXPECT_TRUE(sum_ones(group, *sums, 1000).by_switch);
        group.barrier();
      },
      through(at(served)));
}

TEST(BoundedSwitch, RanksThatDoNotMeanTheSameAreToldInOneLineAndGoOn) {
  const live::Served served;
  run_ranks(
      kSwitched,
      [](Group& group) {
        const std::string differs =
            error_of([&] { BoundedSums::make(group, {.p = group.rank() == 2 ? 0.2 : 0.1}); });
        EXPECT_THAT(differs, AllOf(StartsWith("mismatch: bounded loss: ranks disagree: rank 0 has p = 0.1, "),
                                   HasSubstr("rank 2 has p = 0.2, "), Not(HasSubstr("\n"))));
        const auto sums = BoundedSums::make(group, {.p = 0.1});
        sum_until_by_switch(group, *sums);
        const std::size_t count = group.rank() == 1 ? 2000 : 1000;
        std::vector<float> in(count, 1.F), out(count, -1.F), residual(count, 0.5F);
        EXPECT_THAT(error_of([&] {
                      sums->all_reduce(
                          {.in = in.data(), .out = out.data(), .count = count, .residual = residual.data()});
                    }),
                    AllOf(HasSubstr("mismatch: bounded all_reduce: ranks disagree: "), Not(HasSubstr("\n"))));
        EXPECT_THAT(out, ::testing::Each(-1.F));
        EXPECT_THAT(residual, ::testing::Each(0.5F));
        for (int i = 0; i < 3; ++i) EXPECT_TRUE(sum_ones(group, *sums, 1000).by_switch);
        // Of one rank's call nobody hears but that it is refused.
        EXPECT_THAT(error_of([&] {
                      sums->all_reduce(
                          {.in = group.rank() == 0 ? nullptr : in.data(), .out = out.data(), .count = 1000});
                    }),
                    HasSubstr(group.rank() == 0 ? "the input is null" : "was refused there"));
        for (int i = 0; i < 3; ++i) EXPECT_TRUE(sum_ones(group, *sums, 1000).by_switch);
        group.barrier();
      },
      through(at(served)));
}

TEST(BoundedSwitch, ASwitchThatEndsInTheMiddleOfSumsCostsNothingAndIsTakenBack) {
  std::optional<live::Served> served(std::in_place);
  const live::Endpoint place = served->service().address();
  std::atomic<bool> summing{false};
  std::thread operating([&] {
    live::wait_until([&] { return summing.load(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    served.reset();
  });
  run_ranks(
      kSwitched,
      [&](Group& group) {
        const auto sums = BoundedSums::make(group, {.p = 0});
        sum_until_by_switch(group, *sums);
        summing = true;
        std::vector<float> residual(kTolerated, 1.F);  // comes with the first call
        const std::int64_t deadline_ns = live::soon();
        for (float extra = 1.F; live::now_ns() < deadline_ns; extra = 0.F) {
          std::vector<float> data(kTolerated, 1.F);
          const LossReport report = sums->all_reduce(
              {.in = data.data(), .out = data.data(), .count = kTolerated, .residual = residual.data()});
          EXPECT_TRUE(are_all(data, (1.F + extra) * kSwitched)) << report.by_switch;
          EXPECT_TRUE(are_all(residual, 0.F));
          EXPECT_EQ(last_bounded_way(*sums), report.by_switch ? "dense" : "fallback");
          if (!report.by_switch) break;
        }
        EXPECT_FALSE(sum_ones(group, *sums, kTolerated).by_switch);
        EXPECT_EQ(last_bounded_way(*sums), "fallback") << "as long as it is not there";
        EXPECT_THAT(sums->explain(kTolerated),
                    AllOf(StartsWith("bounded, direct, "), HasSubstr("not now: ")));
        group.barrier();
        if (group.rank() == 0) {
          operating.join();
          live::SwitchServiceOptions again;
          again.listen = place;
          served.emplace(again);
        }
        group.barrier();
        sum_until_by_switch(group, *sums, kTolerated);
        group.barrier();
      },
      through(to_string(place)));
}

// Their results are written over again, and what was given in place is not gone.
TEST(BoundedSwitch, ASwitchThatFallsSilentIsLeftAndTheSumIsRight) {
  std::atomic<bool> silent{false};
  live::SwitchServiceOptions options;
  options.send = [&](int fd, mmsghdr* messages, unsigned n) {
    return silent ? static_cast<int>(n) : ::sendmmsg(fd, messages, n, 0);
  };
  const live::Served served(options);
  run_ranks(
      kSwitched,
      [&](Group& group) {
        // Over the group's connections, which the second of them needs, as no datagram passes.
        const auto sums = make_bounded(group, {.p = 0.1}, lossy(0, 1));
        const auto blocked = make_bounded(group, {.p = 0.1}, lossy(1, 1));
        sum_until_by_switch(group, *sums);
        sum_until_by_switch(group, *blocked);
        group.barrier();
        silent = true;
        for (BoundedSums* each : {sums.get(), blocked.get()}) {
          EXPECT_FALSE(sum_ones(group, *each, 100'000).by_switch);
          EXPECT_EQ(last_bounded_way(*each), "fallback");
        }
        group.barrier();
      },
      through(at(served)));
}

// Within a call's timeout that is less than what is silence otherwise. One after the other, as none of them
// has to be quick enough.
TEST(BoundedSwitch, ASilentSwitchLeavesTimeForDatagrams) {
  std::atomic<bool> silent{false};
  live::SwitchServiceOptions options;
  options.send = [&](int fd, mmsghdr* messages, unsigned n) {
    return silent ? static_cast<int>(n) : ::sendmmsg(fd, messages, n, 0);
  };
  const live::Served served(options);
  int ended_well = 0;
  for (int tries = 0; tries < 10 && ended_well < kSwitched; ++tries) {
    silent = false;
    std::atomic<int> well{0};
    run_ranks(
        kSwitched,
        [&](Group& group) {
          const auto sums = BoundedSums::make(group, {.p = 0.1});
          sum_until_by_switch(group, *sums);
          group.barrier();
          silent = true;
          std::vector<float> ones(1000, 1.F);
          const std::string error = error_of([&] {
            const LossReport report = sums->all_reduce({.in = ones.data(),
                                                        .out = ones.data(),
                                                        .count = ones.size(),
                                                        .timeout = std::chrono::milliseconds(700)});
            EXPECT_FALSE(report.by_switch);
            EXPECT_TRUE(are_all(ones, kSwitched));
            ++well;
          });
          group.barrier();
        },
        through(at(served)));
    ended_well = well;
  }
  EXPECT_EQ(ended_well, kSwitched);
}

TEST(BoundedSwitch, ARankThatLeavesEndsTheCallWithALineThatNamesIt) {
  const live::Served served;
  std::atomic<int> told{0};
  run_ranks(
      kSwitched,
      [&](Group& group) {
        const auto sums = BoundedSums::make(group, {.p = 0.1});
        sum_until_by_switch(group, *sums);
        group.barrier();
        if (group.rank() == 1) return;
        std::vector<float> ones(1000, 1.F);
        EXPECT_THAT(error_of([&] {
                      sums->all_reduce({.in = ones.data(), .out = ones.data(), .count = ones.size()});
                    }),
                    HasSubstr("rank 1 ("));
        ++told;
      },
      through(at(served)));
  EXPECT_EQ(told, 2);
}

TEST(BoundedSwitch, IsExplained) {
  const live::Served served;
  run_ranks(
      kSwitched,
      [&](Group& group) {
        const auto sums = BoundedSums::make(group, {.p = 0.1, .p_sender = 0.05});
        sum_until_by_switch(group, *sums);
        const std::string text = sums->explain(kTolerated);
        EXPECT_THAT(text,
                    StartsWith("switch, not measured\nway: ranks agree on the call; a sum in the network"));
        EXPECT_THAT(text,
                    HasSubstr("\ncarried by: datagrams to the switch and back: " + at(served) + " (flag), "));
        EXPECT_THAT(text,
                    ::testing::ContainsRegex("\np: 0.05: of each rank's 200000 elements up to [1-9][0-9]* "
                                             "may be missing, in whole blocks\n"));
        EXPECT_THAT(text, HasSubstr("\nmissing: counts as zero; with a residual"));
        EXPECT_THAT(text, HasSubstr("\nexact calls: the first 19 sums of a job"));
        EXPECT_THAT(text, HasSubstr("\ndeadline: 60 s "));
        EXPECT_THAT(text, HasSubstr("\notherwise: bounded, direct, up to "));
        EXPECT_THAT(sums->explain(100), HasSubstr("of each rank's 100 elements up to 0 may be missing"))
            << "less than a block";
        EXPECT_THAT(sums->explain(100, DataType::f64),
                    AllOf(StartsWith("bounded, direct, "), HasSubstr("\nby a switch: no: it sums no f64: ")));
        const auto exact = BoundedSums::make(group, {.p = 0});
        sum_until_by_switch(group, *exact);
        EXPECT_THAT(exact->explain(1000), HasSubstr("\np: nothing may be missing\n"));
        EXPECT_TRUE(sum_ones(group, *exact, 1000).exact);
        group.barrier();
      },
      through(at(served)));
}

TEST(BoundedSwitch, IsNotForWhatItDoesNotKeep) {
  const live::Served served;
  const auto never = [&](const BoundedLossOptions& options, const std::string& why) {
    return [options, why](Group& group) {
      BoundedLossOptions mine = options;
      if (options.classes.keep_important && group.rank() != 1) mine.classes = {};
      const auto sums = BoundedSums::make(group, mine);
      EXPECT_FALSE(sum_ones(group, *sums, 1000).by_switch);
      EXPECT_EQ(last_bounded_way(*sums), "");
      const std::string text = sums->explain(1000);
      EXPECT_THAT(text, StartsWith("bounded, direct, "));
      EXPECT_THAT(text, HasSubstr("\nby a switch: no: " + (options.classes.keep_important && group.rank() != 1
                                                               ? "another rank has options"
                                                               : why)));
      group.barrier();
    };
  };
  run_ranks(kSwitched, never({.p = 0.1, .servers = {0, 2}}, "servers are named"), through(at(served)));
  run_ranks(kSwitched,
            never({.p = 0.1, .classes = {.droppable_front = 0.5, .keep_important = true}}, "no switch keeps"),
            through(at(served)));
  {
    const Variable exact("TALWEG_SWITCH_EXACT", "1");
    run_ranks(kSwitched, never({.p = 0.1}, "sums of TALWEG_SWITCH_EXACT lose nothing"), through(at(served)));
  }
  run_ranks(
      kSwitched,
      [](Group& group) {
        const auto sums = BoundedSums::make(group, {.p = 0.1});
        EXPECT_FALSE(sum_ones(group, *sums, 1000).by_switch);
        EXPECT_THAT(sums->explain(1000), Not(HasSubstr("by a switch")));
      },
      [](GroupOptions&) {});
}

// By cost: 1 MiB takes seconds on links of 1 Mbit/s, and 16 KiB a few microseconds on quick ones.
TEST(BoundedSwitch, IsTakenWhereItIsPredictedToBeQuicker) {
  const live::Served served;
  for (const bool slow : {true, false}) {
    const TemporaryFile cluster;
    std::string nodes = "nodes: [{name: s, kind: switch}", links = "links:\n";
    for (int r = 0; r < kSwitched; ++r) {
      nodes += fmt::format(", {{name: h{}}}", r);
      links += fmt::format("  - {{between: [h{}, s], capacity: {}, latency: 10ns}}\n", r,
                           slow ? "1Mbit/s" : "1Tbit/s");
    }
    std::ofstream(cluster.path()) << nodes << "]\n" << links;
    run_ranks(
        kSwitched,
        [&](Group& group) {
          const auto sums = BoundedSums::make(group, {.p = 0.1});
          const std::size_t count = slow ? 1 << 18 : 4096;
          const std::int64_t deadline_ns = live::soon();
          std::int64_t state = 1;
          while (state == 1) {  // until it has been measured on all ranks
            ASSERT_LT(live::now_ns(), deadline_ns);
            sum_ones(group, *sums, 10);
            const std::int64_t own = sums->explain(count).find("not now: ") == std::string::npos ? 2 : 1;
            group.all_reduce(&own, &state, 1, DataType::i64, ReduceOp::min);
          }
          EXPECT_EQ(sum_ones(group, *sums, count).by_switch, slow);
          EXPECT_EQ(last_bounded_way(*sums), slow ? "dense" : "");
          EXPECT_THAT(
              sums->explain(count),
              slow ? MatchesRegex("switch, predicted [0-9.e-]+ ms\n.*\notherwise: bounded, direct, [^\n]*, "
                                  "predicted [0-9.e+-]+ ms\n")
                   : MatchesRegex("bounded, direct, .*\nby a switch: no: predicted [0-9.e-]+ ms: .*"));
          EXPECT_THAT(sums->explain(10), HasSubstr("by a switch: no: 40 bytes are less than 16384"));
          group.barrier();
        },
        [&](GroupOptions& options) {
          options.cluster_file = cluster.path();
          through(at(served), "")(options);
        });
  }
}

TEST(BoundedSwitch, MetricsCountItsSumsAsTheGroupsOwn) {
  const TemporaryFile metrics;
  const Variable file("TALWEG_METRICS_FILE", metrics.path() + "-%r");
  const live::Served served;
  constexpr int kCalls = 5;
  run_ranks(
      kSwitched,
      [&](Group& group) {
        const auto sums = BoundedSums::make(group, {.p = 0.1});
        sum_until_by_switch(group, *sums);
        for (int call = 0; call < kCalls; ++call) EXPECT_TRUE(sum_ones(group, *sums, 50'000).by_switch);
        EXPECT_THAT(sums->flight_record(), HasSubstr("\"by_switch\":true"));
        group.barrier();
      },
      through(at(served)));
  for (int rank = 0; rank < kSwitched; ++rank) {
    const std::string path = fmt::format("{}-{}", metrics.path(), rank);
    std::ifstream in(path);
    const std::string page{std::istreambuf_iterator<char>(in), {}};
    std::remove(path.c_str());
    const auto value_of = [&](const std::string& labels) {
      const std::size_t begin = page.find(labels);
      return begin == std::string::npos ? -1.0 : std::stod(page.substr(begin + labels.size()));
    };
    const double calls = value_of(fmt::format("switched_calls_total{{rank=\"{}\",way=\"dense\"}}", rank));
    EXPECT_GE(calls, kCalls + 1);
    EXPECT_EQ(value_of(fmt::format("switched_call_bytes_total{{rank=\"{}\",way=\"dense\"}}", rank)),
              kCalls * 200'000 + (calls - kCalls) * 4000);
    EXPECT_GE(value_of(fmt::format("switched_sent_bytes_total{{rank=\"{}\"}}", rank)), kCalls * 200'000);
    EXPECT_GE(value_of(fmt::format("switched_received_bytes_total{{rank=\"{}\"}}", rank)), kCalls * 200'000);
  }
}

}  // namespace
}  // namespace talweg::group
