#include "forest/topologies.h"

#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <utility>

namespace talweg::forest {
namespace {

using cluster::Cluster;
using cluster::NodeKind;

Cluster workers(int n) {
  Cluster result;
  for (int i = 0; i < n; ++i) result.nodes.push_back({.name = fmt::format("g{}", i)});
  return result;
}

int add_switch(Cluster& cluster, const std::string& name) {
  cluster.nodes.push_back({.name = name, .kind = NodeKind::switch_});
  return static_cast<int>(cluster.nodes.size()) - 1;
}

// Both ways. Latency decides what routes prefer: inside a box before across.
void join(Cluster& cluster, int a, int b, double gigabytes, std::int64_t nanoseconds = 1000) {
  for (const auto& [from, to] : {std::pair{a, b}, std::pair{b, a}})
    cluster.links.push_back({from, to, {std::round(gigabytes * 8e9)}, {nanoseconds}});
}

// DGX-1V: links between GPUs i and j, of 25 GB/s each.
constexpr const char* kDgx1[] = {"02112000", "20120100", "11020020", "12200001",
                                 "20000211", "01002012", "00201102", "00011220"};

Cluster dgx1(const std::vector<int>& gpus) {
  Cluster result = workers(static_cast<int>(gpus.size()));
  for (std::size_t i = 0; i < gpus.size(); ++i)
    for (std::size_t j = i + 1; j < gpus.size(); ++j)
      if (const int count = kDgx1[gpus[i]][gpus[j]] - '0'; count > 0)
        join(result, static_cast<int>(i), static_cast<int>(j), 25.0 * count);
  return result;
}

Cluster ndv2() {
  Cluster result = workers(16);
  for (int box = 0; box < 2; ++box)
    for (int i = 0; i < 8; ++i)
      for (int j = i + 1; j < 8; ++j)
        if (const int count = kDgx1[i][j] - '0'; count > 0)
          join(result, 8 * box + i, 8 * box + j, 25.0 * count);
  // GPU 0 of a box sends to the other box, GPU 1 receives.
  result.links.push_back({0, 9, {1e11}, {5000}});
  result.links.push_back({8, 1, {1e11}, {5000}});
  return result;
}

Cluster a100(int boxes) {
  Cluster result = workers(8 * boxes);
  for (int box = 0; box < boxes; ++box) {
    const int nvswitch = add_switch(result, fmt::format("nvswitch{}", box));
    for (int i = 0; i < 8; ++i) join(result, 8 * box + i, nvswitch, 300);
  }
  if (boxes == 1) return result;
  const int even = add_switch(result, "ib0"), odd = add_switch(result, "ib1");
  for (int gpu = 0; gpu < 8 * boxes; ++gpu) join(result, gpu, gpu % 2 == 0 ? even : odd, 25, 5000);
  return result;
}

Cluster small_boxes() {
  Cluster result = workers(8);
  for (int box = 0; box < 2; ++box) {
    const int inside = add_switch(result, fmt::format("box{}", box));
    for (int i = 0; i < 4; ++i) join(result, 4 * box + i, inside, 10);
  }
  const int outside = add_switch(result, "net");
  for (int gpu = 0; gpu < 8; ++gpu) join(result, gpu, outside, 1, 5000);
  return result;
}

struct Wires {
  int a, b, count;
};
constexpr Wires kMi250[] = {{0, 1, 4},   {0, 4, 2},   {0, 8, 1},   {1, 5, 1},   {1, 9, 1},   {1, 10, 1},
                            {2, 3, 4},   {2, 6, 1},   {2, 9, 1},   {2, 10, 1},  {3, 7, 2},   {3, 11, 1},
                            {4, 5, 4},   {4, 6, 1},   {5, 6, 1},   {5, 7, 1},   {6, 7, 4},   {8, 9, 4},
                            {8, 12, 2},  {9, 13, 1},  {10, 11, 4}, {10, 14, 1}, {11, 15, 2}, {12, 13, 4},
                            {12, 14, 1}, {13, 14, 1}, {13, 15, 1}, {14, 15, 4}};

Cluster mi250(int boxes, int gcds) {
  Cluster result = workers(boxes * gcds);
  for (int box = 0; box < boxes; ++box)
    for (const Wires& wires : kMi250)
      if (wires.a < gcds && wires.b < gcds)
        join(result, box * gcds + wires.a, box * gcds + wires.b, 50.0 * wires.count);
  if (boxes == 1) return result;
  const int ib = add_switch(result, "ib");
  for (int gcd = 0; gcd < boxes * gcds; ++gcd) join(result, gcd, ib, 16, 5000);
  return result;
}

Cluster grid(int rows, int columns, bool torus) {
  Cluster result = workers(rows * columns);
  for (int row = 0; row < rows; ++row)
    for (int column = 0; column < columns; ++column) {
      const int here = row * columns + column;
      if (column + 1 < columns || torus) join(result, here, row * columns + (column + 1) % columns, 1);
      if (row + 1 < rows || torus) join(result, here, (row + 1) % rows * columns + column, 1);
    }
  return result;
}

Cluster ring(int n) {
  Cluster result = workers(n);
  for (int i = 0; i < n; ++i) join(result, i, (i + 1) % n, 1);
  return result;
}

Cluster star(const std::vector<double>& capacities) {
  Cluster result = workers(static_cast<int>(capacities.size()));
  const int sw = add_switch(result, "sw");
  for (std::size_t i = 0; i < capacities.size(); ++i) join(result, static_cast<int>(i), sw, capacities[i]);
  return result;
}

Cluster leaf_spine(double uplink) {
  Cluster result = workers(16);
  const int spine = add_switch(result, "spine");
  for (int leaf = 0; leaf < 4; ++leaf) {
    const int sw = add_switch(result, fmt::format("leaf{}", leaf));
    join(result, sw, spine, uplink);
    for (int i = 0; i < 4; ++i) join(result, 4 * leaf + i, sw, 10);
  }
  return result;
}

Cluster dgx2() {
  Cluster result = workers(32);
  for (int box = 0; box < 2; ++box) {
    const int nvswitch = add_switch(result, fmt::format("nvswitch{}", box));
    for (int i = 0; i < 16; ++i) join(result, 16 * box + i, nvswitch, 125);
  }
  // Odd GPUs of a box send to even ones of the other.
  for (int i = 0; i < 8; ++i) {
    result.links.push_back({2 * i + 1, 16 + 2 * i, {1e11}, {5000}});
    result.links.push_back({16 + 2 * i + 1, 2 * i, {1e11}, {5000}});
  }
  return result;
}

void let_switches_sum(Cluster& cluster) {
  for (auto& node : cluster.nodes)
    if (node.kind == NodeKind::switch_) node.can_multicast = node.can_aggregate = true;
}

}  // namespace

std::vector<Topology> topologies() {
  return {
      {"t1", "DGX-1V", dgx1({0, 1, 2, 3, 4, 5, 6, 7}), {1200, 7}, {600, 7}},
      {"t2", "DGX-1V, GPUs 0, 1, 3", dgx1({0, 1, 3}), {225, 2}, {125, 2}},
      {"t3", "DGX-1V, GPUs 1, 4, 5, 6", dgx1({1, 4, 5, 6}), {100, 3}, {25, 1}},
      {"t4", "DGX-1V, GPUs 0 to 4", dgx1({0, 1, 2, 3, 4}), {125, 2}, {50, 1}},
      {"t5", "DGX-1V, GPUs 0 to 5", dgx1({0, 1, 2, 3, 4, 5}), {90, 1}, {125, 2}},
      {"t6", "A100 box", a100(1), {2400, 7}, {1200, 7}},
      {"t7", "two A100 boxes", a100(2), {1040, 3}, {520, 3}},
      {"t8", "two boxes of four", small_boxes(), {8, 1}, {4, 1}},
      {"t9", "MI250 box", mi250(1, 16), {2400, 7}, {1200, 7}},
      {"t10", "half an MI250 box", mi250(1, 8), {200, 1}, {150, 1}},
      {"t11", "two MI250 boxes", mi250(2, 16), {5312, 15}, {2656, 15}},
      {"t12", "halves of two MI250 boxes", mi250(2, 8), {208, 1}, {128, 1}},
      {"t13a", "torus 3x3", grid(3, 3, true), {9, 2}, {9, 4}},
      {"t13b", "torus 4x4", grid(4, 4, true), {64, 15}, {32, 15}},
      {"t14", "mesh 3x3", grid(3, 3, false), {9, 4}, {3, 2}},
      {"t15", "mesh 2x4", grid(2, 4, false), {16, 7}, {10, 7}},
      {"t16", "ring of 8", ring(8), {16, 7}, {8, 7}},
      {"t17", "star, one slow host", star({1, 1, 1, 1, 1, 1, 1, 0.1}), {4, 35}, {1, 10}},
      {"t18", "star, 1 to 8", star({1, 2, 3, 4, 5, 6, 7, 8}), {8, 7}, {1, 1}},
      {"t19", "star, four fast and four slow", star({10, 10, 10, 10, 2, 2, 2, 2}), {16, 7}, {2, 1}},
      {"t20a", "leaf-spine", leaf_spine(40), {32, 3}, {16, 3}},
      {"t20b", "leaf-spine, 2:1", leaf_spine(20), {32, 3}, {16, 3}},
      {"t20c", "leaf-spine, 4:1", leaf_spine(10), {32, 3}, {16, 3}},
      {"t21", "two NDv2 boxes", ndv2(), {25, 1}, {25, 2}},
      {"t22", "two DGX-2 boxes", dgx2(), {4000, 31}, {2100, 31}},
  };
}

std::vector<Topology> summing_topologies() {
  std::vector<Topology> result = {
      {"t6", "A100 box", a100(1), {2400, 7}, {300, 1}},
      {"t7", "two A100 boxes", a100(2), {1040, 3}, {200, 1}},
      {"t8", "two boxes of four", small_boxes(), {8, 1}, {4, 1}},
  };
  for (auto& topology : result) let_switches_sum(topology.cluster);
  return result;
}

}  // namespace talweg::forest
