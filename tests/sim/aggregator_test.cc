// Collectives through aggregators: the same sessions on nodes that are no ranks, in virtual time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/random.h"
#include "forest/planner.h"
#include "forest/random_networks.h"
#include "sim/collectives.h"
#include "sim/shapes.h"
#include "talweg/error.h"

namespace talweg::sim {
namespace {

constexpr double kTenRate = 10e9;                        // kTen, in bit/s
using Vectors = std::vector<std::vector<std::int32_t>>;  // by rank

std::byte* bytes_of(std::vector<std::int32_t>& data) {
  return reinterpret_cast<std::byte*>(data.data());
}

// What a serial program would say.
Vectors reference(const forest::Request& q, const Vectors& in) {
  std::vector<std::int32_t> whole;
  if (q.op == Collective::all_gather) {
    for (const auto& part : in) whole.insert(whole.end(), part.begin(), part.end());
  } else {
    whole = in[static_cast<std::size_t>(q.root)];
    for (int r = 0; r < q.ranks && q.op != Collective::broadcast; ++r)
      for (std::size_t i = 0; i < whole.size() && r != q.root; ++i)
        whole[i] += in[static_cast<std::size_t>(r)][i];
  }
  Vectors out;
  std::int64_t begin = 0;
  for (int r = 0; r < q.ranks; ++r) {
    const std::int64_t count = forest::output_count(q, r);
    if (q.op != Collective::reduce_scatter) begin = 0;
    out.emplace_back(whole.begin() + begin, whole.begin() + begin + count);
    begin += count;
  }
  return out;
}

// Whether the plan went through an aggregator; holds every rank's result to the reference.
bool expect_right(const cluster::Cluster& cluster, const char* planner, const forest::Request& q,
                  const SimulationOptions& options) {
  auto forest = std::make_shared<forest::Forest>(forest::find_planner(planner).plan(q, cluster));
  forest::choose_chunks(*forest, cluster);
  Simulation simulation(cluster, options);
  Ranks ranks(simulation, {});
  const auto plans = protocol::make_plans(forest);
  ranks.help([&](int node, const wire::Signature& signature) {
    return operation_for(plans[static_cast<std::size_t>(node)], signature.type, signature.reduction, nullptr,
                         nullptr, true);
  });
  Vectors in, out;
  for (int r = 0; r < q.ranks; ++r) {
    const auto held = q.op == Collective::broadcast ? q.counts[0] : forest::input_count(q, r);
    in.emplace_back(static_cast<std::size_t>(held));
    std::iota(in.back().begin(), in.back().end(), 1 + 1009 * r);
    out.emplace_back(static_cast<std::size_t>(forest::output_count(q, r)), -1);
  }
  const Vectors expected = reference(q, in);
  if (q.op == Collective::broadcast)
    out[static_cast<std::size_t>(q.root)] = in[static_cast<std::size_t>(q.root)];
  for (std::size_t r = 0; r < in.size(); ++r)
    ranks.start(
        static_cast<int>(r),
        operation_for(plans[r], DataType::i32, ReduceOp::sum, bytes_of(in[r]), bytes_of(out[r]), true),
        static_cast<Picoseconds>(r) * 1'000'000);
  simulation.run();
  for (const CollectiveResult& result : ranks.results()) {
    EXPECT_NE(result.ended, kNever) << planner << " rank " << result.rank;
    for (const auto& pending : ranks.session(result.rank).pending()) ADD_FAILURE() << pending.text;
    EXPECT_TRUE(result.outcome.ok) << result.outcome.text;
  }
  for (std::size_t r = 0; r < out.size(); ++r) {
    const auto [wrong, right] = std::mismatch(out[r].begin(), out[r].end(), expected[r].begin());
    EXPECT_EQ(wrong, out[r].end()) << planner << " " << name(q.op) << ": rank " << r << " has " << *wrong
                                   << " instead of " << *right << " at " << wrong - out[r].begin();
  }
  return !forest::aggregators_of(*forest).empty();
}

TEST(AggregatorInSimulation, EveryCollectiveThroughOneToThreeOfThemIsRight) {
  constexpr Collective kOps[] = {Collective::all_reduce, Collective::reduce, Collective::broadcast,
                                 Collective::reduce_scatter, Collective::all_gather};
  int through = 0;
  SimulationOptions options;
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    const auto cluster =
        forest::with_aggregators(forest::random_network(seed, 3 + static_cast<int>(seed % 4)), seed);
    options.seed = options.network.seed = seed;
    options.network.loss.loss = seed % 2 == 0 ? 0 : 0.01;
    const Collective op = kOps[seed % std::size(kOps)];
    const forest::Request q = forest::even_request(op, cluster.workers(), 1, 20'000, 4);
    through += expect_right(cluster, "packed", q, options) ? 1 : 0;
    if (op == Collective::all_reduce) expect_right(cluster, "sharded_star", q, options);
    if (HasFailure()) FAIL() << "seed " << seed;
  }
  EXPECT_GT(through, 10);
}

TEST(AggregatorInSimulation, SumsThatRoundAreTheSameBitsOnEveryRankWhoeverComesFirst) {
  constexpr int kRanks = 4;
  constexpr std::size_t kCount = 5000;
  cluster::Cluster cluster = star(kRanks, kTen);
  cluster.nodes.push_back({.name = "agg", .kind = cluster::NodeKind::aggregator});
  for (const auto& [from, to] : {std::pair(4, 5), std::pair(5, 4)})
    cluster.links.push_back({from, to, {kRanks * kTenRate}, cluster.links[0].latency});
  auto forest = std::make_shared<forest::Forest>(forest::find_planner("packed").plan(
      forest::even_request(Collective::all_reduce, kRanks, 0, kCount, 4), cluster));
  ASSERT_FALSE(forest::aggregators_of(*forest).empty());
  const auto plans = protocol::make_plans(forest);
  std::vector<std::vector<float>> in(kRanks, std::vector<float>(kCount));
  Random random(7);
  for (auto& data : in)
    for (float& x : data)
      x = std::ldexp(static_cast<float>(random.uniform() - 0.5), static_cast<int>(random.below(24)));
  std::vector<float> first;
  for (int turn = 0; turn < kRanks; ++turn) {
    Simulation simulation(cluster, {});
    Ranks ranks(simulation, {});
    ranks.help([&](int node, const wire::Signature& signature) {
      return operation_for(plans[static_cast<std::size_t>(node)], signature.type, signature.reduction,
                           nullptr, nullptr, true);
    });
    std::vector<std::vector<float>> out(kRanks, std::vector<float>(kCount));
    for (int r = 0; r < kRanks; ++r) {
      const auto i = static_cast<std::size_t>(r);
      ranks.start(r,
                  operation_for(plans[i], DataType::f32, ReduceOp::sum,
                                reinterpret_cast<const std::byte*>(in[i].data()),
                                reinterpret_cast<std::byte*>(out[i].data()), true),
                  (r + turn) % kRanks * 100 * kMicrosecond);
    }
    simulation.run();
    if (turn == 0) first = out[0];
    for (const auto& sum : out) EXPECT_EQ(sum, first) << "turn " << turn;
  }
  std::size_t rounded = 0;
  for (std::size_t i = 0; i < kCount; ++i)
    rounded += ((in[0][i] + in[1][i]) + in[2][i]) + in[3][i] != ((in[3][i] + in[2][i]) + in[1][i]) + in[0][i];
  EXPECT_GT(rounded, kCount / 10) << "the order of the sums matters";
}

// Every host sends its vector once and gets the sum once.
TEST(AggregatorInSimulation, WithAPortForEachHostIsQuickerThanARing) {
  cluster::Cluster cluster = star(8, kTen);
  cluster.nodes.push_back({.name = "agg", .kind = cluster::NodeKind::aggregator});
  for (const auto& [from, to] : {std::pair(8, 9), std::pair(9, 8)})
    cluster.links.push_back({from, to, {8 * kTenRate}, cluster.links[0].latency});
  const std::int64_t bytes = 16 << 20;
  SimulationOptions options;
  options.network.switch_queue.mark_bytes = 60'000;
  options.network.host_queue.mark_bytes = 60'000;
  const auto time = [&](const char* planner) {
    Simulation simulation(cluster, options);
    RanksOptions without;
    without.carry_payloads = false;
    Ranks ranks(simulation, without);
    auto forest = std::make_shared<forest::Forest>(forest::find_planner(planner).plan(
        forest::even_request(Collective::all_reduce, 8, 0, bytes / 4, 4), cluster));
    return static_cast<double>(run_calls(simulation, ranks, forest, DataType::f32, {1, 2}, kNever).total) / 2;
  };
  const double line = static_cast<double>(bytes) * 8e12 / kTenRate;  // of the payload alone
  const double ring = time("ring");
  EXPECT_GT(ring, 1.7 * line);
  EXPECT_LT(time("packed"), 0.9 * ring);
}

}  // namespace
}  // namespace talweg::sim
