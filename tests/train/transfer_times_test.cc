#include "train/transfer_times.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "talweg/error.h"

namespace talweg::train {
namespace {

TEST(TransferTimes, ALineIsAStartupAndARate) {
  const TransferTimes times = linear_times(1e-3, 2e-9);
  EXPECT_EQ(times.seconds(0), 0);
  EXPECT_DOUBLE_EQ(times.seconds(1'000'000), 3e-3);
  EXPECT_EQ(to_string(times), "1000 us + 2 ns/B");
  EXPECT_TRUE(times.has_rate());
  EXPECT_EQ(to_string(linear_times(1e-3, 0)), "1000 us, whatever its size");
  EXPECT_FALSE(linear_times(1e-3, 0).has_rate());
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

TEST(TransferTimes, OfCallsUnderWayTogetherEachTakesItsPartInTurn) {
  const TransferTimes line = linear_times(1e-3, 2e-9);
  EXPECT_DOUBLE_EQ(line.startup_of(1e6), 1e-3) << "nothing else is known";
  EXPECT_EQ(line.startup_of(0), 0);
  const TransferTimes times = line.in_turn(linear_times(0, 1e-9));
  EXPECT_EQ(times.seconds(1e6), line.seconds(1e6));
  EXPECT_DOUBLE_EQ(times.startup_of(1e6), 2e-3);
  EXPECT_EQ(times.startup_of(0), 0);
  EXPECT_EQ(line.in_turn(linear_times(1, 0)).startup_of(1e6), 0) << "never below nothing";
  EXPECT_DOUBLE_EQ(times.scaled(1, 0.5).startup_of(1e6), 1.5e-3);
  // What takes longer for another reason, a host's processor, is served in turn as that is.
  const TransferTimes slow = linear_times(0, 4e-9).in_turn(linear_times(0, 3e-9));
  EXPECT_DOUBLE_EQ(times.at_least(slow).seconds(1e6), 4e-3);
  EXPECT_DOUBLE_EQ(times.at_least(slow).startup_of(1e6), 1e-3);
  EXPECT_EQ(times.at_least({}), times);
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

TEST(TransferTimes, TheLongerOfTwoIsLongerAtEverySize) {
  const TransferTimes one({{0, 100e-6, 0}, {1000, 0, 100e-9}, {50000, 4e-3, 20e-9}});
  const TransferTimes other({{0, 10e-6, 50e-9}, {20000, -1e-3, 101e-9}});
  for (const auto& both : {one.at_least(other), other.at_least(one)})
    for (double bytes = 1; bytes < 1e7; bytes *= 1.1)
      EXPECT_NEAR(both.seconds(bytes), std::max(one.seconds(bytes), other.seconds(bytes)), 1e-12) << bytes;
  EXPECT_EQ(one.at_least({}), one);
}

TEST(NetworkTimes, BandwidthGetsNowhereBelowWhatProcessorsTake) {
  NetworkTimes network = network_of("net", 4, linear_times(10e-6, 4e-9));
  network.least.all_reduce = linear_times(5e-6, 1e-9);
  EXPECT_NEAR(network.with_bandwidth(2).all_reduce.seconds(1e6), 10e-6 + 2e-3, 1e-12);
  EXPECT_NEAR(network.with_bandwidth(100).all_reduce.seconds(1e6), 5e-6 + 1e-3, 1e-12);
  EXPECT_NEAR(network.with_bandwidth(100).all_gather.seconds(1e6), 5e-6 + 20e-6, 1e-12);
  // Of links alone 3 ns/B, and of processors 4: with half the bandwidth links set the pace, with 0.9 of it
  // not yet.
  network.links = {linear_times(10e-6, 3e-9), linear_times(10e-6, 3e-9), linear_times(10e-6, 3e-9)};
  EXPECT_NEAR(network.with_bandwidth(0.9).all_reduce.seconds(1e6), 10e-6 + 4e-3, 1e-12);
  EXPECT_NEAR(network.with_bandwidth(0.5).all_reduce.seconds(1e6), 10e-6 + 6e-3, 1e-12);
  EXPECT_NEAR(at_ranks(network, 8).with_bandwidth(0.5).all_reduce.seconds(1e6), 10e-6 * 7 / 3 + 6e-3 * 7 / 6,
              1e-7);
  EXPECT_EQ(network.with_bandwidth(1), network);
  // Processors have more to do where there are more ranks.
  EXPECT_NEAR(at_ranks(network, 8).with_bandwidth(1e9).all_reduce.seconds(1e6), 5e-6 * 7 / 3 + 1e-3 * 7 / 6,
              1e-7);
}

TEST(TransferTimes, TheLesserOfTwoAndTheGreaterMeetWhereTheyCross) {
  const TransferTimes steep = linear_times(1e-6, 4e-9), flat = linear_times(100e-6, 1e-9);
  for (const double bytes : {1.0, 1e3, 33e3, 1e5, 1e7}) {
    const double a = steep.seconds(bytes), b = flat.seconds(bytes);
    EXPECT_DOUBLE_EQ(steep.at_most(flat).seconds(bytes), std::min(a, b)) << bytes;
    EXPECT_DOUBLE_EQ(flat.at_most(steep).seconds(bytes), std::min(a, b)) << bytes;
    EXPECT_DOUBLE_EQ(flat.at_least(steep).seconds(bytes), std::max(a, b)) << bytes;
  }
  EXPECT_EQ(steep.in_turn(flat).at_most(steep.in_turn(steep)), steep.in_turn(flat.at_most(steep)));
}

TEST(TransferTimes, ACallAddsToWhatIsServedInTurn) {
  const TransferTimes times = linear_times(1e-3, 2e-9).in_turn(linear_times(0, 1e-9));
  const TransferTimes costly = times.with_call(1e-4);
  EXPECT_DOUBLE_EQ(costly.seconds(1e6), 3e-3) << "its own start-up has room for it";
  EXPECT_DOUBLE_EQ(costly.startup_of(1e6), 1.9e-3);
  EXPECT_DOUBLE_EQ(times.with_call(0.1).seconds(1e6), 0.101) << "or it takes longer";
  EXPECT_EQ(times.with_call(0.1).startup_of(1e6), 0);
  EXPECT_EQ(linear_times(1e-3, 2e-9).with_call(0.1), linear_times(1e-3, 2e-9)) << "not known what is in turn";
  NetworkTimes network = network_of("n", 2, times);
  network.burst = 1;
  EXPECT_EQ(at_ranks(network, 8).burst, 1);
  EXPECT_EQ(network.with_call(1e-4).burst, 1);
  network.links = {times, times, times};
  const NetworkTimes with = network.with_call(1e-4);
  EXPECT_EQ(with.all_reduce, costly);
  EXPECT_EQ(with.all_gather, network.all_gather.with_call(1e-4));
  EXPECT_EQ(with.links->reduce_scatter, costly);
  EXPECT_DOUBLE_EQ(network.with_call(1e-4).with_bandwidth(1e6).all_reduce.startup_of(1e6),
                   0.9e-3 + 2e-9 - 1e-9)
      << "no rate lowers it";
}

}  // namespace
}  // namespace talweg::train
