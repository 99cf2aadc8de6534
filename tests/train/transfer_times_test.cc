#include "train/transfer_times.h"

#include <gtest/gtest.h>

#include "talweg/error.h"

namespace talweg::train {
namespace {

TEST(TransferTimes, ALineIsAStartupAndARate) {
  const TransferTimes times = linear_times(1e-3, 2e-9);
  EXPECT_EQ(times.seconds(0), 0);
  EXPECT_DOUBLE_EQ(times.seconds(1'000'000), 3e-3);
  EXPECT_EQ(to_string(times), "1000 us + 2 ns/B");
}

TEST(TransferTimes, ATableGoesStraightFromSampleToSample) {
  const std::vector<Sample> samples{{1000, 5e-6}, {4000, 8e-6}, {1000, 4e-6}, {1000, 90e-6}, {8000, 16e-6}};
  const TransferTimes times = table_times(samples);
  EXPECT_DOUBLE_EQ(times.seconds(1), 5e-6);
  EXPECT_DOUBLE_EQ(times.seconds(1000), 5e-6);  // the median
  EXPECT_DOUBLE_EQ(times.seconds(2000), 6e-6);
  EXPECT_DOUBLE_EQ(times.seconds(4000), 8e-6);
  EXPECT_DOUBLE_EQ(times.seconds(16000), 32e-6);  // goes on as before
  EXPECT_THROW(table_times({}), Error);
}

TEST(TransferTimes, BandwidthChangesRatesAlone) {
  const NetworkTimes net = network_of("net", 8, linear_times(1e-3, 2e-9));
  const NetworkTimes twice = net.with_bandwidth(2);
  EXPECT_DOUBLE_EQ(twice.all_reduce.seconds(1e6), 2e-3);
  EXPECT_DOUBLE_EQ(twice.reduce_scatter.seconds(1e6), 1e-3);
  EXPECT_THROW(net.with_bandwidth(0), Error);
  const TransferTimes pieces({{0, 1e-3, 0}, {1000, 1e-3, 2e-9}, {1e6, -1e-3, 5e-9}});
  const TransferTimes quick = pieces.scaled(1, 0.5);
  for (const double bytes : {1.0, 999.0, 5e5, 2e6})
    EXPECT_NEAR(quick.seconds(bytes), 1e-3 + (pieces.seconds(bytes) - 1e-3) / 2, 1e-12) << bytes;
}

TEST(TransferTimes, RingsAndTreesGrowAsTheTextbookSays) {
  const NetworkTimes two = network_of("net", 2, linear_times(2e-3, 1e-9));
  const NetworkTimes ring = at_ranks(two, 8, Growth::ring);
  EXPECT_EQ(ring.ranks, 8);
  EXPECT_DOUBLE_EQ(ring.all_reduce.startup(), 14e-3);          // 2 (n - 1)
  EXPECT_DOUBLE_EQ(ring.all_reduce.per_byte(), 1e-9 * 7 / 4);  // 2 (n - 1) / n
  EXPECT_DOUBLE_EQ(at_ranks(two, 8, Growth::tree).all_reduce.startup(), 6e-3);
  EXPECT_DOUBLE_EQ(at_ranks(two, 8, Growth::tree).all_reduce.per_byte(), 1e-9);
  EXPECT_EQ(at_ranks(two, 1).all_reduce.seconds(1e9), 0);
  EXPECT_THROW(at_ranks(no_network(1), 4), Error);
}

TEST(TransferTimes, RefusesWhatIsNoTable) {
  EXPECT_THROW(TransferTimes({{5, 1, 1}}), Error);
  EXPECT_THROW(TransferTimes({{0, 1, -1}}), Error);
  EXPECT_THROW(TransferTimes({{0, 1, 1}, {0, 1, 1}}), Error);
  EXPECT_THROW(TransferTimes({{0, -1, 1}}), Error);
  EXPECT_THROW(TransferTimes(std::vector<TransferTimes::Piece>{}), Error);
  EXPECT_THROW(no_network(2).of(Collective::broadcast), Error);
}

}  // namespace
}  // namespace talweg::train
