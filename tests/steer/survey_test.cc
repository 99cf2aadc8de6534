#include "steer/survey.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "cluster/routing.h"
#include "forest/bound.h"
#include "sanitized.h"
#include "steer/fair_network.h"
#include "steer/known_networks.h"
#include "talweg/error.h"

namespace talweg::steer {
namespace {

constexpr double kMbit = 1e6;

// Gives the host a port that carries no more than this part of what its links carry, out of it.
void narrow(Cluster& mesh, int host, double part) {
  cluster::CapacityGroup port{"out" + std::to_string(host), {0}, {}};
  for (std::size_t l = 0; l < mesh.links.size(); ++l)
    if (mesh.links[l].from == host) {
      port.links.push_back(static_cast<int>(l));
      port.capacity.bits_per_second += part * mesh.links[l].capacity.bits_per_second;
    }
  mesh.groups.push_back(std::move(port));
}

// A tunnel between every two hosts, as fast both ways: 5 to 200 Mbit/s, spread evenly over the orders of
// magnitude.
Cluster tunnels(int n, Random& random) {
  Cluster c = cluster::uniform_mesh(n, {1e9}, kLatency);
  std::vector<double> rates(static_cast<std::size_t>(n * n));
  for (double& rate : rates) rate = 5 * kMbit * std::pow(40, random.uniform());
  for (cluster::Link& link : c.links)
    link.capacity = {
        rates[static_cast<std::size_t>(std::min(link.from, link.to) * n + std::max(link.from, link.to))]};
  return c;
}

double largest_error(const Cluster& found, const Cluster& mesh) {
  double worst = 0;
  for (const cluster::Link& link : mesh.links) {
    const auto same = std::ranges::find_if(
        found.links, [&](const cluster::Link& l) { return l.from == link.from && l.to == link.to; });
    if (same == found.links.end()) return 1;
    worst = std::max(worst, off(same->capacity.bits_per_second, link.capacity.bits_per_second));
  }
  return worst;
}

// What the network carries of these flows at once, all together.
double carried(const Cluster& network, const std::vector<Flow>& flows) {
  const auto rates = FairNetwork(network, 0).fair_rates(flows);
  return std::accumulate(rates.begin(), rates.end(), 0.0);
}

// The found network answers random sets of flows as the true one does.
void expect_alike(const Cluster& found, const Cluster& truth, double tolerance) {
  Random random(99);
  const auto n = static_cast<std::uint64_t>(truth.workers());
  for (int i = 0; i < 100; ++i) {
    std::vector<Flow> flows;
    for (std::uint64_t k = 0; k <= random.below(2 * n); ++k) {
      const Flow flow{static_cast<int>(random.below(n)), static_cast<int>(random.below(n))};
      if (flow.from != flow.to) flows.push_back(flow);
    }
    if (flows.empty()) continue;
    EXPECT_LE(off(carried(found, flows), carried(truth, flows)), tolerance)
        << testing::PrintToString(flows.size()) << " flows, set " << i << "\n"
        << to_yaml(found);
    if (testing::Test::HasFailure()) return;
  }
}

double all_reduce_bound(const Cluster& network) {
  return forest::best_rate(network, Collective::all_reduce).rate.value();
}

TEST(Survey, WhatIsFoundIsAsGoodAPlaceToPlanAsTheNetworkItself) {
  Random random(5);
  Cluster half_duplex = cluster::uniform_star(4, {1e9}, kLatency);
  half_duplex.groups.push_back({"half", {1e9}, {2, 3}});
  const Cluster truths[] = {star({1e9, 1e9, 2e8, 2e8}, {1e9, 1e9, 2e8, 2e8}),
                            star({1e9, 6e8, 2e8, 3e8}, {1e9, 1e9, 4e8, 2e8}),
                            cluster::uniform_star(8, {1e9}, kLatency),
                            mesh_of(4, random),
                            mesh_of(4, random),
                            racks({0, 0, 0, 1, 1, 1}, 8e8, 8e8),
                            half_duplex};
  for (const Cluster& truth : truths) {
    const double bound = all_reduce_bound(truth);
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      FairNetwork network(truth, 0.05, 0, seed);
      const Cluster found = to_cluster(network.survey(), one_rank_each(truth.workers()));
      EXPECT_LT(off(all_reduce_bound(found), bound), 0.05) << seed << "\n"
                                                           << to_yaml(truth) << to_yaml(found);
    }
  }
}

TEST(Survey, PortsOfAnUnevenStarAreFoundEachWay) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const std::vector<double> up{1e9, 1e9, 2e8, 5e8, 1e9, 2e8, 1e9, 1e9};
    const std::vector<double> down{1e9, 1e9, 2e8, 2e8, 1e9, 5e8, 1e9, 1e9};
    FairNetwork network(star(up, down), 0.05, 0, seed);
    const Findings found = network.survey();
    EXPECT_TRUE(found.pairs.empty()) << seed;
    EXPECT_TRUE(found.uplinks.empty()) << seed;
    EXPECT_EQ(found.unexplained_flows, 0) << seed;
    for (std::size_t h = 0; h < 8; ++h) {
      EXPECT_LT(off(found.out[h].value, up[h]), 0.1) << seed << " host " << h;
      EXPECT_LT(off(found.in[h].value, down[h]), 0.1) << seed << " host " << h;
      EXPECT_FALSE(found.both[h]) << seed << " host " << h;
    }
    const Cluster cluster = to_cluster(found, one_rank_each(8));
    EXPECT_EQ(cluster.nodes.size(), 9u);
    EXPECT_EQ(cluster.links.size(), 16u);
    expect_alike(cluster, network.truth(), 0.1);
  }
}

TEST(Survey, HostsThatAreAlikeLookAlike) {
  FairNetwork network(cluster::uniform_star(8, {1e9}, kLatency), 0.03);
  const Cluster cluster = to_cluster(network.survey(), one_rank_each(8));
  for (const cluster::Link& link : cluster.links) {
    EXPECT_EQ(link.capacity, cluster.links[0].capacity);
    EXPECT_EQ(link.latency, kLatency);
  }
}

TEST(Survey, LimitsOfPairsAreFoundEachWay) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Random random(seed);
    for (const int n : {3, 4, 8}) {
      FairNetwork network(mesh_of(n, random), 0.05, 0, seed);
      const Findings found = network.survey();
      EXPECT_TRUE(found.uplinks.empty()) << seed;
      const Cluster cluster = to_cluster(found, one_rank_each(n));
      for (const cluster::Link& link : network.truth().links) {
        const auto same =
            std::find_if(cluster.links.begin(), cluster.links.end(),
                         [&](const cluster::Link& l) { return l.from == link.from && l.to == link.to; });
        ASSERT_NE(same, cluster.links.end());
        EXPECT_LT(off(same->capacity.bits_per_second, link.capacity.bits_per_second), 0.1)
            << seed << ", " << n << " hosts, " << link.from << " to " << link.to;
      }
      expect_alike(cluster, network.truth(), 0.1);
    }
  }
}

TEST(Survey, TunnelsThatShareNothingAreFoundAllAtOnce) {
  for (std::uint64_t seed = 1; seed <= fewer(50U); ++seed) {
    Random random(seed);
    for (const int n : {3, 8, 16}) {
      FairNetwork network(tunnels(n, random), 0.02, 0, seed);
      const Findings found = network.survey();
      EXPECT_LE(found.trials, n - 1 + 5) << seed << ", " << n << " hosts";
      EXPECT_TRUE(found.uplinks.empty()) << seed;
      EXPECT_EQ(found.unexplained_flows, 0) << seed;
      const Cluster cluster = to_cluster(found, one_rank_each(n));
      EXPECT_TRUE(cluster.groups.empty()) << seed << to_yaml(cluster);
      EXPECT_LT(largest_error(cluster, network.truth()), 0.05) << seed << ", " << n << " hosts";
    }
  }
}

TEST(Survey, TunnelsAreFoundWhereTrialsAreDisturbed) {
  for (std::uint64_t seed = 1; seed <= fewer(50U); ++seed) {
    Random random(seed);
    FairNetwork network(tunnels(8, random), 0.02, 0.04, seed);
    const Findings found = network.survey();
    EXPECT_LE(found.trials, 40) << seed;
    EXPECT_LT(largest_error(to_cluster(found, one_rank_each(8)), network.truth()), 0.05) << seed;
  }
}

TEST(Survey, APortThatCarriesLessThanItsTunnelsIsFound) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    Random random(seed);
    Cluster truth = tunnels(8, random);
    narrow(truth, 3, 0.6);
    FairNetwork network(truth, 0.02, 0, seed);
    const Cluster cluster = to_cluster(network.survey(), one_rank_each(8));
    ASSERT_EQ(cluster.groups.size(), 1u) << seed << to_yaml(cluster);
    EXPECT_LT(off(cluster.groups[0].capacity.bits_per_second, truth.groups[0].capacity.bits_per_second), 0.05)
        << seed;
    for (const int l : truth.groups[0].links) {  // more of a tunnel nobody can see
      auto& rate = truth.links[static_cast<std::size_t>(l)].capacity.bits_per_second;
      rate = std::min(rate, truth.groups[0].capacity.bits_per_second);
    }
    EXPECT_LT(largest_error(cluster, truth), 0.1) << seed;
  }
}

// One uplink for all: in rounds its users are always as many, and as slow.
TEST(Survey, PairsThatShareAreNotTakenForTunnels) {
  for (const double uplink : {1e8, 2.5e8, 5e8})
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
      FairNetwork network(racks({0, 1, 0, 1, 0, 1, 0, 1}, uplink, uplink), 0.03, 0, seed);
      const Findings found = network.survey();
      EXPECT_TRUE(found.pairs.empty()) << seed;
      ASSERT_EQ(found.uplinks.size(), 1u) << seed;
      EXPECT_LT(off(found.uplinks[0].leaving->value, uplink), 0.1) << seed;
    }
}

TEST(Survey, UplinksAreFoundHoweverHostsAreNumbered) {
  const std::vector<std::vector<int>> numberings = {{0, 0, 0, 0, 1, 1, 1, 1},
                                                    {0, 1, 0, 1, 0, 1, 0, 1},
                                                    {0, 1, 1, 0, 1, 0, 0, 1},
                                                    {0, 0, 1, 1},
                                                    {0, 1, 1, 0},
                                                    {0, 0, 1, 1, 2, 2},
                                                    {0, 1, 2, 2, 1, 0},
                                                    {0, 0, 0, 1, 1, 1, 1, 1}};
  for (const auto& rack : numberings)
    for (const double uplink : {0.5e9, 1e9, 1.5e9})
      for (std::uint64_t seed = 1; seed <= fewer(5U); ++seed) {
        FairNetwork network(racks(rack, uplink, uplink), 0.03, 0, seed);
        const Findings found = network.survey();
        const std::string what = testing::PrintToString(rack) + testing::PrintToString(uplink) + " seed " +
                                 testing::PrintToString(seed);
        EXPECT_FALSE(found.uplinks.empty()) << what;
        EXPECT_TRUE(found.pairs.empty()) << what;
        for (const auto& u : found.uplinks) {
          ASSERT_TRUE(u.leaving && u.entering) << what;
          EXPECT_LT(off(u.leaving->value, uplink), 0.1) << what;
          EXPECT_LT(off(u.entering->value, uplink), 0.1) << what;
          for (const int h : u.inside)
            EXPECT_EQ(rack[static_cast<std::size_t>(h)], rack[static_cast<std::size_t>(u.inside[0])]) << what;
        }
        const Cluster cluster = to_cluster(found, one_rank_each(static_cast<int>(rack.size())));
        EXPECT_TRUE(cluster.groups.empty()) << what << to_yaml(cluster);
        expect_alike(cluster, network.truth(), 0.12);
        if (HasFailure()) {
          ADD_FAILURE() << what;
          return;
        }
      }
}

TEST(Survey, AnUplinkMayBeSlowerOneWay) {
  FairNetwork network(racks({0, 0, 0, 0, 1, 1, 1, 1}, 1e9, 2e9), 0.03);
  const Findings found = network.survey();
  ASSERT_EQ(found.uplinks.size(), 1u);
  EXPECT_THAT(found.uplinks[0].inside, testing::ElementsAre(0, 1, 2, 3));
  EXPECT_LT(off(found.uplinks[0].leaving->value, 1e9), 0.1);
  EXPECT_LT(off(found.uplinks[0].entering->value, 1e9), 0.1);  // the other rack's way out
}

TEST(Survey, APortWhoseTwoWaysShareIsFound) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Cluster truth = cluster::uniform_star(4, {1e9}, kLatency);
    truth.groups.push_back({"half", {1e9}, {2, 3}});  // of host 1
    FairNetwork network(truth, 0.05, 0, seed);
    const Findings found = network.survey();
    EXPECT_FALSE(found.both[0] || found.both[2] || found.both[3]) << seed;
    ASSERT_TRUE(found.both[1]) << seed;
    EXPECT_LT(off(found.both[1]->value, 1e9), 0.1) << seed;
    EXPECT_TRUE(found.pairs.empty() && found.uplinks.empty()) << seed;
    const Cluster cluster = to_cluster(found, one_rank_each(4));
    ASSERT_EQ(cluster.groups.size(), 1u) << seed;
    expect_alike(cluster, truth, 0.1);
  }
}

TEST(Survey, AMeshBehindNarrowPortsHasBoth) {
  Cluster truth = cluster::uniform_mesh(4, {8e8}, kLatency);
  for (int h = 0; h < 4; ++h) {
    cluster::CapacityGroup out{"out" + std::to_string(h), {1e9}, {}}, in{"in" + std::to_string(h), {1e9}, {}};
    for (std::size_t l = 0; l < truth.links.size(); ++l) {
      if (truth.links[l].from == h) out.links.push_back(static_cast<int>(l));
      if (truth.links[l].to == h) in.links.push_back(static_cast<int>(l));
    }
    truth.groups.push_back(out);
    truth.groups.push_back(in);
  }
  FairNetwork network(truth, 0.02);
  const Cluster cluster = to_cluster(network.survey(), one_rank_each(4));
  EXPECT_EQ(cluster.groups.size(), 8u);
  expect_alike(cluster, truth, 0.1);
}

TEST(Survey, ATrialThatWasDisturbedHasNoSay) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    FairNetwork network(star({1e9, 1e9, 2e8, 2e8}, {1e9, 1e9, 2e8, 2e8}), 0.02, 0.08, seed);
    const Findings found = network.survey();
    for (std::size_t h = 0; h < 4; ++h) {
      EXPECT_LT(off(found.out[h].value, h < 2 ? 1e9 : 2e8), 0.1) << seed;
      EXPECT_LT(off(found.in[h].value, h < 2 ? 1e9 : 2e8), 0.1) << seed;
    }
    EXPECT_TRUE(found.pairs.empty() && found.uplinks.empty()) << seed;
  }
}

TEST(Survey, TwoHostsAreLinkedStraight) {
  FairNetwork network(star({1e9, 3e8}, {1e9, 5e8}), 0.02);
  const Cluster cluster = to_cluster(network.survey(), one_rank_each(2));
  ASSERT_EQ(cluster.links.size(), 2u);
  EXPECT_LT(off(cluster.links[0].capacity.bits_per_second, 5e8), 0.1);
  EXPECT_LT(off(cluster.links[1].capacity.bits_per_second, 3e8), 0.1);
  EXPECT_EQ(cluster.links[0].latency.value, 2 * kLatency.value);
}

TEST(Survey, RepeatsEndAtTheConfidenceAskedForOrAtTheLimit) {
  const Cluster truth = cluster::uniform_star(4, {1e9}, kLatency);
  const auto trials = [&](double noise, const SurveyOptions& options) {
    return FairNetwork(truth, noise).survey(options).trials;
  };
  EXPECT_EQ(trials(0.001, {0.05, 5}), Survey::expected_trials(4));
  EXPECT_GT(trials(0.05, {0.005, 5}), Survey::expected_trials(4));
  for (const double noise : {0.05, 0.3})
    for (const int hosts : {2, 4, 8}) {
      FairNetwork network(cluster::uniform_star(hosts, {1e9}, kLatency), noise);
      EXPECT_LE(network.survey({0.0001, 3}).trials, Survey::most_trials(hosts, {0.0001, 3}));
    }
  const Findings sure = FairNetwork(truth, 0.01).survey();
  EXPECT_LE(sure.confidence, 0.02);
  EXPECT_GT(sure.confidence, 0);
}

TEST(Survey, InAHurryNothingIsRepeatedThatNeedNotBe) {
  FairNetwork network(cluster::uniform_star(4, {1e9}, kLatency), 0.3);
  Survey survey(4, {0.001, 5});
  int trials = 0;
  for (; const Trial* trial = survey.next(); ++trials) survey.add(network.run(*trial), Haste::hurry);
  EXPECT_LE(trials, Survey::expected_trials(4) + 4 + 2 * 6 + 10 + 8);
  EXPECT_EQ(survey.findings().trials, trials);
}

TEST(Survey, WhenTimeIsOverPairsAreTakenForWhatTheyReachedInOtherCompany) {
  Random random(11);
  Cluster truth = mesh_of(8, random);
  for (int h = 0; h < 8; ++h) narrow(truth, h, 0.6);  // or nothing would be shared, and nothing in doubt
  const auto survey_in = [&](Haste haste) {
    FairNetwork network(truth, 0.02);
    Survey survey(8);
    while (const Trial* trial = survey.next()) survey.add(network.run(*trial), haste);
    return survey.findings();
  };
  const Findings hurried = survey_in(Haste::hurry), finished = survey_in(Haste::finish);
  EXPECT_LT(finished.trials, hurried.trials - 20);  // of 56 pairs alone, one after the other
  ASSERT_GT(finished.pairs.size(), 30u);
  const cluster::Routes routes(truth);
  for (const auto& pair : finished.pairs) {
    const int link = *routes.path(pair.flow.from, pair.flow.to).begin();
    const double rate = truth.links[static_cast<std::size_t>(link)].capacity.bits_per_second;
    EXPECT_LT(off(pair.rate.value, rate), 0.15) << pair.flow.from << " to " << pair.flow.to;
  }
}

TEST(Survey, ManyHostsAreMeasuredInABoundedNumberOfTrials) {
  for (const int hosts : {17, 40}) {
    FairNetwork network(cluster::uniform_star(hosts, {1e9}, kLatency), 0.02);
    const Findings found = network.survey();
    EXPECT_LE(found.trials, 5 * hosts + 40) << hosts;
    EXPECT_TRUE(found.pairs.empty() && found.uplinks.empty());
  }
  std::vector<int> rack;
  for (int h = 0; h < 20; ++h) rack.push_back(h / 10);
  FairNetwork network(racks(rack, 2e9, 2e9), 0.02);
  const Findings found = network.survey();
  ASSERT_EQ(found.uplinks.size(), 1u);
  EXPECT_EQ(found.uplinks[0].inside.size(), 10u);
  EXPECT_LT(off(found.uplinks[0].leaving->value, 2e9), 0.1);
}

TEST(Survey, RanksOfOneHostHangOnASwitch) {
  FairNetwork network(cluster::uniform_star(3, {1e9}, kLatency), 0.01);
  Layout layout;
  layout.host_of = {0, 0, 1, 2, 2};
  layout.host_names = {"node", "node", "a b"};
  layout.memory = {8e10};
  layout.memory_latency = {2000};
  const Cluster cluster = to_cluster(network.survey(), layout);
  ASSERT_EQ(cluster.workers(), 5);
  EXPECT_EQ(cluster.nodes[0].name, "rank0");
  EXPECT_EQ(cluster.nodes[2].name, "node-1");
  EXPECT_EQ(cluster.nodes[5].name, "node");
  EXPECT_EQ(cluster.nodes[6].name, "a_b");
  const cluster::Routes routes(cluster);
  EXPECT_EQ(routes.rate(0, 1), Bandwidth{8e10});
  EXPECT_LT(off(routes.rate(0, 4).bits_per_second, 1e9), 0.05);
}

TEST(Survey, NamesOfHostsAreFitForFilesAndEachIsThereOnce) {
  Layout layout;
  layout.host_names = {"a>b", "", "a b", "x\ty\n", "host"};
  EXPECT_THAT(node_names(layout), testing::ElementsAre("a_b", "host", "a_b-1", "x_y_", "host-1"));
}

TEST(Survey, OneHostIsNoNetwork) {
  EXPECT_THROW(Survey(1), Error);
  EXPECT_THROW(Survey(Survey::kMostHosts + 1), Error);
}

TEST(Estimates, AreTheMiddleOfTheGreatestThatAgree) {
  EXPECT_DOUBLE_EQ(steer::estimate({100, 50, 102}).value, 101);
  EXPECT_NEAR(steer::estimate({100, 50, 102}).half_width, 0.01, 1e-3);
  EXPECT_EQ(steer::estimate({100, 50, 102}).agreeing, 2);
  EXPECT_DOUBLE_EQ(steer::estimate({51, 50, 100, 102, 52}).value,
                   101);                                              // a busy host is slow most of the time
  EXPECT_DOUBLE_EQ(steer::estimate({150, 50, 102, 100}).value, 101);  // too fast to be true, once
  EXPECT_DOUBLE_EQ(steer::estimate({100, 50}).value, 75);
  EXPECT_EQ(steer::estimate({100, 50}).agreeing, 0);
  EXPECT_DOUBLE_EQ(steer::estimate({7}).half_width, 1);
  EXPECT_DOUBLE_EQ(steer::estimate({}).value, 0);
  EXPECT_DOUBLE_EQ(steer::estimate({0, 0}).half_width, 1);
}

TEST(Estimates, OfTheFastestLeaveOutWhatWasHeldUp) {
  EXPECT_DOUBLE_EQ(steer::fastest({50, 51, 52, 100, 96}).value, 98);
  EXPECT_EQ(steer::fastest({50, 51, 52, 100, 96}).agreeing, 2);
  EXPECT_DOUBLE_EQ(steer::fastest({50, 100}).value, 100);
  EXPECT_DOUBLE_EQ(steer::fastest({}).value, 0);
}

}  // namespace
}  // namespace talweg::steer
