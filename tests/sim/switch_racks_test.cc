// Sums in two steps: each rack's switch sums what its own workers send, and one above them what these have
// summed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/random.h"
#include "cluster/racks.h"
#include "forest/switch_cost.h"
#include "sim/shapes.h"
#include "sim/switch_sums.h"

namespace talweg::sim {
namespace {

// Hosts in racks of so many around a switch that sums, and these below another one.
cluster::Cluster racks(const std::vector<int>& hosts, LinkShape shape, Bandwidth up) {
  cluster::Cluster c;
  for (const int here : hosts)
    for (int h = 0; h < here; ++h) c.nodes.push_back({"h" + std::to_string(c.nodes.size())});
  const int leaf = static_cast<int>(c.nodes.size());
  const int top = leaf + static_cast<int>(hosts.size());
  const auto join = [&](int one, int other, Bandwidth capacity) {
    c.links.push_back({one, other, capacity, shape.latency});
    c.links.push_back({other, one, capacity, shape.latency});
  };
  for (int r = 0, host = 0; r < static_cast<int>(hosts.size()); ++r) {
    c.nodes.push_back({.name = "leaf" + std::to_string(r),
                       .kind = cluster::NodeKind::switch_,
                       .switch_at = "leaf:1",
                       .above = "top"});
    for (int h = 0; h < hosts[static_cast<std::size_t>(r)]; ++h) join(host++, leaf + r, shape.capacity);
    join(leaf + r, top, up);
  }
  c.nodes.push_back({.name = "top", .kind = cluster::NodeKind::switch_, .switch_at = "top:1"});
  return c;
}

SwitchSumsOptions by_racks(const cluster::Cluster& cluster) {
  SwitchSumsOptions options;
  options.switches = {static_cast<int>(cluster.nodes.size()) - 1};
  options.racks = cluster::racks_of(cluster);
  return options;
}

// Small whole numbers, which sum exactly in any order.
struct RackVectors {
  std::vector<std::vector<float>> in, out;
  std::vector<SumOperands> operands;
  RackVectors(int ranks, std::size_t count) {
    for (int r = 0; r < ranks; ++r) {
      in.emplace_back(count);
      for (std::size_t i = 0; i < count; ++i)
        in.back()[i] = static_cast<float>(Random(static_cast<std::uint64_t>(r), i).below(1000)) - 500;
    }
    out.assign(in.size(), std::vector<float>(count, -7));
    for (std::size_t r = 0; r < in.size(); ++r)
      operands.push_back(
          {reinterpret_cast<std::byte*>(in[r].data()), reinterpret_cast<std::byte*>(out[r].data())});
  }
  void expect_right() const {
    for (std::size_t i = 0; i < in[0].size(); ++i) {
      float sum = 0;
      for (const auto& vector : in) sum += vector[i];
      for (const auto& vector : out) ASSERT_EQ(vector[i], sum) << i;
    }
  }
};

TEST(SwitchRacks, SumsAreRightForRacksOfAnySizeInEachFormat) {
  for (const auto& hosts : {std::vector{2, 2}, {1, 3, 2}, {1, 1}, {5}})
    for (const std::size_t count : {0, 1, 345, 50'000})
      for (const auto format :
           {wire::AggregationFormat::f32, wire::AggregationFormat::scaled, wire::AggregationFormat::pairs}) {
        const cluster::Cluster network = racks(hosts, kTen, kTen.capacity);
        RackVectors vectors(network.workers(), count);
        Simulation simulation(network, {});
        SwitchSumsOptions options = by_racks(network);
        options.format = format;
        SwitchSums sums(simulation, options);
        sums.run(vectors.operands, count, {}, kNever);
        vectors.expect_right();
        if (HasFailure()) return;
        const protocol::SwitchCounters top = sums.switch_counters(0);
        for (std::size_t r = 0; r < hosts.size(); ++r)
          EXPECT_EQ(sums.switch_counters(1 + r).passed_up, top.rounds);
        EXPECT_EQ(top.contributions + top.adverts, top.rounds * hosts.size());
      }
}

TEST(SwitchRacks, SumsAreRightWhateverIsLostOnBothHops) {
  std::uint64_t again = 0, lost_above = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SimulationOptions how;
    how.seed = how.network.seed = seed;
    how.network.loss.loss = 0.01;
    how.network.loss.duplicate = 0.01;
    how.network.loss.damage = 0.005;
    how.network.loss.delay = 0.02;
    how.network.loss.most_delay = Nanoseconds{50'000};
    const cluster::Cluster network = racks({2, 3}, kTen, kTen.capacity);
    constexpr std::size_t kCount = 60'000;
    RackVectors vectors(network.workers(), kCount);
    Simulation simulation(network, how);
    SwitchSums sums(simulation, by_racks(network));
    sums.run(vectors.operands, kCount, {}, kNever);
    vectors.expect_right();
    if (HasFailure()) return;
    for (int r = 0; r < network.workers(); ++r) again += sums.worker_counters(r).asked_for;
    for (std::size_t r = 1; r <= 2; ++r) lost_above += sums.switch_counters(r).passed_again;
    again += sums.switch_counters(0).repeated;
  }
  EXPECT_GT(again, 0U);
  EXPECT_GT(lost_above, 0U);
}

TEST(SwitchRacks, TakeWhatLinksAndRoundTripsOfBothLevelsTake) {
  std::vector<double> errors;
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    Random random(seed);
    const LinkShape shape{Bandwidth{std::exp2(random.uniform() * 5) * 1.5e9},
                          Nanoseconds{static_cast<std::int64_t>(std::exp2(random.uniform() * 9) * 1000)}};
    const std::vector<int> hosts(2 + random.below(3), 1 + static_cast<int>(random.below(6)));
    const cluster::Cluster network =
        racks(hosts, shape, {shape.capacity.bits_per_second * (0.5 + random.uniform())});
    const std::size_t count = std::size_t{1} << (10 + random.below(11));
    std::vector<float> in(count), out(count);
    const std::vector<SumOperands> same(
        static_cast<std::size_t>(network.workers()),
        {reinterpret_cast<std::byte*>(in.data()), reinterpret_cast<std::byte*>(out.data())});
    Simulation simulation(network, {});
    const SwitchSumsOptions options = by_racks(network);
    forest::CostParameters parameters;
    parameters.tcp.per_batch = parameters.tcp.per_byte = parameters.reduce_per_byte = 0;
    SwitchSums sums(simulation, options);
    const CallTimes times = sums.run(same, count, {1, 2, 1000 * kMicrosecond}, kNever);
    const double took = seconds(times.total) / static_cast<double>(times.of_call.size());
    const double predicted =
        forest::switched_breakdown(
            forest::CostModel(network, parameters), options.switches, static_cast<std::int64_t>(count) * 4,
            {std::int64_t{4} * sums.job().terms.columns * sums.job().terms.block,
             static_cast<std::int64_t>(sums.job().datagram_bytes), sums.job().terms.slots},
            options.racks)
            .seconds();
    errors.push_back(std::abs(predicted / took - 1));
    EXPECT_LT(errors.back(), 0.25) << "seed " << seed << ": " << predicted << " predicted, " << took;
  }
  std::ranges::nth_element(errors, errors.begin() + 6);
  EXPECT_LT(errors[6], 0.05);
}

}  // namespace
}  // namespace talweg::sim
