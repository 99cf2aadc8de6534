// Sums whose results a simulated switch sends once, copied on the way: that they are right, what each link
// carries, and that it is what was predicted.
#include <gmock/gmock.h>

#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/at.h"
#include "base/random.h"
#include "forest/switch_cost.h"
#include "sim/shapes.h"
#include "sim/switch_sums.h"

namespace talweg::sim {
namespace {

// A star of hosts, and a box that sums behind one port of its switch.
cluster::Cluster behind_a_copier(int hosts, LinkShape shape, bool box_can, bool star_can) {
  cluster::Cluster c = star(hosts, shape);
  const int box = static_cast<int>(c.nodes.size());
  c.nodes.back().can_multicast = star_can;
  c.nodes.push_back({"box", cluster::NodeKind::aggregator, box_can});
  c.links.push_back({box - 1, box, shape.capacity, shape.latency});
  c.links.push_back({box, box - 1, shape.capacity, shape.latency});
  return c;
}

// Whole numbers, of worker r in the blocks of which every so many'th is its own alone, or in all.
struct CastSum {
  CastSum(int ranks, std::size_t count, int apart = 1) : sum(count, 0), out(at(ranks)) {
    for (int r = 0; r < ranks; ++r) {
      std::vector<float>& mine = in.emplace_back(count, 0.0F);
      for (std::size_t i = 0; i < count; ++i)
        if (apart == 1 || i / 344 % at(apart) == at(r))
          sum[i] += mine[i] = 1 + static_cast<float>(Random(at(r), i).below(100));
      out[at(r)].assign(count, -7);
      operands.push_back(
          {reinterpret_cast<std::byte*>(mine.data()), reinterpret_cast<std::byte*>(out[at(r)].data())});
    }
  }
  void expect_right() const {
    for (const auto& vector : out) EXPECT_TRUE(vector == sum);
  }
  std::vector<float> sum;
  std::vector<std::vector<float>> in, out;
  std::vector<SumOperands> operands;
};

struct CastRun {
  CastRun(const cluster::Cluster& network, std::size_t count, int apart, double loss,
          std::vector<int> racks = {}) {
    SimulationOptions how;
    how.network.loss.loss = loss;
    Simulation simulation(network, how);
    SwitchSumsOptions options;
    options.switches = {static_cast<int>(network.nodes.size()) - 1};
    options.racks = std::move(racks);
    options.sparse = apart > 1;
    SwitchSums sums(simulation, options);
    CastSum vectors(network.workers(), count, apart);
    const CallTimes times = sums.run(vectors.operands, count, {}, kNever);
    vectors.expect_right();
    seconds = sim::seconds(times.total);
    for (std::size_t s = 0; s < 1 + sums_below(options); ++s) counters.push_back(sums.switch_counters(s));
    for (std::size_t l = 0; l < network.links.size(); ++l)
      bytes.push_back(static_cast<double>(simulation.network().counters(static_cast<int>(l)).bytes));
    wire = std::ceil(static_cast<double>(count) / sums.job().terms.block) *
           static_cast<double>(sums.job().datagram_bytes);
    predicted =
        forest::switched_breakdown(
            forest::CostModel(network, {.tcp = {0, 0}, .reduce_per_byte = 0}), options.switches,
            static_cast<std::int64_t>(count) * 4,
            {std::int64_t{4} * sums.job().terms.columns * sums.job().terms.block,
             static_cast<std::int64_t>(sums.job().datagram_bytes), sums.job().terms.slots, 1.0 / apart},
            options.racks)
            .seconds();
  }
  static std::size_t sums_below(const SwitchSumsOptions& options) {
    return options.racks.empty() ? 0 : std::set<int>(options.racks.begin(), options.racks.end()).size();
  }
  double seconds = 0, wire = 0, predicted = 0;
  std::vector<double> bytes;  // by link
  std::vector<protocol::SwitchCounters> counters;
};

TEST(SwitchMulticast, ASumLeavesTheSwitchOnceWhereItAndWhoCopiesCan) {
  constexpr int kRanks = 4;
  constexpr std::size_t kCount = std::size_t{344} * 600;
  for (const bool box_can : {true, false})
    for (const bool star_can : {true, false}) {
      const CastRun run(behind_a_copier(kRanks, kTen, box_can, star_can), kCount, 1, 0);
      const bool once = box_can && star_can;
      EXPECT_EQ(run.counters[0].multicast, once ? run.counters[0].rounds : 0U);
      EXPECT_EQ(run.counters[0].repeated, 0U);
      EXPECT_NEAR(run.bytes.back(), (once ? 1 : kRanks) * run.wire, 0.001 * run.wire);
      EXPECT_NEAR(run.bytes[run.bytes.size() - 2], kRanks * run.wire, 0.001 * run.wire);
      EXPECT_NEAR(run.predicted / run.seconds, 1, 0.1);
    }
}

// Blocks that no two workers have: what goes up is one vector, what comes down is one for each.
TEST(SwitchMulticast, IsAsManyTimesAsQuickAsWorkersWhereOnlyWhatLeavesIsTheLimit) {
  constexpr int kRanks = 8;
  constexpr std::size_t kCount = std::size_t{344} * 4000;
  const CastRun each(behind_a_copier(kRanks, kTen, false, true), kCount, kRanks, 0);
  const CastRun once(behind_a_copier(kRanks, kTen, true, true), kCount, kRanks, 0);
  EXPECT_GT(each.seconds / once.seconds, 0.6 * kRanks);
  EXPECT_NEAR(each.predicted / each.seconds, 1, 0.1);
  EXPECT_NEAR(once.predicted / once.seconds, 1, 0.4) << "not five times as long";
}

TEST(SwitchMulticast, IsRightWhereDatagramsAreLost) {
  constexpr double kLosses[] = {0.01, 0.1};
  for (const double loss : kLosses) {
    const CastRun run(behind_a_copier(3, kTen, true, true), 100'000, 1, loss);
    EXPECT_EQ(run.counters[0].multicast, run.counters[0].rounds);
    EXPECT_GT(run.counters[0].repeated, 0U);
  }
}

// Two racks: their switches send once to their own workers, and the one above to each of them.
TEST(SwitchMulticast, OfARackIsForItsOwnWorkers) {
  constexpr int kRanks = 6;
  cluster::Cluster c;
  for (int h = 0; h < kRanks; ++h) c.nodes.push_back({"h" + std::to_string(h)});
  for (const char* const name : {"leaf0", "leaf1", "spine"})
    c.nodes.push_back({name, cluster::NodeKind::aggregator, true});
  const auto link = [&](int a, int b) {
    c.links.push_back({a, b, kTen.capacity, kTen.latency});
    c.links.push_back({b, a, kTen.capacity, kTen.latency});
  };
  for (int h = 0; h < kRanks; ++h) link(h, kRanks + h / 3);
  for (int leaf = 0; leaf < 2; ++leaf) link(kRanks + leaf, kRanks + 2);
  const CastRun run(c, std::size_t{344} * 300, 1, 0, {6, 6, 6, 7, 7, 7});
  EXPECT_EQ(run.counters[0].multicast, 0U);
  for (const std::size_t rack : {1U, 2U}) EXPECT_EQ(run.counters[rack].multicast, run.counters[rack].rounds);
  EXPECT_GT(run.counters[1].rounds, 0U);
  for (const double bytes : run.bytes) EXPECT_NEAR(bytes, run.wire, 0.001 * run.wire);
  EXPECT_NEAR(run.predicted / run.seconds, 1, 0.25);
}

}  // namespace
}  // namespace talweg::sim
