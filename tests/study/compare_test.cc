#include "study/compare.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "talweg/error.h"

namespace talweg::study {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

constexpr double kFivePercent = 0.05;

class Compare : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("talweg-compare-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string saved(const std::string& text) {
    const std::string path = folder_ / (std::to_string(files_++) + ".json");
    std::ofstream(path) << text;
    return path;
  }
  Comparison compared_files(const json& a, const json& b, double threshold = kFivePercent) {
    return compare(read_results(saved(a.dump())), read_results(saved(b.dump())), threshold);
  }
  std::string complaint_about(const std::string& text) {
    const std::string path = saved(text);
    try {
      read_results(path);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::bad_file);
      const std::string said = error.what();
      EXPECT_EQ(said.find(path + ": "), 0U) << said;
      return said.substr(std::min(said.size(), path.size() + 2));
    }
    return "accepted";
  }

 private:
  std::filesystem::path folder_;
  int files_ = 0;
};

// One size, which these planners take so many microseconds for.
json planned(const std::vector<std::pair<std::string, json>>& planners, const std::string& taken = "ring",
             int workers = 4) {
  json candidates = json::array();
  for (const auto& [planner, us] : planners)
    candidates.push_back({{"algorithm", planner}, {"predicted_us", us}, {"through", json::array()}});
  const json row = {{"size_bytes", 1 << 20}, {"taken", taken}, {"candidates", candidates}};
  return {{"format", "talweg plan"},
          {"format_version", 1},
          {"network", {{"file", "net.yaml"}, {"workers", workers}}},
          {"collective", "all_reduce"},
          {"root", nullptr},
          {"type", "f32"},
          {"bound", {{"rate_Gbit_per_s", 1.5}}},
          {"sizes", json::array({row})}};
}

json side(const json& us) {
  return {{"time_us", us}, {"p50_us", us}, {"p99_us", us}};
}

// One size, measured or simulated.
json measured(const std::string& format, const json& us, const std::string& planner = "ring", int ranks = 4) {
  json row = {
      {"size_bytes", 1 << 20}, {"type", "float"}, {"redop", "sum"}, {"root", -1}, {"algorithm", planner}};
  row["out_of_place"] = side(us);
  row["in_place"] = side(us);
  return {{"format", format},
          {"format_version", 1},
          {"collective", "all_reduce"},
          {"network", "net.yaml"},
          {"results", json::array({row})},
          {"ranks", std::vector<std::string>(static_cast<std::size_t>(ranks), "h 1")}};
}

std::vector<std::string> names_of(const std::vector<Measure>& measures) {
  std::vector<std::string> names;
  for (const Measure& measure : measures) names.push_back(name_of(measure));
  return names;
}

TEST_F(Compare, WhatIsTheSameIsEqualWhateverTheThreshold) {
  const json plan = planned({{"ring", 120.5}, {"star", 0}, {"packed", nullptr}});
  const Comparison same = compared_files(plan, plan, 0);
  EXPECT_TRUE(same.equal());
  EXPECT_EQ(same.pairs.size(), 5U) << "the bound, what is taken and three planners";
  EXPECT_THAT(to_text(same, false), EndsWith("0 of 5 differ by more than 0 %, marked *\n"));
}

TEST_F(Compare, TheLargerMayBeAboveTheSmallerByTheThresholdWhicheverComesFirst) {
  const json less = planned({{"ring", 100}}), more = planned({{"ring", 105}});
  const json most = planned({{"ring", 105.1}});
  EXPECT_TRUE(compared_files(less, more).equal());
  EXPECT_TRUE(compared_files(more, less).equal());
  EXPECT_FALSE(compared_files(less, most).equal());
  EXPECT_FALSE(compared_files(most, less).equal());
  EXPECT_TRUE(compared_files(less, most, 0.06).equal());
}

TEST_F(Compare, ZeroDiffersFromAllElse) {
  const Comparison found = compared_files(planned({{"ring", 0}}), planned({{"ring", 3}}), 1e6);
  EXPECT_EQ(found.differing(), 1U);
  EXPECT_THAT(to_text(found, false), HasSubstr("*inf\n"));
  EXPECT_TRUE(to_json(found)["measures"].back()["ratio"].is_null()) << "JSON has no infinity";
  EXPECT_TRUE(compared_files(planned({{"ring", 0}}), planned({{"ring", 0}})).equal());
}

TEST_F(Compare, WhatHasNoValueDiffersFromWhatHasOne) {
  const Comparison found = compared_files(planned({{"ring", nullptr}}), planned({{"ring", 3}}));
  EXPECT_EQ(found.differing(), 1U);
  const json line = to_json(found)["measures"].back();
  EXPECT_TRUE(line["a"].is_null() && line["ratio"].is_null());
  EXPECT_EQ(line["differs"], true);
}

TEST_F(Compare, BothColumnsHaveOneUnitAndWhatDiffersIsMarked) {
  const Comparison found =
      compared_files(planned({{"ring", 900}, {"star", 2e6}}), planned({{"ring", 2e6}, {"star", 2e6}}));
  const std::string text = to_text(found, false);
  EXPECT_THAT(text, HasSubstr("\ntime   planner         A      B        B/A\n"
                              "                     (s)    (s)\n"
                              "1 MiB  ring     0.000900  2.000  *2222\n"
                              "1 MiB  star     2.000     2.000      1.000\n"));
}

TEST_F(Compare, APredictionIsMatchedWithTheRunOfItsPlannerAndSize) {
  json simulated = measured("talweg simulate", 110);
  const Comparison found = compared_files(planned({{"ring", 100}, {"star", 50}}), simulated);
  ASSERT_EQ(found.pairs.size(), 1U);
  EXPECT_EQ(name_of(found.pairs[0].a), "time of 1 MiB, ring");
  EXPECT_NEAR(*found.pairs[0].ratio, 1.1, 1e-9);
  EXPECT_THAT(names_of(found.only_a),
              ElementsAre("bound of any plan", "taken of 1 MiB", "time of 1 MiB, star"));
  EXPECT_THAT(names_of(found.only_b), ElementsAre("p50 of 1 MiB, ring", "p99 of 1 MiB, ring"));
  EXPECT_THAT(to_text(found, false),
              HasSubstr("only in A: bound of any plan; taken of 1 MiB; time of 1 MiB, star\n"));
  EXPECT_FALSE(found.equal());
  simulated["results"][0]["out_of_place"]["time_us"] = 101;
  EXPECT_TRUE(compared_files(planned({{"ring", 100}, {"star", 50}}), simulated).equal())
      << "of two kinds one has what the other has not";
}

TEST_F(Compare, OfASimulationBothSidesAreOneRun) {
  EXPECT_EQ(compared_files(measured("talweg perf", 9), measured("talweg perf", 9)).pairs.size(), 6U);
  EXPECT_EQ(compared_files(measured("talweg simulate", 9), measured("talweg perf", 9)).pairs.size(), 3U);
}

TEST_F(Compare, AnotherPlannerThatServesIsADifferenceOfItsOwn) {
  const Comparison found =
      compared_files(measured("talweg perf", 9, "ring"), measured("talweg perf", 9, "packed through agg"));
  EXPECT_EQ(found.pairs.size(), 6U);
  EXPECT_EQ(found.differing(), 6U);
  EXPECT_THAT(to_text(found, false), HasSubstr("\n1 MiB            ring -> packed  9.000  9.000  *1.000\n"));
  const json packed = measured("talweg perf", 9, "packed");
  EXPECT_TRUE(compared_files(packed, measured("talweg perf", 9, "packed through a")).equal());
  EXPECT_TRUE(compared_files(packed, measured("talweg perf", 9, "-")).equal()) << "nobody said who served";
}

TEST_F(Compare, WhatIsTakenIsAWord) {
  const json ring = planned({{"ring", 1}, {"star", 1}}, "ring");
  const json star = planned({{"ring", 1}, {"star", 1}}, "star");
  const Comparison found = compared_files(ring, star);
  EXPECT_EQ(found.differing(), 1U);
  EXPECT_THAT(to_text(found, false), HasSubstr("\ntaken  A     B\n1 MiB  ring  star  *\n"));
  EXPECT_EQ(to_json(found)["measures"][1]["b"], "star");
}

TEST_F(Compare, OfTheSameKindWhatOnlyOneHasIsADifference) {
  const Comparison found = compared_files(planned({{"ring", 1}, {"star", 1}}), planned({{"ring", 1}}));
  EXPECT_EQ(found.differing(), 0U);
  EXPECT_FALSE(found.equal());
  EXPECT_EQ(to_json(found)["only_in_a"][0]["planner"], "star");
}

TEST_F(Compare, OtherRankCountsCollectivesAndTypesAreOtherThings) {
  const auto nothing_in_common = [&](const json& a, const json& b) {
    try {
      compared_files(a, b);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      return std::string(error.what());
    }
    return std::string("compared");
  };
  const json run = measured("talweg perf", 9);
  EXPECT_THAT(nothing_in_common(run, measured("talweg perf", 9, "ring", 8)),
              AllOf(HasSubstr("nothing in common to compare: "), HasSubstr("all_reduce of 4 ranks"),
                    HasSubstr("all_reduce of 8 ranks"), Not(HasSubstr("\n"))));
  const std::vector<std::pair<std::string, json>> others = {
      {"type", "double"}, {"redop", "max"}, {"root", 2}};
  for (const auto& [key, value] : others) {
    json other = run;
    other["results"][0][key] = value;
    EXPECT_THAT(nothing_in_common(run, other), HasSubstr("nothing in common")) << key;
  }
  json broadcast = run;
  broadcast["collective"] = "broadcast";
  EXPECT_THAT(nothing_in_common(run, broadcast), HasSubstr("nothing in common"));
}

TEST_F(Compare, FlowsAndGroupsOfSimulationsAreMatchedByWhoTheyAre) {
  const auto run = [](double flow_us, double last_us) {
    json document = {{"format", "talweg simulate"}, {"format_version", 1}, {"network", "net.yaml"}};
    document["flows"][0] = {{"id", 7}, {"from", "h0"}, {"to", "h3"}, {"took_us", flow_us}};
    document["groups"][0] = {{"name", "job"}, {"ranks", 4}, {"communication_us", 5}};
    document["groups"][0]["iterations_us"] = std::vector<double>{10, last_us};
    return document;
  };
  const Comparison found = compared_files(run(100, 10), run(200, 30));
  EXPECT_THAT(names_of({found.pairs[0].a, found.pairs[1].a, found.pairs[2].a}),
              ElementsAre("communication of group job of 4 ranks", "iteration of group job of 4 ranks",
                          "took of flow 7 h0->h3"));
  EXPECT_FALSE(found.pairs[0].differs);
  EXPECT_NEAR(*found.pairs[1].ratio, 2, 1e-9) << "of the means";
  EXPECT_NEAR(*found.pairs[2].ratio, 2, 1e-9);
}

TEST_F(Compare, PointsOfSweepsInOtherUnitsAreTheSame) {
  const auto sweep = [](const char* name, double value) {
    json document = {{"format", "talweg simulate sweep"}, {"format_version", 1}};
    json& first = document["points"][0];
    first["point"]["loss"] = "0.1";
    first["point"]["bytes"] = "1M";
    first["numbers"]["algorithm"] = "ring";
    first["numbers"][name] = value;
    document["points"].push_back(json::object());
    document["points"][1]["error"] = "it failed";
    return document;
  };
  const Comparison found = compared_files(sweep("time_us", 2000), sweep("time_ms", 2));
  EXPECT_TRUE(found.equal());
  EXPECT_EQ(name_of(found.pairs.at(0).a), "time of bytes=1M loss=0.1, ring");
  EXPECT_THROW(compared_files(sweep("time_us", 1), sweep("time_bytes", 1)), Error);
  EXPECT_EQ(compared_files(sweep("busbw_GB_per_s", 1), sweep("busbw_Gbit_per_s", 16)).pairs[0].ratio, 2);
}

TEST_F(Compare, WhatWasProbedIsMatchedByHost) {
  const auto probe = [](const json& up, double down) {
    json document = {{"format", "talweg probe"}, {"format_version", 1}, {"pairs", json::array()}};
    for (std::size_t h = 0; h < 2; ++h) {
      json& host = document["hosts"][h];
      host["name"] = h == 0 ? "a" : "b";
      host["up"] = up;
      host["down"]["bit_per_s"] = h == 0 ? down : 1e9;
      host["up_and_down"] = nullptr;
      host["latency_ns"] = std::vector<int>{0, 1000};
    }
    json& uplink = document["uplinks"][0];
    uplink["hosts"] = std::vector<std::string>{"a", "b"};
    uplink["leaving"] = up;
    uplink["entering"] = nullptr;
    return document;
  };
  json gigabit;
  gigabit["bit_per_s"] = 1e9;
  const Comparison found = compared_files(probe(gigabit, 1e9), probe(gigabit, 5e8));
  EXPECT_EQ(found.differing(), 1U);
  EXPECT_THAT(to_text(found, false), HasSubstr("\na        1.000    0.5000  *0.5000\n"));
  EXPECT_THAT(names_of(compared_files(probe(gigabit, 1e9), probe(nullptr, 1e9)).only_a),
              ElementsAre("up of a", "up of b", "uplink, out of a, b"));
}

TEST_F(Compare, InfosChoicesAreMatchedWithPlans) {
  json info = {{"format", "talweg info"},
               {"format_version", 1},
               {"collective", "all_reduce"},
               {"network", "assumed"},
               {"ranks", 4}};
  info["sizes"][0]["size_bytes"] = 1 << 20;
  info["sizes"][0]["candidates"][0] = {{"algorithm", "ring"}, {"predicted_us", 100}};
  const Comparison found = compared_files(info, planned({{"ring", 100}, {"star", 200}}));
  EXPECT_TRUE(found.equal());
  EXPECT_EQ(found.pairs.size(), 2U) << "what is taken, and its time";
}

TEST_F(Compare, OfManyLinesThoseThatDifferMostAreShown) {
  const auto many = [](double of_flow_150) {
    json run = {{"format", "talweg simulate"}, {"format_version", 1}, {"network", "n"}};
    for (std::size_t i = 0; i < 200; ++i)
      run["flows"][i] = {{"id", i}, {"from", "a"}, {"to", "b"}, {"took_us", i == 150 ? of_flow_150 : 100.0}};
    return run;
  };
  const Comparison found = compared_files(many(100), many(250));
  const std::string some = to_text(found, false);
  EXPECT_THAT(some, AllOf(HasSubstr("flow 150 "), Not(HasSubstr("flow 199 ")),
                          HasSubstr("these differ most; --wide shows 100 more\n")));
  EXPECT_LT(some.find("flow 0 "), some.find("flow 150 "));
  EXPECT_THAT(to_text(found, true), AllOf(HasSubstr("flow 199 "), Not(HasSubstr("--wide"))));
  EXPECT_EQ(to_json(found)["measures"].size(), 200U);
}

TEST_F(Compare, WhatNoCommandWroteIsAnsweredWithItsPathAndWhatWasExpected) {
  const std::string expected =
      "expected what plan, predict, info, perf, simulate or probe writes with --json";
  EXPECT_EQ(complaint_about("{}"), expected);
  EXPECT_EQ(complaint_about("[1]"), expected);
  EXPECT_EQ(complaint_about("{\"format\": \"talweg cake\"}"), expected + ", got format \"talweg cake\"");
  EXPECT_EQ(complaint_about("{\"format\": 3}"), "format: expected text, got 3");
  EXPECT_EQ(complaint_about("{\"format\": \"talweg plan\"}"), "format_version is missing");
  EXPECT_EQ(complaint_about("{\"format\": \"talweg plan\", \"format_version\": 9}"),
            "format_version: expected 1, got 9");
  EXPECT_EQ(complaint_about(""), "it is empty or ends in the middle");
  EXPECT_THAT(complaint_about("{\"format\": NaN}"), HasSubstr("it is not JSON from byte"));
  json plan = planned({{"ring", 1}});
  plan.erase("sizes");
  EXPECT_EQ(complaint_about(plan.dump()), "sizes is missing");
  plan["sizes"] = 3;
  EXPECT_EQ(complaint_about(plan.dump()), "sizes: expected a list, got number");
  plan = planned({{"ring", "soon"}});
  EXPECT_EQ(complaint_about(plan.dump()), "predicted_us: expected a number, got \"soon\"");
  plan = planned({{"ring", 1}});
  plan["network"] = 7;
  EXPECT_EQ(complaint_about(plan.dump()), "workers belongs in an object, not in this number");
  EXPECT_EQ(complaint_about(R"({"format": "talweg simulate", "format_version": 1, "network": "n"})"),
            "there is nothing in this talweg simulate to compare");
  EXPECT_THROW(read_results("/no/such/file.json"), Error);
}

}  // namespace
}  // namespace talweg::study
