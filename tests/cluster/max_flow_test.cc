#include "cluster/max_flow.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/random.h"

namespace talweg::cluster {
namespace {

using testing::ElementsAre;

TEST(MaxFlow, IsThatOfTheNarrowestCut) {
  MaxFlow flow(4);
  flow.add_arc(0, 1, 10);
  flow.add_arc(0, 2, 10);
  flow.add_arc(1, 3, 3);
  const int wide = flow.add_arc(2, 3, 4);
  flow.add_arc(1, 2, 1);
  EXPECT_EQ(flow.solve(0, 3), 7);
  EXPECT_THAT(flow.source_side(), ElementsAre(true, true, true, false));
  flow.set_capacity(wide, 100);
  EXPECT_EQ(flow.solve(0, 3), 14);
  EXPECT_THAT(flow.source_side(), ElementsAre(true, true, false, false));
  EXPECT_EQ(flow.solve(3, 0), 0);
}

TEST(MaxFlow, EqualsTheLeastOfAllCutsOfRandomGraphs) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Random random{seed};
    const int n = 2 + static_cast<int>(random.below(6));
    std::vector<std::int64_t> capacity(static_cast<std::size_t>(n * n));
    MaxFlow flow(n);
    for (int from = 0; from < n; ++from)
      for (int to = 0; to < n; ++to) {
        if (from == to || random.below(3) == 0) continue;
        capacity[static_cast<std::size_t>(from * n + to)] = static_cast<std::int64_t>(random.below(50));
        flow.add_arc(from, to, capacity[static_cast<std::size_t>(from * n + to)]);
      }
    const auto cut = [&](const auto& inside) {
      std::int64_t sum = 0;
      for (int from = 0; from < n; ++from)
        for (int to = 0; to < n; ++to)
          if (inside(from) && !inside(to)) sum += capacity[static_cast<std::size_t>(from * n + to)];
      return sum;
    };
    std::int64_t least = INT64_MAX;
    for (unsigned set = 0; set < 1U << n; ++set)
      if ((set & 1) != 0 && (set >> (n - 1) & 1) == 0)
        least = std::min(least, cut([&](int node) { return (set >> node & 1) != 0; }));
    EXPECT_EQ(flow.solve(0, n - 1), least) << "seed " << seed;
    const auto side = flow.source_side();
    EXPECT_EQ(cut([&](int node) { return side[static_cast<std::size_t>(node)]; }), least) << "seed " << seed;
  }
}

}  // namespace
}  // namespace talweg::cluster
