// Sums that may lose a part, in virtual time: that they are right whatever the network does, that no more is
// missing than may be, and that losses cost little time.
#include "sim/bounded_sums.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/random.h"
#include "sim/shapes.h"

namespace talweg::sim {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Vectors of small whole numbers, whose sums are exact in any order.
struct LossyVectors {
  LossyVectors(int ranks, std::size_t count) {
    for (int r = 0; r < ranks; ++r) {
      in.emplace_back(count);
      for (std::size_t i = 0; i < count; ++i)
        in.back()[i] = static_cast<float>(Random(static_cast<std::uint64_t>(r), i).below(1000)) + 1;
      out.emplace_back(count, -7.0F);
    }
    for (std::size_t r = 0; r < in.size(); ++r)
      operands.push_back(
          {reinterpret_cast<std::byte*>(in[r].data()), reinterpret_cast<std::byte*>(out[r].data())});
  }
  // Where rank s has its sums from: what it says that it has not got of the others is in none.
  void expect_right(const BoundedSums& sums) const {
    const std::size_t n = in.size(), count = in[0].size();
    std::size_t begin = 0;
    const std::vector<std::size_t> parts = protocol::bounded_parts(count, n, servers);
    for (std::size_t s = 0; s < n; ++s) {
      const std::size_t end = begin + parts[s];
      for (std::size_t i = begin; i < end; ++i) {
        float sum = 0;
        for (std::size_t r = 0; r < n; ++r)
          if (r == s || !is_missing(sums, s, r, i - begin)) sum += in[r][i];
        for (std::size_t r = 0; r < n; ++r) ASSERT_EQ(out[r][i], sum) << "element " << i << " of rank " << r;
      }
      begin = end;
    }
  }
  static bool is_missing(const BoundedSums& sums, std::size_t rank, std::size_t sender, std::size_t element) {
    const auto packet =
        static_cast<std::uint32_t>(element * sizeof(float) / sums.shape(static_cast<int>(rank)).stride);
    return sums.missing(static_cast<int>(rank), static_cast<int>(sender)).has(packet);
  }

  std::vector<int> servers;                 // ascending; none: all ranks sum
  std::vector<std::vector<float>> in, out;  // by rank
  std::vector<SumOperands> operands;
};

SimulationOptions bad_network(std::uint64_t seed) {
  SimulationOptions how;
  how.seed = how.network.seed = seed;
  how.network.loss.loss = 0.01;
  how.network.loss.burst_begins = 0.001;
  how.network.loss.burst_lasts = Nanoseconds{10'000};
  how.network.loss.duplicate = 0.01;
  how.network.loss.damage = 0.005;
  how.network.loss.delay = 0.02;
  how.network.loss.most_delay = Nanoseconds{50'000};
  return how;
}

TEST(BoundedSums, AreRightForAllSizesAndNumbersOfRanks) {
  for (const int ranks : {1, 2, 3, 8})
    for (const std::size_t count : {0, 1, 7, 345, 10'007, 200'000}) {
      SCOPED_TRACE(testing::Message() << ranks << " ranks, " << count);
      LossyVectors vectors(ranks, count);
      Simulation simulation(star(ranks, kTen), {});
      BoundedSums sums(simulation, {});
      const CallTimes times = sums.run(vectors.operands, count, {.warm_up = 1, .timed = 2}, kNever);
      ASSERT_EQ(times.of_rank.size(), 2U);
      EXPECT_EQ(sums.losses().lost_bytes, 0U);
      EXPECT_EQ(sums.calls_ended(), 3U);
      vectors.expect_right(sums);
      if (HasFailure()) return;
    }
}

TEST(BoundedSums, WithoutABoundNothingIsMissingWhateverTheNetworkDoes) {
  std::uint64_t again = 0, sums_again = 0;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    SCOPED_TRACE(seed);
    const int ranks = 2 + static_cast<int>(seed % 4);
    LossyVectors vectors(ranks, 60'000 + seed);
    Simulation simulation(star(ranks, kTen), bad_network(seed));
    BoundedSums sums(simulation, {.p = 0, .warm_up = false});
    sums.run(vectors.operands, 60'000 + seed, {.warm_up = 0, .timed = 3}, kNever);
    EXPECT_EQ(sums.losses().lost_bytes, 0U);
    vectors.expect_right(sums);
    again += sums.losses().packets_again;
    sums_again += sums.losses().sums_again;
    if (HasFailure()) return;
  }
  EXPECT_GT(again, 0U);
  EXPECT_GT(sums_again, 0U);
}

TEST(BoundedSums, LackNoMoreThanTheyMayAndSayWhatItIs) {
  std::uint64_t lost = 0;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    SCOPED_TRACE(seed);
    const int ranks = 2 + static_cast<int>(seed % 4);
    const std::size_t count = 100'000 + seed;
    LossyVectors vectors(ranks, count);
    Simulation simulation(star(ranks, kTen), bad_network(100 + seed));
    BoundedSums sums(simulation, {.p = 0.05, .warm_up = false});
    for (int call = 0; call < 4; ++call) {
      sums.run(vectors.operands, count, {}, kNever);
      vectors.expect_right(sums);
      std::uint64_t missing = 0;
      for (int r = 0; r < ranks; ++r)
        for (int s = 0; s < ranks; ++s) {
          if (r == s) continue;
          std::uint64_t bytes = 0;
          const protocol::PacketSet& set = sums.missing(r, s);
          for (std::uint32_t i = set.next(0); i < set.size(); i = set.next(i + 1))
            bytes += sums.shape(r).length(i);
          EXPECT_LE(static_cast<double>(bytes), 0.05 * static_cast<double>(sums.shape(r).bytes));
          missing += bytes;
        }
      EXPECT_EQ(sums.losses().lost_bytes, missing);
      lost += missing;
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(lost, 0U);
}

TEST(BoundedSums, AreRightWhereSomeRanksAreTheServers) {
  std::uint64_t lost = 0;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    SCOPED_TRACE(seed);
    const int ranks = 2 + static_cast<int>(seed % 4);
    const std::size_t count = 60'000 + seed;
    LossyVectors vectors(ranks, count);
    vectors.servers = seed % 2 == 0 ? std::vector{ranks - 1} : std::vector{0, 1};
    Simulation simulation(star(ranks, kTen), bad_network(200 + seed));
    BoundedSums sums(simulation, {.p = seed < 4 ? 0.0 : 0.05, .servers = vectors.servers, .warm_up = false});
    for (int call = 0; call < 3; ++call) {
      sums.run(vectors.operands, count, {}, kNever);
      vectors.expect_right(sums);
      if (HasFailure()) return;
      EXPECT_LE(sums.losses().lost(), seed < 4 ? 0.0 : 0.05);
      lost += sums.losses().lost_bytes;
      EXPECT_EQ(sums.losses().sent_bytes, count * static_cast<std::uint64_t>(ranks - 1) * sizeof(float));
    }
  }
  EXPECT_GT(lost, 0U);
}

// Who sums is there until those that only send know what was lost: what tells them may be lost as well.
TEST(BoundedSums, WhoSumsNothingIsAnsweredUntilItKnowsWhatWasLost) {
  for (const std::size_t count :
       {std::size_t{1}, std::size_t{5'000}})  // of one element most ranks sum nothing
    for (std::uint64_t seed = 0; seed < 12; ++seed) {
      SCOPED_TRACE(testing::Message() << count << " elements, seed " << seed);
      LossyVectors vectors(4, count);
      if (count > 1) vectors.servers = {0};
      SimulationOptions how;
      how.seed = how.network.seed = seed;
      how.network.loss.loss = 0.1;
      Simulation simulation(star(4, kTen), how);
      BoundedSums sums(simulation, {.p = 0, .servers = vectors.servers, .warm_up = false});
      sums.run(vectors.operands, count, {.warm_up = 0, .timed = 4}, kNever);
      vectors.expect_right(sums);
      if (HasFailure()) return;
    }
}

// Sums do not wait behind shards in their own host.
TEST(BoundedSums, TakeLessTimeWhereFlowsTakeTurns) {
  Picoseconds without = 0;
  for (const bool turns : {false, true}) {
    LossyVectors vectors(8, 400'000);
    SimulationOptions how;
    how.transport.turns = turns;
    Simulation simulation(star(8, {Bandwidth{100e9}, Nanoseconds{1000}}), how);
    BoundedSums sums(simulation, {.p = 0});
    const CallTimes times = sums.run(vectors.operands, 400'000, {.warm_up = 2, .timed = 3}, kNever);
    vectors.expect_right(sums);
    if (!turns) {
      without = times.total;
      continue;
    }
    EXPECT_LT(times.total, without);
    // Each link carries seven eighths of a vector twice, which takes 224 us, and headers.
    for (const Picoseconds call : times.of_call) EXPECT_LT(call, 270 * kMicrosecond);
  }
}

TEST(BoundedSums, AreRightInTurnsWhateverTheNetworkDoes) {
  std::uint64_t lost = 0;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    SCOPED_TRACE(seed);
    const int ranks = 2 + static_cast<int>(seed % 4);
    LossyVectors vectors(ranks, 60'000 + seed);
    SimulationOptions how = bad_network(400 + seed);
    how.transport.turns = true;
    Simulation simulation(star(ranks, kTen), how);
    BoundedSums sums(simulation, {.p = seed < 4 ? 0.0 : 0.05, .warm_up = false, .paths = 1 + seed % 3});
    for (int call = 0; call < 3; ++call) {
      sums.run(vectors.operands, 60'000 + seed, {}, kNever);
      vectors.expect_right(sums);
      if (HasFailure()) return;
      EXPECT_LE(sums.losses().lost(), seed < 4 ? 0.0 : 0.05);
      lost += sums.losses().lost_bytes;
    }
  }
  EXPECT_GT(lost, 0U);
}

TEST(BoundedSums, TheFirstCallsLoseNothing) {
  LossyVectors vectors(3, 100'000);
  Simulation simulation(star(3, kTen), bad_network(7));
  BoundedSums sums(simulation, {.p = 0.1});
  sums.run(vectors.operands, 100'000, {.warm_up = 0, .timed = 20}, kNever);
  EXPECT_EQ(sums.losses().lost_bytes, 0U);
  sums.run(vectors.operands, 100'000, {.warm_up = 0, .timed = 20}, kNever);
  EXPECT_EQ(sums.losses().lost_bytes, 0U) << "of a tensor that was added anew";
  for (int r = 0; r < 3; ++r)
    for (int s = 0; s < 3; ++s) EXPECT_TRUE(r == s || sums.missing(r, s).empty()) << r << " of " << s;
  vectors.expect_right(sums);
  sums.run(vectors.operands, 100'000, {.warm_up = 20, .timed = 20}, kNever);
  EXPECT_GT(sums.losses().lost_bytes, 0U) << "later ones do";
}

// What ranks tell each other before a call is read: who receives nothing knows from rank 0 alone that packets
// may be lost by now, and only then are any droppable.
TEST(BoundedSums, WhoReceivesNothingHearsHowLongTransfersTake) {
  LossyVectors vectors(3, 100'000);
  Simulation simulation(star(3, kTen), bad_network(7));
  BoundedSums sums(simulation, {.p = 0.1, .classes = {.droppable = 0.9}, .servers = {0}});
  sums.run(vectors.operands, 100'000, {.warm_up = 20, .timed = 20}, kNever);
  EXPECT_GT(sums.losses().lost_bytes, 0U);
  EXPECT_LT(sums.losses().lost_important_bytes, sums.losses().lost_bytes / 2);
}

TEST(BoundedSums, ASeedGivesOneRun) {
  const auto run = [](std::uint64_t seed) {
    LossyVectors vectors(4, 50'000);
    Simulation simulation(star(4, kTen), bad_network(seed));
    BoundedSums sums(simulation, {.p = 0.02, .warm_up = false});
    const CallTimes times = sums.run(vectors.operands, 50'000, {.warm_up = 0, .timed = 3}, kNever);
    return std::pair(times.of_rank, sums.losses().sent_bytes + 1000 * sums.losses().packets_again);
  };
  EXPECT_EQ(run(1), run(1));
  EXPECT_NE(run(1).first, run(2).first);
}

std::vector<double> call_seconds(double p, const LossModel& loss, std::uint64_t seed) {
  constexpr std::size_t kCount = 256 << 10;
  std::vector<float> in(kCount), out(kCount);  // one for all: nobody looks at it
  const std::vector<SumOperands> same(
      8, {reinterpret_cast<std::byte*>(in.data()), reinterpret_cast<std::byte*>(out.data())});
  SimulationOptions how;
  how.seed = how.network.seed = seed;
  how.network.loss = loss;
  how.network.switch_queue.limit_bytes = 1 << 20;
  Simulation simulation(star(8, kGigabit), how);
  BoundedSums sums(simulation, {.p = p});
  std::vector<double> took;
  for (const Picoseconds t : sums.run(same, kCount, {.warm_up = 20, .timed = 20}, kNever).of_call)
    took.push_back(seconds(t));
  if (loss.any() && p > 0) {
    EXPECT_GT(sums.losses().lost_bytes, 0U);
  }
  std::ranges::sort(took);
  return took;
}

// 1 % of a path's packets are lost, several at a time. The slowest of twenty calls is hardly slower than
// without, whatever of it may be missing.
TEST(BoundedSums, BurstsOfLossCostTheSlowestCallLittle) {
  LossModel bursts;
  bursts.burst_begins = 0.0006;
  bursts.burst_lasts = Nanoseconds{100'000};  // eight packets
  for (const std::uint64_t seed : {11U}) {
    const std::vector<double> without = call_seconds(0.05, {}, seed), with = call_seconds(0.05, bursts, seed);
    EXPECT_LT(with[19], 1.7 * without[19]) << seed;
    EXPECT_LT(with[10], 1.4 * without[10]) << seed;
    // Both ways of 7/8 of the vector.
    EXPECT_LT(without[10], 1.8 * 2 * 7 / 8 * 4 * (256 << 10) / 125e6) << seed;
  }
}

// Two leaves and four spines, the last of which has links of a tenth.
cluster::Cluster with_a_slow_spine() {
  cluster::Cluster cluster = leaf_spine(2, 2, 4, kTen, kTen);
  for (cluster::Link& link : cluster.links)
    for (const int end : {link.from, link.to})
      if (cluster.nodes[static_cast<std::size_t>(end)].name == "spine3") link.capacity = Bandwidth{1e9};
  return cluster;
}

// With one port who meets the slow spine is stuck there; with several all others carry more.
TEST(BoundedSums, SeveralPathsAvoidASlowSpine) {
  std::vector<double> took;
  for (const std::size_t paths : {std::size_t{1}, std::size_t{8}}) {
    double all = 0;
    for (const std::uint64_t seed : {1U, 2U, 3U}) {
      LossyVectors vectors(4, 200'000);
      SimulationOptions how;
      how.seed = seed;
      Simulation simulation(with_a_slow_spine(), how);
      BoundedSums sums(simulation, {.paths = paths});
      const CallTimes times = sums.run(vectors.operands, 200'000, {.warm_up = 3, .timed = 3}, kNever);
      for (const Picoseconds t : times.of_call) all += seconds(t);
      vectors.expect_right(sums);
    }
    took.push_back(all);
  }
  EXPECT_LT(2 * took[1], took[0]);
}

TEST(BoundedSums, SeveralPathsBearASpineThatFailsAndAllThatANetworkDoes) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    for (const double p : {0.0, 0.05}) {
      LossyVectors vectors(4, 100'000);
      SimulationOptions how = bad_network(seed);
      how.transport.turns = seed == 2;
      Simulation simulation(leaf_spine(2, 2, 4, kTen, kTen), how);
      BoundedSums sums(simulation, {.p = p, .warm_up = false, .paths = 4});
      const auto& nodes = simulation.network().cluster().nodes;
      const auto spine =
          static_cast<int>(std::ranges::find(nodes, "spine1", &cluster::Node::name) - nodes.begin());
      simulation.at(300 * kMicrosecond, [&, spine] { simulation.set_node(spine, false); });
      simulation.at(900 * kMicrosecond, [&, spine] { simulation.set_node(spine, true); });
      sums.run(vectors.operands, 100'000, {.warm_up = 0, .timed = 3}, kNever);
      vectors.expect_right(sums);
      EXPECT_LE(sums.losses().lost(), p);
    }
  }
}

TEST(BoundedSums, WhatCannotBeIsRefused) {
  Simulation simulation(star(2, kTen), {});
  const auto refused = [&](const BoundedSumsOptions& options) {
    return message_of([&] { BoundedSums(simulation, options).run({}, 0, {}, kNever); });
  };
  EXPECT_THAT(refused({.p = 0.6}), HasSubstr("a part of 0.6 that may be lost: expected 0 to 0.5"));
  EXPECT_THAT(refused({.p = -0.1}), HasSubstr("expected 0 to 0.5"));
  EXPECT_THAT(refused({.type = DataType::i32}), HasSubstr("a sum of i32 with bounded loss: expected f16"));
  EXPECT_THAT(refused({.paths = 0}), HasSubstr("0 paths from a rank to another one: expected 1 to 16"));
  EXPECT_THAT(refused({.paths = 17}), HasSubstr("17 paths"));
  EXPECT_THAT(refused({.queues = 8}), HasSubstr("8 queues for layers: expected 1 to 7"));
  EXPECT_THAT(refused({.servers = {0, 2}}), HasSubstr("rank 2 as a server: expected 0 to 1"));
  EXPECT_THAT(refused({.servers = {1, 1}}), HasSubstr("rank 1 is a server twice"));
  EXPECT_THAT(refused({}), HasSubstr("0 vectors for a sum of 2 workers"));
  LossyVectors vectors(2, 10);
  vectors.operands[1].out = reinterpret_cast<std::byte*>(vectors.in[1].data());
  BoundedSums sums(simulation, {});
  EXPECT_THAT(message_of([&] { sums.run(vectors.operands, 10, {}, kNever); }), HasSubstr("in place"));
  SimulationOptions small;
  small.transport.payload_bytes = 100;
  Simulation narrow(star(2, kTen), small);
  EXPECT_THAT(message_of([&] { BoundedSums(narrow, {}); }), HasSubstr("packets with 100 bytes of payload"));
}

TEST(BoundedSums, AFailedHostIsNamed) {
  LossyVectors vectors(3, 100'000);
  Simulation simulation(star(3, kGigabit), {});
  BoundedSums sums(simulation, {});
  simulation.at(100 * kMicrosecond, [&] { simulation.set_node(1, false); });
  EXPECT_THAT(message_of([&] { sums.run(vectors.operands, 100'000, {}, 1'000'000 * kMicrosecond); }),
              AllOf(HasSubstr("h1 failed at 100 us and was not repaired"), HasSubstr("had not ended on")));
}

}  // namespace
}  // namespace talweg::sim
