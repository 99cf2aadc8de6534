#include "study/choices.h"

#include <gmock/gmock.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/units.h"
#include "forest/planner.h"
#include "talweg/error.h"

namespace talweg::study {
namespace {

using testing::HasSubstr;

constexpr double kPatience = 60;  // seconds

TEST(Choices, EachSizeListsCandidatesFromCheapToDear) {
  const auto network = cluster::uniform_star(4, Bandwidth{1e9}, Nanoseconds{30'000});
  const auto list = choices(Collective::all_reduce, network, kPatience).sizes;
  ASSERT_EQ(list.size(), 8u);
  EXPECT_EQ(list.front().bytes, 4096u);
  EXPECT_EQ(list.back().bytes, 64u << 20);
  for (const auto& choice : list) {
    ASSERT_GT(choice.candidates.size(), 1u);
    for (std::size_t i = 1; i < choice.candidates.size(); ++i)
      EXPECT_LE(choice.candidates[i - 1].seconds, choice.candidates[i].seconds);
  }
}

TEST(Choices, TheFirstCandidateIsWhatTheGroupWouldTake) {
  for (const int ranks : {4, 8}) {
    const auto network = cluster::uniform_star(ranks, Bandwidth{1e9}, Nanoseconds{30'000});
    for (const auto& choice : choices(Collective::all_reduce, network, kPatience).sizes)
      EXPECT_EQ(choice.candidates.front().planner,
                forest::plan_best(request_for(Collective::all_reduce, ranks, choice.bytes), network).planner)
          << ranks << " " << choice.bytes;
  }
}

TEST(Choices, EveryCollectiveHasSomebodyToServeIt) {
  const auto network = cluster::uniform_mesh(4, Bandwidth{1e9}, Nanoseconds{1000});
  for (int i = 0; i < kCollectives; ++i) {
    const auto op = static_cast<Collective>(i);
    for (const auto& choice : choices(op, network, kPatience).sizes)
      EXPECT_FALSE(choice.candidates.empty()) << name(op);
  }
}

forest::Breakdown latency_limits() {
  return {.links = 1e-6,
          .processors = 2e-6,
          .latency = 7e-6,
          .limit = forest::Breakdown::Limit::latency,
          .without = 3e-6,
          .reason = "latency limits: 2 hops"};
}

TEST(Choices, TheTableNamesTheTakenWhatLimitsItAndTheNextBest) {
  const Choices list = {{{4096, {{"one_hop", 1e-5, {}, latency_limits()}, {"ring", 4e-5}}}}, {}};
  EXPECT_EQ(to_text(Collective::all_reduce, list, false),
            "all_reduce  taken    predicted  limit    next best  predicted  slower\n"
            "                          (us)                           (us)     (x)\n"
            "4 KiB       one_hop       10.0  latency  ring            40.0    4.00\n"
            "4 KiB, one_hop: latency limits: 2 hops\n");
}

TEST(Choices, WhatIsNotKnownToBeTakenIsNotSaidToBe) {
  const Choices list = {{{4096, {{"ring", 4e-5}, {"chain", 8e-5}}, false}}, {"packed from 4 KiB down: late"}};
  EXPECT_EQ(to_text(Collective::all_reduce, list, false),
            "all_reduce  taken  predicted  limit  next best  predicted  slower\n"
            "                         (s)                         (us)     (x)\n"
            "4 KiB       -              -  -      ring            40.0\n"
            "left out, and might be taken: packed from 4 KiB down: late\n");
  EXPECT_TRUE(to_json(Collective::all_reduce, "", 2, list)["sizes"][0]["taken"].is_null());
}

TEST(Choices, JsonSaysOfEachCandidateWhatItsTimeIsMadeOfAndWhatLimitsIt) {
  const Choices list = {{{4096, {{"one_hop", 1e-5, {}, latency_limits()}}}}, {}};
  const auto candidate = to_json(Collective::all_reduce, "", 2, list)["sizes"][0]["candidates"][0];
  EXPECT_NEAR(candidate["spent_us"]["links"].get<double>(), 1, 1e-9);
  EXPECT_NEAR(candidate["spent_us"]["processors"].get<double>(), 2, 1e-9);
  EXPECT_NEAR(candidate["spent_us"]["latency"].get<double>(), 7, 1e-9);
  EXPECT_NEAR(candidate["without_limit_us"].get<double>(), 3, 1e-9);
  EXPECT_EQ(candidate["limit"], "latency");
  EXPECT_EQ(candidate["limit_reason"], "latency limits: 2 hops");
}

TEST(Choices, WhatLimitsIsWhatTheStudyOfAPlanSays) {
  const auto network = cluster::uniform_star(4, Bandwidth{1e9}, Nanoseconds{300'000});
  const Choices list = choices(Collective::all_reduce, network, kPatience);
  for (const auto& choice : list.sizes)
    for (const Candidate& candidate : choice.candidates) {
      EXPECT_NEAR(candidate.breakdown.seconds(), candidate.seconds, 1e-6 * candidate.seconds);
      EXPECT_LE(candidate.breakdown.without, candidate.seconds);
      EXPECT_FALSE(candidate.breakdown.reason.empty());
    }
  EXPECT_EQ(list.sizes.front().candidates.front().breakdown.limit, forest::Breakdown::Limit::latency);
  EXPECT_EQ(list.sizes.back().candidates.front().breakdown.limit, forest::Breakdown::Limit::links);
  const std::string text = to_text(Collective::all_reduce, list, false);
  EXPECT_THAT(text, HasSubstr("\n64 MiB, " + list.sizes.back().candidates.front().planner + ": links limit"));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 120u) << line;
}

TEST(Choices, TheTableHasNamesInFullIfAskedFor) {
  std::vector<std::string> through;
  for (int a = 0; a < 8; ++a) through.push_back("aggregator_of_rack_" + std::to_string(a));
  const Choices list = {{{4096, {{"packed", 1e-5, through}, {"ring", 4e-5}}}}, {}};
  const std::string whole = forest::plan_title("packed", through);
  EXPECT_THAT(to_text(Collective::all_reduce, list, false), testing::Not(HasSubstr(whole)));
  EXPECT_THAT(to_text(Collective::all_reduce, list, false), HasSubstr("\n--wide shows whole names\n"));
  EXPECT_THAT(to_text(Collective::all_reduce, list, true), HasSubstr(whole));
}

TEST(Choices, SomebodyIsToldHowFarThatIs) {
  const auto network = cluster::uniform_star(4, Bandwidth{1e9}, Nanoseconds{30'000});
  std::size_t looks = 0, all = 0;
  choices(Collective::all_reduce, network, kPatience, [&](const StudyProgress& progress) {
    ++looks;
    all = progress.all;
  });
  EXPECT_GT(looks, 0u);
  EXPECT_EQ(all % 8, 0u) << "times of each planner at eight sizes";
  EXPECT_GT(all, 8u);
}

TEST(Choices, WhatTakesTooLongIsLeftOutAndNamed) {
  const auto network = cluster::uniform_star(1000, Bandwidth{1e9}, Nanoseconds{30'000});
  const auto begin = std::chrono::steady_clock::now();
  const Choices some = choices(Collective::all_reduce, network, 0.001);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
  EXPECT_THAT(some.left_out, testing::Contains("ring from 64 MiB down: not done within 0.001 s"));
  EXPECT_THAT(to_text(Collective::all_reduce, some, false),
              HasSubstr("left out, and might be taken: ring from"));
  EXPECT_EQ(to_json(Collective::all_reduce, "", 1000, some)["left_out"].size(), some.left_out.size());
  for (const Choice& choice : some.sizes) EXPECT_FALSE(choice.known) << choice.bytes;
}

TEST(Choices, ANetworkThatIsTooLargeIsRefused) {
  const auto network = cluster::uniform_star(4096, Bandwidth{1e9}, Nanoseconds{30'000});
  EXPECT_THROW(choices(Collective::all_reduce, network, kPatience), Error);
}

}  // namespace
}  // namespace talweg::study
