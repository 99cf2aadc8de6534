#include "forest/load_level.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

namespace talweg::forest {
namespace {

TEST(LoadLevel, BuysWhatIsCheaperUntilAllCostTheSame) {
  // Three links side by side; all goes over the first.
  const std::vector<double> capacities{1, 3, 0.5};
  LoadLevel level(capacities, {1, 0, 0});
  EXPECT_DOUBLE_EQ(level.prices(3)[0], 1);
  EXPECT_EQ(level.prices(3)[1], 0);
  for (int step = 0; step < 400; ++step) {
    const auto prices = level.prices(3);
    int cheapest = 0;
    for (int link = 1; link < 3; ++link)
      if (prices[static_cast<std::size_t>(link)] < prices[static_cast<std::size_t>(cheapest)])
        cheapest = link;
    level.mix({{cheapest, 1.0}}, 3);
  }
  const auto prices = level.prices(3);
  // A hundredth of load is a twelfth of its eighth power's slope.
  EXPECT_NEAR(prices[1] / prices[0], 1, 0.2);
  EXPECT_NEAR(prices[2] / prices[0], 1, 0.2);
}

TEST(LoadLevel, KeepsLoadsEvenWhereTreesAre) {
  LoadLevel level({1, 1}, {0.5, 0.5});
  level.mix({{0, 1.0}, {1, 1.0}}, 4);
  const auto prices = level.prices(4);
  EXPECT_DOUBLE_EQ(prices[0], prices[1]);
  // Rows beyond the capacities are not loads.
  level.mix({{0, 0.5}, {1, 0.5}, {2, -1.0}}, 4);
  EXPECT_DOUBLE_EQ(level.prices(4)[0], level.prices(4)[1]);
}

}  // namespace
}  // namespace talweg::forest
