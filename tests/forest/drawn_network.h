// Networks where there is one way between any two workers, drawn from a seed.
//
//   for (std::size_t kind = 0; kind < std::size(DrawnNetwork::kKinds); ++kind)
//     DrawnNetwork(kind, seed).get();   // a cluster of 3 to 64 workers
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/at.h"
#include "base/random.h"
#include "cluster/cluster.h"

namespace talweg::forest {

// Links of 5 to 200 Mbit/s, so that they and not processors limit. Rates of the two directions differ in
// every other one.
class DrawnNetwork {
 public:
  static constexpr const char* kKinds[] = {"star", "tree of switches", "leaf-spine", "ring of switches",
                                           "directed"};

  DrawnNetwork(std::size_t kind, std::uint64_t seed, int most_workers = 64) : random_(seed, kind) {
    workers_ = 3 + below(most_workers - 2);
    alike_ = below(2) == 0;
    for (int i = 0; i < workers_; ++i) network_.nodes.push_back({.name = fmt::format("h{}", i)});
    switch (kind) {
      case 0:
        star();
        break;
      case 1:
        tree();
        break;
      case 2:
        leaf_spine();
        break;
      case 3:
        ring_of_switches();
        break;
      default:
        directed();
    }
  }
  const cluster::Cluster& get() const { return network_; }

 private:
  int below(int n) { return static_cast<int>(random_.below(static_cast<std::uint64_t>(n))); }
  double rate() { return 1e6 * (5 + below(196)); }

  void link(int from, int to, double bits_per_second) {
    network_.links.push_back({from, to, {bits_per_second}, {10000}});
  }
  void join(int a, int b) {
    const double there = rate(), back = rate();
    link(a, b, there);
    link(b, a, alike_ ? there : back);
  }
  int add_switch() {
    network_.nodes.push_back(
        {.name = fmt::format("s{}", network_.nodes.size()), .kind = cluster::NodeKind::switch_});
    return static_cast<int>(network_.nodes.size()) - 1;
  }

  void star() {
    const int hub = add_switch();
    for (int i = 0; i < workers_; ++i) join(i, hub);
  }
  void tree() {
    const int switches = 2 + below(7), first = add_switch();
    for (int i = 1; i < switches; ++i) join(add_switch(), first + below(i));
    for (int i = 0; i < workers_; ++i) join(i, first + below(switches));
  }
  void leaf_spine() {
    const int leaves = 2 + below(7), spine = add_switch();
    for (int i = 0; i < leaves; ++i) join(add_switch(), spine);
    for (int i = 0; i < workers_; ++i) join(i, spine + 1 + i % leaves);
  }
  // An odd number: one of the two ways is the shorter one.
  void ring_of_switches() {
    const int switches = 3 + 2 * below(3), first = add_switch();
    for (int i = 1; i < switches; ++i) add_switch();
    for (int i = 0; i < switches; ++i) join(first + i, first + (i + 1) % switches);
    for (int i = 0; i < workers_; ++i) join(i, first + i % switches);
  }
  // A tree of workers, and links one way between others.
  void directed() {
    std::vector<bool> linked(at(workers_) * at(workers_));
    const auto is_linked = [&](int from, int to) { return linked[at(from) * at(workers_) + at(to)]; };
    for (int i = 1; i < workers_; ++i) {
      const int other = below(i);
      join(i, other);
      is_linked(i, other) = is_linked(other, i) = true;
    }
    for (int i = 0; i < 3 * workers_; ++i) {
      const int from = below(workers_), to = below(workers_);
      if (from == to || is_linked(from, to)) continue;
      is_linked(from, to) = true;
      link(from, to, rate());
    }
  }

  Random random_;
  int workers_ = 0;
  bool alike_ = false;
  cluster::Cluster network_;
};

}  // namespace talweg::forest
