// Frames between ranks of one host, all ends in one thread.
#include "live/shared/shared_ring.h"

#include <gmock/gmock.h>

#include <memory>
#include <vector>

namespace talweg::live {
namespace {

class Received : public FrameHandler {
 public:
  Place place(int, const wire::Header&) override { return {}; }
  void on_frame(int, const wire::Header& header, const std::byte* payload) override {
    EXPECT_EQ(header.chunk, frames) << "in order";
    ++frames;
    for (std::size_t i = 0; i < header.length; i += 1000)
      EXPECT_EQ(payload[i], std::byte(header.chunk % 251));
  }
  void on_sent(std::uint32_t, const protocol::Token&) override {}
  void on_peer_gone(int, std::optional<ErrorCode>, const std::string&) override {}
  std::uint32_t frames = 0;
};

// One rank that sends to some readers.
class SharedLinks : public ::testing::Test {
 protected:
  struct Reader {
    std::unique_ptr<SharedSender> sender;
    std::unique_ptr<SharedRing> to, from;
    std::vector<std::vector<std::byte>> payloads;
    Received received;
    std::uint32_t sent = 0;
  };

  void start(int readers) {
    const FileDescriptor own_file = Segment::create(readers + 1);
    sender_ = std::make_unique<SharedSender>(Segment(own_file, readers + 1));
    readers_.resize(static_cast<std::size_t>(readers));
    for (int r = 0; r < readers; ++r) {
      Reader& reader = readers_[static_cast<std::size_t>(r)];
      const FileDescriptor file = Segment::create(readers + 1);
      reader.sender = std::make_unique<SharedSender>(Segment(file, readers + 1));
      reader.to = std::make_unique<SharedRing>(*sender_, Segment(file, readers + 1), 0, r + 1);
      reader.from = std::make_unique<SharedRing>(*reader.sender, Segment(own_file, readers + 1), r + 1, 0);
    }
  }

  // True if it is on its way.
  bool push(Reader& reader, std::size_t bytes) {
    OutFrame frame;
    frame.header.type = wire::FrameType::down;
    frame.header.chunk = reader.sent++;
    frame.header.length = static_cast<std::uint32_t>(bytes);
    reader.payloads.emplace_back(bytes, std::byte(frame.header.chunk % 251));
    frame.payload = reader.payloads.back().data();
    return reader.to->push(std::move(frame));
  }

  std::unique_ptr<SharedSender> sender_;
  std::vector<Reader> readers_;
  Received nobody_;
};

// More than a ring has entries between two looks at what was given back.
TEST_F(SharedLinks, PayloadsOfAllSizesArriveInOrderHoweverMany) {
  start(1);
  Reader& reader = readers_[0];
  constexpr std::uint32_t kFrames = 5000;
  for (std::uint32_t i = 0; i < kFrames; ++i) {
    const std::size_t bytes = i % 97 == 0 ? kLarge.bytes : (i % 5 == 0 ? 4096 : 8);
    push(reader, bytes);
    if (i % 7 == 0)
      while (reader.from->receive(0, reader.received)) {
      }
  }
  while (reader.to->flush(nobody_) || reader.from->receive(0, reader.received)) {
  }
  EXPECT_EQ(reader.received.frames, kFrames);
  EXPECT_FALSE(reader.from->broken());
  EXPECT_FALSE(reader.to->backlog());
  // Nothing is lent any more: it gets as much as at the start.
  std::uint32_t lent = 0;
  while (push(reader, kLarge.bytes)) ++lent;
  EXPECT_EQ(lent, kLarge.blocks * 3 / 4);
}

// One copy serves all readers, also where blocks are short.
TEST_F(SharedLinks, WhatSeveralReadIsCopiedOnceHoweverFewBlocksAreFree) {
  start(3);
  const std::vector<std::byte> data(kLarge.bytes, std::byte{0});
  const auto push_to_all = [&](std::uint64_t run) {
    int sent = 0;
    for (Reader& reader : readers_) {
      OutFrame frame;
      frame.header.type = wire::FrameType::down;
      frame.header.chunk = reader.sent;
      frame.header.length = kLarge.bytes;
      frame.payload = data.data();
      frame.token.run = run;
      frame.stable = true;
      if (!reader.to->push(std::move(frame))) continue;
      ++reader.sent;
      ++sent;
    }
    return sent;
  };
  const auto free_blocks = [&] {
    std::uint32_t free = 0;
    for (std::uint32_t b = kSmall.blocks; b < kBlocks; ++b)
      free += sender_->segment.readers(b).load() == 0 ? 1 : 0;
    return free;
  };
  for (std::uint64_t run = 0; run < 12; ++run) ASSERT_EQ(push_to_all(run), 3);
  sender_->forget_last();
  EXPECT_EQ(free_blocks(), kLarge.blocks - 12) << "a block for each payload, not for each reader";
}

TEST_F(SharedLinks, WhoDoesNotReadLeavesBlocksToTheOthers) {
  start(2);
  for (const std::size_t bytes : {kLarge.bytes, kSmall.bytes}) {
    for (int i = 0; i < 200; ++i) push(readers_[0], bytes);
    for (int i = 0; i < 50; ++i) {
      EXPECT_TRUE(push(readers_[1], bytes)) << i;
      readers_[1].from->receive(0, readers_[1].received);
    }
  }
  EXPECT_EQ(readers_[1].received.frames, 100U);
  readers_[0].to->forget(nobody_);
  std::uint32_t lent = 0;
  while (push(readers_[1], kLarge.bytes)) ++lent;
  EXPECT_EQ(lent, kLarge.blocks * 3 / 4) << "what the other one had is free";
}

}  // namespace
}  // namespace talweg::live
