// Routes: how traffic between two nodes of a cluster travels, for all pairs at once.
//
// A route passes as few workers as it can (machines rarely forward), then has the least latency, then the
// fewest links; ties go to links written first. Built once per cluster, then read.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "cluster/cluster.h"

namespace talweg::cluster {

class Routes {
 public:
  explicit Routes(const Cluster& cluster);

  // Both nodes must exist. A node reaches itself by no links, with latency 0 and infinite rate.
  bool reachable(int from, int to) const { return pair(from, to).reachable; }
  // Indices into Cluster::links, in the order of travel; empty when not reachable.
  std::span<const int> path(int from, int to) const;
  Nanoseconds latency(int from, int to) const { return pair(from, to).latency; }
  // What one flow alone gets: the narrowest link, or capacity group (shared by the links of the path in it).
  Bandwidth rate(int from, int to) const { return pair(from, to).rate; }

 private:
  struct Pair {
    bool reachable = false;
    Nanoseconds latency;
    Bandwidth rate;
    std::size_t first = 0;  // into links_
    std::size_t count = 0;
  };

  const Pair& pair(int from, int to) const {
    return pairs_[static_cast<std::size_t>(from) * nodes_ + static_cast<std::size_t>(to)];
  }

  std::size_t nodes_;
  std::vector<Pair> pairs_;
  std::vector<int> links_;
};

}  // namespace talweg::cluster
