// Packed trees on networks whose links are quicker one way than the other, where acknowledgements of what
// goes the quick way fill the slow way back.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "base/random.h"
#include "cluster/cluster.h"
#include "forest/cost.h"
#include "forest/packed.h"
#include "forest/planner.h"
#include "forest/requests.h"
#include "sanitized.h"

namespace talweg::forest {
namespace {

constexpr std::int64_t kMebi = 1 << 20;

// A ring of one direction, and each other ordered pair with a link at one of `odds` draws.
cluster::Cluster directed_mesh(std::uint64_t seed, int workers, std::uint64_t odds) {
  Random random{seed};
  const double rates[] = {5e6, 20e6, 60e6, 200e6};
  cluster::Cluster cluster;
  for (int i = 0; i < workers; ++i) cluster.nodes.push_back({.name = fmt::format("w{}", i)});
  for (int from = 0; from < workers; ++from) {
    for (int to = 0; to < workers; ++to) {
      if (from == to || (to != (from + 1) % workers && random.below(odds) != 0)) continue;
      const double rate = rates[random.below(std::size(rates))];
      const auto latency = static_cast<std::int64_t>(10'000 + 1000 * random.below(391));
      cluster.links.push_back({from, to, Bandwidth{rate}, {latency}});
    }
  }
  return cluster;
}

Request floats(Collective op, const cluster::Cluster& cluster, std::int64_t bytes) {
  const int ranks = cluster.workers();
  return make_request(op, ranks, has_parts(op) ? bytes / 4 / ranks : bytes / 4, false, 1 % ranks);
}

double total_bits(const Request& request) {
  double elements = 0;
  for (const std::int64_t count : request.counts) elements += static_cast<double>(count);
  return 8 * elements * static_cast<double>(request.element_size);
}

Forest packed_for(const Request& request, const CostModel& model) {
  PackingMemo memo;
  return plan_by(find_planner("packed"), request, model, memo);
}

TEST(PackedAcknowledgements, ComeWithinTheirOptimumAsItIsPredicted) {
  constexpr Collective kServed[] = {Collective::all_reduce, Collective::broadcast, Collective::reduce,
                                    Collective::all_gather};
  int much_slower = 0;
  for (std::uint64_t seed = 0; seed < fewer(12U); ++seed) {
    const auto cluster = directed_mesh(7000 + seed, 6 + static_cast<int>(2 * seed), 2 + seed % 4);
    const Collective op = kServed[seed % 3 == 0 ? seed / 3 % std::size(kServed) : 0];
    const Request request = floats(op, cluster, 256 * kMebi);
    const CostModel model(cluster);
    const Packing packing = pack(request, model).front();
    EXPECT_GE(packing.rate, 0.99 * packing.upper) << seed;
    const double optimum = total_bits(request) / (packing.upper * model.parameters().tcp_payload);
    const double seconds = model.seconds(packed_for(request, model));
    EXPECT_GE(seconds, 0.999 * optimum) << seed;
    EXPECT_LE(seconds, optimum / 0.94) << seed << " " << name(op) << " among " << cluster.workers();
    // What trees take that are packed for payload alone.
    CostParameters payload_alone;
    payload_alone.tcp_acknowledgements = 0;
    const Forest careless = packed_for(request, CostModel(cluster, payload_alone));
    much_slower += model.seconds(careless) > 1.1 * seconds ? 1 : 0;
  }
  EXPECT_GE(much_slower, kSanitized ? 0 : 4);
}

TEST(PackedAcknowledgements, LongerVectorsGetNoWorseShareThanShorterOnes) {
  for (std::uint64_t seed = 0; seed < fewer(10U); ++seed) {
    const auto cluster = directed_mesh(7100 + seed, 5 + static_cast<int>(3 * seed), 2 + seed % 5);
    const CostModel model(cluster);
    PackingMemo memo;
    double best = 0;  // bit/s
    for (const std::int64_t bytes : {kMebi, 4 * kMebi, 16 * kMebi, 64 * kMebi, 256 * kMebi}) {
      const Request request = floats(Collective::all_reduce, cluster, bytes);
      const Forest forest = plan_by(find_planner("packed"), request, model, memo);
      const double rate = total_bits(request) / model.seconds(forest);
      EXPECT_GE(rate, 0.97 * best) << seed << " of " << bytes;
      best = std::max(best, rate);
    }
  }
}

}  // namespace
}  // namespace talweg::forest
