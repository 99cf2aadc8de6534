// The parts of bounds that are computed in integers; bound.cc puts them together.
#pragma once

#include <cstdint>
#include <vector>

#include "forest/bound.h"

namespace talweg::forest {

__extension__ using Wide = __int128;

// Capacities as multiples of a common unit: exact where they are whole bit/s (or some binary digits more),
// and small enough that what is computed from them stays within 64 bits; else rounded up.
struct ExactCapacities {
  explicit ExactCapacities(const cluster::Cluster& cluster);
  // over / under of the unit, in bit/s; infinite where nothing is paid for (under is 0).
  Ratio rate(Wide over, Wide under) const;

  std::vector<std::int64_t> links, groups;
  double unit = 1;  // bit/s
};

// over / under, both above 0; the next greater number in 64 bits where it does not fit.
Ratio reduced(Wide over, Wide under);

// The cut that bounds the operation most, as the nodes on the side that what crosses it comes from. For
// all_gather, reduce_scatter, gather and scatter it is the one with the least capacity over the number of
// workers whose parts must cross. Not for all_to_all.
std::vector<bool> narrowest_cut(const cluster::Cluster& cluster, const ExactCapacities& capacities,
                                Collective op, NodeId root);

// A cut that is likely to bound all_to_all most, by its capacity over the number of pairs whose blocks must
// cross: of each worker alone, and of sets of nodes that hang together by links less busy than those that
// leave them (`busy`: of each link, its load over its capacity; the busier way counts). Links of a group
// carry no more than the group.
std::vector<bool> narrowest_set(const cluster::Cluster& cluster, const ExactCapacities& capacities,
                                const std::vector<double>& busy);

// On links between workers that are alike both ways and in no group: the partition with the least capacity,
// over the number of parts less one. As many spanning trees as that fit into the links. The part of each
// node.
std::vector<int> weakest_partition(const cluster::Cluster& cluster, const ExactCapacities& capacities);

}  // namespace talweg::forest
