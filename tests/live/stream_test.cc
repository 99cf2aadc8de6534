// Two ends of a stream in one thread, and what a bad middle does to it.
#include "live/tcp/stream.h"

#include <gmock/gmock.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <optional>

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
  void on_sent(std::uint32_t, const protocol::Token& token) override { sent.push_back(token.piece); }
  void on_peer_gone(int, std::optional<ErrorCode>, const std::string&) override {
    ADD_FAILURE() << "said by whoever knows all streams of the peer";
  }

  std::vector<std::byte> into;
  std::vector<std::uint32_t> chunks;
  std::vector<std::vector<std::byte>> payloads;
  std::vector<std::uint32_t> sent;
  int direct = 0;
};

::testing::AssertionResult failed(const Stream& stream) {
  if (!stream.end()) return ::testing::AssertionFailure() << "it is open";
  if (!stream.end()->failure) return ::testing::AssertionFailure() << "it has ended in order";
  return ::testing::AssertionSuccess() << stream.end()->why;
}

enum class Protection { checksum, chacha, aes };

// What a handshake would have left to both ends; empty for an open stream.
std::array<std::optional<wire::SessionSecrets>, 2> secrets_for(Protection protection) {
  if (protection == Protection::checksum) return {};
  wire::SessionSecrets one;
  one.cipher =
      protection == Protection::aes ? wire::CipherKind::aes256_gcm : wire::CipherKind::chacha20_poly1305;
  one.send = wire::secret_from_text("from a to b");
  one.receive = wire::secret_from_text("from b to a");
  wire::SessionSecrets other = one;
  std::swap(other.send, other.receive);
  return {one, other};
}

const wire::SessionSecrets* pointer(const std::optional<wire::SessionSecrets>& secrets) {
  return secrets ? &*secrets : nullptr;
}

std::string name_of(const ::testing::TestParamInfo<Protection>& info) {
  return info.param == Protection::checksum ? "Open" : info.param == Protection::aes ? "Aes" : "ChaCha";
}

std::vector<Protection> protections() {
  std::vector<Protection> all = {Protection::checksum, Protection::chacha};
  if (wire::has_aes()) all.push_back(Protection::aes);
  return all;
}

class Streams : public ::testing::TestWithParam<Protection> {
 protected:
  Streams() {
    int fds[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    const auto secrets = secrets_for(GetParam());
    a = std::make_unique<Stream>(FileDescriptor(fds[0]), 1, StreamOptions{}, at_a, pointer(secrets[0]));
    b = std::make_unique<Stream>(FileDescriptor(fds[1]), 0, StreamOptions{}, at_b, pointer(secrets[1]));
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
      a->on_ready(false, true);
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

TEST_P(Streams, CarryFramesOfEverySizeInOrder) {
  std::vector<std::vector<std::byte>> payloads;
  for (const std::size_t n : {0UL, 1UL, 100UL, 16'000UL, 65'536UL, 200'000UL, 262'144UL, 3UL, 262'144UL})
    payloads.push_back(pattern(n, static_cast<int>(n)));
  for (std::uint32_t i = 0; i < payloads.size(); ++i) a->push(frame(i, payloads[i]));
  pump();
  EXPECT_EQ(at_b.payloads, payloads);
  EXPECT_EQ(at_a.sent.size(), payloads.size());
  EXPECT_TRUE(a->idle());
}

TEST_P(Streams, LargeResultsAreReceivedStraightIntoPlace) {
  at_b.into.resize(262'144);
  const auto payload = pattern(262'144, 1);
  a->push(frame(0, payload, true));
  pump();
  EXPECT_EQ(at_b.direct, 1);
  EXPECT_EQ(at_b.into, payload);
}

TEST_P(Streams, ACancelledFrameDoesNotReadItsPayloadAgain) {
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
  ASSERT_TRUE(b->open()) << b->end()->why;
  // What the wire had begun is completed with the bytes it had when it was cancelled.
  EXPECT_EQ(at_b.payloads.front(), copy);
  EXPECT_EQ(at_b.payloads.back(), other);
}

TEST_P(Streams, WhatIsReceivedForACancelledRunGoesNowhere) {
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

TEST_P(Streams, AGoodbyeMakesTheEndOrderly) {
  EXPECT_TRUE(a->say_goodbye());
  a.reset();
  b->receive();
  b->receive();
  EXPECT_FALSE(b->open());
  EXPECT_FALSE(failed(*b));
}

TEST_P(Streams, AnEndWithoutOneIsNot) {
  a->close();
  b->receive();
  EXPECT_TRUE(failed(*b));
}

TEST_P(Streams, LastWordsAreReadAlsoWhenSendingHasFailedBefore) {
  a->push(frame(7, {}));
  pump();
  a->push(frame(8, {}));
  a->flush();
  a->close();
  b->push(frame(1, {}));
  b->flush();
  EXPECT_TRUE(b->open()) << "what came before the end is still to be read";
  b->receive();
  b->receive();
  EXPECT_EQ(at_b.chunks, (std::vector<std::uint32_t>{7, 8}));
  ASSERT_TRUE(failed(*b));
  EXPECT_THAT(b->end()->why, ::testing::HasSubstr("sending to it: Broken pipe"));
}

INSTANTIATE_TEST_SUITE_P(All, Streams, ::testing::ValuesIn(protections()), name_of);

class DamagedStream : public ::testing::TestWithParam<Protection> {};

TEST_P(DamagedStream, IsNoticedWhereverTheDamageIs) {
  const std::vector<std::byte> payload(5000, std::byte{1});
  const auto secrets = secrets_for(GetParam());
  // A good frame, as a stream writes it.
  std::vector<std::byte> good(20'000);
  {
    int fds[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    Collector handler;
    Stream stream(FileDescriptor{fds[0]}, 0, StreamOptions{}, handler, pointer(secrets[0]));
    OutFrame f;
    f.header.type = wire::FrameType::up;
    f.header.length = 5000;
    f.payload = payload.data();
    stream.push(std::move(f));
    stream.flush();
    const ssize_t n = ::read(fds[1], good.data(), good.size());
    ASSERT_EQ(n, GetParam() == Protection::checksum ? 5064 : 5064 + 32);
    good.resize(static_cast<std::size_t>(n));
    ::close(fds[1]);
  }
  const auto looks_encrypted =
      std::search(good.begin(), good.end(), payload.begin(), payload.begin() + 16) == good.end();
  EXPECT_EQ(looks_encrypted, GetParam() != Protection::checksum);
  for (const std::size_t at : {0UL, 3UL, 9UL, 40UL, 63UL, 64UL, 79UL, 80UL, 3000UL, good.size() - 1}) {
    int fds[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    Collector handler;
    Stream stream(FileDescriptor{fds[0]}, 3, StreamOptions{}, handler, pointer(secrets[1]));
    auto bad = good;
    bad[at] ^= std::byte{0x10};
    ASSERT_EQ(::write(fds[1], bad.data(), bad.size()), static_cast<ssize_t>(bad.size()));
    stream.receive();
    ASSERT_TRUE(failed(stream)) << "byte " << at;
    EXPECT_EQ(*stream.end()->failure, ErrorCode::corrupted) << "byte " << at;
    EXPECT_TRUE(handler.chunks.empty()) << "byte " << at;
    ::close(fds[1]);
  }
}

TEST(StreamPace, IsTheKernelsToKeepAndIsTakenBack) {
  const FileDescriptor listener = listen_tcp({"127.0.0.1", 0});
  Collector handler;
  Stream stream(connect_tcp(local_endpoint(listener), now_ns() + 10'000'000'000), 1, StreamOptions{},
                handler);
  const auto kept = [&] {
    std::uint64_t rate = 0;
    socklen_t length = sizeof rate;
    EXPECT_EQ(::getsockopt(stream.fd(), SOL_SOCKET, SO_MAX_PACING_RATE, &rate, &length), 0);
    return rate;
  };
  const auto unsent = [&] {
    int most = 0;
    socklen_t length = sizeof most;
    EXPECT_EQ(::getsockopt(stream.fd(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &most, &length), 0);
    return most;
  };
  constexpr std::uint64_t kNoPace = std::numeric_limits<std::uint64_t>::max();
  EXPECT_EQ(kept(), kNoPace);
  EXPECT_GT(unsent(), 4 << 10);
  stream.pace(1'250'000);
  EXPECT_EQ(kept(), 1'250'000U);
  EXPECT_EQ(unsent(), 4 << 10) << "or what is more urgent would wait behind it";
  stream.pace(1e11);
  EXPECT_EQ(kept(), 100'000'000'000U) << "more than 32 bits hold";
  stream.pace(0.1);
  EXPECT_EQ(kept(), 1U) << "a pace so slow is still one";
  stream.pace(0);
  EXPECT_EQ(kept(), kNoPace);
}

INSTANTIATE_TEST_SUITE_P(All, DamagedStream, ::testing::ValuesIn(protections()), name_of);

// One byte at a time, so that every place where what has come may end is met.
TEST_P(Streams, FramesComeOutWholeHoweverTheyArrive) {
  int fds[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
  const auto secrets = secrets_for(GetParam());
  Collector handler;
  handler.into.resize(100);
  Stream receiver(FileDescriptor{fds[0]}, 0, StreamOptions{}, handler, pointer(secrets[1]));
  int raw[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, raw), 0);
  Stream sender(FileDescriptor{raw[0]}, 1, StreamOptions{}, at_a, pointer(secrets[0]));
  const auto small = pattern(100, 1);
  const auto larger = pattern(700, 2);
  sender.push(frame(0, small, true));
  sender.push(frame(1, larger));
  sender.push(frame(2, small, true));
  sender.flush();
  std::vector<std::byte> sent(4000);
  const ssize_t n = ::read(raw[1], sent.data(), sent.size());
  for (ssize_t i = 0; i < n; ++i) {
    ASSERT_EQ(::write(fds[1], &sent[static_cast<std::size_t>(i)], 1), 1);
    receiver.receive();
  }
  ASSERT_TRUE(receiver.open()) << receiver.end()->why;
  EXPECT_EQ(handler.payloads, (std::vector<std::vector<std::byte>>{small, larger, small}));
  EXPECT_EQ(handler.direct, 2);
  ::close(raw[1]);
  ::close(fds[1]);
}

}  // namespace
}  // namespace talweg::live
