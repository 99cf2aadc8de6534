#include "forest/bound.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/random.h"
#include "forest/fat_tree.h"
#include "forest/random_networks.h"
#include "forest/topologies.h"
#include "sanitized.h"
#include "talweg/error.h"

namespace talweg::forest {
namespace {

using enum Collective;

Ratio gigabytes(const Ratio& bits) {
  const std::int64_t common = std::gcd(bits.numerator, std::int64_t{8000000000});
  return {bits.numerator / common, bits.denominator * (8000000000 / common)};
}

// What the prices prove, by another way than the code under test goes: all paths by Floyd and Warshall, all
// trees by trying every choice of parents. For networks of up to six workers.
double brute_force_rate(const cluster::Cluster& cluster, Collective op, NodeId root,
                        const Certificate& proof) {
  const auto n = cluster.nodes.size(), workers = static_cast<std::size_t>(cluster.workers());
  std::vector<double> price(cluster.links.size());
  double worth = 0;
  for (std::size_t i = 0; i < price.size(); ++i) {
    price[i] = static_cast<double>(proof.link_prices[i]);
    worth += price[i] * cluster.links[i].capacity.bits_per_second;
  }
  for (std::size_t g = 0; g < cluster.groups.size(); ++g) {
    worth += static_cast<double>(proof.group_prices[g]) * cluster.groups[g].capacity.bits_per_second;
    for (const int link : cluster.groups[g].links)
      price[static_cast<std::size_t>(link)] += static_cast<double>(proof.group_prices[g]);
  }
  std::vector<double> way(n * n, 1e30);
  for (std::size_t i = 0; i < price.size(); ++i)
    way[static_cast<std::size_t>(cluster.links[i].from) * n + static_cast<std::size_t>(cluster.links[i].to)] =
        price[i];
  for (std::size_t k = 0; k < n; ++k)
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < n; ++j)
        way[i * n + j] = std::min(way[i * n + j], way[i * n + k] + way[k * n + j]);
  const auto least_tree = [&](std::size_t top, bool upward) {
    std::vector<std::size_t> parent(workers);
    double least = 1e300;
    for (;;) {
      bool tree = true;
      double cost = 0;
      for (std::size_t node = 0; node < workers && tree; ++node) {
        if (node == top) continue;
        cost += upward ? way[node * n + parent[node]] : way[parent[node] * n + node];
        std::size_t here = node;
        for (std::size_t steps = 0; here != top && steps <= workers; ++steps) here = parent[here];
        tree = here == top;
      }
      if (tree) least = std::min(least, cost);
      std::size_t digit = 0;
      while (digit < workers && (digit == top || ++parent[digit] == workers)) {
        if (digit != top) parent[digit] = 0;
        ++digit;
      }
      if (digit == workers) return least;
    }
  };
  const auto cost = [&](std::size_t top) {
    double sum = 0;
    if (op == all_reduce || op == broadcast || op == all_gather) sum += least_tree(top, false);
    if (op == all_reduce || op == reduce || op == reduce_scatter) sum += least_tree(top, true);
    return sum;
  };
  if (op == broadcast || op == reduce) return worth / cost(static_cast<std::size_t>(root));
  double sum = 0, least = 1e300;
  for (std::size_t top = 0; top < workers; ++top) {
    sum += cost(top);
    least = std::min(least, cost(top));
  }
  return op == all_reduce ? worth / least : worth * static_cast<double>(workers) / sum;
}

TEST(Bound, IsThatOfTheLiteratureExactly) {
  for (const Topology& topology : topologies()) {
    const Bound gather = best_rate(topology.cluster, all_gather),
                scatter = best_rate(topology.cluster, reduce_scatter);
    const Bound reduce = best_rate(topology.cluster, all_reduce);
    EXPECT_EQ(gigabytes(gather.rate), topology.all_gather)
        << topology.id << " " << to_string(gigabytes(gather.rate));
    EXPECT_EQ(gigabytes(scatter.rate), topology.all_gather)
        << topology.id << " " << to_string(gigabytes(scatter.rate));
    EXPECT_EQ(gigabytes(reduce.rate), topology.all_reduce)
        << topology.id << " " << to_string(gigabytes(reduce.rate));
    for (const Bound& bound : {gather, scatter, reduce}) EXPECT_TRUE(bound.attained) << topology.id;
  }
}

TEST(Bound, OfSwitchesThatSumIsThatOfTheLiterature) {
  for (const Topology& topology : summing_topologies()) {
    EXPECT_EQ(gigabytes(best_rate(topology.cluster, all_gather).rate), topology.all_gather) << topology.id;
    EXPECT_EQ(gigabytes(best_rate(topology.cluster, all_reduce).rate), topology.all_reduce) << topology.id;
  }
}

TEST(Bound, IsProvedByItsPrices) {
  for (const Topology& topology : topologies()) {
    for (const Collective op : {all_reduce, reduce, broadcast, reduce_scatter, all_gather}) {
      const Bound bound = best_rate(topology.cluster, op, 1);
      const Certificate& proof = bound.certificate;
      EXPECT_EQ(rate_at_prices(topology.cluster, op, 1, proof.link_prices, proof.group_prices), bound.rate)
          << topology.id << " " << name(op);
      if (topology.cluster.workers() <= 6) {
        EXPECT_NEAR(brute_force_rate(topology.cluster, op, 1, proof) / bound.rate.value(), 1, 1e-12)
            << topology.id << " " << name(op);
      }
    }
  }
}

TEST(Bound, OfFatTreesIsThatOfTheirHosts) {
  for (const int ports : {4, 6, 10}) {
    for (const Switches switches : {Switches::each, Switches::as_one}) {
      const auto even = fat_tree(ports, Hosts::even, switches);
      const Bound bound = best_rate(even, all_reduce);
      const std::int64_t hosts = even.workers();
      EXPECT_NEAR(bound.rate.value() / (20e9 * static_cast<double>(hosts) / static_cast<double>(hosts - 1)),
                  1, 1e-12)
          << ports;
      EXPECT_TRUE(bound.attained) << ports;
      const Certificate& proof = bound.certificate;
      EXPECT_EQ(rate_at_prices(even, all_reduce, 0, proof.link_prices, proof.group_prices), bound.rate);
      EXPECT_EQ(to_words(bound, even), fmt::format("all links together, between {} workers", hosts));
    }
  }
  // Every path counts: the narrowest host alone sets the bound, where one path between leaves would.
  const auto uneven = fat_tree(10, Hosts::uneven, Switches::each);
  const Bound bound = best_rate(uneven, all_reduce);
  EXPECT_EQ(bound.rate, Ratio(10000000000, 1));
  EXPECT_TRUE(bound.attained);
}

TEST(Bound, OfAFatTreeIsThatOfItsSlowUplink) {
  auto cluster = fat_tree(10, Hosts::even, Switches::as_one);
  for (auto& link : cluster.links)
    if (link.from == cluster.workers() + 3 && link.to > link.from) link.capacity.bits_per_second = 5e9;
  const Bound bound = best_rate(cluster, all_reduce);
  EXPECT_EQ(bound.rate, Ratio(5000000000, 1));
  EXPECT_TRUE(bound.attained);
  EXPECT_EQ(to_words(bound, cluster), "the cut from {h15, h16, h17, h18, h19} to the rest");
}

TEST(Bound, IsNotProvedByPricesOfNothing) {
  const auto star = cluster::uniform_star(3, {1e9}, {1000});
  for (const Collective op : {all_reduce, reduce, broadcast, reduce_scatter, all_gather})
    EXPECT_EQ(rate_at_prices(star, op, 0, std::vector<std::int64_t>(star.links.size()), {}), Ratio(1, 0))
        << name(op);
}

TEST(Bound, OfRandomNetworksIsProvedAndReached) {
  for (std::uint64_t seed = 0; seed < fewer(60U); ++seed) {
    const auto cluster = random_network(seed, 2 + static_cast<int>(seed % 5));
    for (const Collective op : {all_reduce, reduce, broadcast, reduce_scatter, all_gather}) {
      const Bound bound = best_rate(cluster, op, 1);
      EXPECT_TRUE(bound.attained) << "seed " << seed << " " << name(op);
      EXPECT_NEAR(brute_force_rate(cluster, op, 1, bound.certificate) / bound.rate.value(), 1, 1e-9)
          << "seed " << seed << " " << name(op);
    }
  }
}

TEST(Bound, OfAnAllReduceIsNoLessThanThatOfItsHalves) {
  for (std::uint64_t seed = 0; seed < fewer(20U); ++seed) {
    const auto cluster = random_network(seed, 5);
    const double together = best_rate(cluster, all_reduce).rate.value();
    const double scatter = best_rate(cluster, reduce_scatter).rate.value();
    const double gather = best_rate(cluster, all_gather).rate.value();
    const double apart = 1 / (1 / scatter + 1 / gather);
    EXPECT_GE(together, apart * (1 - 1e-9)) << seed;
    EXPECT_LE(together, apart * 2 * 4 / 5 * (1 + 1e-9)) << seed;
  }
}

cluster::Cluster file(const std::string& text) {
  return cluster::parse_cluster(text, "test");
}

TEST(Bound, KnowsThatLinksShareACard) {
  auto star = cluster::uniform_star(4, {1e9}, {1000});
  EXPECT_EQ(best_rate(star, all_reduce).rate, Ratio(2000000000, 3));
  // host0's card sends and receives by turns.
  star.groups.push_back({"card0", {1e9}, {0, 1}});
  const Bound bound = best_rate(star, all_reduce);
  EXPECT_EQ(bound.rate, Ratio(500000000, 1));
  EXPECT_EQ(to_words(bound, star), "card0");
  EXPECT_TRUE(bound.attained);
  EXPECT_EQ(best_rate(star, broadcast, 0).rate, Ratio(1000000000, 1));
}

TEST(Bound, KnowsThatLinksDifferByDirection) {
  const auto cluster = file(R"(
nodes: [{name: a, kind: worker}, {name: b, kind: worker}]
links:
  - {from: a, to: b, capacity: 1Gbit/s}
  - {from: b, to: a, capacity: 100Mbit/s})");
  EXPECT_EQ(best_rate(cluster, broadcast, 0).rate, Ratio(1000000000, 1));
  EXPECT_EQ(best_rate(cluster, broadcast, 1).rate, Ratio(100000000, 1));
  EXPECT_EQ(best_rate(cluster, reduce, 0).rate, Ratio(100000000, 1));
  EXPECT_EQ(best_rate(cluster, all_reduce).rate, Ratio(100000000, 1));
  EXPECT_EQ(best_rate(cluster, all_gather).rate, Ratio(200000000, 1));
}

TEST(Bound, KnowsThatAPlainSwitchCannotMultiply) {
  // a alone feeds the switch, and b and c have no way to each other.
  const std::string text = R"(
nodes:
  - {name: a, kind: worker}
  - {name: b, kind: worker}
  - {name: c, kind: worker}
  - {name: sw, kind: switch%}
links:
  - {from: a, to: sw, capacity: 1Gbit/s}
  - {from: sw, to: b, capacity: 1Gbit/s}
  - {from: sw, to: c, capacity: 1Gbit/s}
  - {from: b, to: a, capacity: 1Gbit/s}
  - {from: c, to: a, capacity: 1Gbit/s})";
  const auto with = [&](const std::string& ability) {
    std::string changed = text;
    return file(changed.replace(changed.find('%'), 1, ability));
  };
  const Bound plain = best_rate(with(""), broadcast, 0);
  EXPECT_EQ(plain.rate, Ratio(500000000, 1));
  EXPECT_TRUE(plain.attained);
  EXPECT_EQ(best_rate(with(", multicast: true"), broadcast, 0).rate, Ratio(1000000000, 1));
}

TEST(Bound, NamesItsReason) {
  const auto words = [](const cluster::Cluster& cluster, Collective op, NodeId root = 0) {
    return to_words(best_rate(cluster, op, root), cluster);
  };
  auto star = cluster::uniform_star(4, {1e9}, {1000});
  EXPECT_EQ(words(star, all_reduce), "all links together, between 4 workers");
  star.links[4].capacity.bits_per_second = 2e8;
  EXPECT_EQ(words(star, reduce, 0), "host2's uplink");
  EXPECT_EQ(words(star, broadcast, 2), "host2's uplink");
  star.links[4].capacity.bits_per_second = 1e9;
  star.links[5].capacity.bits_per_second = 2e8;
  EXPECT_EQ(words(star, broadcast, 0), "host2's downlink");
  EXPECT_EQ(words(star, all_reduce), "host2's downlink");
  EXPECT_EQ(words(topologies()[7].cluster, all_reduce), "the cut from {g0, g1, g2, g3} to the rest");
  EXPECT_EQ(words(topologies()[4].cluster, all_reduce),
            "all links together, between the parts {g0, g1, g2, g3}, {g4}, {g5}");
  EXPECT_EQ(words(cluster::uniform_mesh(1, {1e9}, {0}), all_reduce), "nothing moves");
}

TEST(Bound, OfOneWorkerIsInfinite) {
  EXPECT_TRUE(std::isinf(best_rate(cluster::uniform_mesh(1, {1e9}, {0}), all_reduce).rate.value()));
}

TEST(Bound, IsKnownOfAllButMessagesAndBarriers) {
  const auto star = cluster::uniform_star(4, {1e9}, {1000});
  for (int i = 0; i < kCollectives; ++i) {
    const auto op = static_cast<Collective>(i);
    EXPECT_EQ(has_bound(op), op != send_recv && op != barrier) << name(op);
    if (has_bound(op)) continue;
    try {
      best_rate(star, op);
      ADD_FAILURE() << name(op);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unsupported);
    }
  }
}

TEST(Bound, RefusesNetworksThatDoNotHangTogether) {
  auto star = cluster::uniform_star(3, {1e9}, {1000});
  star.links.pop_back();
  try {
    best_rate(star, all_reduce);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "cluster: worker host2 cannot be reached from host0, host1, and every collective needs it: "
                 "expected a path of links");
  }
}

TEST(Bound, IsFoundInSomeSecondsOnAMeshWhoseLinksAllDiffer) {
  // To pack nearly a thousand links full takes minutes; what is proved without is a bound as well.
  auto mesh = cluster::uniform_mesh(32, {1e9}, {1000});
  Random random{7};
  double sum = 0;
  for (auto& link : mesh.links) {
    link.capacity.bits_per_second = 1e9 * static_cast<double>(1 + random.below(10));
    sum += link.capacity.bits_per_second;
  }
  const Bound bound = best_rate(mesh, all_reduce);
  const Certificate& proof = bound.certificate;
  EXPECT_EQ(rate_at_prices(mesh, all_reduce, 0, proof.link_prices, proof.group_prices), bound.rate);
  EXPECT_LE(bound.rate.value(), sum / (2 * 31) * (1 + 1e-9));
}

TEST(Bound, ToleratesCapacitiesOfEverySize) {
  for (const double capacity : {3.7, 123456789.123, 9.87654321e14}) {
    const auto star = cluster::uniform_star(5, {capacity}, {1000});
    EXPECT_NEAR(best_rate(star, all_reduce).rate.value() / (capacity * 5 / 8), 1, 2e-6) << capacity;
  }
  auto uneven = cluster::uniform_star(5, {9.87654321e14}, {1000});
  uneven.links[0].capacity.bits_per_second = 1000.3;
  EXPECT_NEAR(best_rate(uneven, all_reduce).rate.value(), 1000.3, 0.5);
}

}  // namespace
}  // namespace talweg::forest
