// Surveys of drawn networks whose hosts send slower than they receive, seen through TCP: acknowledgements
// wait behind data, measurements are noisy, hosts are busy. Nothing may be found that is not there.
#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/at.h"
#include "cluster/routing.h"
#include "sanitized.h"
#include "steer/fair_network.h"
#include "steer/known_networks.h"
#include "steer/survey.h"

namespace talweg::steer {
namespace {

constexpr double kWindow = 1.5e6;                      // bytes: six messages of 256 KiB
constexpr double kQueueBytes[] = {512 << 10, 1.25e6};  // bytes: 42 and 100 ms at 100 Mbit/s

// How a network is seen.
struct Weather {
  double noise = 0;
  double busy = 0;       // chance that a host is, in a trial
  double disturbed = 0;  // chance that a trial is
  bool quiet() const { return busy == 0 && disturbed == 0; }
};

Weather drawn_weather(Random& random) {
  const double chances[] = {0, 0.01, 0.03};
  return {0.01 + 0.04 * random.uniform(), chances[random.below(3)], chances[random.below(3)]};
}

// What a survey finds of it, by TCP.
Findings seen(const Cluster& truth, const Weather& weather, Random& random) {
  FairNetwork network(truth, weather.noise, weather.disturbed, random.next());
  network.queue_acknowledgements(kWindow, kQueueBytes[random.below(2)], random.below(2) == 0 ? 0.97 : 0.85);
  network.keep_hosts_busy(weather.busy);
  return network.survey();
}

struct Rates {
  std::vector<double> up, down;
};

// One way up to eight times as fast as the other; mostly it is the way in.
Rates drawn_rates(int hosts, Random& random) {
  const double fast[] = {2e8, 4e8, 5e8, 8e8, 1e9};
  Rates rates;
  for (int h = 0; h < hosts; ++h) {
    double down = fast[random.below(5)], up = down / static_cast<double>(1 << random.below(4));
    if (random.below(8) == 0) std::swap(up, down);
    rates.up.push_back(up);
    rates.down.push_back(down);
  }
  return rates;
}

// What a port carries is no more than what all others send to it, or take from it.
double within_others(const std::vector<double>& own, const std::vector<double>& others, std::size_t host) {
  return std::min(own[host], std::accumulate(others.begin(), others.end(), -others[host]));
}

int shared(const Findings& found) {
  const auto ports = std::ranges::count_if(found.both, [](const auto& rate) { return rate.has_value(); });
  return static_cast<int>(ports) + static_cast<int>(found.uplinks.size());
}

void expect_pairs(const Findings& found, const Cluster& truth, double tolerance) {
  const Cluster cluster = to_cluster(found, one_rank_each(truth.workers()));
  const cluster::Routes routes(cluster), true_routes(truth);
  for (int a = 0; a < truth.workers(); ++a)
    for (int b = 0; b < truth.workers(); ++b) {
      if (a == b) continue;
      EXPECT_LT(off(routes.rate(a, b).bits_per_second, true_routes.rate(a, b).bits_per_second), tolerance)
          << a << " to " << b;
    }
}

TEST(Asymmetric, StarsShareNothingAndTheirRatesAreRight) {
  for (std::uint64_t seed = 1; seed <= fewer(400U); ++seed) {
    Random random(seed);
    const int hosts = 2 + static_cast<int>(random.below(7));
    const Rates rates = drawn_rates(hosts, random);
    const Weather weather = drawn_weather(random);
    const Findings found = seen(star(rates.up, rates.down), weather, random);
    ASSERT_EQ(shared(found), 0) << "seed " << seed << ", " << hosts << " hosts";
    ASSERT_TRUE(found.pairs.empty()) << "seed " << seed << ", " << hosts << " hosts";
    if (!weather.quiet()) continue;  // that rates are right then, too, is another matter
    EXPECT_LE(found.trials, Survey::expected_trials(hosts) + 2 * hosts) << seed;
    for (std::size_t h = 0; h < at(hosts); ++h) {
      const double out = within_others(rates.up, rates.down, h), in = within_others(rates.down, rates.up, h);
      EXPECT_LT(off(found.out[h].value, out), 0.05) << seed << " host " << h;
      EXPECT_LT(off(found.in[h].value, in), 0.05) << seed << " host " << h;
    }
    if (HasFailure()) return;
  }
}

// All alike, in which no host stands out.
TEST(Asymmetric, HostsThatAreAlikeShareNothing) {
  for (const auto& [up, down] : {std::pair(1e8, 8e8), std::pair(2e8, 5e8), std::pair(8e8, 1e8)})
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
      Random random(seed);
      const Cluster truth = star(std::vector<double>(8, up), std::vector<double>(8, down));
      const Findings found = seen(truth, {0.02, 0.01, 0}, random);
      EXPECT_EQ(shared(found), 0) << up << " up, seed " << seed;
      EXPECT_TRUE(found.pairs.empty()) << up << " up, seed " << seed;
      expect_pairs(found, truth, 0.05);
    }
}

TEST(Asymmetric, TwoRacksAreFoundAndNothingElse) {
  const double ups[] = {1e8, 2e8, 5e8};
  for (std::uint64_t seed = 1; seed <= fewer(200U); ++seed) {
    Random random(seed);
    std::vector<int> rack{0, 0, 0, 0, 1, 1, 1, 1};
    if (seed % 2 == 0)
      for (std::size_t i = 7; i > 0; --i) std::swap(rack[i], rack[random.below(i + 1)]);
    const double up = ups[random.below(3)], down = up * static_cast<double>(1 << random.below(3));
    const double uplink = up * (0.8 + 0.8 * random.uniform());  // two hosts are more than it carries
    const Cluster truth = racks(rack, uplink, uplink, up, down);
    const Findings found = seen(truth, {0.01 + 0.02 * random.uniform(), 0.01, 0.01}, random);
    ASSERT_EQ(found.uplinks.size(), 1u) << "seed " << seed;
    EXPECT_EQ(shared(found), 1) << "seed " << seed;
    EXPECT_TRUE(found.pairs.empty()) << "seed " << seed;
    const Findings::Uplink& way = found.uplinks[0];
    ASSERT_EQ(way.inside.size(), 4u) << "seed " << seed;
    for (const int h : way.inside) EXPECT_EQ(rack[at(h)], rack[at(way.inside[0])]) << "seed " << seed;
    ASSERT_TRUE(way.leaving && way.entering) << "seed " << seed;
    EXPECT_LT(off(way.leaving->value, uplink), 0.05) << "seed " << seed;
    EXPECT_LT(off(way.entering->value, uplink), 0.05) << "seed " << seed;
    EXPECT_LE(found.doubt, 0.01) << "seed " << seed;
    if (HasFailure()) return;
  }
}

TEST(Asymmetric, AWayThatIsNarrowIntoARackOnlyIsFound) {
  for (std::uint64_t seed = 1; seed <= fewer(40U); ++seed) {
    Random random(seed);
    // The other rack's way in and both ways out carry all that hosts can send.
    Cluster truth = racks({0, 0, 0, 0, 1, 1, 1, 1}, 1.6e9, 1.6e9, 4e8, 8e8);
    for (cluster::Link& link : truth.links)
      if (link.from == 10 && link.to == 8) link.capacity = {6e8};
    const Findings found = seen(truth, {0.02, 0.01, 0}, random);
    ASSERT_EQ(found.uplinks.size(), 1u) << seed;
    EXPECT_THAT(found.uplinks[0].inside, testing::ElementsAre(0, 1, 2, 3)) << seed;
    ASSERT_TRUE(found.uplinks[0].entering) << seed;
    EXPECT_LT(off(found.uplinks[0].entering->value, 6e8), 0.05) << seed;
    EXPECT_FALSE(found.uplinks[0].leaving) << seed;
    EXPECT_TRUE(found.pairs.empty()) << seed;
  }
}

TEST(Asymmetric, APortWhoseTwoWaysShareIsFoundAmongHostsWhoseWaysDoNot) {
  for (std::uint64_t seed = 1; seed <= fewer(100U); ++seed) {
    Random random(seed);
    Rates rates = drawn_rates(6, random);
    for (std::size_t h = 0; h < 6; ++h)
      rates.up[h] = rates.down[h] / static_cast<double>(1 << random.below(3));
    rates.up[0] = rates.down[0] = rates.up[1] = rates.down[1] = 8e8;  // enough for the one in question
    rates.up[2] = rates.down[2] = 4e8;
    Cluster truth = star(rates.up, rates.down);
    truth.groups.push_back({"half", {4e8}, {4, 5}});  // host 2
    const Findings found = seen(truth, {0.01 + 0.02 * random.uniform(), 0.01, 0}, random);
    ASSERT_TRUE(found.both[2]) << seed;
    EXPECT_LT(off(found.both[2]->value, 4e8), 0.05) << seed;
    EXPECT_EQ(shared(found), 1) << seed;
    EXPECT_TRUE(found.pairs.empty()) << seed;
  }
}

// In the trial of all pairs acknowledgements wait behind the data of the other way.
TEST(Asymmetric, MeshesWhoseWaysDifferAreFoundWithoutMeasuringEveryPairAlone) {
  for (std::uint64_t seed = 1; seed <= fewer(50U); ++seed) {
    Random random(seed);
    const int hosts = 4 + static_cast<int>(random.below(5));
    const Cluster truth = mesh_of(hosts, random);
    const Findings found = seen(truth, {0.02, 0, 0}, random);
    EXPECT_LE(found.trials, 7 * hosts + 10) << seed;
    EXPECT_EQ(shared(found), 0) << seed;
    expect_pairs(found, truth, 0.05);
    if (HasFailure()) {
      ADD_FAILURE() << "seed " << seed;
      return;
    }
  }
}

}  // namespace
}  // namespace talweg::steer
