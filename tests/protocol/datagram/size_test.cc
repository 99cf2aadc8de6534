// What a flow finds out of how large datagrams may be where larger ones are silently lost.
#include <gtest/gtest.h>

#include <vector>

#include "protocol/datagram/flow.h"

namespace talweg::protocol {
namespace {

// Two ends, between which datagrams with larger payloads than `takes` are lost.
class NarrowPath : public ::testing::Test {
 protected:
  static FlowOptions of_payload(std::size_t bytes) {
    FlowOptions options;
    options.payload = bytes;
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
  DatagramFlow ends_[2] = {DatagramFlow(of_payload(8900)), DatagramFlow(of_payload(8900))};
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
  EXPECT_EQ(sizes_.size(), 4U) << "the full size twice";
  takes_ = 1000;
  ends_[0].ask_for_size();
  go(2'000'000'000);
  EXPECT_EQ(ends_[0].payload(), wire::kMostAckBytes);
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

}  // namespace
}  // namespace talweg::protocol
