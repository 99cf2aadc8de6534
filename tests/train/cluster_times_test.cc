#include "train/cluster_times.h"

#include <gmock/gmock.h>

#include "forest/planner.h"
#include "forest/random_networks.h"
#include "talweg/error.h"

namespace talweg::train {
namespace {

cluster::Cluster star(int workers) {
  return cluster::uniform_star(workers, parse_bandwidth("1Gbit/s"), parse_nanoseconds("20us"));
}

TEST(ClusterTimes, AreThoseOfThePlansThatAGroupWouldTake) {
  const cluster::Cluster cluster = star(4);
  const NetworkTimes times = cluster_times(cluster);
  EXPECT_EQ(times.ranks, 4);
  for (const std::int64_t bytes : {std::int64_t{4096}, std::int64_t{1} << 20, std::int64_t{64} << 20}) {
    const auto forest =
        forest::plan_best(forest::even_request(Collective::all_reduce, 4, 0, bytes / 4, 4), cluster);
    EXPECT_NEAR(times.all_reduce.seconds(static_cast<double>(bytes)),
                forest::predict_seconds(forest, cluster), 0.02 * forest::predict_seconds(forest, cluster))
        << bytes;
  }
  // 2 (n - 1) / n of the vector over a link of 1 Gbit/s, with headers.
  EXPECT_NEAR(times.all_reduce.per_byte(), 1.5 * 8e-9 * 1514 / 1448, 0.05 * 1.5 * 8e-9);
  EXPECT_NEAR(times.reduce_scatter.seconds(1e8), times.all_reduce.seconds(1e8) / 2,
              0.05 * times.all_reduce.seconds(1e8));
}

// To pack trees here takes longer than a call waits.
TEST(ClusterTimes, AreThoseOfThePlansThatAGroupEndsWithAndElseSaySo) {
  const cluster::Cluster cluster = forest::random_network(1, 12);
  const std::vector<Bytes> sizes{{1 << 20}, {64 << 20}};
  const NetworkTimes last = cluster_times(cluster, sizes);
  EXPECT_EQ(last.interim, NetworkTimes::Interim{});
  const NetworkTimes first = cluster_times(cluster, sizes, forest::kMostStepsAtOnce);
  EXPECT_THAT(first.interim.missing, testing::ElementsAre("packed"));
  for (const Bytes bytes : sizes) {
    const auto size = static_cast<double>(bytes.value);
    const auto request = forest::even_request(Collective::all_reduce, 12, 0, bytes.value / 4, 4);
    const forest::Forest best = forest::plan_best(request, cluster);
    const double seconds = forest::predict_seconds(best, cluster);
    EXPECT_NEAR(last.all_reduce.seconds(size), seconds, 0.01 * seconds) << bytes.value;
    EXPECT_GT(first.all_reduce.seconds(size), 1.02 * seconds) << bytes.value;
    EXPECT_THAT(first.interim.taken, testing::Not(testing::Contains(best.planner)));
  }
}

TEST(ClusterTimes, FewerRanksAreTheFirst) {
  const cluster::Cluster cluster = star(4);
  EXPECT_LT(cluster_times_at(cluster, 2).all_reduce.seconds(1e7),
            cluster_times_at(cluster, 4).all_reduce.seconds(1e7));
  EXPECT_EQ(cluster_times_at(cluster, 1).all_reduce.seconds(1e7), 0);
  EXPECT_THROW(cluster_times_at(cluster, 5), Error);
  EXPECT_THROW(cluster_times_at(cluster, 0), Error);
}

// A bucket of gradients finds the token bucket as the bucket before it left it.
TEST(ClusterTimes, BurstsLetNothingPassAtOnce) {
  const cluster::Cluster plain = star(4);
  cluster::Cluster bursting = plain;
  for (cluster::Link& link : bursting.links) link.burst = {1 << 20};
  const TransferTimes without = cluster_times(plain).all_reduce, with = cluster_times(bursting).all_reduce;
  for (const double bytes : {65536.0, 524288.0, 4e6})
    EXPECT_GE(with.seconds(bytes), 0.99 * without.seconds(bytes));
  EXPECT_EQ(cluster_times(plain).burst, 0);
  const double lasts = (1 << 20) / plain.links[0].capacity.bytes_per_second();
  EXPECT_NEAR(cluster_times(bursting).burst, lasts, 1e-6 * lasts);
  cluster::Cluster without_one = bursting;
  without_one.links.back().burst = {};
  EXPECT_NEAR(cluster_times(without_one).burst, 0, 1e-6 * lasts) << "that one limits";
  // That of the link that limits, whatever quicker ones have.
  cluster::Cluster slow = bursting;
  slow.links[0].capacity.bits_per_second /= 2;
  slow.links[0].burst = {1 << 10};
  EXPECT_NEAR(cluster_times(slow).burst, 2 * lasts / 1024, 1e-6 * lasts);
  // Nothing of a link that no worker's data take.
  cluster::Cluster with_spare = bursting;
  const int spare = static_cast<int>(with_spare.nodes.size()), hub = spare - 1;
  with_spare.nodes.push_back({.name = "spare", .kind = cluster::NodeKind::switch_});
  for (const auto& [from, to] : {std::pair{hub, spare}, {spare, hub}})
    with_spare.links.push_back({.from = from,
                                .to = to,
                                .capacity = Bandwidth{1e6},
                                .latency = plain.links[0].latency,
                                .burst = {64 << 20}});
  EXPECT_NEAR(cluster_times(with_spare).burst, lasts, 1e-6 * lasts);
  // A group has no bucket.
  cluster::Cluster grouped = bursting;
  grouped.groups.push_back({"g", {plain.links[0].capacity.bits_per_second / 10}, {0}});
  EXPECT_NEAR(cluster_times(grouped).burst, 0, 1e-6 * lasts);
}

// Whatever plans are made for links without end.
TEST(ClusterTimes, MoreBandwidthMakesNothingLonger) {
  for (const double rate : {1e9, 25e9, 100e9})
    for (const Nanoseconds latency : {Nanoseconds{1000}, Nanoseconds{50'000}}) {
      const NetworkTimes times = cluster_times(cluster::uniform_star(4, {rate}, latency));
      for (const double by : {2.0, 8.0, 1e3})
        for (double bytes = 1000; bytes < 1e9; bytes *= 1.7) {
          const TransferTimes more = times.with_bandwidth(by).all_reduce;
          EXPECT_LE(more.seconds(bytes), times.all_reduce.seconds(bytes) * (1 + 1e-9))
              << rate << " " << bytes;
          EXPECT_LE(more.seconds(bytes) - more.startup_of(bytes),
                    (times.all_reduce.seconds(bytes) - times.all_reduce.startup_of(bytes)) * (1 + 1e-9))
              << rate << " " << bytes;
        }
    }
}

// Where bursts have plans change between two sizes of the table, and a plan takes longer than its busiest
// link has to do.
TEST(ClusterTimes, AreThoseOfThePlanForEachSizeAndOfItsBusiestLink) {
  cluster::Cluster bursting = star(4);
  for (cluster::Link& link : bursting.links) link.burst = {128 << 10};
  cluster::Cluster plain = bursting;
  for (cluster::Link& link : plain.links) link.burst = {};
  const NetworkTimes times = cluster_times(bursting);
  const forest::CostModel model(plain);
  for (const std::int64_t bytes : {20'000, 48'000, 100'000, 116'480, 180'000, 400'000, 820'000, 3'000'000}) {
    const auto forest =
        forest::plan_best(forest::even_request(Collective::all_reduce, 4, 0, bytes / 4, 4), bursting);
    const double seconds = model.seconds(forest), startup = seconds - model.busiest(forest);
    EXPECT_NEAR(times.all_reduce.seconds(static_cast<double>(bytes)), seconds, 0.1 * seconds) << bytes;
    EXPECT_NEAR(times.all_reduce.startup_of(static_cast<double>(bytes)), startup, 0.1 * seconds) << bytes;
  }
}

// With many ranks few sizes are planned, and the table is as if all were.
TEST(ClusterTimes, OfManyRanksAreNearThoseOfAllSizes) {
  const cluster::Cluster cluster = star(64);
  const TransferTimes quick = cluster_times(cluster).all_reduce;
  const TransferTimes all = cluster_times(cluster, table_sizes()).all_reduce;
  EXPECT_LT(quick.pieces().size(), all.pieces().size());
  for (const Bytes bytes : table_sizes()) {
    const double seconds = all.seconds(static_cast<double>(bytes.value));
    EXPECT_NEAR(quick.seconds(static_cast<double>(bytes.value)), seconds, 0.05 * seconds) << bytes.value;
  }
}

TEST(ClusterTimes, TheSimulatorAgreesWithTheModel) {
  const cluster::Cluster cluster = star(4);
  const std::vector<Bytes> sizes{{1 << 20}, {4 << 20}};
  const NetworkTimes simulated = simulated_times(cluster, marking_switches(), {}, sizes);
  const NetworkTimes predicted = cluster_times(cluster, sizes);
  for (const Bytes bytes : sizes) {
    const auto size = static_cast<double>(bytes.value);
    EXPECT_NEAR(simulated.all_reduce.seconds(size), predicted.all_reduce.seconds(size),
                0.2 * predicted.all_reduce.seconds(size));
  }
}

}  // namespace
}  // namespace talweg::train
