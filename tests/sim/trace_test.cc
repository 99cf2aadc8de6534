// A trace is JSON that a viewer can draw: bars of one row do not overlap, arrows have both ends.
#include "sim/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "sim/matrix_run.h"
#include "sim/shapes.h"
#include "sim/topologies.h"
#include "talweg/error.h"

namespace talweg::sim {
namespace {

class TraceFile : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }
  nlohmann::json read() const {
    std::ifstream in(path_);
    return nlohmann::json::parse(in);
  }
  const std::string path_ =
      std::filesystem::temp_directory_path() / ("talweg-sim-trace-" + std::to_string(::getpid()) + ".json");
};

TEST_F(TraceFile, HasAProcessForEachNodeAndABarAndAnArrowForEachFlow) {
  const cluster::Cluster cluster = star(3, kTen);
  {
    Trace trace(path_, cluster);
    Simulation simulation(cluster, {});
    run_matrix(
        simulation,
        parse_matrix("Nodes 3\nConnections 3\n0->1 id 1 start 0 size 90000\n0->2 id 2 start 0 size 9000\n"
                     "2->1 id 3 start 5000000 size 1000\n",
                     "a.cm"),
        kNever, &trace);
  }
  std::set<std::string> processes;
  std::multiset<std::string> bars;
  std::map<std::string, int> ends;
  std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> rows;
  for (const auto& e : read()) {
    const std::string phase = e["ph"];
    if (e["name"] == "process_name") processes.insert(e["args"]["name"]);
    if (phase == "X") {
      bars.insert(e["name"]);
      rows[{e["pid"], e["tid"]}].emplace_back(e["ts"].get<double>(), e["dur"].get<double>());
    }
    if (phase == "s") ends[e["id"]] += 1;
    if (phase == "f") ends[e["id"]] += 10;
  }
  EXPECT_THAT(processes, testing::ElementsAre("h0", "h1", "h2", "switch"));
  EXPECT_EQ(bars, (std::multiset<std::string>{"flow 1", "flow 1", "flow 2", "flow 2", "flow 3", "flow 3"}));
  EXPECT_EQ(ends.size(), 3U);
  for (const auto& [id, sum] : ends) EXPECT_EQ(sum, 11) << id;
  for (auto& [row, spans] : rows) {
    std::sort(spans.begin(), spans.end());
    for (std::size_t i = 1; i < spans.size(); ++i)
      EXPECT_LE(spans[i - 1].first + spans[i - 1].second, spans[i].first + 1e-6);
  }
}

TEST_F(TraceFile, PastItsLimitItCountsWhatItLeavesOut) {
  const cluster::Cluster cluster = star(2, kTen);
  {
    Trace trace(path_, cluster, 8);
    for (int i = 0; i < 5; ++i) trace.transfer(0, 1, "x", 1, i * 1000, i * 1000 + 500);
  }
  const auto events = read();
  EXPECT_EQ(events.back()["name"], "talweg_events_left_out");
  EXPECT_EQ(events.back()["args"]["count"], 12);  // three transfers of four events
}

TEST_F(TraceFile, ThatCannotBeWrittenIsAnError) {
  EXPECT_THROW(Trace("/nowhere/trace.json", star(2, kTen)), Error);
}

}  // namespace
}  // namespace talweg::sim
