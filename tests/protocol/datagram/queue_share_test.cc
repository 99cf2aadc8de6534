#include "protocol/datagram/queue_share.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "lossy_pipe.h"

namespace talweg::protocol {
namespace {

TEST(QueueShare, IsThatOfThoseThatAreBusy) {
  const auto share = std::make_shared<QueueShare>();
  QueueShare::Part a(share), alone(nullptr);
  EXPECT_EQ(a.of(12), 12);
  alone.busy(true);
  EXPECT_EQ(alone.of(12), 12);
  a.busy(true);
  a.busy(true);
  EXPECT_EQ(a.of(12), 12) << "it is one";
  {
    QueueShare::Part b(share), c(share);
    b.busy(true);
    EXPECT_EQ(c.of(12), 6) << "who begins has what all have";
    c.busy(true);
    EXPECT_EQ(a.of(12), 4);
    c.busy(false);
    EXPECT_EQ(a.of(12), 6);
  }
  EXPECT_EQ(a.of(12), 12) << "who ends is none any more";
}

// How long what such a flow has in the queue lasts, of late, on a way of 10 MB/s.
std::int64_t queue_ns(const std::shared_ptr<QueueShare>& share) {
  PipeNature nature;
  nature.rate = 1e7;
  nature.delay_ns = 500'000;
  FlowOptions options;
  options.share = share;
  LossyPipe pipe(options, nature, 1);
  const std::vector<std::byte> some(100'000);
  std::int64_t sum = 0, n = 0;
  while (pipe.now() < 4'000'000'000) {
    pipe.ends[0].flow.write(0, some);
    pipe.send_all(0);
    pipe.send_all(1);
    if (!pipe.step()) break;
    pipe.ends[1].flow.consumed(0, pipe.ends[1].flow.readable(0).size());
    if (pipe.now() < 1'000'000'000) continue;
    sum += pipe.ends[0].flow.round_trip().standing_ns() - pipe.ends[0].flow.round_trip().base_ns();
    ++n;
  }
  EXPECT_GT(pipe.ends[0].flow.bytes_arrived(), 35'000'000U) << "and the way is in use";
  return sum / std::max<std::int64_t>(1, n);
}

TEST(QueueShare, AFlowBesideOthersHasLessInTheQueue) {
  const auto share = std::make_shared<QueueShare>();
  QueueShare::Part b(share), c(share), d(share);
  const std::int64_t alone = queue_ns(share);
  for (QueueShare::Part* part : {&b, &c, &d}) part->busy(true);
  const std::int64_t beside = queue_ns(share);
  EXPECT_GT(alone, 8'000'000);
  EXPECT_LT(3 * beside, alone);
}

}  // namespace
}  // namespace talweg::protocol
