// Many flows to one host: how fairly they share its link, and how much stands before it.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "protocol/bounded/exchange.h"
#include "protocol/datagram/rate_control.h"

namespace talweg::protocol {
namespace {

constexpr double kIncastDatagram = 1476;

// Several that share one queue, in steps of a round trip: a fluid model.
struct Shared {
  std::vector<RateControl> flows;
  double queue = 0;
  // Of these steps: the longest queue, the sum of all, and how much of the link was used.
  double longest = 0, queues = 0, used = 0;
  int steps = 0;
  std::int64_t now = 0;
  static constexpr double kRate = 1.25e9;     // bytes per second
  static constexpr double kMarked = 200'000;  // from so long a queue on
  static constexpr std::int64_t kBase = 50'000;
  static constexpr double kPipe = kRate * 1e-9 * static_cast<double>(kBase);

  // `queue_bytes`: of each.
  Shared(std::size_t n, double queue_bytes) {
    for (std::size_t i = 0; i < n; ++i) {
      RateOptions options;
      options.first_window = 3000.0 * static_cast<double>(1 + i % 5);
      options.queue_bytes = queue_bytes;
      flows.emplace_back(options, kIncastDatagram);
    }
  }
  // Until all stand where they stay; from then on is counted.
  void settle(bool mark) {
    run(2000, mark);
    longest = queues = used = 0;
    steps = 0;
    run(1000, mark);
  }
  double jain() const {
    double sum = 0, squares = 0;
    for (const RateControl& f : flows) {
      sum += f.window();
      squares += f.window() * f.window();
    }
    return sum * sum / (static_cast<double>(flows.size()) * squares);
  }
  void run(int n, bool mark) {
    for (int i = 0; i < n; ++i) {
      double offered = 0;
      for (const RateControl& f : flows) offered += f.window();
      queue = std::max(0.0, offered - kPipe);
      longest = std::max(longest, queue);
      queues += queue;
      const auto rtt = kBase + static_cast<std::int64_t>(queue / kRate * 1e9);
      now += rtt;
      used += std::min(offered, kRate * 1e-9 * static_cast<double>(rtt)) /
              (kRate * 1e-9 * static_cast<double>(rtt));
      ++steps;
      for (RateControl& f : flows) {
        if (mark && queue > kMarked) f.on_marked(rtt, now);
        f.on_acknowledged(f.window(), rtt, rtt, kBase, true, now);
      }
    }
  }
};

constexpr std::size_t kIncasts[] = {1, 2, 4, 8, 16, 32, 64};

// As the ranks of an exchange share it. Less than two pipes' bytes are wanted, and missed by a little: a
// queue of 100 us, which each puts up with, is two round trips of this way. At the same time all add a
// datagram to that.
TEST(Incast, SeveralShareALinkFairlyWithAShortQueue) {
  const ExchangeOptions exchange;
  for (const std::size_t n : kIncasts) {
    const auto flows = static_cast<double>(n);
    Shared shared(n, std::min(exchange.most_queue_bytes, exchange.queue_bytes / flows));
    shared.settle(false);
    EXPECT_GT(shared.jain(), 0.9) << n;
    EXPECT_GT(shared.used / shared.steps, 0.9) << n;
    EXPECT_LT(shared.queues / shared.steps, 2.15 * Shared::kPipe) << n;
    EXPECT_LT(shared.longest, 2.15 * Shared::kPipe + flows * kIncastDatagram) << n;
  }
}

// Flows of several hosts to one do not know of each other: each has all of its part there, 2 pipes' bytes for
// each flow, until the network marks.
TEST(Incast, FlowsThatShareNothingHaveAQueueEachUnlessTheNetworkMarks) {
  for (const std::size_t n : kIncasts)
    for (const bool mark : {false, true}) {
      const auto flows = static_cast<double>(n);
      Shared shared(n, RateOptions().queue_bytes);
      shared.settle(mark);
      EXPECT_GT(shared.jain(), 0.9) << n;
      EXPECT_GT(shared.used / shared.steps, 0.9) << n;
      EXPECT_LT(shared.longest, mark ? Shared::kMarked + 3 * flows * kIncastDatagram
                                     : 1.02 * flows * RateOptions().queue_bytes)
          << n;
    }
}

}  // namespace
}  // namespace talweg::protocol
