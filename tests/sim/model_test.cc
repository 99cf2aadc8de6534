// What is planned against what is simulated: bounds hold, and processors are charged by one rule.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <iterator>
#include <memory>
#include <vector>

#include "base/collectives.h"
#include "forest/bound.h"
#include "forest/cost.h"
#include "forest/drawn_network.h"
#include "forest/packed.h"
#include "forest/planner.h"
#include "sanitized.h"
#include "sim/collectives.h"
#include "sim/shapes.h"
#include "sim/topologies.h"

namespace talweg::sim {
namespace {

// Seconds until the last rank has ended, all having started at once.
double simulated(const cluster::Cluster& cluster, const std::shared_ptr<const forest::Forest>& forest,
                 const SimulationOptions& options, const HostCosts& costs) {
  Simulation simulation(cluster, options);
  RanksOptions without;
  without.carry_payloads = false;
  without.costs = costs;
  Ranks ranks(simulation, without);
  const CallTimes times = run_calls(simulation, ranks, forest, DataType::f32, {0, 1}, kNever);
  return seconds(*std::ranges::max_element(times.of_rank[0]));
}

HostCosts costs_of(const forest::CostParameters& parameters) {
  const auto whole = [](double seconds) { return static_cast<Picoseconds>(std::llround(seconds * 1e12)); };
  return {whole(parameters.tcp.per_batch), whole(parameters.tcp.per_byte), whole(parameters.reduce_per_byte)};
}

// Seconds.
struct Relayed {
  double predicted = 0;
  double simulated = 0;
};

// A broadcast of 8 MiB from each host to the next one, in chunks of 8 KiB.
Relayed relay(const cluster::Cluster& cluster, const forest::CostParameters& parameters) {
  const auto request = forest::even_request(Collective::broadcast, cluster.workers(), 0, 2 << 20, 4);
  auto forest = std::make_shared<forest::Forest>(forest::find_planner("chain").plan(request, cluster));
  for (forest::Tree& tree : forest->trees) tree.chunk = 2 << 10;
  return {forest::predict_seconds(*forest, cluster, parameters),
          simulated(cluster, forest, {}, costs_of(parameters))};
}

TEST(Model, PredictsManySmallChunksOnIdealHosts) {
  forest::CostParameters ideal;
  ideal.tcp.per_batch = ideal.tcp.per_byte = ideal.reduce_per_byte = 0;
  const Relayed found = relay(star(4, kTen), ideal);
  EXPECT_GT(found.simulated, 0.97 * found.predicted);
  EXPECT_LT(found.simulated, 1.2 * found.predicted);
}

// Were each of 1024 chunks charged, a relay would be busy for 13 and 41 ms, where links take 7.
TEST(Model, PredictsManySmallChunksWhereLinksLimitSlowHosts) {
  for (const double batch : {5e-6, 20e-6}) {
    forest::CostParameters slow;
    slow.tcp.per_batch = batch;
    const Relayed found = relay(star(4, kTen), slow);
    EXPECT_GT(found.simulated, 0.97 * found.predicted) << batch;
    EXPECT_LT(found.simulated, 1.25 * found.predicted) << batch;
  }
}

TEST(Model, PredictsManySmallChunksWhereProcessorsLimit) {
  forest::CostParameters slow;
  slow.tcp.per_batch = 20e-6;
  const Relayed found = relay(star(3, {Bandwidth{100e9}, Nanoseconds{1000}}), slow);
  EXPECT_GT(found.simulated, 0.8 * found.predicted);
  EXPECT_LT(found.simulated, 1.2 * found.predicted);
}

// As hosts have it that run Linux: flows take turns, and none gives up what is only slow.
SimulationOptions as_hosts_have_it() {
  SimulationOptions options;
  options.transport.turns = true;
  options.transport.least_rto = options.transport.first_rto = Nanoseconds{200'000'000};
  options.network.switch_queue.limit_bytes = 1 << 20;
  options.network.switch_queue.mark_bytes = 100 << 10;
  options.network.switch_queue.mark_by_delay = true;
  return options;
}

// Seconds of one call that all ranks begin together, among hosts that cost what the model charges for them,
// until the last rank has ended.
double as_hosts_take(const forest::CostModel& model, const std::shared_ptr<const forest::Forest>& forest,
                     std::int64_t bytes) {
  constexpr std::int64_t kLong = 16 << 20;  // a first call of so much begins as later ones do, but for little
  Simulation simulation(model.network(), as_hosts_have_it());
  RanksOptions hosts;
  hosts.carry_payloads = false;
  hosts.costs = costs_of(model.parameters());
  Ranks ranks(simulation, hosts);
  // After a rest: else ranks that end early would have begun it before others.
  const Calls calls = bytes < kLong ? Calls{1, 1, 1000 * kMicrosecond} : Calls{0, 1};
  const CallTimes times = run_calls(simulation, ranks, forest, DataType::f32, calls, kNever);
  std::vector<double> took(times.of_rank[0].size());
  for (const auto& call : times.of_rank)
    for (std::size_t rank = 0; rank < took.size(); ++rank) took[rank] += seconds(call[rank]);
  return *std::ranges::max_element(took) / static_cast<double>(times.of_call.size());
}

// Of what a group takes.
double error_of_prediction(const cluster::Cluster& network, std::int64_t bytes,
                           Collective op = Collective::all_reduce) {
  const forest::CostModel model(network);
  const auto forest = std::make_shared<forest::Forest>(
      forest::plan_best(forest::even_request(op, network.workers(), 0, bytes / 4, 4), network));
  return model.seconds(*forest) / as_hosts_take(model, forest, bytes) - 1;
}

// Networks of each kind, drawn from so many seeds. Nothing of the model was set on any of them.
struct Drawn {
  std::uint64_t first_seed;
  std::uint64_t seeds;
  int most_workers;
  std::vector<std::int64_t> sizes;
  Collective op = Collective::all_reduce;
};

// Of all sizes together; what each comes to is printed.
void expect_predictions(const Drawn& drawn, double most_in_the_middle, double worst) {
  const auto middle_of = [](std::vector<double> errors) {
    std::ranges::sort(errors);
    return errors[errors.size() / 2];
  };
  std::vector<double> all;
  for (const std::int64_t bytes : drawn.sizes) {
    std::vector<double> errors;
    for (std::size_t kind = 0; kind < std::size(forest::DrawnNetwork::kKinds); ++kind)
      for (std::uint64_t seed = drawn.first_seed; seed < drawn.first_seed + drawn.seeds; ++seed) {
        const forest::DrawnNetwork network(kind, seed, drawn.most_workers);
        const double error = error_of_prediction(network.get(), bytes, drawn.op);
        EXPECT_LT(std::abs(error), worst) << forest::DrawnNetwork::kKinds[kind] << " " << seed << " of "
                                          << network.get().workers() << ", " << bytes << " bytes: " << error;
        errors.push_back(std::abs(error));
      }
    all.insert(all.end(), errors.begin(), errors.end());
    std::cout << fmt::format("of {} predictions of {} for {} KiB: median {:.1f} % off, worst {:.1f} %\n",
                             errors.size(), name(drawn.op), bytes >> 10, 100 * middle_of(errors),
                             100 * *std::ranges::max_element(errors));
  }
  std::cout << fmt::format("of all: median {:.1f} % off\n", 100 * middle_of(all));
  EXPECT_LT(middle_of(all), most_in_the_middle);
}

constexpr double kMedian = 0.08, kWorst = 0.25;
constexpr double kMedianOfUpTo32 = 0.04;  // was 0.05 when each packet was acknowledged

TEST(Model, PredictsWhatIsSimulatedOnNetworksThatWereDrawn) {
  expect_predictions({31000, 2, 12, {64 << 10, 1 << 20}}, kMedian, 0.3);  // kWorst is wanted
}

TEST(Model, PredictsLargeVectorsOfUpTo32WorkersOnNetworksThatWereDrawn) {
  expect_predictions({41000, 1, 32, {16 << 20}}, kMedianOfUpTo32, kWorst);
}

TEST(ModelLong, PredictsWhatIsSimulatedOnManyNetworksThatWereDrawn) {
  constexpr double kWorstOfMany = 0.5;  // kWorst is wanted
  expect_predictions({51000, fewer<std::uint64_t>(6), 32, {64 << 10, 1 << 20, 16 << 20, 64 << 20}},
                     kMedianOfUpTo32, kWorstOfMany);
}

// A ring of switches of Choice.LoadsAndPredictsNearTheBoundOnNetworksOfOneWay where what is taken fills 0.94
// of the busiest link, and packed trees, in which many send to one, all of it.
TEST(ModelLong, WhatIsTakenIsQuickerThanPackedTreesThatLoadLinksLess) {
  constexpr std::size_t kRingOfSwitches = 3;
  constexpr std::int64_t kBytes = 16 << 20;
  const forest::DrawnNetwork drawn(kRingOfSwitches, 5004);
  const forest::CostModel model(drawn.get());
  forest::PackingMemo memo;
  const auto request = forest::even_request(Collective::all_reduce, drawn.get().workers(), 0, kBytes / 4, 4);
  const auto took = [&](const forest::Forest& forest) {
    return as_hosts_take(model, std::make_shared<forest::Forest>(forest), kBytes);
  };
  const double taken = took(forest::plan_in_full(request, model, memo).forest);
  const double packed = took(forest::plan_by(forest::find_planner("packed"), request, model, memo));
  std::cout << fmt::format("{:.1f} s, packed {:.1f} s\n", taken, packed);
  EXPECT_LT(1.05 * taken, packed);
}

// Networks of the same test where links that lead back limit plans made for data alone: without
// acknowledgements a tenth less time would be predicted.
TEST(ModelLong, AcknowledgementsFillSlowLinksThatLeadBack) {
  struct Slow {
    std::size_t kind;
    std::uint64_t seed;
  };
  constexpr std::int64_t kBytes = 16 << 20;
  for (const auto& [kind, seed] : {Slow{4, 5000}, Slow{4, 5003}, Slow{2, 5005}}) {
    const forest::DrawnNetwork drawn(kind, seed);
    forest::CostParameters unanswered;
    unanswered.tcp_acknowledgements = 0;
    const forest::CostModel model(drawn.get()), without(drawn.get(), unanswered);
    forest::PackingMemo memo;
    const auto forest = std::make_shared<forest::Forest>(forest::plan_best(
        forest::even_request(Collective::all_reduce, drawn.get().workers(), 0, kBytes / 4, 4), without,
        memo));
    const double took = as_hosts_take(model, forest, kBytes);
    std::cout << fmt::format("{}: {:.2f} s, predicted {:.2f} s, without acknowledgements {:.2f} s\n", seed,
                             took, model.seconds(*forest), without.seconds(*forest));
    EXPECT_NEAR(model.seconds(*forest) / took, 1, 0.08) << seed;
    EXPECT_LT(without.seconds(*forest) / took, 0.92) << seed;
  }
}

// Collectives of which all ranks wait for each other first, or that go block by block.
TEST(Model, PredictsOtherCollectivesOnNetworksThatWereDrawn) {
  constexpr double kWorstOfOthers = 0.45;  // kWorst is wanted; acknowledgements wait in a leaf-spine's queues
  for (const Collective op :
       {Collective::reduce_scatter, Collective::all_gather, Collective::broadcast, Collective::reduce,
        Collective::all_to_all, Collective::gather, Collective::scatter}) {
    SCOPED_TRACE(name(op));
    expect_predictions({61000, 1, 16, {64 << 10, 1 << 20}, op}, kMedian, kWorstOfOthers);
  }
}

void expect_no_run_beats_the_bound(const cluster::Cluster& cluster, const SimulationOptions& options) {
  constexpr std::int64_t kBlock = 16 << 10;  // elements
  const int n = cluster.workers();
  for (const Collective op : {Collective::all_to_all, Collective::gather, Collective::scatter}) {
    const forest::Bound bound = forest::best_rate(cluster, op, 1);
    const auto request = forest::even_request(op, n, facts(op).rooted ? 1 : 0, n * kBlock, 4);
    const auto forest =
        std::make_shared<forest::Forest>(forest::find_planner("direct").plan(request, cluster));
    const double least = 8.0 * 4 * n * static_cast<double>(kBlock) / bound.rate.value();
    const double took = simulated(cluster, forest, options, {});
    EXPECT_GT(took, least) << name(op);
    EXPECT_LT(took, 4 * least) << name(op) << ": the network is one where the bound counts";
  }
}

TEST(Model, NoExchangeOfBlocksBeatsItsBound) {
  const LinkShape host{Bandwidth{10e9}, Nanoseconds{1000}};
  cluster::Cluster uneven = star(6, host);
  uneven.links[4].capacity = Bandwidth{3e9};
  uneven.links[7].capacity = Bandwidth{2e9};
  expect_no_run_beats_the_bound(uneven, {});
  cluster::Cluster sharing = star(5, host);
  sharing.groups.push_back({"card", Bandwidth{8e9}, {0, 1, 2, 3}});
  expect_no_run_beats_the_bound(sharing, {});
  // Over equal paths: each flow on one of them, or packets on all.
  SimulationOptions spraying;
  spraying.transport.spray = true;
  const cluster::Cluster racks = leaf_spine(2, 4, 4, host, {Bandwidth{5e9}, Nanoseconds{1000}});
  expect_no_run_beats_the_bound(racks, {});
  expect_no_run_beats_the_bound(racks, spraying);
  expect_no_run_beats_the_bound(torus({3, 3}, host, host), spraying);
}

// Links of 10 Gbit/s that hold 2 MB in a round trip, after calls that have opened the windows.
TEST(Model, BlocksFillLongFastLinks) {
  constexpr std::int64_t kBlock = 256 << 10;  // seven fit into a round trip
  const LinkShape far{Bandwidth{10e9}, Nanoseconds{400'000}};
  SimulationOptions options = as_hosts_have_it();
  options.network.switch_queue.limit_bytes = 4 << 20;
  options.network.switch_queue.mark_bytes = 2 << 20;
  for (const Collective op : {Collective::scatter, Collective::all_to_all}) {
    const cluster::Cluster cluster = star(8, far);
    const auto request = forest::even_request(op, 8, 0, 8 * kBlock / 4, 4);
    const auto forest =
        std::make_shared<forest::Forest>(forest::find_planner("direct").plan(request, cluster));
    const double links = 7 * kBlock * 1.05 / 1.25e9;
    Simulation simulation(cluster, options);
    RanksOptions hosts;
    hosts.carry_payloads = false;
    Ranks ranks(simulation, hosts);
    const CallTimes times =
        run_calls(simulation, ranks, forest, DataType::f32, {8, 1, 1000 * kMicrosecond}, kNever);
    const double took = seconds(*std::ranges::max_element(times.of_rank[0]));
    constexpr double kLatency = 2 * 800e-6;  // ranks wait for each other first
    EXPECT_LT(took, 1.1 * (kLatency + links)) << name(op);
    EXPECT_GT(took, kLatency + 7 * kBlock / 1.25e9) << name(op);
  }
}

TEST(Model, AnExchangeUsesAllLinksOfAMeshAtOnce) {
  constexpr std::int64_t kBlock = 1 << 20;
  const cluster::Cluster mesh = cluster::uniform_mesh(6, Bandwidth{1e9}, Nanoseconds{30'000});
  const auto request = forest::even_request(Collective::all_to_all, 6, 0, 6 * kBlock / 4, 4);
  const auto forest = std::make_shared<forest::Forest>(forest::find_planner("direct").plan(request, mesh));
  EXPECT_LT(simulated(mesh, forest, as_hosts_have_it(), {}), 1.15 * kBlock / 1.25e8);
}

// Whoever is slow: the root's neighbours, the last ranks, or all but one.
TEST(Model, AScatterIsNearItsBoundWhereLinksDiffer) {
  const std::vector<std::vector<int>> slow_ones{{1, 2}, {6, 7}, {3}, {1, 2, 3, 4, 5, 6}, {}};
  for (const std::vector<int>& slow : slow_ones) {
    cluster::Cluster cluster = star(8, kGigabit);
    for (cluster::Link& link : cluster.links)
      if (std::ranges::find(slow, link.to) != slow.end()) link.capacity = Bandwidth{2e8};
    const auto request = forest::even_request(Collective::scatter, 8, 0, 2 << 20, 4);
    const auto forest =
        std::make_shared<forest::Forest>(forest::find_planner("direct").plan(request, cluster));
    const double least =
        8.0 * 4 * (2 << 20) / forest::best_rate(cluster, Collective::scatter, 0).rate.value();
    const double took = simulated(cluster, forest, as_hosts_have_it(), {});
    EXPECT_LT(took, 1.1 * least) << slow.size() << " slow ones";
    EXPECT_NEAR(forest::predict_seconds(*forest, cluster) / took, 1, 0.1) << slow.size() << " slow ones";
  }
}

}  // namespace
}  // namespace talweg::sim
