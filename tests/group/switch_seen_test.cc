// What records and metrics say of all_reduces that a switch could sum.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cstddef>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "observe/flight_record.h"
#include "observe/metrics.h"
#include "observe/recorder.h"
#include "ranks.h"
#include "switched.h"

namespace talweg {
namespace {

using ::testing::HasSubstr;

observe::CallNote switched_note(std::uint64_t sequence) {
  observe::CallNote note;
  note.signature = {Collective::all_reduce, DataType::f32, ReduceOp::sum, 0, 100, 0};
  note.sequence = sequence;
  note.algorithm = observe::short_name("switch");
  return note;
}

TEST(Recorder, SaysByWhichWayACallWentThatHadSeveral) {
  observe::Recorder recorder(4);
  recorder.end(recorder.start(switched_note(0)), 5000, protocol::SumWay::blocks);
  recorder.end(recorder.start(switched_note(1)), 5000, protocol::SumWay::fallback);
  recorder.end(recorder.start(switched_note(2)), 5000);
  observe::RecordHead head;
  head.hosts = {"a pid 1"};
  head.members = {0};
  const std::string text = observe::to_json(head, recorder, {});
  const nlohmann::json calls = nlohmann::json::parse(text)["operations"];
  EXPECT_EQ(calls[0]["way"], "blocks");
  EXPECT_EQ(calls[1]["way"], "fallback");
  EXPECT_FALSE(calls[2].contains("way"));
  const TemporaryFile file;
  std::ofstream(file.path()) << text;
  EXPECT_EQ(observe::read_record(file.path()).calls.size(), 3U);
}

TEST(Metrics, SayByWhichWayWentWhatASwitchCouldSum) {
  observe::Metrics metrics;
  metrics.sum(protocol::SumWay::dense, 400);
  metrics.sum(protocol::SumWay::pairs, 40);
  metrics.sum(protocol::SumWay::pairs, 40);
  metrics.sum(protocol::SumWay::fallback, 4);
  observe::Sight sight;
  sight.rank = 2;
  EXPECT_THAT(metrics.text(sight), Not(HasSubstr("switched"))) << "there is no switch";
  sight.switched = {true, 1234, 5678};
  const std::string page = metrics.text(sight);
  EXPECT_THAT(page, HasSubstr("talweg_switched_calls_total{rank=\"2\",way=\"dense\"} 1\n"));
  EXPECT_THAT(page, HasSubstr("talweg_switched_calls_total{rank=\"2\",way=\"blocks\"} 0\n"));
  EXPECT_THAT(page, HasSubstr("talweg_switched_calls_total{rank=\"2\",way=\"pairs\"} 2\n"));
  EXPECT_THAT(page, HasSubstr("talweg_switched_call_bytes_total{rank=\"2\",way=\"pairs\"} 80\n"));
  EXPECT_THAT(page, HasSubstr("talweg_switched_calls_total{rank=\"2\",way=\"trees\"} 0\n"));
  EXPECT_THAT(page, HasSubstr("talweg_switched_calls_total{rank=\"2\",way=\"fallback\"} 1\n"));
  EXPECT_THAT(page, HasSubstr("talweg_switched_sent_bytes_total{rank=\"2\"} 1234\n"));
  EXPECT_THAT(page, HasSubstr("talweg_switched_received_bytes_total{rank=\"2\"} 5678\n"));
}

TEST(Switched, RecordsAndMetricsSayByWhichWaySumsWent) {
  const TemporaryFile metrics;
  const Variable file("TALWEG_METRICS_FILE", metrics.path() + "-%r"), sparse("TALWEG_SWITCH_SPARSE", "1");
  std::optional<live::Served> served(std::in_place);
  run_ranks(
      kRanks,
      [&](Group& group) {
        sum_until_there(group);
        check_floats(group, 100'000, true);
        EXPECT_EQ(last_way(group), "blocks");
        group.barrier();
        EXPECT_EQ(last_way(group), "");
        if (group.rank() == 0) served.reset();
        group.barrier();
        // Before it is known to be lost, and after.
        for (int i = 0; i < 2; ++i) {
          check_floats(group, 100'000, true);
          EXPECT_EQ(last_way(group), "fallback");
        }
        reduce_and_check<float>(group, 1000, DataType::f32, ReduceOp::max, true, [](float x) { return x; });
        EXPECT_EQ(last_way(group), "");
        group.barrier();
      },
      through(at(*served)));
  for (int rank = 0; rank < kRanks; ++rank) {
    const std::string path = fmt::format("{}-{}", metrics.path(), rank);
    std::ifstream in(path);
    const std::string page{std::istreambuf_iterator<char>(in), {}};
    std::remove(path.c_str());
    const auto value_of = [&](const std::string& labels) {
      const std::size_t begin = page.find(labels);
      return begin == std::string::npos ? -1.0 : std::stod(page.substr(begin + labels.size()));
    };
    EXPECT_GE(value_of(fmt::format("_calls_total{{rank=\"{}\",way=\"blocks\"}}", rank)), 2);
    EXPECT_EQ(value_of(fmt::format("_calls_total{{rank=\"{}\",way=\"dense\"}}", rank)), 0);
    EXPECT_GE(value_of(fmt::format("_calls_total{{rank=\"{}\",way=\"fallback\"}}", rank)), 2);
    EXPECT_GE(value_of(fmt::format("_call_bytes_total{{rank=\"{}\",way=\"blocks\"}}", rank)), 400'000);
    EXPECT_GE(value_of(fmt::format("switched_sent_bytes_total{{rank=\"{}\"}}", rank)), 400'000);
    EXPECT_GE(value_of(fmt::format("switched_received_bytes_total{{rank=\"{}\"}}", rank)), 400'000);
  }
}

}  // namespace
}  // namespace talweg
