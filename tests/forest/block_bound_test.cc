// Bounds of all_to_all, gather and scatter, held to an exact linear program of another form than the code
// under test solves: how much of each source's blocks every link carries.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "forest/bound.h"
#include "forest/cost.h"
#include "forest/fat_tree.h"
#include "forest/planner.h"
#include "forest/random_networks.h"
#include "forest/requests.h"
#include "forest/topologies.h"
#include "forest/verify.h"
#include "sanitized.h"

namespace talweg::forest {
namespace {

constexpr Collective kBlockOperations[] = {Collective::all_to_all, Collective::gather, Collective::scatter};

bool exchange(Collective op, NodeId root, int from, int to) {
  if (from == to) return false;
  return op == Collective::all_to_all || (op == Collective::gather ? to : from) == root;
}

// The most of the last of the variables x >= 0, where rows times x are at most `limits` (>= 0). The simplex
// method on a full table. Limits are raised by amounts that do not matter, so that it does not go in circles.
double most_of_last(std::vector<std::vector<double>> rows, std::vector<double> limits) {
  const std::size_t variables = rows.front().size();
  for (std::size_t row = 0; row < limits.size(); ++row)
    limits[row] += 1e-10 * std::sqrt(static_cast<double>(row + 2));
  std::vector<double> gains(variables);
  gains.back() = 1;
  double value = 0;
  for (;;) {
    const auto best = std::ranges::max_element(gains);
    if (*best < 1e-9) return value;
    const auto column = static_cast<std::size_t>(best - gains.begin());
    std::size_t leaving = rows.size();
    for (std::size_t row = 0; row < rows.size(); ++row)
      if (rows[row][column] > 1e-9 && (leaving == rows.size() || limits[row] / rows[row][column] <
                                                                     limits[leaving] / rows[leaving][column]))
        leaving = row;
    if (leaving == rows.size()) return std::numeric_limits<double>::infinity();
    std::vector<double>& pivot = rows[leaving];
    const double by = pivot[column];
    pivot[column] = 1;
    for (double& entry : pivot) entry /= by;
    limits[leaving] /= by;
    const auto eliminate = [&](std::vector<double>& entries, double& level, double sign) {
      const double times = entries[column];
      if (times == 0) return;
      entries[column] = 0;
      for (std::size_t i = 0; i < variables; ++i) entries[i] -= times * pivot[i];
      level -= sign * times * limits[leaving];
    };
    for (std::size_t row = 0; row < rows.size(); ++row)
      if (row != leaving) eliminate(rows[row], limits[row], 1);
    eliminate(gains, value, -1);
  }
}

// The rate of the vector, in bit/s, when each pair's block is as quick as every other's.
double rate_by_linear_program(const cluster::Cluster& cluster, Collective op, NodeId root) {
  const std::size_t workers = static_cast<std::size_t>(cluster.workers()), links = cluster.links.size();
  double unit = 0;
  for (const cluster::Link& link : cluster.links) unit = std::max(unit, link.capacity.bits_per_second);
  const std::size_t last = workers * links;  // the rate; before it, of each source what each link carries
  std::vector<std::vector<double>> rows;
  std::vector<double> limits;
  const auto add_row = [&](double limit) -> std::vector<double>& {
    limits.push_back(limit);
    return rows.emplace_back(last + 1);
  };
  // What enters a node, less what leaves it, is at least what it is to get.
  for (std::size_t source = 0; source < workers; ++source) {
    for (std::size_t node = 0; node < cluster.nodes.size(); ++node) {
      if (node == source) continue;
      auto& row = add_row(0);
      for (std::size_t link = 0; link < links; ++link) {
        if (static_cast<std::size_t>(cluster.links[link].from) == node) row[source * links + link] = 1;
        if (static_cast<std::size_t>(cluster.links[link].to) == node) row[source * links + link] = -1;
      }
      if (node < workers && exchange(op, root, static_cast<int>(source), static_cast<int>(node)))
        row[last] = 1;
    }
  }
  const auto hold = [&](const std::vector<int>& together, double capacity) {
    auto& row = add_row(capacity / unit);
    for (std::size_t source = 0; source < workers; ++source)
      for (const int link : together) row[source * links + static_cast<std::size_t>(link)] = 1;
  };
  for (std::size_t link = 0; link < links; ++link)
    hold({static_cast<int>(link)}, cluster.links[link].capacity.bits_per_second);
  for (const cluster::CapacityGroup& group : cluster.groups)
    hold(group.links, group.capacity.bits_per_second);
  return most_of_last(std::move(rows), std::move(limits)) * unit * static_cast<double>(workers);
}

// What the prices prove: paths by Floyd and Warshall.
double rate_proved(const cluster::Cluster& cluster, Collective op, NodeId root, const Certificate& proof) {
  const std::size_t n = cluster.nodes.size();
  std::vector<double> price(proof.link_prices.begin(), proof.link_prices.end());
  double worth = 0;
  for (std::size_t i = 0; i < price.size(); ++i)
    worth += price[i] * cluster.links[i].capacity.bits_per_second;
  for (std::size_t g = 0; g < cluster.groups.size(); ++g) {
    const auto its = static_cast<double>(proof.group_prices[g]);
    worth += its * cluster.groups[g].capacity.bits_per_second;
    for (const int link : cluster.groups[g].links) price[static_cast<std::size_t>(link)] += its;
  }
  std::vector<double> way(n * n, 1e30);
  for (std::size_t i = 0; i < price.size(); ++i)
    way[static_cast<std::size_t>(cluster.links[i].from) * n + static_cast<std::size_t>(cluster.links[i].to)] =
        price[i];
  for (std::size_t k = 0; k < n; ++k)
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < n; ++j)
        way[i * n + j] = std::min(way[i * n + j], way[i * n + k] + way[k * n + j]);
  double sum = 0;
  for (int from = 0; from < cluster.workers(); ++from)
    for (int to = 0; to < cluster.workers(); ++to)
      if (exchange(op, root, from, to))
        sum += way[static_cast<std::size_t>(from) * n + static_cast<std::size_t>(to)];
  return worth * cluster.workers() / sum;
}

cluster::Cluster some_network(std::uint64_t seed) {
  const auto plain = random_network(seed, 2 + static_cast<int>(seed % 4));
  return seed % 3 == 0 ? with_aggregators(plain, seed) : plain;
}

TEST(BlockBound, IsThatOfALinearProgramAndProvedByItsPrices) {
  for (std::uint64_t seed = 0; seed < fewer(40U); ++seed) {
    const auto cluster = some_network(seed);
    for (const Collective op : kBlockOperations) {
      const Bound bound = best_rate(cluster, op, 1);
      const Certificate& proof = bound.certificate;
      SCOPED_TRACE(fmt::format("seed {} {}", seed, name(op)));
      EXPECT_NEAR(bound.rate.value() / rate_by_linear_program(cluster, op, 1), 1, 1e-5);
      EXPECT_TRUE(bound.attained);
      EXPECT_NEAR(rate_proved(cluster, op, 1, proof) / bound.rate.value(), 1, 1e-9);
      EXPECT_EQ(rate_at_prices(cluster, op, 1, proof.link_prices, proof.group_prices), bound.rate);
    }
  }
}

// Bytes of the vector, or of a row, over the time that the busiest link or group takes for what a forest
// sends over it.
double rate_of_loads(const Forest& forest, const cluster::Cluster& cluster) {
  const Verification load = verify(forest, &cluster);
  double seconds = 0;
  for (std::size_t i = 0; i < cluster.links.size(); ++i)
    seconds = std::max(seconds, static_cast<double>(load.link_bytes[i].value) /
                                    cluster.links[i].capacity.bytes_per_second());
  for (std::size_t g = 0; g < cluster.groups.size(); ++g)
    seconds = std::max(seconds, static_cast<double>(load.group_bytes[g].value) /
                                    cluster.groups[g].capacity.bytes_per_second());
  const auto blocks = static_cast<double>(forest.request.ranks);
  return blocks * static_cast<double>(forest.request.counts[0] * forest.request.element_size) * 8 / seconds;
}

void expect_no_plan_beats_it(const cluster::Cluster& cluster, Collective op, NodeId root) {
  const double bound = best_rate(cluster, op, root).rate.value();
  const Request request = make_request(op, cluster.workers(), 1 << 20, false, root);
  const double bits = 8.0 * cluster.workers() * static_cast<double>(request.counts[0] * 4);
  for (const Planner& planner : planners()) {
    if (!planner.serves(request)) continue;
    const Forest forest = planner.plan(request, cluster);
    EXPECT_LE(rate_of_loads(forest, cluster), bound * (1 + 1e-6)) << describe(planner.name, request);
    EXPECT_LE(bits / predict_seconds(forest, cluster), bound) << describe(planner.name, request);
  }
}

TEST(BlockBound, IsNotBeatenByAnyPlan) {
  for (std::uint64_t seed = 0; seed < fewer(60U); ++seed) {
    SCOPED_TRACE(seed);
    const auto cluster = random_network(seed, 2 + static_cast<int>(seed % 9));
    for (const Collective op : kBlockOperations) expect_no_plan_beats_it(cluster, op, 1);
  }
  for (const Topology& topology : topologies()) {
    SCOPED_TRACE(topology.id);
    for (const Collective op : kBlockOperations) expect_no_plan_beats_it(topology.cluster, op, 0);
  }
}

TEST(BlockBound, OfAStarIsThatOfItsNarrowestWorker) {
  auto star = cluster::uniform_star(4, {1e9}, {1000});
  const Bound even = best_rate(star, Collective::all_to_all);
  EXPECT_EQ(even.rate, Ratio(4000000000, 3)) << "three of a row's four blocks leave";
  EXPECT_TRUE(even.attained);
  EXPECT_EQ(to_words(even, star), "host0's uplink");
  star.links[5].capacity.bits_per_second = 3e8;
  const Bound slow = best_rate(star, Collective::all_to_all);
  EXPECT_EQ(slow.rate, Ratio(400000000, 1));
  EXPECT_EQ(to_words(slow, star), "host2's downlink");
}

TEST(BlockBound, OfGatherAndScatterIsThatOfTheRootOrOfWhoeverIsSlower) {
  auto star = cluster::uniform_star(4, {1e9}, {1000});
  EXPECT_EQ(best_rate(star, Collective::gather, 3).rate, Ratio(4000000000, 3));
  EXPECT_EQ(to_words(best_rate(star, Collective::gather, 3), star), "host3's downlink");
  EXPECT_EQ(best_rate(star, Collective::scatter, 3).rate, Ratio(4000000000, 3));
  EXPECT_EQ(to_words(best_rate(star, Collective::scatter, 3), star), "host3's uplink");
  star.links[2].capacity.bits_per_second = 1e8;  // host1 sends slowly
  EXPECT_EQ(best_rate(star, Collective::gather, 3).rate, Ratio(400000000, 1));
  EXPECT_EQ(to_words(best_rate(star, Collective::gather, 3), star), "host1's uplink");
  EXPECT_EQ(best_rate(star, Collective::scatter, 3).rate, Ratio(4000000000, 3)) << "it only receives";
  EXPECT_EQ(best_rate(star, Collective::scatter, 1).rate, Ratio(400000000, 3));
}

// Two leaves with four hosts of 10 Gbit/s each, and spines whose links have these rates.
cluster::Cluster two_racks(const std::vector<double>& spines) {
  cluster::Cluster cluster;
  for (int i = 0; i < 8; ++i) cluster.nodes.push_back({.name = fmt::format("h{}", i)});
  for (std::size_t i = 0; i < 2 + spines.size(); ++i)
    cluster.nodes.push_back({.name = fmt::format("s{}", i), .kind = cluster::NodeKind::switch_});
  const auto join = [&](int a, int b, double rate) {
    cluster.links.push_back({a, b, {rate}, {1000}});
    cluster.links.push_back({b, a, {rate}, {1000}});
  };
  for (int host = 0; host < 8; ++host) join(host, 8 + host / 4, 1e10);
  for (std::size_t spine = 0; spine < spines.size(); ++spine)
    for (int leaf = 8; leaf < 10; ++leaf) join(leaf, 10 + static_cast<int>(spine), spines[spine]);
  return cluster;
}

TEST(BlockBound, CountsAllEqualPathsOfACut) {
  // 16 of a row's eighth parts cross each way.
  for (const auto& spines : {std::vector<double>{1e10}, {5e9, 5e9}, {2.5e9, 2.5e9, 2.5e9, 2.5e9}}) {
    const auto racks = two_racks(spines);
    const Bound bound = best_rate(racks, Collective::all_to_all);
    EXPECT_EQ(bound.rate, Ratio(5000000000, 1)) << spines.size();
    EXPECT_TRUE(bound.attained) << spines.size();
    EXPECT_EQ(to_words(bound, racks), "the cut from {h0, h1, h2, h3} to the rest") << spines.size();
    const Request request = make_request(Collective::all_to_all, 8, 1 << 20);
    EXPECT_NEAR(rate_of_loads(find_planner("direct").plan(request, racks), racks), 5e9, 1e4);
  }
  // Also paths that routes do not take: unequal ones count with what they have.
  EXPECT_EQ(best_rate(two_racks({8e9, 2e9}), Collective::all_to_all).rate, Ratio(5000000000, 1));
}

TEST(BlockBound, KnowsThatLinksShareACard) {
  auto star = cluster::uniform_star(4, {1e9}, {1000});
  star.groups.push_back({"card0", {1e9}, {0, 1}});  // sends and receives by turns
  const Bound both = best_rate(star, Collective::all_to_all);
  EXPECT_EQ(both.rate, Ratio(2000000000, 3));
  EXPECT_EQ(to_words(both, star), "card0");
  EXPECT_TRUE(both.attained);
  // What two hosts on one machine send leaves through one card.
  star.groups = {{"card", {1e9}, {0, 2}}};
  const Bound shared = best_rate(star, Collective::all_to_all);
  EXPECT_EQ(shared.rate, Ratio(2000000000, 3));
  EXPECT_EQ(to_words(shared, star), "card");
  EXPECT_EQ(best_rate(star, Collective::gather, 0).rate, Ratio(4000000000, 3)) << "it carries one block";
  star.groups[0].capacity = {1e8};
  EXPECT_EQ(best_rate(star, Collective::gather, 0).rate, Ratio(400000000, 1));
  EXPECT_EQ(best_rate(star, Collective::scatter, 1).rate, Ratio(400000000, 3));
}

TEST(BlockBound, CountsHowFarBlocksTravelWhereNoCutShowsIt) {
  cluster::Cluster cluster;  // each of three workers is joined to each of three others
  for (int i = 0; i < 6; ++i) cluster.nodes.push_back({.name = fmt::format("h{}", i)});
  for (int left = 0; left < 3; ++left) {
    for (int right = 3; right < 6; ++right) {
      cluster.links.push_back({left, right, {1e9}, {1000}});
      cluster.links.push_back({right, left, {1e9}, {1000}});
    }
  }
  // Of its blocks three travel over one link and two over two: 6 x 7 over 18 links. The narrowest cut, round
  // two neighbours, lets 3 Gbit/s pass.
  const Bound bound = best_rate(cluster, Collective::all_to_all);
  EXPECT_EQ(bound.rate, Ratio(18000000000, 7));
  EXPECT_TRUE(bound.attained);
  EXPECT_EQ(to_words(bound, cluster), "all links together, between 6 workers");
}

TEST(BlockBound, OfLargeFabricsIsFoundWithoutAProgram) {
  const auto even = fat_tree(10, Hosts::even, Switches::each);
  const std::int64_t hosts = even.workers();
  for (const Collective op : kBlockOperations) {
    const Bound bound = best_rate(even, op);
    EXPECT_EQ(bound.rate, Ratio(40000000000 * hosts, hosts - 1)) << name(op);
    EXPECT_TRUE(bound.attained) << name(op);
  }
  auto slow = fat_tree(10, Hosts::even, Switches::as_one);
  for (cluster::Link& link : slow.links)
    if (link.from == slow.workers() + 3 && link.to > link.from) link.capacity.bits_per_second = 5e9;
  const Bound bound = best_rate(slow, Collective::all_to_all);
  EXPECT_EQ(bound.rate, Ratio(5000000000 * hosts, 5 * (hosts - 5)));
  EXPECT_EQ(to_words(bound, slow), "the cut from {h15, h16, h17, h18, h19} to the rest");
}

TEST(BlockBound, OfOneWorkerIsInfinite) {
  const auto alone = cluster::uniform_mesh(1, {1e9}, {0});
  for (const Collective op : kBlockOperations)
    EXPECT_TRUE(std::isinf(best_rate(alone, op).rate.value())) << name(op);
}

}  // namespace
}  // namespace talweg::forest
