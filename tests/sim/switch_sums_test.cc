// Sums in the network in virtual time: that they are right whatever the network does, and that they take what
// the links, the round trips and the processors of the path make them take.
#include "sim/switch_sums.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/at.h"
#include "base/random.h"
#include "forest/random_networks.h"
#include "forest/switch_cost.h"
#include "sim/shapes.h"

namespace talweg::sim {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr double kTenBits = 10e9;  // kTen, in bit/s

// Hosts around a box that sums, with a port for each; behind them `boxes` - 1 more, likewise.
cluster::Cluster around(int hosts, int boxes, LinkShape shape) {
  cluster::Cluster c;
  for (int h = 0; h < hosts; ++h) c.nodes.push_back({"h" + std::to_string(h)});
  for (int b = 0; b < boxes; ++b) {
    const int box = hosts + b;
    c.nodes.push_back({"box" + std::to_string(b), cluster::NodeKind::aggregator});
    for (int h = 0; h < hosts; ++h) {
      c.links.push_back({h, box, shape.capacity, shape.latency});
      c.links.push_back({box, h, shape.capacity, shape.latency});
    }
  }
  return c;
}

// A star of hosts, and a box that sums behind one port of its switch.
cluster::Cluster behind_one_port(int hosts, LinkShape shape, Bandwidth port) {
  cluster::Cluster c = star(hosts, shape);
  const int box = static_cast<int>(c.nodes.size());
  c.nodes.push_back({"box", cluster::NodeKind::aggregator});
  c.links.push_back({box - 1, box, port, shape.latency});
  c.links.push_back({box, box - 1, port, shape.latency});
  return c;
}

template <class T>
struct SummedVectors {
  std::vector<std::vector<T>> in, out;  // by rank
  std::vector<SumOperands> operands;

  // `put(rank, i)` is a value that sums exactly.
  template <class Put>
  SummedVectors(int ranks, std::size_t count, bool summed_in_place, Put&& put) : in_place(summed_in_place) {
    for (int r = 0; r < ranks; ++r) {
      in.emplace_back(count);
      for (std::size_t i = 0; i < count; ++i) in.back()[i] = put(r, i);
    }
    out.assign(in.size(), std::vector<T>(count, T(-7)));
    before = in;
    for (std::size_t r = 0; r < in.size(); ++r) {
      auto* const from = reinterpret_cast<std::byte*>(in[r].data());
      operands.push_back({from, in_place ? from : reinterpret_cast<std::byte*>(out[r].data())});
    }
  }
  void expect_right() const {
    const auto& sums = in_place ? in : out;
    for (std::size_t i = 0; i < before[0].size(); ++i) {
      T sum = 0;
      for (const auto& vector : before) sum += vector[i];
      for (std::size_t r = 0; r < sums.size(); ++r)
        ASSERT_EQ(sums[r][i], sum) << "element " << i << " of rank " << r;
    }
    if (!in_place) {
      EXPECT_EQ(in, before);
    }
  }

  std::vector<std::vector<T>> before;
  bool in_place = false;
};

std::int32_t drawn(int rank, std::size_t i) {
  return static_cast<std::int32_t>(Random(static_cast<std::uint64_t>(rank), i).below(1000)) - 500;
}

double bytes_over(const Simulation& simulation, int from, int to) {
  const auto& links = simulation.network().cluster().links;
  for (std::size_t l = 0; l < links.size(); ++l)
    if (links[l].from == from && links[l].to == to)
      return static_cast<double>(simulation.network().counters(static_cast<int>(l)).bytes);
  return 0;
}

double mean_seconds(const CallTimes& times) {
  return seconds(times.total) / static_cast<double>(times.of_call.size());
}

TEST(SwitchSums, AreRightForAllSizesWorkersAndNumbersOfSwitches) {
  for (const int ranks : {1, 2, 3, 8})
    for (const int boxes : {1, 2, 3})
      for (const std::size_t count : {0, 1, 343, 344, 345, 10'007, 200'000}) {
        SCOPED_TRACE(testing::Message() << ranks << " workers, " << boxes << " switches, " << count);
        const bool in_place = count % 2 == 1;
        SummedVectors<std::int32_t> vectors(ranks, count, in_place, drawn);
        Simulation simulation(around(ranks, boxes, kTen), {});
        SwitchSumsOptions options;
        for (int b = 0; b < boxes; ++b) options.switches.push_back(ranks + b);
        options.format = wire::AggregationFormat::i32;
        SwitchSums sums(simulation, options);
        const CallTimes times = sums.run(vectors.operands, count, {}, kNever);
        ASSERT_EQ(times.of_rank.size(), 1U);
        ASSERT_EQ(sums.ended().size(), static_cast<std::size_t>(ranks));
        vectors.expect_right();
        if (HasFailure()) return;
      }
}

TEST(SwitchSums, AreRightWhereDatagramsAreLostDoubledDamagedAndOvertaken) {
  std::uint64_t timeouts = 0, asked = 0, named = 0, doubled = 0;
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(seed);
    const int ranks = 2 + static_cast<int>(seed % 4);
    const int boxes = 1 + static_cast<int>(seed % 2);
    const std::size_t count = 60'000 + seed;
    SimulationOptions how;
    how.seed = how.network.seed = seed;
    how.network.loss.loss = 0.01;
    how.network.loss.duplicate = 0.01;
    how.network.loss.damage = 0.005;
    how.network.loss.delay = 0.02;
    how.network.loss.most_delay = Nanoseconds{50'000};
    SummedVectors<float> vectors(ranks, count, seed % 3 == 0,
                                 [](int r, std::size_t i) { return static_cast<float>(drawn(r, i)); });
    Simulation simulation(around(ranks, boxes, kTen), how);
    SwitchSumsOptions options;
    for (int b = 0; b < boxes; ++b) options.switches.push_back(ranks + b);
    SwitchSums sums(simulation, options);
    sums.run(vectors.operands, count, {}, kNever);
    vectors.expect_right();
    for (int r = 0; r < ranks; ++r) {
      timeouts += sums.worker_counters(r).timeouts;
      asked += sums.worker_counters(r).asked_for;
      named += sums.worker_counters(r).named;
    }
    for (int b = 0; b < boxes; ++b)
      doubled += sums.switch_counters(static_cast<std::size_t>(b)).duplicates +
                 sums.switch_counters(static_cast<std::size_t>(b)).late;
    if (HasFailure()) return;
  }
  EXPECT_GT(timeouts, 0U);
  EXPECT_GT(asked, 0U);
  EXPECT_GT(named, 0U);
  EXPECT_GT(doubled, 0U);
}

// One kind of fault at a time, and what is counted of it.
TEST(SwitchSums, DamageIsALossAndACopyIsNone) {
  const auto run = [](const LossModel& loss) {
    SimulationOptions how;
    how.network.loss = loss;
    SummedVectors<float> vectors(3, 100'000, false,
                                 [](int r, std::size_t i) { return static_cast<float>(drawn(r, i)); });
    Simulation simulation(around(3, 1, kTen), how);
    SwitchSumsOptions options;
    options.switches = {3};
    SwitchSums sums(simulation, options);
    sums.run(vectors.operands, 100'000, {}, kNever);
    vectors.expect_right();
    protocol::WorkerCounters all;
    for (int r = 0; r < 3; ++r) all += sums.worker_counters(r);
    return std::pair(all, sums.switch_counters(0));
  };
  LossModel damage;
  damage.damage = 0.01;
  const auto damaged = run(damage);
  EXPECT_GT(damaged.first.named, 0U);
  LossModel copies;
  copies.duplicate = 0.01;
  const auto doubled = run(copies);
  EXPECT_GT(doubled.second.duplicates + doubled.second.late + doubled.second.repeated, 0U);
  EXPECT_EQ(doubled.first.asked_for, 0U);
  EXPECT_EQ(doubled.first.named, 0U);
  EXPECT_EQ(doubled.first.gaps, 0U);
  EXPECT_EQ(doubled.first.timeouts, 0U);
}

// What waits in a slow way is not forgotten because much has passed on another, or to others.
TEST(SwitchSums, NothingIsSentAgainWhereNothingIsLost) {
  cluster::Cluster uneven = around(2, 2, kTen);
  for (cluster::Link& link : uneven.links)
    if (link.from == 3 || link.to == 3) link.capacity = {1e9};
  for (const auto& [network, count] :
       {std::pair{uneven, std::size_t{2} << 20}, {around(300, 1, kGigabit), 1000}}) {
    std::vector<float> in(count), out(count);
    const std::vector<SumOperands> same(
        static_cast<std::size_t>(network.workers()),
        {reinterpret_cast<std::byte*>(in.data()), reinterpret_cast<std::byte*>(out.data())});
    Simulation simulation(network, {});
    SwitchSumsOptions options;
    options.switches = cluster::aggregators(network);
    SwitchSums sums(simulation, options);
    sums.run(same, count, {}, kNever);
    for (int r = 0; r < network.workers(); ++r) {
      EXPECT_EQ(sums.worker_counters(r).asked_for, 0U) << network.workers();
      EXPECT_EQ(sums.worker_counters(r).named, 0U) << network.workers();
      EXPECT_EQ(sums.worker_counters(r).gaps, 0U) << network.workers();
      EXPECT_EQ(sums.worker_counters(r).timeouts, 0U) << network.workers();
      EXPECT_EQ(sums.worker_counters(r).held_back, 0U) << network.workers();
    }
  }
}

struct Lossy {
  double seconds = 0;
  protocol::WorkerCounters workers;
};
Lossy sum_with_loss(int ranks, const LinkShape& shape, std::size_t count, double loss, std::uint64_t seed) {
  std::vector<float> in(count, 1.0F), out(count);
  const std::vector<SumOperands> same(
      static_cast<std::size_t>(ranks),
      {reinterpret_cast<std::byte*>(in.data()), reinterpret_cast<std::byte*>(out.data())});
  SimulationOptions how;
  how.network.loss.loss = loss;
  how.seed = how.network.seed = seed;
  Simulation simulation(around(ranks, 1, shape), how);
  SwitchSumsOptions options;
  options.switches = {ranks};
  SwitchSums sums(simulation, options);
  Lossy lossy{seconds(sums.run(same, count, {}, kNever).of_call.at(0)), {}};
  for (int r = 0; r < ranks; ++r) lossy.workers += sums.worker_counters(r);
  return lossy;
}

// 1.02, 1.05 and 1.25 times the lossless time are what the protocol is to reach where links' rates are the
// limit. Each bar is that of the median of networks and seeds that nothing was set on, in virtual time.
TEST(SwitchSums, LossCostsLittleMoreThanWhatIsSentAgain) {
  constexpr double kLosses[] = {1e-4, 1e-3, 1e-2}, kBars[] = {1.02, 1.05, 1.25};
  std::vector<double> costs[3];
  protocol::WorkerCounters seen[3];
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    Random random(seed, 77);
    const int ranks = 2 + static_cast<int>(random.below(9));
    const double rate = 0.3e9 * std::pow(2.0, random.uniform() * 5);
    const LinkShape shape{Bandwidth{rate}, Nanoseconds{10'000 + static_cast<long>(random.below(90'000))}};
    const auto count = static_cast<std::size_t>(rate * 0.04 / 32);
    const double lossless = sum_with_loss(ranks, shape, count, 0, seed).seconds;
    for (std::size_t i = 0; i < 3; ++i) {
      const Lossy lossy = sum_with_loss(ranks, shape, count, kLosses[i], seed);
      costs[i].push_back(lossy.seconds / lossless);
      seen[i] += lossy.workers;
    }
  }
  for (std::size_t i = 0; i < 3; ++i) {
    std::sort(costs[i].begin(), costs[i].end());
    EXPECT_LE(costs[i][costs[i].size() / 2], kBars[i]) << kLosses[i];
    EXPECT_LE(costs[i].back(), 2 * kBars[i] - 1) << "the worst of them, " << kLosses[i];
    EXPECT_GT(seen[i].gaps, 0U) << kLosses[i];
    EXPECT_GT(seen[i].named, 0U) << kLosses[i];
  }
  EXPECT_GT(seen[2].gaps + seen[2].named, 4 * seen[2].asked_for) << "what is lost is seen by its number";
}

// Where round trips are the limit, nothing hides the one that a loss costs its slot.
TEST(SwitchSums, LossCostsMoreWhereRoundTripsAreTheLimit) {
  const LinkShape shape{Bandwidth{5e9}, Nanoseconds{1'000'000}};
  const double lossless = sum_with_loss(6, shape, 1 << 20, 0, 3).seconds;
  ASSERT_GT(lossless, 2 * (4 << 20) * 8 / 5e9) << "it is";
  EXPECT_LE(sum_with_loss(6, shape, 1 << 20, 1e-2, 3).seconds, 1.7 * lossless);
}

TEST(SwitchSums, SparseBlocksDoNotTravel) {
  constexpr int kRanks = 4;
  constexpr std::size_t kCount = 344 * 1000;
  const auto put = [](int r, std::size_t i) {  // block b is worker b mod 20's, if there is such a one
    return i / 344 % 20 == static_cast<std::size_t>(r) ? 1.0F + static_cast<float>(i % 5) : 0.0F;
  };
  SummedVectors<float> vectors(kRanks, kCount, false, put);
  Simulation simulation(around(kRanks, 1, kTen), {});
  SwitchSumsOptions options;
  options.switches = {kRanks};
  options.sparse = true;
  SwitchSums sums(simulation, options);
  ASSERT_EQ(sums.job().terms.block, 344);
  sums.run(vectors.operands, kCount, {}, kNever);
  vectors.expect_right();
  EXPECT_EQ(sums.worker_counters(0).contributions, 50U);
  EXPECT_LT(bytes_over(simulation, kRanks, 0), 0.35 * kCount * 4) << "a fifth of the blocks, and adverts";
}

// Sixteen bits say where each is: at a tenth of the elements on each of four workers, a third on any, half of
// the dense time, where blocks would all travel.
TEST(SwitchSums, PairsTakeThePartOfTheTimeThatTheirBytesAre) {
  constexpr int kRanks = 4;
  constexpr std::size_t kCount = 1 << 20;
  const auto put = [](int r, std::size_t i) {
    return Random(static_cast<std::uint64_t>(r), i).uniform() < 0.1 ? 1.0F + static_cast<float>(i % 5) : 0.0F;
  };
  double seconds[2];
  for (const bool pairs : {false, true}) {
    SummedVectors<float> vectors(kRanks, kCount, false, put);
    Simulation simulation(around(kRanks, 1, kTen), {});
    SwitchSumsOptions options;
    options.switches = {kRanks};
    options.sparse = true;
    if (pairs) options.format = wire::AggregationFormat::pairs;
    SwitchSums sums(simulation, options);
    seconds[pairs] = mean_seconds(sums.run(vectors.operands, kCount, {}, kNever));
    vectors.expect_right();
    const double any = 1 - std::pow(0.9, kRanks);
    if (!pairs) continue;
    EXPECT_LT(seconds[1], 1.1 * 1.5 * any * seconds[0]);
    EXPECT_LT(bytes_over(simulation, 0, kRanks), 1.1 * 1.5 * any * 1.07 * kCount * 4) << "what all have";
  }
}

TEST(SwitchSums, AVectorGoesUpOnceAndComesDownOnceAtTheRateOfTheLink) {
  constexpr std::size_t kCount = 4 << 20;
  std::vector<float> in(kCount, 1), out(kCount);
  for (const int ranks : {2, 4, 8}) {
    Simulation simulation(around(ranks, 1, kTen), {});
    SwitchSumsOptions options;
    options.switches = {ranks};
    SwitchSums sums(simulation, options);
    const std::vector<SumOperands> same(
        static_cast<std::size_t>(ranks),
        {reinterpret_cast<std::byte*>(in.data()), reinterpret_cast<std::byte*>(out.data())});
    const double took = mean_seconds(sums.run(same, kCount, {1, 2}, kNever));
    EXPECT_EQ(out[kCount - 1], static_cast<float>(ranks));
    const double blocks = std::ceil(static_cast<double>(kCount) / sums.job().terms.block);
    const double wire = blocks * static_cast<double>(sums.job().datagram_bytes);
    const double line = 8 * wire / kTenBits;
    EXPECT_GE(took, line);
    EXPECT_LT(took, 1.01 * line) << ranks << " workers";
    for (int r = 0; r < ranks; ++r) {
      EXPECT_NEAR(bytes_over(simulation, r, ranks), 3 * wire, 0.001 * wire);
      EXPECT_NEAR(bytes_over(simulation, ranks, r), 3 * wire, 0.001 * wire);
    }
  }
}

TEST(SwitchSums, BehindOnePortWorkersShareItsRate) {
  constexpr int kRanks = 4;
  constexpr std::size_t kCount = 1 << 20;
  std::vector<float> in(kCount), out(kCount);
  const std::vector<SumOperands> same(
      kRanks, {reinterpret_cast<std::byte*>(in.data()), reinterpret_cast<std::byte*>(out.data())});
  const auto time = [&](Bandwidth port) {
    const cluster::Cluster network = behind_one_port(kRanks, kTen, port);
    Simulation simulation(network, {});
    SwitchSumsOptions options;
    options.switches = cluster::aggregators(network);
    SwitchSums sums(simulation, options);
    return mean_seconds(sums.run(same, kCount, {0, 1}, kNever));
  };
  const double wide = time({kRanks * kTenBits});
  EXPECT_NEAR(time({kTenBits}) / wide, kRanks, 0.1);
}

TEST(SwitchSums, NoMoreIsUnderWayThanSlotsHold) {
  constexpr int kRanks = 2;
  constexpr std::size_t kSlots = 8, kRounds = 50;
  const LinkShape distant{Bandwidth{100e9}, Nanoseconds{1'000'000}};
  Simulation simulation(around(kRanks, 1, distant), {});
  SwitchSumsOptions options;
  options.switches = {kRanks};
  options.slots = kSlots;
  SwitchSums sums(simulation, options);
  ASSERT_EQ(sums.job().terms.slots, kSlots);
  const std::size_t count = kSlots * kRounds * sums.job().terms.block;
  std::vector<float> in(count), out(count);
  const std::vector<SumOperands> same(
      kRanks, {reinterpret_cast<std::byte*>(in.data()), reinterpret_cast<std::byte*>(out.data())});
  EXPECT_NEAR(mean_seconds(sums.run(same, count, {}, kNever)), kRounds * 2e-3, 0.01 * kRounds * 2e-3);
}

TEST(SwitchSums, ProcessorsThatAreSharedLimit) {
  constexpr int kRanks = 4;
  constexpr std::size_t kCount = 1 << 20;
  std::vector<float> in(kCount), out(kCount);
  const std::vector<SumOperands> same(
      kRanks, {reinterpret_cast<std::byte*>(in.data()), reinterpret_cast<std::byte*>(out.data())});
  cluster::Cluster network = around(kRanks, 1, kTen);
  network.shared_cores = 2;
  Simulation simulation(network, {});
  SwitchSumsOptions options;
  options.switches = {kRanks};
  options.costs = {0, 200, 67};  // 5 GB/s
  SwitchSums sums(simulation, options);
  const double took = mean_seconds(sums.run(same, kCount, {0, 1}, kNever));
  const double wire = std::ceil(static_cast<double>(kCount) / sums.job().terms.block) *
                      static_cast<double>(sums.job().datagram_bytes);
  const double work = (kRanks * 2 * wire * 200 + kRanks * wire * (200 + 67) + kRanks * wire * 200) * 1e-12;
  EXPECT_GT(took, work / 2);
  EXPECT_LT(took, 1.2 * work / 2);
}

TEST(SwitchSums, TheSameSeedIsTheSameRun) {
  const auto run = [](std::uint64_t seed) {
    SimulationOptions how;
    how.seed = how.network.seed = seed;
    how.network.loss.loss = 0.01;
    SummedVectors<float> vectors(3, 100'000, false,
                                 [](int r, std::size_t i) { return static_cast<float>(drawn(r, i)); });
    Simulation simulation(around(3, 2, kTen), how);
    SwitchSumsOptions options;
    options.switches = {3, 4};
    SwitchSums sums(simulation, options);
    return sums.run(vectors.operands, 100'000, {1, 3, 10 * kMicrosecond}, kNever).of_rank;
  };
  EXPECT_EQ(run(1), run(1));
  EXPECT_NE(run(1), run(2));
}

TEST(SwitchSums, WhatCannotEndNamesTheRanksAndWhatHasFailed) {
  SummedVectors<float> vectors(3, 400'000, false, [](int, std::size_t) { return 1.0F; });
  Simulation simulation(around(3, 1, kTen), {});
  SwitchSumsOptions options;
  options.switches = {3};
  SwitchSums sums(simulation, options);
  simulation.at(50 * kMicrosecond, [&] { simulation.set_node(3, false); });
  EXPECT_THAT(message_of([&] { sums.run(vectors.operands, 400'000, {}, 100'000 * kMicrosecond); }),
              AllOf(HasSubstr("box0 failed at 50 us"),
                    HasSubstr("all_reduce by switch had not ended on h0, h1, h2")));

  // Nor does it go on for ever where no horizon is set, or keep all that is sent meanwhile.
  Simulation endless(around(3, 1, kTen), {});
  SwitchSums patient(endless, options);
  endless.set_node(3, false);
  EXPECT_THAT(message_of([&] { patient.run(vectors.operands, 400'000, {}, kNever); }),
              AllOf(HasSubstr("box0 failed at 0 "), HasSubstr("have not ended by the deadline")));

  EXPECT_THAT(message_of([&] { SwitchSums(simulation, {}); }), HasSubstr("needs a switch"));
  SwitchSumsOptions worker;
  worker.switches = {0};
  EXPECT_THAT(message_of([&] { SwitchSums(simulation, worker); }), HasSubstr("node 0"));
  SimulationOptions small;
  small.transport.payload_bytes = 64;
  Simulation tiny(around(3, 1, kTen), small);
  EXPECT_THAT(message_of([&] { SwitchSums(tiny, options); }), HasSubstr("no room for a block"));
}

// Networks that nothing was set on: what is predicted is near what happens where links or latency limit, and
// no more than half too short where processors do, whose batches it takes to be as large as they can be.
// Of 1.5 to 100 Gbit/s: where queues hold so much that a round takes longer than workers wait at first, they
// send again what is on its way.
TEST(SwitchSums, TakeWhatIsPredictedOnDrawnNetworks) {
  constexpr std::size_t kNetworks = 40;
  std::vector<double> errors;
  for (std::uint64_t seed = 0; seed < kNetworks; ++seed) {
    Random random(seed, 77);
    const int ranks = 2 + static_cast<int>(random.below(31));
    const int boxes = 1 + static_cast<int>(random.below(3));
    const LinkShape shape{Bandwidth{std::exp2(random.uniform() * 6) * 1.5e9},
                          Nanoseconds{static_cast<std::int64_t>(std::exp2(random.uniform() * 9) * 1000)}};
    cluster::Cluster network = around(ranks, boxes, shape);
    for (cluster::Link& link : network.links) link.capacity.bits_per_second *= 0.5 + random.uniform();
    if (seed % 4 == 3) network = behind_one_port(ranks, shape, {shape.capacity.bits_per_second * 1.5});
    const std::size_t count = std::size_t{1} << (10 + random.below(11));
    std::vector<float> in(count), out(count);
    const std::vector<SumOperands> same(
        static_cast<std::size_t>(ranks),
        {reinterpret_cast<std::byte*>(in.data()), reinterpret_cast<std::byte*>(out.data())});
    for (const bool ideal : {true, false}) {
      Simulation simulation(network, {});
      SwitchSumsOptions options;
      options.switches = cluster::aggregators(network);
      forest::CostParameters parameters;
      if (ideal)
        parameters.tcp.per_batch = parameters.tcp.per_byte = parameters.reduce_per_byte = 0;
      else
        options.costs = {5 * kMicrosecond, 200, 67};
      SwitchSums sums(simulation, options);
      const double took = mean_seconds(sums.run(same, count, {1, 2, 1000 * kMicrosecond}, kNever));
      const auto bytes = static_cast<std::int64_t>(count) * 4;
      const double predicted =
          forest::switched_breakdown(
              forest::CostModel(network, parameters), options.switches, bytes,
              {std::int64_t{4} * sums.job().terms.columns * sums.job().terms.block,
               static_cast<std::int64_t>(sums.job().datagram_bytes), sums.job().terms.slots})
              .seconds();
      const double error = predicted / took - 1;
      const auto what = [&] {
        return testing::Message() << "seed " << seed << (ideal ? ", ideal: " : ": ") << ranks << " workers, "
                                  << boxes << " switches, " << bytes << " bytes: " << predicted
                                  << " predicted, " << took;
      };
      if (ideal) {
        errors.push_back(std::abs(error));
        EXPECT_LT(errors.back(), 0.25) << what();
      } else {
        EXPECT_GT(error, -0.30) << what();
        EXPECT_LT(error, 0.10) << what();
      }
    }
  }
  std::ranges::nth_element(errors, errors.begin() + kNetworks / 2);
  EXPECT_LT(errors[kNetworks / 2], 0.05);
}

// Whole numbers in floats: what a call gives and what is left of it are what went in and what was left
// before.
void expect_conserved(std::size_t count) {
  constexpr int kRanks = 4;
  SummedVectors<float> vectors(kRanks, count, false,
                               [](int rank, std::size_t i) { return static_cast<float>(drawn(rank, i)); });
  SimulationOptions how;
  how.network.loss.loss = 0.03;
  Simulation simulation(around(kRanks, 1, kTen), how);
  SwitchSumsOptions options;
  options.switches = {kRanks};
  options.may_lose = 0.2;
  SwitchSums sums(simulation, options);
  const auto residuals = [&](std::size_t i) {
    float all = 0;
    for (int r = 0; r < kRanks; ++r) {
      float kept = 0;
      std::memcpy(&kept, sums.residual(r).data() + i * sizeof kept, sizeof kept);
      all += kept;
    }
    return all;
  };
  const auto right = [&](std::size_t i) {
    float all = 0;
    for (const auto& in : vectors.in) all += in[i];
    return all;
  };
  sums.run(vectors.operands, count, {0, 20}, kNever);
  vectors.expect_right();
  EXPECT_EQ(sums.switch_counters(0).absences, 0U) << "the first ones lose nothing";
  std::size_t differ = 0;
  for (int call = 0; call < 5; ++call) {
    std::vector<float> before(count);
    for (std::size_t i = 0; i < count; ++i) before[i] = residuals(i);
    sums.run(vectors.operands, count, {0, 1}, kNever);
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_EQ(vectors.out[0][i] + residuals(i), right(i) + before[i]) << i;
      differ += vectors.out[0][i] != right(i) ? 1 : 0;
    }
    for (int r = 1; r < kRanks; ++r) ASSERT_EQ(vectors.out[at(r)], vectors.out[0]);
  }
  EXPECT_GT(differ, 0U);
  EXPECT_GT(sums.lost(), 0);
  EXPECT_LE(sums.lost(), 0.2);
}

TEST(SwitchSums, OfWhichAPartMayBeMissingGiveItLater) {
  for (const std::size_t count : {40'000, 300'000}) {  // in one round of each slot, and in several
    SCOPED_TRACE(count);
    expect_conserved(count);
  }
}

TEST(SwitchSums, OfWhichAPartMayBeMissingAreRefusedWhereAllAgreeOnMore) {
  const auto why = [](auto change) -> std::string {
    SwitchSumsOptions options;
    options.switches = {4};
    options.may_lose = 0.1;
    change(options);
    try {
      switch_job(options, TransportOptions{}, 4);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(why([](auto&) {}), "");
  EXPECT_THAT(why([](auto& o) { o.may_lose = 0.6; }), HasSubstr("expected 0 to 0.5"));
  EXPECT_THAT(why([](auto& o) { o.sparse = true; }), HasSubstr("nothing may be missing of sparse sums"));
  EXPECT_THAT(why([](auto& o) { o.format = wire::AggregationFormat::scaled; }),
              HasSubstr("nothing may be missing of sums of a common scale"));
  EXPECT_THAT(why([](auto& o) { o.format = wire::AggregationFormat::pairs; }),
              HasSubstr("nothing may be missing of sums by key"));
  EXPECT_THAT(why([](auto& o) { o.racks = {4, 4, 5, 5}; }), HasSubstr("racks"));
}

}  // namespace
}  // namespace talweg::sim
