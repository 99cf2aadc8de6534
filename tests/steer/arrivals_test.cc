#include "steer/arrivals.h"

#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "base/random.h"

namespace talweg::steer {
namespace {

constexpr double kBucket = 128 << 10;

// Messages of a flow through a token bucket that is full: at once until it is empty, then at its rate; and
// seen by a host that looks every `look` seconds.
std::vector<Arrival> shaped(double bits_per_second, double message, double seconds, double look) {
  std::vector<Arrival> list;
  for (double sent = message;; sent += message) {
    const double time = 1e-3 + std::max(0.0, sent - kBucket) * 8 / bits_per_second;
    if (time > seconds) return list;
    list.push_back({look > 0 ? std::ceil(time / look) * look : time, message});
  }
}

TEST(Arrivals, ATokenBucketThatEmptiesDoesNotCount) {
  for (const auto& [mbit, message, seconds] :
       {std::tuple(5.0, 4096.0, 0.26), std::tuple(25.0, 4096.0, 0.06), std::tuple(200.0, 16384.0, 0.05),
        std::tuple(1000.0, 65536.0, 0.05)})
    EXPECT_NEAR(steady_rate(shaped(mbit * 1e6, message, seconds, 0), seconds) / 1e6, mbit, 0.02 * mbit);
}

TEST(Arrivals, LumpsSayNoMoreThanWhatIsBetweenThem) {
  for (const double look : {0.002, 0.005, 0.007})
    for (const double mbit : {50.0, 200.0, 1000.0}) {
      const auto list = shaped(mbit * 1e6, 8192, 0.055, look);
      EXPECT_NEAR(steady_rate(list, 0.05) / 1e6, mbit, 0.06 * mbit) << look;
    }
}

TEST(Arrivals, AFlowThatEndedEarlyIsCountedUntilThen) {
  EXPECT_NEAR(steady_rate(shaped(50e6, 4096, 0.15, 0), 0.2), 50e6, 1e6);
}

TEST(Arrivals, TheOrderInWhichTheyAreToldIsOfNoAccount) {
  auto list = shaped(50e6, 4096, 0.2, 0);
  const double rate = steady_rate(list, 0.2);
  Random random(1);
  for (std::size_t i = list.size() - 1; i > 0; --i) std::swap(list[i], list[random.below(i + 1)]);
  EXPECT_DOUBLE_EQ(steady_rate(list, 0.2), rate);
}

TEST(Arrivals, NothingCameAtNoRate) {
  EXPECT_EQ(steady_rate({}, 0.1), 0);
  EXPECT_EQ(steady_rate({{0.01, 4096}}, 0.1), 0);
}

TEST(MessageSizes, GrowWithWhatWasSent) {
  MessageSizes sizes(MessageSizes::kLeast);
  std::size_t sent = 0, bytes = 0;
  while (sent < (64U << 20)) {
    const std::size_t next = sizes.next();
    EXPECT_GE(next, bytes);
    EXPECT_LE(next, std::max(MessageSizes::kLeast, sent / MessageSizes::kOfASize * 2));
    sent += bytes = next;
  }
  EXPECT_EQ(bytes, MessageSizes::kMost);
}

}  // namespace
}  // namespace talweg::steer
