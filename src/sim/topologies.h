// Networks to simulate, made from a few numbers. All are valid clusters: hosts first, as workers, then
// switches. Throws Error{invalid_argument} for numbers that do not fit together.
#pragma once

#include <vector>

#include "cluster/cluster.h"

namespace talweg::sim {

struct LinkShape {
  Bandwidth capacity{10e9};
  Nanoseconds latency{1000};
};

cluster::Cluster star(int hosts, LinkShape link);
cluster::Cluster leaf_spine(int leaves, int hosts_per_leaf, int spines, LinkShape host_link,
                            LinkShape up_link);
// The smallest full fat tree of `tiers` (2 or 3) for the number of hosts, all links alike: of switches with k
// ports, 2 tiers have k^2 / 2 hosts and 3 tiers k^3 / 4 (Al-Fares et al. 2008). `oversubscription` to one at
// the first tier of switches.
cluster::Cluster fat_tree(int hosts, int tiers, int oversubscription, LinkShape link);
// One host at each router; routers in a grid of any number of dimensions, each closed to a ring.
cluster::Cluster torus(const std::vector<int>& dimensions, LinkShape host_link, LinkShape router_link);
// Groups of `routers` routers, all joined to each other, each with `hosts` hosts and `global` links to other
// groups; routers * global + 1 groups, each pair joined by one link (Kim et al. 2008).
cluster::Cluster dragonfly(int routers, int hosts, int global, LinkShape local_link, LinkShape global_link);

}  // namespace talweg::sim
