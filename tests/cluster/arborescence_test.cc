#include "cluster/arborescence.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/random.h"

namespace talweg::cluster {
namespace {

bool reaches_all(const std::vector<int>& parent, int root) {
  for (std::size_t node = 0; node < parent.size(); ++node) {
    int here = static_cast<int>(node);
    for (std::size_t steps = 0; here != root; ++steps) {
      if (steps > parent.size()) return false;
      here = parent[static_cast<std::size_t>(here)];
    }
  }
  return true;
}

// Tries every choice of parents.
std::int64_t least_cost(const std::vector<std::int64_t>& costs, int n, int root) {
  std::vector<int> parent(static_cast<std::size_t>(n), 0);
  std::int64_t least = INT64_MAX;
  while (true) {
    parent[static_cast<std::size_t>(root)] = root;
    if (reaches_all(parent, root)) {
      std::int64_t cost = 0;
      for (int node = 0; node < n; ++node)
        if (node != root)
          cost += costs[static_cast<std::size_t>(parent[static_cast<std::size_t>(node)] * n + node)];
      least = std::min(least, cost);
    }
    int digit = 0;
    while (digit < n && (digit == root || ++parent[static_cast<std::size_t>(digit)] == n)) {
      if (digit != root) parent[static_cast<std::size_t>(digit)] = 0;
      ++digit;
    }
    if (digit == n) return least;
  }
}

TEST(Arborescences, AreTheCheapestForEveryRootOfRandomGraphs) {
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    Random random{seed};
    const int n = 1 + static_cast<int>(random.below(6));
    std::vector<std::int64_t> costs(static_cast<std::size_t>(n * n));
    for (auto& cost : costs) cost = static_cast<std::int64_t>(random.below(seed % 2 == 0 ? 4 : 1000));
    const Arborescences<std::int64_t> trees(costs, n);
    for (int root = 0; root < n; ++root) {
      EXPECT_TRUE(reaches_all(trees.parents(root), root));
      EXPECT_EQ(trees.cost(root), least_cost(costs, n, root)) << "seed " << seed << " root " << root;
    }
  }
}

TEST(Arborescences, AvoidArcsThatDoNotExist) {
  constexpr std::int64_t kNone = 1 << 30;
  // A ring 0 -> 1 -> 2 -> 0, one way.
  const Arborescences<std::int64_t> trees({0, 5, kNone, kNone, 0, 6, 7, kNone, 0}, 3);
  EXPECT_EQ(trees.cost(0), 11);
  EXPECT_EQ(trees.cost(1), 13);
  EXPECT_EQ(trees.cost(2), 12);
  EXPECT_EQ(trees.parents(1), (std::vector<int>{2, 1, 1}));
}

}  // namespace
}  // namespace talweg::cluster
