// Networks written as one word, for command lines: a kind and its numbers. What is left out is as shown.
//
//   star:hosts=16,rate=10G,latency=1us
//   leaf-spine:leaves=4,hosts=4,spines=4,rate=10G,up=10G,latency=1us      hosts of each leaf; up: to spines
//   fat-tree:hosts=16,tiers=3,oversubscription=1,rate=10G,latency=1us
//   torus:dims=4x4,rate=10G,up=10G,latency=1us                            up: between routers
//   dragonfly:routers=4,hosts=2,global=1,rate=10G,up=10G,latency=1us      up: between groups
#pragma once

#include <string>

#include "cluster/cluster.h"

namespace talweg::sim {

// Throws Error{invalid_argument} that says what was expected.
cluster::Cluster parse_topology(const std::string& text);

}  // namespace talweg::sim
