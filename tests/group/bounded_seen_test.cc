// What sums of which a part is lost leave behind: counters, flight records, traces.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <latch>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "few_descriptors.h"
#include "group/bounded.h"
#include "live/system.h"
#include "lossy.h"
#include "observe/flight_record.h"
#include "observe/recorder.h"
#include "ranks.h"
#include "sanitized.h"

namespace talweg::group {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Counted for all groups of a process together, by the ranks of the one that was joined.
TEST(BoundedSums, CountWhatTheyHaveLostForStatisticsAndMetrics) {
  char folder[] = "/tmp/talweg-test-XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  const Variable file("TALWEG_METRICS_FILE", std::string(folder) + "/rank%r.prom");
  struct Counted {
    GroupStatistics totals;
    std::uint64_t of_rank_1 = 0;  // that others have summed without
  };
  std::array<Counted, 3> counted;
  run_ranks(3, [&](Group& group) {
    EXPECT_EQ(group.statistics().bounded_calls, 0U);
    const auto turned = group.split(std::array{2, 1, 0});
    const auto sums =
        make_bounded(*turned, {.p = 0.2, .packet_bytes = 400}, lossy(group.rank() == 1 ? 0.1 : 0, 70));
    const std::vector<float> in(30'000, 1.F);
    std::vector<float> out(in.size());
    Counted told;
    for (int call = 0; call < 5; ++call) {
      const LossReport report = sums->all_reduce({.in = in.data(), .out = out.data(), .count = in.size()});
      ++told.totals.bounded_calls;
      told.totals.bounded_sent_bytes += report.sent_bytes;
      told.totals.bounded_lost_bytes += report.lost_bytes;
      told.totals.bounded_packets_again += report.packets_again;
      told.of_rank_1 += report.lost_of_sender[1];
    }
    const GroupStatistics totals = group.statistics();
    EXPECT_EQ(totals.bounded_calls, told.totals.bounded_calls);
    EXPECT_EQ(totals.bounded_sent_bytes, told.totals.bounded_sent_bytes);
    EXPECT_EQ(totals.bounded_lost_bytes, told.totals.bounded_lost_bytes);
    EXPECT_EQ(totals.bounded_packets_again, told.totals.bounded_packets_again);
    counted[static_cast<std::size_t>(group.rank())] = told;
  });
  EXPECT_GT(counted[1].totals.bounded_lost_bytes, 0U);
  EXPECT_EQ(counted[0].of_rank_1 + counted[2].of_rank_1, counted[1].totals.bounded_lost_bytes);
  for (const int rank : {0, 2}) {
    std::ifstream page(fmt::format("{}/rank{}.prom", folder, rank));
    const std::string text{std::istreambuf_iterator<char>(page), {}};
    EXPECT_THAT(text, ::testing::ContainsRegex(
                          fmt::format("talweg_bounded_missing_bytes_total.rank=\"{}\",peer=\"1\"[^\n]* {}\n",
                                      rank, counted[static_cast<std::size_t>(rank)].of_rank_1)));
  }
  std::filesystem::remove_all(folder);
}

observe::Record read_back(const std::string& text) {
  std::string file = "/tmp/talweg-test-XXXXXX";
  ::close(::mkstemp(file.data()));
  std::ofstream(file) << text;
  observe::Record record = observe::read_record(file);
  std::filesystem::remove(file);
  return record;
}

// By their flight record, and in the trace.
TEST(BoundedSums, AreCallsOfTheirOwnToThoseWhoWatch) {
  char folder[] = "/tmp/talweg-test-XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  const Variable traced("TALWEG_TRACE", folder);
  run_ranks(3, [&](Group& group) {
    const auto sums =
        make_bounded(group, {.p = 0.2, .packet_bytes = 400}, lossy(group.rank() == 1 ? 0.1 : 0, 80));
    const std::vector<float> in(30'000, 1.F);
    const std::array<std::size_t, 3> kLayers{9'000, 11'000, 10'000};
    std::vector<float> out(in.size());
    std::vector<LossReport> reports;
    for (int call = 0; call < 3; ++call)
      reports.push_back(
          sums->all_reduce({.in = in.data(), .out = out.data(), .count = in.size(), .layers = kLayers}));
    const observe::Record record = read_back(sums->flight_record());
    EXPECT_EQ(record.rank, group.rank());
    std::vector<observe::RecordedCall> calls = record.calls;
    std::erase_if(calls, [](const observe::RecordedCall& c) { return !c.bounded(); });
    ASSERT_EQ(calls.size(), reports.size());
    for (std::size_t i = 0; i < calls.size(); ++i) {
      EXPECT_EQ(calls[i].operation, "bounded_all_reduce");
      EXPECT_EQ(calls[i].sequence, i + 1);
      EXPECT_EQ(calls[i].state, "completed");
      EXPECT_EQ(calls[i].type, "f32");
      EXPECT_EQ(calls[i].reduction, "sum");
      EXPECT_EQ(calls[i].count, 30'000);
      EXPECT_GE(calls[i].ended_ns, calls[i].started_ns);
      EXPECT_EQ(calls[i].sent_bytes, static_cast<std::int64_t>(reports[i].sent_bytes));
      std::vector<std::uint64_t> lost(3);
      for (const auto& [rank, bytes] : calls[i].lost_of_sender)
        lost[static_cast<std::size_t>(rank)] = static_cast<std::uint64_t>(bytes);
      EXPECT_EQ(lost, reports[i].lost_of_sender);
      EXPECT_EQ(calls[i].lost_bytes, static_cast<std::int64_t>(reports[i].lost_bytes));
      std::vector<std::uint64_t> of_layer(kLayers.size());
      for (const auto& [layer, bytes] : calls[i].lost_of_layer)
        of_layer[static_cast<std::size_t>(layer)] = static_cast<std::uint64_t>(bytes);
      EXPECT_EQ(of_layer, reports[i].lost_of_layer);
      if (group.rank() == 1) {
        EXPECT_GT(calls[i].lost_of_layer.size(), 1U);
      }
    }
  });
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    std::ifstream trace(file.path());
    const std::string text{std::istreambuf_iterator<char>(trace), {}};
    EXPECT_THAT(text,
                ::testing::ContainsRegex("\"ph\":\"b\"[^\n]*\"bounded_all_reduce\"[^\n]*\"sequence\":3,"));
    EXPECT_THAT(text, ::testing::ContainsRegex("\"ph\":\"e\"[^\n]*\"bounded_all_reduce\""));
  }
  std::filesystem::remove_all(folder);
}

TEST(Recorder, OfTheLayersOfABoundedCallKeepsTheSixteenThatLostTheMost) {
  observe::Recorder recorder(4);
  LossReport report;
  for (std::uint64_t layer = 0; layer < 40; ++layer)  // 0, 37, 74, 10, 47, ...
    report.lost_of_layer.push_back(layer * 37 % 101);
  const auto many = recorder.start({}), few = recorder.start({}), one = recorder.start({});
  recorder.lose(many, report);
  const auto& worst = recorder.losses(many)->worst_layers;
  ASSERT_EQ(worst.size(), 16U);
  std::vector<std::uint64_t> bytes = report.lost_of_layer;
  std::ranges::sort(bytes, std::ranges::greater{});
  for (std::size_t i = 0; i < worst.size(); ++i) {
    EXPECT_EQ(worst[i].second, bytes[i]);
    EXPECT_EQ(report.lost_of_layer[worst[i].first], bytes[i]);
  }
  report.lost_of_layer = {0, 8, 0, 9};
  recorder.lose(few, report);
  report.lost_of_layer = {17};  // which says nothing that lost_bytes does not
  recorder.lose(one, report);
  observe::RecordHead head;
  head.hosts = {"a"};
  const nlohmann::json calls = nlohmann::json::parse(observe::to_json(head, recorder, {}))["operations"];
  EXPECT_EQ(calls[0]["lost_of_layer"].size(), 16U);
  EXPECT_EQ(calls[1]["lost_of_layer"],
            nlohmann::json::parse(R"([{"layer": 3, "bytes": 9}, {"layer": 1, "bytes": 8}])"));
  EXPECT_EQ(calls[2]["lost_of_layer"], nlohmann::json::array());
}

TEST(BoundedSums, SayOnAllRanksThatOneHasNoDescriptors) {
  if (kSanitized) GTEST_SKIP() << "sanitizers want two descriptors to look at an object's type";
  const Variable paths("TALWEG_PATHS", "4");
  std::optional<FewDescriptors> few;
  run_ranks(2, [&few](Group& group) {
    const auto made_with = [&](std::size_t descriptors) {
      group.barrier();  // The other may still be joining, which takes descriptors.
      if (group.rank() == 0) few.emplace(descriptors);
      group.barrier();
      const std::string error = error_of([&] { BoundedSums::make(group); });
      group.barrier();
      if (group.rank() == 0) few.reset();
      group.barrier();
      return error;
    };
    // Each rank wants five.
    for (const std::size_t few_of_them : {0U, 3U, 6U})
      EXPECT_THAT(made_with(few_of_them), AllOf(HasSubstr("bounded loss: rank "), HasSubstr(": creating a"),
                                                HasSubstr("Too many open files")));
    EXPECT_EQ(made_with(40), "nothing was thrown");
  });
}

// Rank 2 has not called it; then no datagram of rank 1 comes.
TEST(BoundedSums, SayForWhomTheyWait) {
  std::atomic<bool> mute{false};
  std::latch seen(2);
  run_ranks(3, [&](Group& group) {
    const auto sums = make_bounded(group, {.p = 0.01}, once(mute, lossy(group.rank() == 1 ? 1 : 0, 90)));
    if (group.rank() == 1) mute = true;
    std::vector<float> values(1'000, 1.F);
    const auto sum = [&] {
      sums->all_reduce({.in = values.data(), .out = values.data(), .count = values.size()});
    };
    if (group.rank() == 1) sum();
    if (group.rank() == 2) {
      seen.arrive_and_wait();
      sum();
    }
    if (group.rank() != 0) return;
    std::thread other(sum);
    const auto wait_for = [&](auto&& good) {
      observe::RecordedCall call;
      for (int i = 0; i < 2000; ++i) {
        for (const observe::RecordedCall& c : read_back(sums->flight_record()).calls)
          if (c.bounded()) call = c;
        if (good(call)) break;
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      return call;
    };
    const auto absent = wait_for([](const auto& c) { return c.not_started == std::vector{2}; });
    EXPECT_EQ(absent.state, "started");
    EXPECT_THAT(absent.not_started, ::testing::ElementsAre(2));
    seen.arrive_and_wait();
    const auto silent = wait_for([](const auto& c) { return c.data_missing_from == std::vector{1}; });
    EXPECT_EQ(silent.state, "moving");
    EXPECT_THAT(silent.not_started, ::testing::IsEmpty());
    EXPECT_THAT(silent.data_missing_from, ::testing::ElementsAre(1));
    EXPECT_THAT(silent.text, AllOf(HasSubstr("bounded_all_reduce(sum, f32, 1000 elements) #1 on rank 0 ("),
                                   HasSubstr("): data are missing from rank 1 (")));
    mute = false;
    other.join();
    EXPECT_EQ(wait_for([](const auto&) { return true; }).state, "completed");
  });
}

// One file, which has all that failed together, and the error names it.
TEST(BoundedSums, LeaveARecordWhenTheyFail) {
  char folder[] = "/tmp/talweg-test-XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  const Variable dir("TALWEG_RECORDER_DIR", folder);
  run_ranks(3, [&](Group& group) {
    std::atomic<bool> blocked{false};
    const auto sums = make_bounded(group, {.p = 0.01}, once(blocked, lossy(group.rank() == 1 ? 1 : 0, 100)));
    blocked = true;
    std::vector<float> values(1'000, 1.F);
    const auto call = [&] {
      return error_of([&] {
        sums->all_reduce({.in = values.data(),
                          .out = values.data(),
                          .count = values.size(),
                          .timeout = std::chrono::seconds(2)});
      });
    };
    const std::string error = call();
    EXPECT_THAT(error, HasSubstr(std::string("(flight record: ") + folder));
    EXPECT_EQ(call(), error);
  });
  int records = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    const observe::Record record = observe::read_record(file.path());
    ++records;
    int failed = 0;
    for (const observe::RecordedCall& call : record.calls) {
      EXPECT_FALSE(call.in_flight()) << file.path() << ": " << call.operation;
      if (!call.bounded()) continue;
      ++failed;
      EXPECT_EQ(call.state, "failed");
      EXPECT_NE(call.error, "");
      if (record.rank != 1) {
        EXPECT_THAT(call.data_missing_from, ::testing::Contains(1));
      }
    }
    EXPECT_EQ(failed, 1) << file.path();
  }
  EXPECT_EQ(records, 3);
  std::filesystem::remove_all(folder);
}

// Ranks 0 and 1 wait until the deadline for rank 2 to say its call. What fails first is the all_gather in
// which they do.
TEST(BoundedSums, LeaveARecordThatSaysThatTheyFailedWhereARankNeverCallsThem) {
  char folder[] = "/tmp/talweg-test-XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  const Variable dir("TALWEG_RECORDER_DIR", folder);
  std::latch failed(2);
  run_ranks(3, [&](Group& group) {
    const auto sums = make_bounded(group, {.p = 0.01}, lossy(0, 100));
    if (group.rank() == 2) return failed.wait();
    std::vector<float> values(1'000, 1.F);
    EXPECT_THAT(error_of([&] {
                  sums->all_reduce({.in = values.data(),
                                    .out = values.data(),
                                    .count = values.size(),
                                    .timeout = std::chrono::milliseconds(300)});
                }),
                HasSubstr(std::string("(flight record: ") + folder));
    failed.arrive_and_wait();
  });
  int bounded = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder))
    for (const observe::RecordedCall& call : observe::read_record(file.path()).calls) {
      if (!call.bounded()) continue;
      ++bounded;
      EXPECT_EQ(call.state, "failed") << file.path();
      EXPECT_EQ(call.error, "timeout") << file.path();
      EXPECT_THAT(call.text, HasSubstr("before any data, while ranks told each other their calls"));
    }
  EXPECT_EQ(bounded, 2);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace talweg::group
