// How fast flows are to be sent: as the plan shares out links, and never so slowly that it takes longer.
#include "forest/paces.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/at.h"
#include "forest/planner.h"
#include "forest/random_networks.h"
#include "forest/requests.h"
#include "forest/verify.h"
#include "sanitized.h"

namespace talweg::forest {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr double kPayload = 1448.0 / 1514.0;
constexpr double kUplink = 100e6;  // bit/s
constexpr std::int64_t kPiece = 1 << 20;

// Hosts 0 and 1 on one leaf, 2 and 3 on another; the way between leads over one switch.
cluster::Cluster two_leaves() {
  cluster::Cluster result;
  for (int host = 0; host < 4; ++host) result.nodes.push_back({.name = fmt::format("h{}", host)});
  for (const char* name : {"left", "right", "spine"})
    result.nodes.push_back({.name = name, .kind = cluster::NodeKind::switch_});
  const auto join = [&](int a, int b, double rate) {
    result.links.push_back({a, b, {rate}, {10000}});
    result.links.push_back({b, a, {rate}, {10000}});
  };
  for (int host = 0; host < 4; ++host) join(host, 4 + host / 2, 1e9);
  join(4, 6, kUplink);
  join(5, 6, kUplink);
  return result;
}

// A tree of one edge, from one rank to another.
Tree message(NodeId from, NodeId to, std::int64_t offset, std::int64_t count, std::int64_t chunk) {
  return {.slice = {offset, count},
          .root = from,
          .contributors = {from},
          .receivers = {to},
          .up = {},
          .down = {{to, from}},
          .chunk = chunk};
}

// Over the left uplink a quarter from host 0, three quarters from host 1.
Forest one_to_three() {
  return {.planner = "by hand",
          .request = make_request(Collective::broadcast, 4, 4 * kPiece),
          .nodes = 4,
          .trees = {message(0, 2, 0, kPiece, 1024), message(1, 3, kPiece, 3 * kPiece, 1024)}};
}

std::map<std::pair<NodeId, NodeId>, double> by_pair(const std::vector<Pace>& paces) {
  std::map<std::pair<NodeId, NodeId>, double> result;
  for (const auto& [from, to, rate] : paces) result[{from, to}] = rate;
  return result;
}

TEST(Paces, AreTheSharesThatTreesHaveOfALinkOnWhichTheyMeet) {
  const std::vector<Pace> paces = paces_of(one_to_three(), CostModel(two_leaves()));
  ASSERT_EQ(paces.size(), 2U);
  EXPECT_EQ(std::pair(paces[0].from, paces[0].to), std::pair(0, 2));
  EXPECT_EQ(std::pair(paces[1].from, paces[1].to), std::pair(1, 3));
  const double capacity = kUplink / 8 * kPayload;
  EXPECT_NEAR(paces[0].bytes_per_second, kPaceHeadRoom * capacity / 4, 1);
  EXPECT_NEAR(paces[1].bytes_per_second, kPaceHeadRoom * capacity * 3 / 4, 1);
}

TEST(Paces, AreHigherWhereFewChunksGoOverManyHops) {
  Forest forest = one_to_three();
  forest.trees[0].chunk = kPiece / 2;
  forest.trees[0].down = {{2, 0}, {3, 2}};  // the second hop meets nobody on the uplink
  const std::vector<Pace> paces = paces_of(forest, CostModel(two_leaves()));
  const double capacity = kUplink / 8 * kPayload;
  // Two chunks over two hops take three chunk times.
  EXPECT_NEAR(by_pair(paces).at({0, 2}), kPaceHeadRoom * capacity / 4 * 3 / 2, 1);
}

TEST(Paces, AreNotForFlowsThatMeetNobody) {
  const auto star = cluster::uniform_star(4, {1e9}, {30000});
  const Request request = make_request(Collective::all_reduce, 4, 4 * kPiece);
  const std::vector<Pace> paces = paces_of(find_planner("ring").plan(request, star), CostModel(star));
  EXPECT_EQ(paces.size(), 4U);
  for (const Pace& pace : paces) EXPECT_EQ(pace.bytes_per_second, 0) << pace.from << " to " << pace.to;
}

TEST(Paces, AreNotForWhatPassesInABurst) {
  auto cluster = two_leaves();
  for (cluster::Link& link : cluster.links) link.burst = Bytes{std::int64_t{1} << 40};
  for (const Pace& pace : paces_of(one_to_three(), CostModel(cluster))) EXPECT_EQ(pace.bytes_per_second, 0);
}

TEST(Paces, AreNotForShortVectorsNorForBlocksThatGoOneAfterTheOther) {
  const auto star = cluster::uniform_star(4, {1e9}, {30000});
  const CostModel model(star);
  const auto paces = [&](const char* planner, Collective op, std::int64_t bytes) {
    return paces_of(find_planner(planner).plan(even_request(op, 4, 0, bytes / 4, 4), star), model);
  };
  EXPECT_THAT(paces("sharded_star", Collective::all_reduce, kLeastPacedBytes), ::testing::Not(IsEmpty()));
  EXPECT_THAT(paces("sharded_star", Collective::all_reduce, kLeastPacedBytes - 4), IsEmpty());
  EXPECT_THAT(paces("recursive_doubling", Collective::all_reduce, kLeastPacedBytes), IsEmpty());
  EXPECT_THAT(paces("binomial", Collective::barrier, 0), IsEmpty());
  for (const Collective op : {Collective::all_to_all, Collective::gather, Collective::scatter})
    EXPECT_THAT(paces("direct", op, 64 * kLeastPacedBytes), IsEmpty()) << name(op);
}

TEST(Paces, OfOneNodeAreThoseThatItSendsAt) {
  const std::vector<Pace> paces{{0, 1, 1.0}, {0, 2, 2.0}, {2, 0, 3.0}};
  const auto from = [&](NodeId node) {
    const auto found = paces_from(paces, node);
    return std::vector<Pace>(found.begin(), found.end());
  };
  EXPECT_THAT(from(0), ElementsAre(paces[0], paces[1]));
  EXPECT_THAT(from(1), IsEmpty());
  EXPECT_THAT(from(2), ElementsAre(paces[2]));
}

// How much faster than its share a tree must be, and its bytes.
struct Haste {
  double factor = 0;
  double bytes = 0;
};

int longest_way(const std::vector<Edge>& edges, NodeId root) {
  int most = 0;
  for (const Edge& last : edges) {
    int hops = 0;
    for (NodeId node = last.child; node != root; ++hops)
      node = std::ranges::find(edges, node, &Edge::child)->parent;
    most = std::max(most, hops);
  }
  return most;
}

Haste haste_of(const Forest& forest, const Tree& tree) {
  const auto chunks = static_cast<double>(chunk_count(tree));
  const int hops = longest_way(tree.up, tree.root) + longest_way(tree.down, tree.root);
  return {(chunks + hops - 1) / chunks, static_cast<double>(tree.slice.count * forest.request.element_size)};
}

// What the paced flows come to on each link, and then in each group.
std::vector<double> paced_loads(const cluster::Cluster& cluster, const std::vector<Pace>& paces) {
  const cluster::Routes routes(cluster);
  std::vector<double> loads(cluster.links.size() + cluster.groups.size());
  for (const auto& [from, to, rate] : paces) {
    const double paced = rate;
    routes.for_each_share(from, to, [&](int link, double part) {
      loads[at(link)] += part * paced;
      for (std::size_t g = 0; g < cluster.groups.size(); ++g)
        if (std::ranges::count(cluster.groups[g].links, link) > 0)
          loads[cluster.links.size() + g] += part * paced;
    });
  }
  return loads;
}

// The time of the busiest link or group, as the verifier counts loads.
double seconds_of_the_busiest(const Forest& forest, const cluster::Cluster& cluster) {
  const Verification load = verify(forest, &cluster);
  double most = 0;
  const auto work = [&](Bytes bytes, Bandwidth capacity) {
    most = std::max(most, static_cast<double>(bytes.value) / (kPayload * capacity.bytes_per_second()));
  };
  for (std::size_t i = 0; i < cluster.links.size(); ++i) work(load.link_bytes[i], cluster.links[i].capacity);
  for (std::size_t i = 0; i < cluster.groups.size(); ++i)
    work(load.group_bytes[i], cluster.groups[i].capacity);
  return most;
}

// Of every planner: flows on a link come to no more than it carries, times the head-room; no tree is kept
// from being done in the time of the busiest link; and no flow is paced that could not be faster alone.
TEST(Paces, NeitherOverloadLinksNorMakePlansSlower) {
  int paced = 0;
  for (std::uint64_t seed = 0; seed < fewer(40U); ++seed) {
    const auto cluster = random_network(seed, 3 + static_cast<int>(seed % 6));
    const CostModel model(cluster);
    for (const Planner& planner : planners()) {
      for (const Collective op : all_operations()) {
        const Request request = even_request(op, cluster.workers(), 0, kPiece, 4);
        if (!planner.serves(request)) continue;
        const Forest forest = planner.plan(request, cluster);
        const std::vector<Pace> paces = paces_of(forest, model);
        if (paces.empty()) continue;
        double most = 0;  // of (m + H - 1) / m
        std::map<std::pair<NodeId, NodeId>, double> wanted;
        for (const Tree& tree : forest.trees) {
          const Haste haste = haste_of(forest, tree);
          most = std::max(most, haste.factor);
          for (const Edge& edge : tree.up) wanted[{edge.child, edge.parent}] += haste.factor * haste.bytes;
          for (const Edge& edge : tree.down) wanted[{edge.parent, edge.child}] += haste.factor * haste.bytes;
        }
        const std::vector<double> loads = paced_loads(cluster, paces);
        for (std::size_t i = 0; i < loads.size(); ++i) {
          const Bandwidth capacity = i < cluster.links.size()
                                         ? cluster.links[i].capacity
                                         : cluster.groups[i - cluster.links.size()].capacity;
          EXPECT_LE(loads[i], kPaceHeadRoom * most * kPayload * capacity.bytes_per_second() * (1 + 1e-9))
              << planner.name << " " << name(op) << " seed " << seed;
        }
        const double seconds = seconds_of_the_busiest(forest, cluster);
        for (const auto& [from, to, rate] : paces) {
          if (rate == 0) continue;
          ++paced;
          EXPECT_GE(rate * seconds, kPaceHeadRoom * wanted.at({from, to}) * (1 - 1e-9))
              << planner.name << " " << name(op) << " seed " << seed;
          EXPECT_LT(rate, kPayload * model.routes().rate(from, to).bytes_per_second());
        }
      }
    }
  }
  EXPECT_GT(paced, 100);
}

TEST(Paces, ACallEndsNotBeforeWhatItNeedsHasPassedItsLinks) {
  auto star = cluster::uniform_star(4, {1e9}, {30000});
  for (cluster::Link& link : star.links)  // to host 3
    if (link.to == 3) link.capacity.bits_per_second = 1e8;
  const CostModel model(star);
  const double second = 1e9 / 8 * kPayload;  // bytes that a wide link carries
  const double bytes = 4.0 * kPiece;
  Forest forest{.planner = "by hand",
                .request = make_request(Collective::broadcast, 4, kPiece),
                .nodes = 4,
                .trees = {{.slice = {0, kPiece},
                           .root = 0,
                           .contributors = {0},
                           .receivers = {1, 2, 3},
                           .up = {},
                           .down = {{1, 0}, {2, 1}, {3, 1}},
                           .chunk = 1024}}};
  EXPECT_EQ(seconds_needed(forest, model, 0), 0) << "it only sends";
  EXPECT_NEAR(seconds_needed(forest, model, 1), bytes / second, 1e-9);
  EXPECT_NEAR(seconds_needed(forest, model, 2), bytes / second, 1e-9) << "what host 3 gets is none of its";
  EXPECT_NEAR(seconds_needed(forest, model, 3), 10 * bytes / second, 1e-9);
  // The same tree the other way: sums are waited for where they are passed on, and at the root.
  forest.request.op = Collective::reduce;
  std::swap(forest.trees[0].up, forest.trees[0].down);
  forest.trees[0].contributors = {0, 1, 2, 3};
  forest.trees[0].receivers = {0};
  EXPECT_EQ(seconds_needed(forest, model, 2), 0);
  EXPECT_NEAR(seconds_needed(forest, model, 1), 2 * bytes / second, 1e-9) << "from hosts 2 and 3";
  EXPECT_NEAR(seconds_needed(forest, model, 0), 2 * bytes / second, 1e-9);
  for (cluster::Link& link : star.links) link.burst = Bytes{std::int64_t{1} << 40};
  EXPECT_EQ(seconds_needed(forest, CostModel(star), 0), 0) << "bursts pass at once";
}

}  // namespace
}  // namespace talweg::forest
