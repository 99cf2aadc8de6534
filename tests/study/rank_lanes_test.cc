#include "study/rank_lanes.h"

#include <gmock/gmock.h>

#include <set>

#include "forest/planner.h"
#include "sim/collectives.h"
#include "sim/topologies.h"

namespace talweg::study {
namespace {

using testing::HasSubstr;

constexpr sim::Picoseconds kStep = 1'000'000;

nlohmann::json lanes_of_a_call(int hosts, const std::string& planner) {
  const cluster::Cluster cluster = sim::star(hosts, {});
  const auto request = forest::even_request(Collective::all_reduce, hosts, 0, 64 * hosts, 4);
  auto forest = std::make_shared<forest::Forest>(forest::find_planner(planner).plan(request, cluster));
  forest::choose_chunks(*forest, cluster);
  sim::Simulation simulation(cluster, {});
  sim::RanksOptions options;
  options.carry_payloads = false;
  sim::Ranks ranks(simulation, options);
  sim::FrameRecord record;
  ranks.on_frame([&](const sim::FrameNote& note) { record.add(note); });
  sim::run_calls(simulation, ranks, forest, DataType::f32, {0, 2, 0}, sim::kNever);
  return call_lanes(cluster, ranks, record);
}

TEST(CallLanes, HaveARowForEachRankWithinTheLastCallAndAPathBetweenThem) {
  const nlohmann::json lanes = lanes_of_a_call(4, "chain");
  ASSERT_EQ(lanes["rows"].size(), 4u);
  const double begin = lanes["begin"], end = lanes["end"];
  EXPECT_GT(begin, 0);  // the second call's
  EXPECT_LT(begin, end);
  EXPECT_EQ(lanes["rows"][2][0], "h2");
  for (const auto& row : lanes["rows"]) {
    EXPECT_GE(row[1].get<double>(), begin);
    EXPECT_LE(row[2].get<double>(), end);
    ASSERT_EQ(row.size(), 5u);
    EXPECT_EQ(row[3].get<std::string>().size(), row[4].get<std::string>().size());
  }
  // The far end of the chain sends up alone and receives down alone.
  const std::string sends = lanes["rows"][3][3], receives = lanes["rows"][3][4];
  EXPECT_EQ((std::set<char>(sends.begin(), sends.end())), (std::set<char>{'0', '1'}));
  EXPECT_EQ((std::set<char>(receives.begin(), receives.end())), (std::set<char>{'0', '2'}));
  EXPECT_LT(sends.find('1'), receives.find('2'));
  ASSERT_EQ(lanes["path"].size(), 6u);
  EXPECT_EQ(lanes["path"][0][0], 3);
  EXPECT_EQ(lanes["path"][5][1], 3);
  EXPECT_THAT(lanes["said"].get<std::string>(), HasSubstr("6 frames, one behind the other, from h3 to h3"));
}

TEST(CallLanes, OfManyRanksShowThoseOnThePathAndASample) {
  const nlohmann::json lanes = lanes_of_a_call(100, "star");
  EXPECT_LE(lanes["rows"].size(), kMostLanes);
  EXPECT_GE(lanes["rows"].size(), kMostLanes / 2);
  for (const auto& hop : lanes["path"]) {
    EXPECT_GE(hop[0].get<int>(), 0);
    EXPECT_GE(hop[1].get<int>(), 0);
  }
  EXPECT_THAT(lanes["said"].get<std::string>(), HasSubstr(" of 100 are shown."));
}

TEST(StepLanes, SayWhenARankComputesAndWhenItTakesPartInACollective) {
  const cluster::Cluster cluster = sim::star(2, {});
  const nlohmann::json lanes = step_lanes(
      cluster, {{1, true, 0, 10 * kStep}, {1, false, 10 * kStep, 40 * kStep}, {0, true, 0, 20 * kStep}});
  ASSERT_EQ(lanes["rows"].size(), 2u);
  EXPECT_EQ(lanes["rows"][0][0], "h0");
  const std::string does = lanes["rows"][1][3];
  EXPECT_EQ(does.front(), '4');
  EXPECT_EQ(does[does.size() / 4 - 2], '4');
  EXPECT_EQ(does[does.size() / 4 + 2], '8');
  EXPECT_EQ(does.back(), '8');
  const std::string other = lanes["rows"][0][3];
  EXPECT_EQ(other[other.size() / 2 + 2], '0');
  EXPECT_NEAR(lanes["end"].get<double>(), 40e-6, 1e-12);
}

// Two ranks, twice: one step of computing, one of a collective. h1 is late for the first one, h0 for the
// second.
TEST(StepLanes, FollowTheCriticalPathFromACollectiveToTheRankThatBeganItLast) {
  std::vector<sim::StepNote> steps;
  const auto step = [&](int node, bool computes, int began, int ended, int turn) {
    steps.push_back({node, computes, began * kStep, ended * kStep, 1, turn});
  };
  step(0, true, 0, 10, 0);
  step(1, true, 0, 20, 0);
  step(0, false, 10, 30, 1);
  step(1, false, 20, 30, 1);
  step(0, true, 30, 70, 2);
  step(1, true, 30, 40, 2);
  step(1, false, 40, 80, 3);
  step(0, false, 70, 79, 3);
  steps.push_back({1, true, 0, 75 * kStep, 0, 0});  // of another group, which is not waited for
  const nlohmann::json lanes = step_lanes(sim::star(2, {}), steps);
  const auto hop = [](int from, int to, double began, double ended) {
    return nlohmann::json{from, to, began * 1e-6, ended * 1e-6};
  };
  ASSERT_EQ(lanes["path"].size(), 4u);
  const std::vector<nlohmann::json> expected = {hop(1, 1, 0, 20), hop(1, 0, 20, 30), hop(0, 0, 30, 70),
                                                hop(0, 1, 70, 80)};
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(lanes["path"][i][0], expected[i][0]) << i;
    EXPECT_EQ(lanes["path"][i][1], expected[i][1]) << i;
    EXPECT_NEAR(lanes["path"][i][2].get<double>(), expected[i][2].get<double>(), 1e-12) << i;
    EXPECT_NEAR(lanes["path"][i][3].get<double>(), expected[i][3].get<double>(), 1e-12) << i;
  }
  EXPECT_THAT(
      lanes["said"].get<std::string>(),
      HasSubstr("4 steps, one behind the other, back from h1, where all ended last. 75 % of the time it "
                "computes, 25 % a collective goes on"));
  EXPECT_THAT(lanes["said"].get<std::string>(),
              HasSubstr("2 collectives on it were begun last by another rank"));
}

TEST(StepLanes, OfManyRanksShowThoseOnThePath) {
  std::vector<sim::StepNote> steps;
  for (int node = 0; node < 200; ++node) {
    const int late = node == 137 ? 5 : 0;
    steps.push_back({node, true, 0, (10 + late) * kStep, 0, 0});
    steps.push_back({node, false, (10 + late) * kStep, (20 + node % 2) * kStep, 0, 1});
  }
  const nlohmann::json lanes = step_lanes(sim::star(200, {}), steps);
  EXPECT_LE(lanes["rows"].size(), kMostLanes);
  ASSERT_EQ(lanes["path"].size(), 2u);
  const int row = lanes["path"][0][0];
  ASSERT_GE(row, 0);
  EXPECT_EQ(lanes["rows"][static_cast<std::size_t>(row)][0], "h137");
  EXPECT_THAT(lanes["said"].get<std::string>(), HasSubstr(" of 200 are shown."));
}

TEST(StepLanes, OfNothingAreNothing) {
  EXPECT_TRUE(step_lanes(sim::star(2, {}), {}).is_null());
}

}  // namespace
}  // namespace talweg::study
