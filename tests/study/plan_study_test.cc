#include "study/plan_study.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "study/plan_report.h"
#include "study/why_not.h"
#include "talweg/error.h"

namespace talweg::study {
namespace {

using testing::ElementsAre;

TEST(PlanReport, TimesHaveThreeDigitsAndAUnit) {
  EXPECT_EQ(duration_text(1.234e-6), "1.2 us");
  EXPECT_EQ(duration_text(0.00123), "1.23 ms");
  EXPECT_EQ(duration_text(0.0123), "12.3 ms");
  EXPECT_EQ(duration_text(0.123), "123 ms");
  EXPECT_EQ(duration_text(0.99999), "1.00 s");
  EXPECT_EQ(duration_text(1234), "1234 s");
  EXPECT_EQ(time_in({1e-3, "ms"}, 1.2345e-6), "0.00123");
  EXPECT_EQ(time_in({1e-3, "ms"}, 12.345), "12345");
  EXPECT_EQ(time_in({1e-3, "ms"}, {}), "-");
}

TEST(PlanStudy, WhoLooksIsToldHowManyTimesThereWillBeAndWhoIsUnderWay) {
  StudyRequest request;
  request.sizes = {4096, 1 << 20};
  request.only = {"ring", "star"};
  std::vector<StudyProgress> seen;
  const Study found = study_plans(cluster::uniform_star(4, {1e9}, {1000}), request,
                                  [&](const StudyProgress& progress) { seen.push_back(progress); });
  EXPECT_EQ(found.rows.size(), 2U);
  ASSERT_FALSE(seen.empty());
  EXPECT_EQ(seen.front().done, 0U);
  EXPECT_EQ(seen.front().all, 4U);
  EXPECT_THAT(seen.front().under_way, ElementsAre("the bound", "ring", "star"));
  for (const StudyProgress& progress : seen) EXPECT_LE(progress.done, progress.all);
}

TEST(PlanStudy, ProgressIsOneShortSentence) {
  EXPECT_EQ(to_text(StudyProgress{3, 20, {"the bound", "packed"}}),
            "3 of 20 times predicted; under way: the bound, packed");
  EXPECT_EQ(to_text(StudyProgress{3, 20, {"a", "b", "c", "d", "e"}}),
            "3 of 20 times predicted; under way: a, b, c and 2 more");
  EXPECT_EQ(to_text(StudyProgress{20, 20, {}}), "20 of 20 times predicted");
}

TEST(PlanStudy, SaysWhichPlannersItAskedAndWhatAGroupTakes) {
  StudyRequest request;
  request.sizes = {4096, 1 << 20};
  const auto network = cluster::uniform_star(4, {1e9}, {30000});
  const Study found = study_plans(network, request);
  ASSERT_EQ(found.rows.size(), 2u);
  for (const StudyRow& row : found.rows) {
    ASSERT_EQ(row.predictions.size(), found.planners.size());
    const auto planned = plan_for(network, request_of(found.op, 0, 4, row.bytes), "");
    EXPECT_EQ(found.planners[static_cast<std::size_t>(row.taken)], planned.planner);
  }
  EXPECT_TRUE(found.notes.empty());
}

TEST(PlanStudy, MarksNoChoiceWhereAPlannerThatMightWinIsMissing) {
  const auto network = cluster::uniform_star(8, {1e9}, {30000});
  const forest::CostModel model(network);
  StudyRequest request;
  request.sizes = {4096, 1 << 20, 64 << 20};
  request.patience = 300;
  Study found = study_plans(network, request);
  EXPECT_TRUE(found.notes.empty());
  const auto lose = [](Study& study, std::size_t row, const std::string& planner) {
    const auto i = std::find(study.planners.begin(), study.planners.end(), planner) - study.planners.begin();
    study.rows[row].predictions[static_cast<std::size_t>(i)] = {{}, "not done within 1 s", true};
  };
  const std::vector<int> taken{found.rows[0].taken, found.rows[1].taken, found.rows[2].taken};
  lose(found, 2, "packed");  // where a ring reaches the bound, a group does not try it
  mark_taken(model, found);
  EXPECT_TRUE(found.notes.empty());
  EXPECT_EQ(found.rows[2].taken, taken[2]);

  lose(found, 0, "sharded_star");
  lose(found, 1, "star");
  mark_taken(model, found);
  EXPECT_EQ(found.rows[0].taken, -1);
  EXPECT_EQ(found.rows[1].taken, -1);
  EXPECT_EQ(found.rows[2].taken, taken[2]);
  EXPECT_THAT(found.notes,
              ElementsAre("from 1 MiB down, none is marked (*) as what a group takes: not known of "
                          "sharded_star, star; more --patience may tell"));

  request.only = {"star", "packed"};
  Study few = study_plans(network, request);
  lose(few, 2, "packed");
  mark_taken(model, few);
  EXPECT_EQ(few.rows[2].taken, -1);
  EXPECT_THAT(few.notes, ElementsAre(testing::HasSubstr("as the quickest of these: not known of packed")));
}

// However many ranks there are.
TEST(PlanStudy, PacksTreesForHundredsOfRanksUnasked) {
  const auto network = cluster::uniform_star(260, {1e9}, {30000});
  StudyRequest request;
  request.op = Collective::broadcast;
  request.sizes = {1024};
  request.patience = 300;
  const Study all = study_plans(network, request);
  EXPECT_TRUE(all.rows[0].predictions.back().seconds) << all.rows[0].predictions.back().reason;
  EXPECT_GE(all.rows[0].taken, 0);
  EXPECT_TRUE(all.notes.empty());
}

// Of a choice that is made up.
TEST(PlanStudy, SaysWhyWhatIsQuickerOrTooMuchWorkIsNotTaken) {
  using Reason = forest::NotTaken::Reason;
  Study study;
  study.ranks = 4;
  study.planners = {"ring", "one_hop", "packed"};
  const auto add_row = [&](std::int64_t bytes, const Prediction& packed, Reason reason,
                           const std::string& why) {
    StudyRow row{bytes, {{1.0, ""}, {{}, "too large"}, packed}, 0};
    row.choice.taken = "ring";
    row.choice.why_not.push_back({"one_hop", Reason::not_meant, "too large"});
    row.choice.why_not.push_back({"packed", reason, why});
    study.rows.push_back(row);
  };
  add_row(4 << 10, {1.1, ""}, Reason::no_gain, "near");
  EXPECT_THAT(why_not(study), testing::IsEmpty()) << "it is slower";
  add_row(16 << 10, {0.9995, ""}, Reason::no_gain, "near");
  EXPECT_THAT(why_not(study), testing::IsEmpty()) << "hardly quicker";
  add_row(64 << 10, {0.997, ""}, Reason::no_gain, "near");
  add_row(1 << 20, {0.998, ""}, Reason::no_gain, "near");
  add_row(4 << 20, {{}, "too long"}, Reason::no_plan, "too long");
  EXPECT_THAT(why_not(study),
              ElementsAre("packed, 64 KiB to 1 MiB: predicted to be quicker, and not taken: near",
                          "packed, 4 MiB: not planned: too long"));
  EXPECT_EQ(why_not_taken(study, study.rows[2], 2), "near");
  EXPECT_EQ(why_not_taken(study, study.rows[0], 2), "");
  EXPECT_EQ(why_not_taken(study, study.rows[4], 2), "") << "it has no time";
  study.rows[2].taken = -1;
  EXPECT_EQ(why_not_taken(study, study.rows[2], 2), "") << "nobody is taken";
  study.rows.erase(study.rows.begin(), study.rows.begin() + 4);
  EXPECT_THAT(why_not(study), ElementsAre("packed: not planned: too long")) << "at all sizes";
}

// Where others come close to the bound, packed trees are not worth planning; here they are said to be quicker
// all the same.
TEST(PlanStudy, TextAndJsonSayWhyTheQuickerPlannerIsNotTaken) {
  const auto network = cluster::uniform_star(4, {1e9}, {30000});
  StudyRequest request;
  request.sizes = {1 << 20, 64 << 20};
  request.patience = 300;
  Study found = study_plans(network, request);
  ASSERT_EQ(found.planners.back(), "packed");
  StudyRow& row = found.rows.back();
  ASSERT_GE(row.taken, 0);
  const auto taken = static_cast<std::size_t>(row.taken), packed = found.planners.size() - 1;
  ASSERT_NE(taken, packed);
  row.predictions[packed].seconds = 0.997 * row.predictions[taken].seconds.value();
  mark_taken(forest::CostModel(network), found);
  EXPECT_EQ(row.taken, static_cast<int>(taken));
  const NetworkSource source{"a.yaml", "talweg"};
  const std::string why = "others come within 0.6 % of what links allow";
  EXPECT_THAT(to_text(network, source, found, false),
              testing::HasSubstr("packed, 64 MiB: predicted to be quicker, and not taken: " + why));
  const auto document = to_json(network, source, found);
  EXPECT_THAT(document["why_not"].dump(), testing::HasSubstr(why));
  const auto& candidates = document["sizes"][1]["candidates"];
  EXPECT_THAT(candidates[packed]["not_taken_because"].get<std::string>(), testing::HasSubstr(why));
  EXPECT_FALSE(candidates[taken].contains("not_taken_because"));
}

TEST(PlanStudy, TextSaysOnceWhyAPlannerIsTooMuchWork) {
  const auto network = cluster::uniform_star(4, {1e9}, {30000});
  StudyRequest request;
  request.sizes = {1 << 20};
  request.patience = 300;
  Study found = study_plans(network, request);
  ASSERT_EQ(found.planners.back(), "packed");
  StudyRow& row = found.rows.back();
  row.predictions.back() = {{}, "too much work"};
  std::erase_if(row.choice.why_not, [](const forest::NotTaken& its) { return its.planner == "packed"; });
  row.choice.why_not.push_back({"packed", forest::NotTaken::Reason::no_plan, "too much work"});
  const std::string text = to_text(network, {"a.yaml", "talweg"}, found, false);
  EXPECT_THAT(text, testing::HasSubstr("\npacked: not planned: too much work"));
  EXPECT_EQ(text.find("too much work"), text.rfind("too much work"));
  EXPECT_THAT(text, testing::HasSubstr("-: one_hop, recursive_doubling: it is meant for up to"))
      << "as before";
}

TEST(PlanStudy, TheNarrowestWorkersBoundIsThatOfTheExactSearchOnAStar) {
  // One that is too large for the exact search, and one that is not.
  const auto star = [](int n) {
    auto network = cluster::uniform_star(n, {1e9}, {0});
    network.links[0].capacity = {2e8};
    network.links[5].capacity = {3e8};
    return network;
  };
  for (const Collective op : {Collective::all_reduce, Collective::broadcast, Collective::reduce}) {
    StudyRequest request;
    request.op = op;
    request.root = 1;
    request.sizes = {4096};
    request.patience = 300;
    const Study small = study_plans(star(8), request), large = study_plans(star(3000), request);
    ASSERT_TRUE(small.bound && large.bound);
    EXPECT_EQ(to_string(small.bound->rate), to_string(large.bound->rate)) << name(op);
    EXPECT_EQ(to_words(*small.bound, star(8)), to_words(*large.bound, star(3000)));
    EXPECT_FALSE(large.bound->attained);
  }
}

TEST(PlanStudy, TheNarrowestWorkersBoundOfBlocksIsThatOfTheExactSearchOnAStar) {
  auto star = cluster::uniform_star(8, {1e9}, {0});
  star.links[0].capacity = {9e8};    // host0 sends
  star.links[5].capacity = {1e8};    // host2 receives
  star.links[6].capacity = {1.2e8};  // host3 sends
  for (const Collective op : {Collective::all_to_all, Collective::gather, Collective::scatter}) {
    for (const forest::NodeId root : {0, 2, 3}) {
      StudyRequest request;
      request.op = op;
      request.root = op == Collective::all_to_all ? 0 : root;
      request.sizes = {4096};
      request.patience = 300;
      const Study exact = study_plans(star, request);
      request.patience = 0;
      const Study quick = study_plans(star, request);
      ASSERT_TRUE(exact.bound && quick.bound);
      EXPECT_EQ(to_string(exact.bound->rate), to_string(quick.bound->rate)) << name(op) << " " << root;
      EXPECT_EQ(to_words(*exact.bound, star), to_words(*quick.bound, star)) << name(op) << " " << root;
    }
  }
}

TEST(PlanStudy, SaysWhatLimitsEachPrediction) {
  StudyRequest request;
  request.sizes = {4, 1 << 20};
  const auto network = cluster::uniform_star(4, {1e9}, {30000});
  const Study found = study_plans(network, request);
  const forest::CostModel model(network);
  for (const StudyRow& row : found.rows) {
    for (std::size_t i = 0; i < found.planners.size(); ++i) {
      const Prediction& prediction = row.predictions[i];
      if (!prediction.seconds) continue;
      const auto planned = plan_for(network, request_of(found.op, 0, 4, row.bytes), found.planners[i]);
      EXPECT_EQ(prediction.breakdown, model.breakdown(planned)) << found.planners[i];
    }
    const auto limit = row.predictions[static_cast<std::size_t>(row.taken)].breakdown.limit;
    EXPECT_EQ(limit, row.bytes == 4 ? forest::Breakdown::Limit::latency : forest::Breakdown::Limit::links);
  }
}

}  // namespace
}  // namespace talweg::study
