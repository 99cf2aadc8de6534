// Which nodes sum where a cluster's switches are below one.
#include "study/by_switch.h"

#include <gmock/gmock.h>

#include "cluster/cluster.h"

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

}  // namespace
}  // namespace talweg::study
