// Two ends of a stream in one thread, and what a bad middle does to it.
#include "live/stream.h"

#include <gmock/gmock.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>

namespace talweg::live {
namespace {

class Collector : public FrameHandler {
 public:
  Place place(int, const wire::Header& header) override {
    if (header.type != wire::FrameType::down || into.size() < header.length) return {};
    return {into.data(), header.group, header.sequence};
  }
  void on_frame(int, const wire::Header& header, const std::byte* payload) override {
    chunks.push_back(header.chunk);
    direct += payload == into.data() ? 1 : 0;
    payloads.emplace_back(payload, payload + header.length);
  }
  void on_sent(std::uint32_t, const protocol::Token& token) override { sent.push_back(token.tree); }
  void on_peer_gone(int, bool orderly_end, const std::string& reason) override {
    gone = true;
    orderly = orderly_end;
    why = reason;
  }

  std::vector<std::byte> into;
  std::vector<std::uint32_t> chunks;
  std::vector<std::vector<std::byte>> payloads;
  std::vector<std::uint32_t> sent;
  int direct = 0;
  bool gone = false;
  bool orderly = false;
  std::string why;
};

class Streams : public ::testing::Test {
 protected:
  Streams() {
    int fds[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    a = std::make_unique<Stream>(FileDescriptor(fds[0]), 1, StreamOptions{}, at_a);
    b = std::make_unique<Stream>(FileDescriptor(fds[1]), 0, StreamOptions{}, at_b);
  }
  static OutFrame frame(std::uint32_t chunk, const std::vector<std::byte>& payload, bool down = false) {
    OutFrame f;
    f.header.type = down ? wire::FrameType::down : wire::FrameType::up;
    f.header.chunk = chunk;
    f.header.length = static_cast<std::uint32_t>(payload.size());
    f.header.sequence = 4;
    f.payload = payload.data();
    f.token = {4, chunk, nullptr};
    f.reported = false;
    return f;
  }
  void pump() {
    for (int i = 0; i < 10'000 && (!a->idle() || b->receive()); ++i) {
      a->on_writable();
      a->flush();
      b->receive();
    }
  }
  static std::vector<std::byte> pattern(std::size_t n, int seed) {
    std::vector<std::byte> v(n);
    for (std::size_t i = 0; i < n; ++i)
      v[i] = static_cast<std::byte>((i * 131 + static_cast<std::size_t>(seed)) & 255);
    return v;
  }

  Collector at_a, at_b;
  std::unique_ptr<Stream> a, b;
};

TEST_F(Streams, CarryFramesOfEverySizeInOrder) {
  std::vector<std::vector<std::byte>> payloads;
  for (const std::size_t n : {0UL, 1UL, 100UL, 16'000UL, 65'536UL, 200'000UL, 262'144UL, 3UL, 262'144UL})
    payloads.push_back(pattern(n, static_cast<int>(n)));
  for (std::uint32_t i = 0; i < payloads.size(); ++i) a->push(frame(i, payloads[i]));
  pump();
  EXPECT_EQ(at_b.payloads, payloads);
  EXPECT_EQ(at_a.sent.size(), payloads.size());
  EXPECT_TRUE(a->idle());
}

TEST_F(Streams, LargeResultsAreReceivedStraightIntoPlace) {
  at_b.into.resize(262'144);
  const auto payload = pattern(262'144, 1);
  a->push(frame(0, payload, true));
  pump();
  EXPECT_EQ(at_b.direct, 1);
  EXPECT_EQ(at_b.into, payload);
}

TEST_F(Streams, ACancelledFrameDoesNotReadItsPayloadAgain) {
  auto payload = std::make_unique<std::vector<std::byte>>(pattern(262'144, 2));
  const auto copy = *payload;
  const auto other = pattern(1000, 3);
  a->push(frame(0, *payload));
  a->push(frame(1, *payload));
  OutFrame last = frame(2, other);
  last.token.run = 5;
  a->flush();  // more than the socket takes: the first frame is begun
  a->push(std::move(last));
  ASSERT_FALSE(a->idle());
  a->cancel(0, 4);
  EXPECT_THAT(at_a.sent, ::testing::UnorderedElementsAre(0U, 1U));
  std::fill(payload->begin(), payload->end(), std::byte{0});
  payload.reset();
  pump();
  ASSERT_FALSE(at_b.gone) << at_b.why;
  // What the wire had begun is completed with the bytes it had when it was cancelled.
  EXPECT_EQ(at_b.payloads.front(), copy);
  EXPECT_EQ(at_b.payloads.back(), other);
}

TEST_F(Streams, WhatIsReceivedForACancelledRunGoesNowhere) {
  at_b.into.assign(262'144, std::byte{7});
  const auto payload = pattern(262'144, 4);
  a->push(frame(0, payload, true));
  a->flush();
  b->receive();  // the first part
  const auto so_far = at_b.into;
  b->cancel(0, 4);
  pump();
  EXPECT_EQ(at_b.into, so_far);
  EXPECT_TRUE(at_b.chunks.empty());
  a->push(frame(9, payload));
  pump();
  EXPECT_EQ(at_b.chunks, std::vector<std::uint32_t>{9}) << "the stream goes on";
}

TEST_F(Streams, AGoodbyeMakesTheEndOrderly) {
  OutFrame bye;
  bye.header.type = wire::FrameType::goodbye;
  a->push(std::move(bye));
  pump();
  a.reset();
  b->receive();
  EXPECT_TRUE(b->ended_orderly());
  EXPECT_FALSE(at_b.gone) << "told by whoever knows all streams of the peer";
}

TEST_F(Streams, AnEndWithoutOneIsNot) {
  a->close();
  b->receive();
  EXPECT_TRUE(at_b.gone);
  EXPECT_FALSE(b->ended_orderly());
}

TEST(DamagedStream, IsNoticedWhereverTheDamageIs) {
  const std::vector<std::byte> payload(5000, std::byte{1});
  // A good frame, as a stream writes it.
  std::vector<std::byte> good;
  {
    int fds[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    Collector handler;
    Stream stream(FileDescriptor{fds[0]}, 0, StreamOptions{}, handler);
    OutFrame f;
    f.header.type = wire::FrameType::up;
    f.header.length = 5000;
    f.payload = payload.data();
    stream.push(std::move(f));
    stream.flush();
    good.resize(sizeof(wire::Header) + payload.size());
    ASSERT_EQ(::read(fds[1], good.data(), good.size()), static_cast<ssize_t>(good.size()));
    ::close(fds[1]);
  }
  for (const std::size_t at : {0UL, 3UL, 9UL, 40UL, 63UL, 64UL, 3000UL, 5063UL}) {
    int fds[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    Collector handler;
    Stream stream(FileDescriptor{fds[0]}, 3, StreamOptions{}, handler);
    auto bad = good;
    bad[at] ^= std::byte{0x10};
    ASSERT_EQ(::write(fds[1], bad.data(), bad.size()), static_cast<ssize_t>(bad.size()));
    stream.receive();
    EXPECT_TRUE(handler.gone) << "byte " << at;
    EXPECT_FALSE(handler.orderly);
    EXPECT_TRUE(handler.chunks.empty()) << "byte " << at;
    ::close(fds[1]);
  }
}

}  // namespace
}  // namespace talweg::live
