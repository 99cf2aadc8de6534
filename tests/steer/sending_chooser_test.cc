#include "steer/sending_chooser.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "talweg/error.h"

namespace talweg::steer {
namespace {

constexpr std::size_t kElements = 1 << 20;
constexpr std::uint32_t kBlock = 64;

SendingCosts eight_hosts() {
  SendingCosts costs;
  costs.ranks = 8;
  return costs;
}

std::size_t part(double density) {
  return static_cast<std::size_t>(density * static_cast<double>(kElements));
}

// Of a step whose ranks have told each other: own and union are the same where all have the same rows.
SendingSeen seen(double elements, double blocks) {
  const double block_count = static_cast<double>(kElements) / kBlock;
  return {part(elements), static_cast<std::size_t>(blocks * block_count),
          elements * static_cast<double>(kElements), blocks * block_count};
}

TEST(SendingChooser, BeginsDenselyAndStaysThereWhereGradientsAreDense) {
  SendingChooser chooser(kElements, eight_hosts());
  for (int step = 0; step < 100; ++step) {
    EXPECT_EQ(chooser.now(), Sending::dense);
    chooser.observe({kElements, kElements / kBlock, {}, {}});
  }
}

TEST(SendingChooser, FollowsAChangeAfterAFewStepsAndGoesBack) {
  SendingChooser chooser(kElements, eight_hosts());
  const auto steps_until = [&](Sending wanted, const SendingSeen& what) {
    for (int step = 0; step < 100; ++step) {
      if (chooser.now() == wanted) return step;
      chooser.observe(what);
    }
    return 100;
  };
  EXPECT_EQ(steps_until(Sending::elements, seen(0.001, 0.06)), SendingChooser::kSteps);
  EXPECT_EQ(steps_until(Sending::blocks, seen(0.01, 0.0101)), SendingChooser::kSteps);
  EXPECT_EQ(steps_until(Sending::dense, seen(0.9, 1)), SendingChooser::kSteps);
  // What was left has to be cheaper for longer before it is taken again; another form has not.
  EXPECT_EQ(steps_until(Sending::elements, seen(0.001, 0.06)), 2 * SendingChooser::kSteps);
}

TEST(SendingChooser, DoesNotFollowASingleStep) {
  SendingChooser chooser(kElements, eight_hosts());
  for (int step = 0; step < 50; ++step) {
    chooser.observe(step % SendingChooser::kSteps == 0 ? seen(1, 1) : seen(0.001, 0.06));
    EXPECT_EQ(chooser.now(), Sending::dense);
  }
}

// Around break-even nothing is to be gained: what it takes is of no account, but changing for ever is.
TEST(SendingChooser, SettlesWhereGradientsAreAboutAsDenseAsBreaksEven) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SendingChooser chooser(kElements, eight_hosts());
    Random random(seed);
    int changes = 0;
    for (int step = 0; step < 2000; ++step) {
      const Sending before = chooser.now();
      const double density = 0.125 * (0.8 + 0.4 * random.uniform());
      chooser.observe(seen(density, 1));
      changes += chooser.now() != before;
    }
    EXPECT_LE(changes, 12) << seed;
  }
}

TEST(SendingChooser, GuessesWhatARankHasFromTheSumAndThenKnows) {
  SendingChooser chooser(kElements, eight_hosts());
  // A third of all in the sum of eight: if they lay anywhere, a rank would have a twentieth, and lists would
  // pay.
  const SendingSeen dense{part(1.0 / 3), kElements / kBlock, {}, {}};
  for (int step = 0; step < SendingChooser::kSteps; ++step) chooser.observe(dense);
  ASSERT_EQ(chooser.now(), Sending::elements);
  // But all have the same third.
  for (int step = 0; step < SendingChooser::kSteps; ++step) chooser.observe(seen(1.0 / 3, 1));
  ASSERT_EQ(chooser.now(), Sending::dense);
  for (int step = 0; step < 1000; ++step) chooser.observe(dense);
  EXPECT_EQ(chooser.now(), Sending::dense);
}

// 100 MB at 10 Gbit/s on eight ranks; the same blocks on all.
TEST(SendingChooser, PricesAsTheFormulasDo) {
  SendingCosts costs = eight_hosts();
  costs.bytes_per_second = 1.25e9;
  costs.latency_s = 0;
  costs.block = 256;
  const std::size_t elements = 26'214'400;
  const SendingChooser hosts(elements, costs);
  EXPECT_NEAR(hosts.seconds(Sending::dense, 1, 1), 0.1468, 1e-4);
  EXPECT_NEAR(hosts.seconds(Sending::elements, 0.01, 0.01), 7 * 0.01 * 2 * 0.0839, 1e-5);
  costs.aggregator = true;
  const SendingChooser switched(elements, costs);
  EXPECT_NEAR(switched.seconds(Sending::dense, 1, 1), 0.0839, 1e-4);
  EXPECT_NEAR(switched.seconds(Sending::blocks, 0.1, 0.57), 0.0478 * (1 + 1.0 / 256), 1e-4);
  EXPECT_NEAR(switched.seconds(Sending::blocks, 0.04, 0.04), 0.0034 * (1 + 1.0 / 256), 1e-4);
}

TEST(SendingChooser, KnowsListsThatAreFarTooLong) {
  const SendingChooser chooser(1000, eight_hosts());
  EXPECT_FALSE(chooser.is_dear(8 * 100));
  EXPECT_TRUE(chooser.is_dear(8 * 2000));
}

TEST(SendingChooser, TakesShortBucketsDenselyAndLeavesEmptyOnesAlone) {
  SendingChooser tiny(16, eight_hosts()), empty(0, eight_hosts());
  for (int step = 0; step < 20; ++step) {
    tiny.observe({1, 1, 0.1, 0.1});
    empty.observe({0, 0, {}, {}});
  }
  EXPECT_EQ(tiny.now(), Sending::dense);
  EXPECT_EQ(empty.now(), Sending::dense);
}

TEST(SendingChooser, RefusesCostsThatAreNone) {
  for (SendingCosts costs : {SendingCosts{0, 1, 0, 1}, SendingCosts{2, 0, 0, 1}, SendingCosts{2, 1, -1, 1},
                             SendingCosts{2, 1, 0, 0}})
    EXPECT_THROW(SendingChooser(1, costs), Error);
}

}  // namespace
}  // namespace talweg::steer
