#include "study/simulate_plan.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "forest/bound.h"
#include "study/plan_report.h"
#include "study/simulate_html.h"
#include "study/simulate_run.h"
#include "study/simulate_text.h"
#include "study/why_not.h"

namespace talweg::study {
namespace {

using testing::HasSubstr;

SimulateOptions calls(const std::string& sizes, const std::string& planners) {
  SimulateRequest request;
  request.topology = "star:hosts=4";
  request.bytes = sizes;
  request.algo = planners;
  request.iters = 1;
  return checked(request);
}

SimulateResult simulated(const SimulateOptions& options) {
  Watchers nobody;
  return simulate_all(options, nobody, [](const PerfRow&) {});
}

TEST(SimulatePlan, IsWhatTheStudyOfPlansPredicts) {
  for (const char* planners : {"", "ring,packed"}) {
    const SimulateOptions options = calls("64K,4M", planners);
    const SimulateResult result = simulated(options);
    StudyRequest request;
    request.sizes = {64 << 10, 4 << 20};
    request.patience = 300;
    const Study study = study_plans(options.cluster, request);
    ASSERT_EQ(result.plans.size(), result.rows.size());
    for (std::size_t i = 0; i < result.rows.size(); ++i) {
      const std::string algorithm = result.rows[i].plan.substr(0, result.rows[i].plan.find(','));
      const StudyRow& row = *std::ranges::find(
          study.rows, static_cast<std::int64_t>(vector_bytes(result.rows[i].what)), &StudyRow::bytes);
      const auto planner = std::ranges::find(study.planners, algorithm) - study.planners.begin();
      const Prediction& expected = row.predictions.at(static_cast<std::size_t>(planner));
      EXPECT_EQ(result.plans[i].seconds, expected.seconds) << algorithm;
      EXPECT_EQ(result.plans[i].breakdown.reason, expected.breakdown.reason) << algorithm;
      EXPECT_TRUE(*planners != '\0' || planner == row.taken) << algorithm;
    }
    ASSERT_TRUE(result.planned.bound);
    EXPECT_EQ(*result.planned.bound, *study.bound);
  }
}

TEST(SimulatePlan, TextJsonAndPageSayWhyTheQuickerPlannerIsNotTaken) {
  const SimulateOptions options = calls("1M,64M", "");
  SimulateResult result = simulated(options);
  ASSERT_EQ(result.planned.planners.back(), "packed");
  StudyRow& row = result.planned.rows.back();
  const auto taken = static_cast<std::size_t>(row.taken);
  ASSERT_TRUE(row.predictions.back().seconds) << "it is quick to plan";
  row.predictions.back().seconds = 0.997 * row.predictions[taken].seconds.value();
  const std::string why =
      "packed, 64 MiB: predicted to be quicker, and not taken: others come within 0.6 % of what links";
  EXPECT_THAT(why_not(result.planned), testing::Contains(HasSubstr(why)));
  EXPECT_THAT(simulate_body(options, result), HasSubstr("\n# " + why.substr(0, 60)));
  EXPECT_THAT(simulate_json(options, result)["why_not"].dump(), HasSubstr(why));
  EXPECT_THAT(SimulatePage().text("a.yaml", "", why_not(result.planned)), HasSubstr(">" + why));
}

TEST(SimulatePlan, TheTableHasTheBoundTheTimesThatWerePlannedAndWhatLimitsThem) {
  const SimulateOptions options = calls("4M", "ring,star");
  const SimulateResult result = simulated(options);
  const std::string text = simulate_body(options, result);
  EXPECT_THAT(text, HasSubstr("\n# Bound                : " +
                              bound_line(options.cluster, result.planned).substr(0, 20)));
  EXPECT_THAT(text,
              testing::ContainsRegex("\n# size   algorithm  planned  of simulated  of bound  limit *\n"));
  EXPECT_THAT(text, testing::ContainsRegex("\n# 4 MiB  ring      +[0-9.]+ +[0-9.]+ +[0-9.]+  links\n"));
  EXPECT_THAT(text, testing::ContainsRegex("\n# 4 MiB  star      +[0-9.]+ +[0-9.]+ +[0-9.]+  links\n"));
  EXPECT_THAT(text, HasSubstr("\n# 4 MiB, ring: links limit: ")) << "it is the quicker one";
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_EQ(line[0], '#') << "it is no result: " << line;
    EXPECT_LE(line.size(), 120u) << line;
  }
}

TEST(SimulatePlan, JsonHasThemOfEachLine) {
  const SimulateOptions options = calls("4M", "ring,star");
  const SimulateResult result = simulated(options);
  const auto json = simulate_json(options, result);
  EXPECT_EQ(json["bound"], bound_json(options.cluster, result.planned));
  EXPECT_TRUE(json["why_not"].empty());
  ASSERT_EQ(json["results"].size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    const auto& line = json["results"][i];
    const auto& planned = line["planned"];
    double sum = 0;
    for (const auto& [what, spent] : planned["spent_us"].items()) sum += spent.get<double>();
    EXPECT_NEAR(sum / planned["predicted_us"].get<double>(), 1, 1e-9);
    EXPECT_EQ(planned["limit"], "links");
    EXPECT_LT(planned["without_limit_us"], planned["predicted_us"]);
    EXPECT_THAT(planned["limit_reason"].get<std::string>(), testing::StartsWith("links limit: "));
    EXPECT_TRUE(planned["through"].empty());
    EXPECT_NEAR(line["part_of_bound"].get<double>() * json["bound"]["algbw_GB_per_s"].get<double>(),
                line["out_of_place"]["algbw_GB_per_s"].get<double>(), 1e-9);
  }
}

TEST(SimulatePlan, WhoLooksOnIsAskedWhileTheBoundIsSearchedFor) {
  SimulateOptions options = calls("4K", "ring");
  options.perf.warmup = 0;
  Watchers watchers;
  int looks = 0;
  watchers.look = [&] { ++looks; };
  simulate_all(options, watchers, [](const PerfRow&) {});
  const int with_bound = std::exchange(looks, 0);
  options.bound = false;
  simulate_all(options, watchers, [](const PerfRow&) {});
  EXPECT_GT(with_bound, looks);
}

TEST(SimulatePlan, WhereThereIsNoBoundItSaysWhy) {
  SimulateRequest request;
  request.topology = "star:hosts=4";
  request.op = "barrier";
  const SimulateOptions options = checked(request);
  const SimulateResult result = simulated(options);
  const auto json = simulate_json(options, result);
  EXPECT_EQ(json["bound"]["none_because"], "no bound is known for barrier");
  EXPECT_TRUE(json["results"][0]["part_of_bound"].is_null());
  EXPECT_THAT(simulate_body(options, result), HasSubstr("\n# Bound                : no bound is known"));
}

}  // namespace
}  // namespace talweg::study
