// Which nodes sum where a cluster's switches are below one.
#include "study/by_switch.h"

#include <gmock/gmock.h>

#include <utility>

#include "cluster/cluster.h"
#include "forest/cost.h"

namespace talweg::study {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Nodes 0 to 3 are workers, 4 and 5 their racks' switches, 6 the one above.
cluster::Cluster racks2x2() {
  return cluster::load_cluster(TALWEG_SOURCE_DIR "/examples/clusters/racks2x2.yaml");
}
void cut_off(cluster::Cluster& cluster, int node) {
  std::erase_if(cluster.links, [&](const cluster::Link& l) { return l.from == node || l.to == node; });
}

TEST(BySwitch, SumsAtTheSwitchAboveWhatRacksHaveSummed) {
  EXPECT_THAT(summing_nodes(racks2x2()), ElementsAre(6));
  EXPECT_THAT(summing_racks(racks2x2()), ElementsAre(4, 4, 5, 5));
}

TEST(BySwitch, SumsAtTheRacksSwitchAloneWhereAllWorkersAreInOneRack) {
  cluster::Cluster cluster = racks2x2();
  for (cluster::Link& link : cluster.links)
    for (int* end : {&link.from, &link.to})
      if (*end == 5) *end = link.from == 6 || link.to == 6 ? 5 : 4;
  EXPECT_THAT(summing_nodes(cluster), ElementsAre(4));
  EXPECT_THAT(summing_racks(cluster), IsEmpty());
}

TEST(BySwitch, SumsNowhereWhereTheSwitchAboveIsNotReached) {
  cluster::Cluster cluster = racks2x2();
  cut_off(cluster, 6);
  for (int node : {4, 5}) cluster.links.push_back({node, 9 - node, {1e9}, {0}});
  EXPECT_THAT(summing_nodes(cluster), IsEmpty());
}

// Four workers and a switch with one card around a network switch that copies, as docs/aggregation.md has it:
// each worker has another tenth of the blocks, which goes up once, and four tenths come down, to each or
// once.
TEST(BySwitch, PredictsOfSparseSumsWhatEachSendsAndWhatAnyHas) {
  cluster::Cluster star = cluster::uniform_star(4, {1e9}, {30'000});
  cluster::Node box;
  box.name = "box";
  box.kind = cluster::NodeKind::aggregator;
  star.nodes.push_back(box);
  for (const auto& [from, to] : {std::pair{4, 5}, {5, 4}}) star.links.push_back({from, to, {1e9}, {30'000}});
  star.nodes[4].can_multicast = true;
  sim::SwitchJob job;
  job.terms.slots = 256;
  job.terms.columns = 1;
  job.terms.block = 344;
  job.datagram_bytes = 344 * 4 + 100;
  const SparseShape sparse{.density = 0.1, .overlap = Overlap::none};
  const auto seconds = [&](bool once) {
    star.nodes[5].can_multicast = once;
    const forest::CostModel model(star, {.tcp = {0, 0}, .reduce_per_byte = 0});
    return predict_switch(model, 4 << 20, DataType::f32, job, sparse).seconds.value();
  };
  const double part = 0.1 * (4 << 20) * 8e-9 * 1476 / 1376;
  EXPECT_NEAR(seconds(true), 4 * part, 0.1 * part) << "of all, each way";
  EXPECT_NEAR(seconds(false), 16 * part, 0.1 * part);
}

}  // namespace
}  // namespace talweg::study
