// The simulator against closed formulas.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "sim/matrix_run.h"
#include "sim/shapes.h"
#include "sim/simulation.h"
#include "sim/topologies.h"
#include "sim/workload_run.h"
#include "talweg/error.h"

namespace talweg::sim {
namespace {

constexpr std::uint32_t kTheoryPort = 9;

// Hosts at the ends of a row of `links` links.
cluster::Cluster row(int links) {
  cluster::Cluster c = star(2, kGigabit);
  c.links.clear();
  c.nodes.pop_back();
  std::vector<int> places{0};
  for (int i = 1; i < links; ++i) {
    places.push_back(static_cast<int>(c.nodes.size()));
    c.nodes.push_back({"s" + std::to_string(i), cluster::NodeKind::switch_, false, false});
  }
  places.push_back(1);
  for (std::size_t i = 0; i + 1 < places.size(); ++i) {
    c.links.push_back({places[i], places[i + 1], kGigabit.capacity, kGigabit.latency, {}});
    c.links.push_back({places[i + 1], places[i], kGigabit.capacity, kGigabit.latency, {}});
  }
  return c;
}

TEST(Theory, APipelineOfStoresAndForwardsTakesPacketsPlusLinksLessOne) {
  for (const int links : {1, 2, 5, 9})
    for (const std::uint32_t packets : {1U, 2U, 17U, 300U}) {
      Simulation s(row(links), {});
      Picoseconds last = 0;
      s.bind(1, kTheoryPort, [&](const Packet&) { last = s.now(); });
      for (std::uint32_t i = 0; i < packets; ++i) s.send({0, 1, kTheoryPort, i, 1500, 0, kNoRoute, 0, false});
      s.run();
      const Picoseconds expected =
          (static_cast<Picoseconds>(packets) + links - 1) * 12 * kMicrosecond + links * kMicrosecond;
      EXPECT_EQ(last, expected) << links << " links, " << packets << " packets";
    }
}

TEST(Theory, FlowsThroughOneLinkEndAfterTheSumOfTheirBytesAndShareItEvenly) {
  for (const int flows : {2, 3, 8}) {
    SimulationOptions o;
    o.network.switch_queue.mark_bytes = o.network.host_queue.mark_bytes = 30'000;
    Simulation s(star(flows + 1, {Bandwidth{10e9}, Nanoseconds{1000}}), o);
    Matrix m;
    m.nodes = flows + 1;
    constexpr std::int64_t kBytes = 20'000'000;
    for (int f = 0; f < flows; ++f) {
      Connection c;
      c.from = f;
      c.to = flows;
      c.bytes = kBytes;
      m.connections.push_back(c);
    }
    const auto results = run_matrix(s, m, kNever);
    const double all = flows * static_cast<double>(kBytes) * 8 / 10e9 * 1514 / 1448;
    EXPECT_NEAR(seconds(completion_percentile(results, 1)), all, 0.01 * all);
    // Even shares end together. Ends before that are a flow's gain over its share.
    EXPECT_GT(seconds(completion_percentile(results, 0)), 0.9 * all) << flows;
  }
}

// Poisson arrivals of constant packets at one link.
class SingleServer {
 public:
  SingleServer(double load, std::uint32_t packets) : s_(row(1), {}), load_(load), packets_(packets) {
    s_.bind(1, kTheoryPort, [this](const Packet& p) { waited_ += s_.now() - p.sent - 13 * kMicrosecond; });
    feed();
  }
  double mean_wait_us() {
    s_.run();
    return static_cast<double>(waited_) / packets_ / kMicrosecond;
  }

 private:
  void feed() {
    const double gap = exponential(random_) * 12 / load_;
    s_.at(s_.now() + static_cast<Picoseconds>(gap * kMicrosecond), [this] {
      s_.send({0, 1, kTheoryPort, sent_, 1500, 0, kNoRoute, 0, false});
      if (++sent_ < packets_) feed();
    });
  }
  Simulation s_;
  Random random_{17};
  const double load_;
  const std::uint32_t packets_;
  std::uint32_t sent_ = 0;
  Picoseconds waited_ = 0;
};

TEST(Theory, PoissonArrivalsWaitAsPollaczekAndKhinchineHaveIt) {
  // M/D/1: a wait of rho s / (2 (1 - rho)); by Little's law the mean number in the queue is rho times that
  // over s.
  for (const double load : {0.3, 0.5, 0.8}) {
    const double expected = load * 12 / (2 * (1 - load));
    EXPECT_NEAR(SingleServer(load, 400'000).mean_wait_us(), expected, 0.05 * expected) << load;
  }
}

TEST(Theory, ALinkWithoutARateIsRefusedByName) {
  cluster::Cluster c = star(2, kGigabit);
  c.links[1].capacity = Bandwidth{0};
  try {
    Simulation s(c, {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("link switch->h0: expected a capacity above 0"));
  }
}

}  // namespace
}  // namespace talweg::sim
