#include "steer/evidence.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "base/random.h"

namespace talweg::steer {
namespace {

using Verdict = Judgement::Verdict;

constexpr Noise kQuietNoise{0.01, 1.0 / 18};
constexpr Standard kUsual{0.07, 16, 10};

// Four flows of 100 in three companies, which reach 150 together and 300 in two parts.
Supposition shared_way() {
  Supposition supposed;
  supposed.companies = {{400, {150}}, {400, {151}}, {400, {149}}};
  supposed.in_parts = 300;
  supposed.times_in_parts = 1;
  supposed.carried = 151;
  supposed.elsewhere = 600;
  return supposed;
}

TEST(Evidence, IsEnoughWhenThreeCompaniesReachTheSame) {
  const Judgement found = judge(shared_way(), kQuietNoise, kUsual);
  ASSERT_EQ(found.verdict, Verdict::shared);
  EXPECT_DOUBLE_EQ(found.capacity.value, 150);
  EXPECT_NEAR(found.doubt, 1.0 / (18 * 18 * 18), 1e-9);
}

TEST(Evidence, AsksForWhatWouldTell) {
  Supposition supposed = shared_way();
  supposed.companies[0].reached.clear();
  supposed.companies[1].reached.clear();
  supposed.companies[2].reached.clear();
  supposed.in_parts = supposed.carried = 0;
  supposed.times_in_parts = 0;
  Judgement found = judge(supposed, kQuietNoise, kUsual);
  ASSERT_EQ(found.verdict, Verdict::unsure);
  EXPECT_EQ(found.company, 0u);
  supposed.companies[0].reached = {150};
  found = judge(supposed, kQuietNoise, kUsual);
  ASSERT_EQ(found.verdict, Verdict::unsure);
  EXPECT_FALSE(found.company) << "parts";
  supposed.in_parts = 300;
  supposed.times_in_parts = 1;
  found = judge(supposed, kQuietNoise, kUsual);
  ASSERT_EQ(found.verdict, Verdict::unsure);
  EXPECT_EQ(found.company, 1u);
}

TEST(Evidence, OneTrialThatIsQuickEnoughRefutes) {
  Supposition supposed = shared_way();
  supposed.companies[2].reached.push_back(390);
  EXPECT_EQ(judge(supposed, kQuietNoise, kUsual).verdict, Verdict::apart);
  supposed = shared_way();
  supposed.carried = 390;
  for (Company& company : supposed.companies) company.reached.clear();
  EXPECT_EQ(judge(supposed, kQuietNoise, kUsual).verdict, Verdict::apart) << "and none need be measured";
}

TEST(Evidence, WhatCarriesMoreElsewhereRefutesOnceTheTrialIsRepeated) {
  Supposition supposed = shared_way();
  supposed.carried = 200;
  Judgement found = judge(supposed, kQuietNoise, kUsual);
  EXPECT_EQ(found.verdict, Verdict::unsure) << "the first company may have been disturbed";
  EXPECT_EQ(found.company, 0u);
  supposed.companies[0].reached.push_back(150);
  EXPECT_EQ(judge(supposed, kQuietNoise, kUsual).verdict, Verdict::apart);
}

TEST(Evidence, FlowsThatArePartlyNoFasterHaveLimitsOfTheirOwn) {
  Supposition supposed = shared_way();
  supposed.in_parts = 152;
  supposed.times_in_parts = 2;
  EXPECT_EQ(judge(supposed, kQuietNoise, kUsual).verdict, Verdict::apart);
}

TEST(Evidence, OtherSumsInOtherCompanyRefute) {
  Supposition supposed = shared_way();
  supposed.companies[1].reached = {120, 121};
  EXPECT_EQ(judge(supposed, kQuietNoise, kUsual).verdict, Verdict::apart);
}

TEST(Evidence, ACompanyThatWouldReachNoMoreAnywaySaysNothing) {
  Supposition supposed = shared_way();
  supposed.companies[1] = {155, {}};
  supposed.companies[2] = {120, {}};
  supposed.companies[0].reached = {150, 151, 149};
  EXPECT_EQ(judge(supposed, kQuietNoise, kUsual).verdict, Verdict::shared);
}

TEST(Evidence, HostsThatNeverCarryMoreMayBeTheLimitThemselves) {
  Supposition supposed = shared_way();
  supposed.elsewhere = 155;
  EXPECT_EQ(judge(supposed, kQuietNoise, kUsual).verdict, Verdict::apart);
}

TEST(Evidence, TheNoisierTheMoreTrialsAreNeededUntilNothingIsBelieved) {
  const Supposition supposed = shared_way();
  EXPECT_EQ(judge(supposed, {0.01, 0.2}, kUsual).verdict, Verdict::unsure);
  EXPECT_EQ(judge(supposed, {0.01, 0.6}, kUsual).verdict, Verdict::apart);
  EXPECT_EQ(judge(supposed, {0.2, 1.0 / 18}, kUsual).verdict, Verdict::apart) << "150 might be 400";
}

TEST(Evidence, NoiseIsHowRepeatsDiffer) {
  const Noise quiet = noise_of({{100, 102}, {50, 51}, {7}});
  EXPECT_NEAR(quiet.spread, 0.014, 0.001);
  EXPECT_DOUBLE_EQ(quiet.low, 1.0 / 4);
  const Noise busy = noise_of({{100, 60}, {100, 100, 100}});
  EXPECT_DOUBLE_EQ(busy.spread, 0);
  EXPECT_DOUBLE_EQ(busy.low, 2.0 / 5);
  EXPECT_DOUBLE_EQ(noise_of({}).low, 0.5);
}

// Four flows of 100 that share `capacity`; a trial is too low with the chance `low`.
class Trials {
 public:
  Trials(double capacity, double low, std::uint64_t seed) : capacity_(capacity), low_(low), random_(seed) {}

  Verdict verdict() {
    std::vector<std::vector<double>> ports(16);
    for (auto& port : ports) port = {reached(1), reached(1)};
    const Noise noise = noise_of(ports);
    Supposition supposed;
    supposed.companies = {{400, {}}, {400, {}}, {400, {}}};
    while (true) {
      const Judgement found = judge(supposed, noise, kUsual);
      if (found.verdict != Verdict::unsure) return found.verdict;
      if (found.company) {
        supposed.companies[*found.company].reached.push_back(reached(4));
      } else {
        supposed.in_parts = std::max(supposed.in_parts, reached(2) + reached(2));
        ++supposed.times_in_parts;
      }
    }
  }

 private:
  double reached(int flows) {
    const double noise = 1 + 0.03 * (2 * random_.uniform() - 1);
    const double busy = random_.uniform() < low_ ? 0.5 + 0.4 * random_.uniform() : 1;
    return std::min(100.0 * flows, capacity_) * noise * busy;
  }

  const double capacity_, low_;
  Random random_;
};

TEST(Evidence, WrongGroupsAreRareHoweverBusyHostsAre) {
  constexpr int kDraws = 20'000;
  for (const double low : {0.02, 0.1, 0.2, 0.4}) {
    int wrong = 0;
    for (int i = 0; i < kDraws; ++i)
      wrong += Trials(1e9, low, static_cast<std::uint64_t>(i)).verdict() == Verdict::shared ? 1 : 0;
    EXPECT_LE(wrong, kDraws * 0.01 / kUsual.suppositions) << low;
  }
}

TEST(Evidence, TrueGroupsAreFound) {
  constexpr int kDraws = 2'000;
  for (const double capacity : {100.0, 200.0, 300.0})
    for (const double low : {0.02, 0.1}) {
      int right = 0;
      for (int i = 0; i < kDraws; ++i)
        right += Trials(capacity, low, static_cast<std::uint64_t>(i)).verdict() == Verdict::shared ? 1 : 0;
      EXPECT_GE(right, (low < 0.05 ? 0.98 : 0.9) * kDraws) << capacity << ", " << low;
    }
}

}  // namespace
}  // namespace talweg::steer
