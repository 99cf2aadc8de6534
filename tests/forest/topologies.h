// Networks that the literature plans for, with the best rates that are possible on them (M / time, in GB/s).
#pragma once

#include <string>
#include <vector>

#include "cluster/cluster.h"
#include "forest/ratio.h"

namespace talweg::forest {

struct Topology {
  std::string id;
  std::string what;
  cluster::Cluster cluster;
  Ratio all_gather;
  Ratio all_reduce;
};

std::vector<Topology> topologies();
// The first of them with switches that sum and copy where they can, all_reduce being what that allows.
std::vector<Topology> summing_topologies();

}  // namespace talweg::forest
