// Networks that surveys are tried on, and how far what is found is from them.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/random.h"
#include "cluster/cluster.h"

namespace talweg::steer {

inline constexpr Nanoseconds kLatency{30'000};

// A switch, and hosts with these ports in bit/s.
inline cluster::Cluster star(const std::vector<double>& up, const std::vector<double>& down) {
  cluster::Cluster c;
  const int n = static_cast<int>(up.size());
  for (int i = 0; i < n; ++i) c.nodes.push_back({.name = "h" + std::to_string(i)});
  c.nodes.push_back({.name = "sw", .kind = cluster::NodeKind::switch_});
  for (int i = 0; i < n; ++i) {
    c.links.push_back({i, n, {up[static_cast<std::size_t>(i)]}, kLatency});
    c.links.push_back({n, i, {down[static_cast<std::size_t>(i)]}, kLatency});
  }
  return c;
}

// Host h is in rack `rack[h]`, whose uplink carries `up` and `down`; ports of 1 Gbit/s, or of these.
inline cluster::Cluster racks(const std::vector<int>& rack, double up, double down, double host_up = 1e9,
                              double host_down = 1e9) {
  cluster::Cluster c;
  const int n = static_cast<int>(rack.size());
  const int count = 1 + *std::max_element(rack.begin(), rack.end());
  for (int i = 0; i < n; ++i) c.nodes.push_back({.name = "h" + std::to_string(i)});
  for (int r = 0; r < count; ++r)
    c.nodes.push_back({.name = "leaf" + std::to_string(r), .kind = cluster::NodeKind::switch_});
  c.nodes.push_back({.name = "spine", .kind = cluster::NodeKind::switch_});
  for (int i = 0; i < n; ++i) {
    c.links.push_back({i, n + rack[static_cast<std::size_t>(i)], {host_up}, kLatency});
    c.links.push_back({n + rack[static_cast<std::size_t>(i)], i, {host_down}, kLatency});
  }
  for (int r = 0; r < count; ++r) {
    c.links.push_back({n + r, n + count, {up}, kLatency});
    c.links.push_back({n + count, n + r, {down}, kLatency});
  }
  return c;
}

// A link of its own between every two, as fast as is drawn, each way.
inline cluster::Cluster mesh_of(int n, Random& random) {
  cluster::Cluster c = cluster::uniform_mesh(n, {1e9}, kLatency);
  const double choices[] = {1e8, 2e8, 4e8, 7e8, 1e9};
  for (cluster::Link& link : c.links) link.capacity = {choices[random.below(5)]};
  return c;
}

inline double off(double value, double truth) {
  return std::abs(value / truth - 1);
}

}  // namespace talweg::steer
