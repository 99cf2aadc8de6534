// The re-planner in weather: rates of eight hosts that change all the time, for a quarter of an hour.
// Measured against clairvoyance, against plans that stay, and against the best that is known of who sees only
// the past.
#include "weather.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <iostream>
#include <ostream>
#include <vector>

#include "best_causal.h"
#include "fluid_job.h"
#include "sanitized.h"

namespace talweg::steer {
namespace {

constexpr std::int64_t kVector = 16 << 20;  // floats

// Parts of clairvoyance.
struct Outcome {
  double followed = 0;
  double stayed = 0;
  double causal = 0;  // of the best follower
  int changes = 0;
};
std::ostream& operator<<(std::ostream& out, const Outcome& o) {
  return out << "time over clairvoyance: following " << 1 / o.followed << ", staying " << 1 / o.stayed
             << ", the best that sees the past " << 1 / o.causal << "; " << o.changes << " changes";
}

double part_that_follows(const Weather& weather, int& changes) {
  const double bits = static_cast<double>(kVector) * 4 * 8 / kPayload;
  double best = 0;
  Job job(cluster::uniform_star(kWeatherHosts, {weather.said}, {30000}), [&](double now, Cluster& network) {
    const Rates& rates = weather.at(now);
    for (std::size_t h = 0; h < kWeatherHosts; ++h) set_rate(network, static_cast<int>(h), rates[h]);
    best += bits * least_duration(rates);
  });
  job.request.counts = {kVector};
  job.run_for(900);
  changes = job.changes;
  return best / job.now;
}

// The targets: at most a tenth over the best that sees the past, with at most one change a minute.
constexpr double kTarget = 1.1;

// Parts are means over seeds.
struct Outcomes {
  std::vector<Outcome> each;
  double followed = 0;
  double stayed = 0;
  double causal = 0;
};

using Draw = Weather (*)(std::uint64_t seed);

Outcomes outcomes(Draw draw, std::uint64_t first = 0, std::uint64_t count = fewer(4U)) {
  Outcomes all;
  const auto seeds = static_cast<double>(count);
  int most = 0;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    const Weather weather = draw(seed);
    Outcome o;
    o.followed = part_that_follows(weather, o.changes);
    o.stayed = part_if_staying(weather);
    o.causal = best_follower(weather);
    std::cout << o << ", seed " << seed << "\n";
    EXPECT_LE(o.changes, kMostChanges) << seed;
    most = std::max(most, o.changes);
    all.each.push_back(o);
    all.followed += o.followed / seeds;
    all.stayed += o.stayed / seeds;
    all.causal += o.causal / seeds;
  }
  std::cout << "means: " << Outcome{all.followed, all.stayed, all.causal, most} << " at most\n"
            << "over the best that sees the past: " << all.causal / all.followed << "; target " << kTarget
            << "\n";
  if (!kSanitized) {  // the bar is of all draws' mean
    EXPECT_LE(all.causal / all.followed, kTarget);
  }
  return all;
}

TEST(Replanner, LosesLittleWhereEc2TakesItsBurstsBack) {
  for (const Outcome& o : outcomes(bursts_end).each) EXPECT_LE(1 / o.followed, 1.1) << o;
}

TEST(Replanner, LosesLittleWhereEc2ThrottlesToASeventh) {
  for (const Outcome& o : outcomes(throttled).each) EXPECT_LE(1 / o.followed, 1.1) << o;
}

// Nobody can follow dips that are over before they are known; but trying must not make it worse.
TEST(Replanner, NoiseAsOfHuaweiCostsLittleMoreThanStaying) {
  for (const Outcome& o : outcomes(huawei).each) EXPECT_LE(1 / o.followed, 1.1 / o.stayed) << o;
}

// The bound is of all policies, even those that nobody knows: an eighth over it.
TEST(Replanner, NoiseWithoutMemoryIsNearWhatAnybodyCouldDo) {
  const Outcomes o = outcomes(huawei_shuffled);
  double bound = 0;
  const auto seeds = fewer(4);
  for (int seed = 0; seed < seeds; ++seed)
    bound += bound_if_independent(huawei_shuffled(static_cast<std::uint64_t>(seed))) / seeds;
  std::cout << "bound of all policies: " << 1 / bound << "; over it: " << bound / o.followed << "\n";
  if (!kSanitized) {
    EXPECT_LE(bound / o.followed, 1.13);
  }
}

TEST(Replanner, LosesMuchLessThanAPlanThatStaysWhereRatesComeAndGo) {
  const Outcomes o = outcomes(come_and_go);
  EXPECT_LT(1 / o.followed - 1, 0.6 * (1 / o.stayed - 1));
}

TEST(Replanner, IsNoWorseThanAPlanThatStaysWhereHostsFlap) {
  for (const Outcome& o : outcomes(flapping).each) EXPECT_LT(1 / o.followed, 1 / o.stayed) << o;
}

// What is published (docs/measured.md) is of these: no rule and no constant was chosen by what they give.
// Rates that come and go are the worst, and the mean over eight draws is anything from 1.07 to 1.14.
TEST(Replanner, LosesATenthAtMostOnDrawsThatNothingWasSetOn) {
  struct Kind {
    const char* name;
    Draw draw;
    std::uint64_t draws = 16;
  };
  for (const Kind& kind : {Kind{"bursts end", bursts_end},
                           {"throttled", throttled},
                           {"Huawei", huawei},
                           {"Huawei, shuffled", huawei_shuffled},
                           {"come and go", come_and_go, 96},
                           {"flapping", flapping}}) {
    std::cout << kind.name << "\n";
    outcomes(kind.draw, 20'000, kSanitized ? 1 : kind.draws);
  }
}

TEST(Weather, PlansTakeHardlyLongerThanTheModelOfAStarSays) {
  for (std::uint64_t seed = 0; seed < fewer(std::uint64_t{6}); ++seed) {
    const Rates rates = huawei_shuffled(seed).samples[0];
    Job job(cluster::uniform_star(kWeatherHosts, {kHuaweiUsual}, {30000}), [](double, Cluster&) {});
    job.request.counts = {kVector};
    for (std::size_t h = 0; h < kWeatherHosts; ++h) set_rate(job.truth, static_cast<int>(h), rates[h]);
    const double bits = static_cast<double>(kVector) * 4 * 8 / kPayload;
    const double part = job.best_seconds() / (bits * least_duration(rates));
    EXPECT_GT(part, 0.999) << seed;
    EXPECT_LT(part, 1.06) << seed;
  }
}

TEST(Weather, ReferencesAreInOrder) {
  double staying = 0, follower = 0, bound = 0, free = 0;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    const Weather weather = huawei_shuffled(seed);
    staying += part_if_staying(weather) / 4;
    follower += best_follower(weather) / 4;
    bound += bound_if_independent(weather) / 4;
    const std::vector<Rates> last = believed(weather, weather.samples, 0, 0.5);
    std::vector<Loads> plans;
    for (const Rates& rates : last) plans.push_back(best_loads(rates));
    free += part_of({.ration = {1e9, 1}}, weather, last, plans) / 4;
    EXPECT_NEAR(part_of({.ration = {0, 1e9}}, weather, last, plans), part_if_staying(weather), 1e-9)
        << "who may never change stays";
  }
  EXPECT_LT(staying, follower);
  EXPECT_LT(follower, bound);
  EXPECT_LT(bound, free) << "whose changes are not counted may pass the bound";
  EXPECT_LT(bound, 0.8) << "who changes once a minute cannot follow rates that change every five seconds";
}

TEST(Weather, FromMorePlansTheBoundsSearchFindsHardlyMore) {
  for (std::uint64_t seed = 0; seed < fewer(std::uint64_t{3}); ++seed) {
    const Weather weather = huawei_shuffled(seed);
    EXPECT_LT(bound_if_independent(weather, 1), 1.001 * bound_if_independent(weather)) << seed;
  }
}

// One host loses half of its rate after a minute, once: all that is to be lost is half a second.
TEST(Weather, TheBestFollowerLosesNothingToWhatLasts) {
  Weather weather{kEc2Burst};
  for (std::size_t s = 0; s < kWeatherSamples; ++s) {
    weather.samples[s].fill(kEc2Burst);
    if (s >= 12) weather.samples[s][3] = kEc2Burst / 2;
  }
  weather.lasting = weather.samples;
  EXPECT_GT(best_follower(weather), 0.999);
  EXPECT_LT(part_if_staying(weather), 0.9);
}

}  // namespace
}  // namespace talweg::steer
