#include "study/plan_study.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "study/plan_report.h"
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
  const auto network = cluster::uniform_star(260, {1e9}, {30000});
  const forest::CostModel model(network);
  StudyRequest request;
  request.sizes = {4096, 1 << 20, 4 << 20};
  request.patience = 300;
  Study found = study_plans(network, request);
  ASSERT_EQ(found.notes.size(), 1u);  // of packed
  found.notes.clear();
  const auto lose = [](Study& study, std::size_t row, const std::string& planner) {
    const auto i = std::find(study.planners.begin(), study.planners.end(), planner) - study.planners.begin();
    study.rows[row].predictions[static_cast<std::size_t>(i)] = {{}, "not done within 1 s", true};
  };
  const std::vector<int> taken{found.rows[0].taken, found.rows[1].taken, found.rows[2].taken};
  lose(found, 2, "packed");  // among so many, a group does not try it
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

TEST(PlanStudy, PacksTreesForHundredsOfRanksIfAskedByNameAndElseSaysSo) {
  const auto network = cluster::uniform_star(260, {1e9}, {30000});
  StudyRequest request;
  request.op = Collective::broadcast;
  request.sizes = {1024};
  request.patience = 300;
  const Study all = study_plans(network, request);
  EXPECT_EQ(all.rows[0].predictions.back().reason,
            "it may take long among 260 ranks: ask for it by name (--algo packed)");
  EXPECT_THAT(all.notes, ElementsAre("packed: " + all.rows[0].predictions.back().reason));
  EXPECT_GE(all.rows[0].taken, 0);
  request.only = {"packed"};
  const Study named = study_plans(network, request);
  EXPECT_TRUE(named.rows[0].predictions[0].seconds);
  EXPECT_EQ(named.rows[0].taken, 0);
  EXPECT_TRUE(named.notes.empty());
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

}  // namespace
}  // namespace talweg::study
