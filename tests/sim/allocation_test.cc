// That packets move without allocation. A program of its own, since it counts what the whole process
// allocates.
#include <gtest/gtest.h>

#include <memory>
#include <ostream>
#include <string>

#include "counted_new.h"
#include "forest/planner.h"
#include "sim/carried_packets.h"
#include "sim/collectives.h"
#include "sim/matrix_run.h"
#include "sim/pulled_options.h"
#include "sim/shapes.h"
#include "sim/simulation.h"
#include "sim/topologies.h"
#include "sim/trace.h"
#include "sim/traffic.h"

namespace talweg::sim {
namespace {

// Of a whole run, with what it is made of.
struct Counted {
  long allocations = 0;
  std::uint64_t hops = 0;  // packets over links
};

// Packets, events and what waits for a link are in arrays that double where there are more than ever before,
// and where events come at another rate their queue cuts its time anew. Long runs do so a few times after
// short ones have ended: measured are 13 at most, as against hundreds of thousands of packets.
constexpr long kMostRecords = 40;

void expect_no_more(const Counted& few, const Counted& many) {
  EXPECT_GT(few.allocations, 0);  // else nothing is counted
  EXPECT_GT(few.hops, 50'000U);
  EXPECT_GT(many.hops, 3 * few.hops);
  EXPECT_LE(many.allocations, few.allocations + kMostRecords);
}

struct Way {
  std::string name;
  SimulationOptions options;
};
std::ostream& operator<<(std::ostream& out, const Way& way) {
  return out << way.name;
}

Way dctcp(double loss) {
  SimulationOptions o;
  o.network.switch_queue.limit_bytes = 150'000;
  o.network.switch_queue.mark_bytes = o.network.host_queue.mark_bytes = 30'000;
  o.network.loss.loss = loss;
  return {loss > 0 ? "lossy" : "dctcp", o};
}

Way pfabric() {
  SimulationOptions o;
  o.transport.kind = TransportKind::pfabric;
  o.transport.spray = true;
  o.network.switch_queue.limit_bytes = 8 * 1514;
  o.network.switch_queue.least_left_first = true;
  return {"pfabric", o};
}

class AllocationsOfFlows : public ::testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Transports, AllocationsOfFlows,
                         ::testing::Values(dctcp(0), dctcp(0.001), Way{"ndp", pulled_options()}, pfabric()),
                         [](const auto& test) { return test.param.name; });

// Racks with half as much to their spines as hosts send: packets wait, are marked, trimmed or dropped.
TEST_P(AllocationsOfFlows, AreNoMoreForMorePackets) {
  const auto run = [](const char* size) {
    const long before = allocations();
    Simulation s(leaf_spine(4, 4, 2, kTen, kTen), GetParam().options);
    run_matrix(s, parse_traffic(std::string("permutation:shift=4,size=") + size, 16, 1), kNever);
    return Counted{allocations() - before, s.network().counters().link_hops};
  };
  expect_no_more(run("1MB"), run("4MB"));
}

TEST(AllocationsOfCalls, AreNoMoreForMoreChunks) {
  const auto run = [](std::int64_t bytes) {
    const cluster::Cluster cluster = star(4, kTen);
    forest::Request q;
    q.ranks = 4;
    q.element_size = 4;
    q.counts = {bytes / q.element_size};
    const auto ring = std::make_shared<forest::Forest>(forest::find_planner("ring").plan(q, cluster));
    for (forest::Tree& tree : ring->trees) tree.chunk = 16 << 10;
    const long before = allocations();
    Simulation s(cluster, dctcp(0).options);
    RanksOptions options;
    options.carry_payloads = false;
    Ranks ranks(s, options);
    run_calls(s, ranks, ring, DataType::f32, {}, kNever);
    return Counted{allocations() - before, s.network().counters().link_hops};
  };
  expect_no_more(run(16 << 20), run(64 << 20));
}

// Bursts that are all alike, behind so many that the queue of events has found out how to cut its time.
TEST(AllocationsOfCarriedPackets, AreNoneOnceAsManyAsEverHaveBeenInside) {
  constexpr Picoseconds kEvery = 12 * kMicrosecond;  // which a full packet takes on a link
  long arrived = 0;
  CarriedPackets carried(star(3, kGigabit), {}, 1 << 10, [&](const CarriedPackets::Arrival&) { ++arrived; });
  Picoseconds now = 0;
  const auto carry = [&](int bursts) {
    const long before = allocations();
    for (int burst = 0; burst < bursts; ++burst, now += 200 * kEvery) {
      for (int i = 0; i < 100; ++i) carried.put({.from = i % 2, .to = 2, .bytes = 1500}, now);
      carried.advance(now + 150 * kEvery);
    }
    return allocations() - before;
  };
  EXPECT_GT(carry(5000), 0);
  EXPECT_EQ(carry(2000), 0);
  EXPECT_EQ(arrived, 700'000);
}

}  // namespace
}  // namespace talweg::sim
