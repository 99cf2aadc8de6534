// What a flow finds out of how large datagrams may be where larger ones are silently lost.
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "protocol/datagram/flow.h"

namespace talweg::protocol {
namespace {

// Two ends, between which datagrams with larger payloads than `takes` are lost.
class NarrowPath : public ::testing::Test {
 protected:
  explicit NarrowPath(std::size_t paths = 1)
      : ends_{DatagramFlow(of_payload(8900, paths)), DatagramFlow(of_payload(8900, paths))} {}
  static FlowOptions of_payload(std::size_t bytes, std::size_t paths) {
    FlowOptions options;
    options.payload = bytes;
    options.paths = paths;
    return options;
  }
  // Until nothing more is to happen, or so much time has passed.
  void go(std::int64_t for_ns) {
    std::vector<std::byte> payload(wire::kMaxDatagramPayload);
    for (const std::int64_t until = now_ + for_ns; now_ < until; now_ += 100'000) {
      for (int side = 0; side < 2; ++side) {
        wire::DatagramHeader header;
        ends_[side].on_time(now_);
        while (ends_[side].next(numbers_[side], now_, header, payload.data())) {
          header.number = numbers_[side]++;
          sizes_.push_back(header.length);
          if (header.length > takes_) continue;
          ends_[1 - side].on_datagram(header, {payload.data(), header.length}, false, now_);
          ends_[1 - side].end_of_batch();
        }
      }
    }
  }

  std::size_t takes_ = SIZE_MAX;
  DatagramFlow ends_[2];
  std::uint64_t numbers_[2] = {0, 0};
  std::vector<std::size_t> sizes_;  // of what has left, at both ends
  std::int64_t now_ = 1'000'000;
};

TEST_F(NarrowPath, TheFullSizeStaysWhereItPasses) {
  ends_[0].ask_for_size();
  go(2'000'000'000);
  EXPECT_EQ(ends_[0].payload(), 8900U);
  ASSERT_EQ(sizes_.size(), 2U) << "asked once, and answered";
  EXPECT_EQ(sizes_[0], 8900U);
}

TEST_F(NarrowPath, TheLargestOfThoseThatAreTriedIsTaken) {
  takes_ = 1410;
  ends_[0].ask_for_size();
  go(1'000'000'000);
  EXPECT_EQ(ends_[0].payload(), 1404U);
  EXPECT_EQ(sizes_.size(), 8U) << "the full size twice, and twice once more when a smaller one is answered";
  takes_ = 1000;
  ends_[0].ask_for_size();
  go(2'000'000'000);
  EXPECT_EQ(ends_[0].payload(), wire::kMostAckBytes);
}

TEST_F(NarrowPath, OfAllSizesAtOnceTheLargestThatPassesIsKnown) {
  for (const std::size_t takes : {9000, 1410, 1200, 700, 100}) {
    takes_ = takes;
    for (std::size_t n = 0; n < DatagramFlow::kSizes; ++n) {
      ends_[0].ask_with_size(n);
      sizes_.clear();
      go(100'000);
      ASSERT_FALSE(sizes_.empty());
      EXPECT_EQ(sizes_[0], (std::array<std::size_t, 4>{8900, 1404, 1184, wire::kMostAckBytes}[n]));
    }
    const std::size_t passes = takes == 9000   ? 8900
                               : takes == 1410 ? 1404
                               : takes == 1200 ? 1184
                               : takes == 700  ? wire::kMostAckBytes
                                               : 0;
    EXPECT_EQ(ends_[0].answered_size(), passes);
    EXPECT_EQ(ends_[0].payload(), 8900U) << "one of the full size may just have been lost";
  }
}

TEST_F(NarrowPath, WhatIsKnownToPassNeedNotBeFoundOutAgain) {
  takes_ = 1200;
  ends_[0].ask_for_size(1184);
  go(1'000'000'000);
  EXPECT_EQ(ends_[0].payload(), 1184U);
  EXPECT_EQ(sizes_.size(), 4U) << "the full size twice, what passes, and its answer";
}

TEST_F(NarrowPath, ThenAllThatFollowsPasses) {
  takes_ = 1200;
  ends_[0].ask_for_size();
  go(1'000'000'000);
  ASSERT_EQ(ends_[0].payload(), 1184U);
  ASSERT_EQ(ends_[0].write(0, std::vector<std::byte>(20'000)), 20'000U);
  go(100'000'000);
  EXPECT_TRUE(ends_[0].all_arrived());
  EXPECT_EQ(ends_[0].statistics().bytes_sent_again, 0U);
}

TEST_F(NarrowPath, APathThatBecomesNarrowIsFoundOut) {
  ends_[0].ask_for_size();
  std::size_t written = 0, read = 0;
  const auto write_and_read = [&](std::int64_t for_ns) {
    for (const std::int64_t until = now_ + for_ns; now_ < until;) {
      written += ends_[0].write(0, std::vector<std::byte>(5000));
      go(1'000'000);
      const std::size_t some = ends_[1].readable(0).size();
      ends_[1].consumed(0, some);
      read += some;
    }
  };
  write_and_read(100'000'000);
  ASSERT_GT(read, 100'000U);
  EXPECT_EQ(ends_[0].payload(), 8900U);
  takes_ = 1410;
  write_and_read(2'000'000'000);
  EXPECT_EQ(ends_[0].payload(), 1404U);
  go(1'000'000'000);
  const std::size_t rest = ends_[1].readable(0).size();
  EXPECT_EQ(read + rest, written);
}

// The receiver reads nothing: small answers come, and nothing is wrong with the path.
TEST_F(NarrowPath, WhoWaitsForCreditIsInNoDoubt) {
  for (int i = 0; i < 200; ++i) {
    ends_[0].write(0, std::vector<std::byte>(20'000));
    go(50'000'000);
  }
  EXPECT_GT(ends_[0].statistics().credit_waits, 3U);
  sizes_.clear();
  go(10'000'000'000);
  EXPECT_EQ(ends_[0].payload(), 8900U);
  for (const std::size_t size : sizes_) EXPECT_LT(size, 500U);
}

// The other end may have been busy, and get them all at once.
TEST_F(NarrowPath, TheSizeStaysWhereTheAnswerIsMerelyLate) {
  ends_[0].ask_for_size();
  takes_ = 0;
  std::vector<std::byte> payload(wire::kMaxDatagramPayload);
  std::vector<wire::DatagramHeader> kept;
  for (; now_ < 700'000'000; now_ += 100'000) {
    wire::DatagramHeader header;
    ends_[0].on_time(now_);
    while (ends_[0].next(numbers_[0], now_, header, payload.data())) {
      header.number = numbers_[0]++;
      kept.push_back(header);
    }
  }
  ASSERT_GE(kept.size(), 4U);
  for (const wire::DatagramHeader& header : kept)
    ends_[1].on_datagram(header, {payload.data(), header.length}, false, now_);
  ends_[1].end_of_batch();
  takes_ = SIZE_MAX;
  go(10'000'000);
  EXPECT_EQ(ends_[0].payload(), 8900U);
}

// What passes first after that is a smaller one.
TEST_F(NarrowPath, TheSizeStaysWhereNothingPassedForAWhile) {
  for (int ms = 5; ms < 500; ms += 15) {
    takes_ = SIZE_MAX;
    go(50'000'000);
    takes_ = 0;
    ends_[0].write(0, std::vector<std::byte>(5000));
    ends_[0].ask_for_size();
    go(ms * 1'000'000);
    takes_ = SIZE_MAX;
    go(2'000'000'000);
    ASSERT_TRUE(ends_[0].all_arrived());
    ASSERT_EQ(ends_[0].payload(), 8900U) << "after " << ms << " ms";
  }
}

TEST_F(NarrowPath, NothingAnswersAndTheSizeStays) {
  takes_ = 0;
  ends_[0].ask_for_size();
  go(5'000'000'000);
  EXPECT_EQ(ends_[0].payload(), 8900U);
  EXPECT_GE(ends_[0].missed(), 8U);
  sizes_.clear();
  ends_[0].ask();
  go(100'000);
  ASSERT_FALSE(sizes_.empty());
  EXPECT_EQ(sizes_[0], 0U) << "no longer a question of size";
}

class NarrowPaths : public NarrowPath {
 protected:
  NarrowPaths() : NarrowPath(4) {}
};

// They are smaller than all that is asked with.
TEST_F(NarrowPaths, AnswersToTrialsOfPathsAreNoneToWhatIsAsked) {
  takes_ = wire::kMostAckBytes - 1;
  ends_[0].ask_for_size();
  go(10'000'000'000);
  EXPECT_GT(ends_[0].statistics().trials, 4U);
  EXPECT_GE(ends_[0].missed(), 8U);
  EXPECT_TRUE(ends_[0].only_trials());
  takes_ = SIZE_MAX;
  go(3'000'000'000);
  EXPECT_EQ(ends_[0].missed(), 0U);
  EXPECT_EQ(ends_[0].payload(), 8900U);
}

}  // namespace
}  // namespace talweg::protocol
