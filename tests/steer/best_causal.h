// What somebody who sees only the past could do at best with the weather of eight hosts: what a re-planner is
// measured against.
//
// Policies are compared by their part of clairvoyance: the time that calls would take with plans that are
// always the best for the rates of the moment, over the time that they take, as a mean over the weather.
//
// Nobody can compute the best of all policies, so there are two references, and a re-planner is measured
// against the better one.
//
// - best_follower(): the best, chosen in hindsight for each weather anew, of some four hundred policies
//   that see every host's rate half a second late, and exactly, whatever their plans use of it. They believe
//   the last rate, or one that has lasted (a median or a low quantile of a while), or are told by an oracle
//   which of what they see will last; they change plans for gains and prices of their own; and they may
//   change fifteen times in the quarter of an hour, spread in several ways. A re-planner, which sees of a
//   host only what its plans use, cannot choose in hindsight and is told by nobody, has less to go by than
//   any of them.
// - bound_if_independent(): where each sample's rates are independent of those before, what no causal policy
//   with at most fifteen changes passes on average, whatever it knows of the rates' distribution. It is the
//   most that any plan reaches of something with many peaks, and a search finds that: what the search misses,
//   the bound lacks. From three times as many plans it finds less than a thousandth more (a test holds it
//   to that).
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "weather.h"

namespace talweg::steer {

constexpr int kMostChanges = 15;  // in a quarter of an hour: one a minute

// How many vectors each host of a star sends in an all-reduce, and receives: at least its own; all together
// each but one host's twice, whatever the plan. A call takes as long as the slowest host needs.
using Loads = std::array<double, kWeatherHosts>;
constexpr double kAllLoads = 2 * (kWeatherHosts - 1);

inline double duration(const Loads& loads, const Rates& rates) {  // of a call, over bits in a vector
  double longest = 0;
  for (std::size_t h = 0; h < kWeatherHosts; ++h) longest = std::max(longest, loads[h] / rates[h]);
  return longest;
}

// In proportion to rates, but for those that have to send more than that: the longest of the durations with
// which the others take all that is left, over how many of the slowest send just one.
inline Loads best_loads(const Rates& rates) {
  Rates sorted = rates;
  std::ranges::sort(sorted);
  double quick = 0;
  for (const double rate : rates) quick += rate;
  double seconds = kAllLoads / quick;
  for (std::size_t least = 0; least + 1 < kWeatherHosts && seconds * sorted[least] < 1; ++least) {
    quick -= sorted[least];
    seconds = (kAllLoads - static_cast<double>(least + 1)) / quick;
  }
  Loads loads{};
  for (std::size_t h = 0; h < kWeatherHosts; ++h) loads[h] = std::max(1., seconds * rates[h]);
  return loads;
}

inline double least_duration(const Rates& rates) {
  return duration(best_loads(rates), rates);
}

// The plan for what was said at first, all the time.
inline double part_if_staying(const Weather& weather) {
  Loads alike{};
  alike.fill(kAllLoads / kWeatherHosts);
  double sum = 0;
  for (const Rates& now : weather.samples) sum += least_duration(now) / duration(alike, now);
  return sum / static_cast<double>(weather.samples.size());
}

constexpr double kLookSeconds = 0.5;  // as late as an epoch, and what it takes until it is known

// What one believes who has seen what came before, look by look.
inline std::vector<Rates> believed(const Weather& weather, const std::vector<Rates>& seen, double seconds,
                                   double quantile) {
  const auto looks_in = [](double s) { return static_cast<std::size_t>(s / kLookSeconds); };
  const std::size_t window = std::max<std::size_t>(looks_in(seconds), 1);
  const std::size_t looks_a_sample = looks_in(kCloudSampleSeconds);
  std::array<std::vector<double>, kWeatherHosts> past;
  std::vector<Rates> result(seen.size() * looks_a_sample);
  for (std::vector<double>& rates : past) rates.assign(window, weather.said);
  for (std::size_t look = 0; look < result.size(); ++look)
    for (std::size_t h = 0; h < kWeatherHosts; ++h) {
      std::vector<double> sorted = past[h];
      const auto at =
          sorted.begin() + static_cast<std::ptrdiff_t>(quantile * static_cast<double>(window - 1));
      std::ranges::nth_element(sorted, at);
      result[look][h] = *at;
      past[h][look % window] = seen[look / looks_a_sample][h];
    }
  return result;
}

struct Ration {
  double at_once = 0;
  double seconds = 0;  // until there is another one
};

struct FollowerPolicy {
  double threshold = 0;  // the part of the time that must be saved for a change
  double price = 0;      // the seconds that other plans must have saved before
  Ration ration;
};

inline double part_of(const FollowerPolicy& policy, const Weather& weather,
                      const std::vector<Rates>& believed, const std::vector<Loads>& plans) {
  Loads plan = plans[0];
  double allowed = policy.ration.at_once, saved = 0, sum = 0;
  for (std::size_t look = 0; look < believed.size(); ++look) {
    allowed = std::min(policy.ration.at_once, allowed + kLookSeconds / policy.ration.seconds);
    const double gain = 1 - duration(plans[look], believed[look]) / duration(plan, believed[look]);
    saved = gain > policy.threshold ? saved + gain * kLookSeconds : 0;
    if (gain > policy.threshold && saved >= policy.price && allowed >= 1) {
      plan = plans[look];
      allowed -= 1;
      saved = 0;
    }
    const Rates& now = weather.at(static_cast<double>(look) * kLookSeconds);
    sum += least_duration(now) / duration(plan, now);
  }
  return sum / static_cast<double>(believed.size());
}

inline double best_follower(const Weather& weather) {
  std::vector<std::vector<Rates>> beliefs{believed(weather, weather.samples, 0, 0.5),
                                          believed(weather, weather.lasting, 0, 0.5)};
  for (const double seconds : {11., 31., 121.})
    beliefs.push_back(believed(weather, weather.samples, seconds, 0.5));
  for (const double seconds : {31., 121.})
    beliefs.push_back(believed(weather, weather.samples, seconds, 0.2));
  double best = part_if_staying(weather);
  for (const std::vector<Rates>& belief : beliefs) {
    std::vector<Loads> plans;
    for (const Rates& rates : belief) plans.push_back(best_loads(rates));
    for (const double threshold : {0.02, 0.05, 0.1, 0.2, 0.3})
      for (const double price : {0., 1., 3., 6.})
        for (const Ration ration : {Ration{5, 90}, Ration{1, 60}, Ration{kMostChanges, 1e9}})
          best = std::max(best, part_of({threshold, price, ration}, weather, belief, plans));
  }
  return best;
}

// Before each sample a policy has some plan, which independent rates cannot favour, and then it may change to
// what it sees. Let it choose its plan anew before each sample, at no cost; let a change give it the best
// plan for the whole sample, at once; and let changes be bought at a price instead of being few. That only
// helps it. What it then gets of a sample is at most the larger of what its plan gives, and all less the
// price; and since samples are alike to it, one plan is the best before each. So with any price, the mean
// over weathers of the most that a plan which is chosen in hindsight gets, with what kMostChanges cost on
// top, is no less than what any causal policy gets on average.
//
// The search goes uphill from all alike, and from each `every`-th sample's rates, of which it takes the slow
// ones to be less slow in several steps: a plan that fits all of a sample fits few others.
inline double bound_if_independent(const Weather& weather, std::size_t every = 3) {
  constexpr double kPriceOfAChange =
      0.4;  // of a sample: about what gives the least bound in noise as Huawei's
  std::vector<double> least;
  for (const Rates& now : weather.samples) least.push_back(least_duration(now));
  const auto value = [&](const Loads& plan) {
    double sum = 0;
    for (std::size_t s = 0; s < least.size(); ++s)
      sum += std::max(least[s] / duration(plan, weather.samples[s]), 1 - kPriceOfAChange);
    return sum;
  };
  const auto uphill = [&](Loads plan) {
    double best = value(plan);
    for (double step = 0.4; step > 0.005; step /= 2)
      for (bool better = true; better;) {
        better = false;
        for (std::size_t from = 0; from < kWeatherHosts; ++from)
          for (std::size_t to = 0; to < kWeatherHosts; ++to) {
            if (from == to || plan[from] - step < 1) continue;
            Loads other = plan;
            other[from] -= step;
            other[to] += step;
            if (const double v = value(other); v > best) {
              best = v;
              plan = other;
              better = true;
            }
          }
      }
    return best;
  };
  Loads alike{};
  alike.fill(kAllLoads / kWeatherHosts);
  double best = uphill(alike);
  for (std::size_t s = 0; s < weather.samples.size(); s += every)
    for (const double slowest : {0., 0.4, 0.8}) {
      Rates rates = weather.samples[s];
      for (double& rate : rates) rate = std::max(rate, slowest * weather.said);
      best = std::max(best, uphill(best_loads(rates)));
    }
  return (best + kMostChanges * kPriceOfAChange) / static_cast<double>(least.size());
}

}  // namespace talweg::steer
