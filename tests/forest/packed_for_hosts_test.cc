// Packed trees where hosts of several rates share a fabric: not more than one host's link and processor can
// bear meets there.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "base/at.h"
#include "base/random.h"
#include "base/units.h"
#include "forest/bound.h"
#include "forest/packed.h"
#include "forest/planner.h"
#include "forest/requests.h"
#include "sanitized.h"

namespace talweg::forest {
namespace {

// Hosts of 1 to 25 Gbit/s on leaves of 5 to 100, one spine.
cluster::Cluster drawn_fabric(std::uint64_t seed) {
  Random random{seed};
  const auto one_of = [&](const auto& of) { return of[random.below(std::size(of))]; };
  constexpr double kHosts[] = {1e9, 2.5e9, 10e9, 25e9}, kUplinks[] = {5e9, 10e9, 40e9, 100e9};
  constexpr std::int64_t kWays[] = {5'000, 10'000, 50'000, 200'000};
  const int workers = 8 + static_cast<int>(random.below(40));
  const int leaves = std::max(1, workers / (2 + static_cast<int>(random.below(5))));
  cluster::Cluster network;
  for (int host = 0; host < workers; ++host) network.nodes.push_back({.name = "h" + std::to_string(host)});
  for (int leaf = 0; leaf <= leaves; ++leaf)
    network.nodes.push_back({.name = "s" + std::to_string(leaf), .kind = cluster::NodeKind::switch_});
  const auto join = [&](int a, int b, double rate, std::int64_t way) {
    for (const auto& [from, to] : {std::pair{a, b}, std::pair{b, a}})
      network.links.push_back({.from = from, .to = to, .capacity = {rate}, .latency = {way}});
  };
  for (int host = 0; host < workers; ++host) {
    const double rate = one_of(kHosts);
    join(host, workers + host % leaves, rate, one_of(kWays));
  }
  for (int leaf = 0; leaf < leaves; ++leaf) {
    const double rate = one_of(kUplinks);
    join(workers + leaf, workers + leaves, rate, 10'000);
  }
  validate(network);
  return network;
}

// A quarter of them and more reach less by packings for links alone.
TEST(PackedForHosts, NearTheBoundOnDrawnFabrics) {
  constexpr std::int64_t kBytes = 64 << 20;
  int held_up = 0;
  for (std::uint64_t seed = 300; seed < 300 + fewer(24U); ++seed) {
    const cluster::Cluster network = drawn_fabric(seed);
    const CostModel model(network);
    const Request request = make_request(Collective::all_reduce, network.workers(), kBytes / 4);
    const double bound = 8.0 * kBytes / best_rate(network, Collective::all_reduce).rate.value();
    PackingMemo memo;
    const double taken = model.seconds(plan_by(find_planner("packed"), request, model, memo));
    EXPECT_GE(bound / taken, 0.83) << seed << ", " << network.workers() << " hosts";
    CostParameters free;
    free.incast_loss = free.reduce_per_byte = free.tcp.per_byte = free.tcp.per_batch = 0;
    PackingMemo for_links;
    const Forest other = plan_by(find_planner("packed"), request, CostModel(network, free), for_links);
    if (bound / model.seconds(other) < 0.83) ++held_up;
  }
  EXPECT_GE(held_up, fewer(24) / 4);
}

// A memo that is full forgets, also between the packings of one plan.
TEST(PackedForHosts, OfManyRootsAreWhatTheyAreOfOne) {
  cluster::Cluster network = drawn_fabric(317);
  ASSERT_GT(network.workers(), 40);
  const CostModel model(network);
  const auto plan = [&](Collective op, NodeId root, PackingMemo& memo) {
    return plan_by(find_planner("packed"), make_request(op, network.workers(), 1 << 22, false, root), model,
                   memo);
  };
  PackingMemo memo;
  plan(Collective::all_reduce, 0, memo);
  for (NodeId root = 0; root < (kSanitized ? 40 : network.workers()); ++root) {
    PackingMemo fresh;
    EXPECT_EQ(plan(Collective::reduce, root, memo), plan(Collective::reduce, root, fresh)) << root;
  }
}

}  // namespace
}  // namespace talweg::forest
