// What a link of datagrams makes of what it is told over its TCP connection; what holds of every link is in
// link_test.cc.
#include "live/udp/udp_link.h"

#include <gmock/gmock.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <optional>
#include <string>

namespace talweg::live {
namespace {

class Ear : public FrameHandler {
 public:
  Place place(int, const wire::Header&) override { return {}; }
  void on_frame(int, const wire::Header&, const std::byte*) override { ++frames; }
  void on_sent(std::uint32_t, const protocol::Token&) override { ++sent; }
  void on_peer_gone(int, std::optional<ErrorCode> code, const std::string& reason) override {
    ++ends;
    failure = code;
    why = reason;
  }
  int frames = 0, sent = 0, ends = 0;
  std::optional<ErrorCode> failure;
  std::string why;
};

// The other end is the test.
class UdpLinkAlone : public ::testing::Test {
 protected:
  void open(std::int64_t host_timeout_ns, std::size_t most_payload = UdpEndOptions{}.most_payload) {
    int fds[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    other_ = FileDescriptor(fds[1]);
    Connection connection;
    connection.rank = 1;
    connection.streams.emplace_back(fds[0]);
    UdpLinkOptions options;
    options.host_timeout_ns = host_timeout_ns;
    options.end.most_payload = most_payload;
    link_.emplace(std::move(connection), 0, options, loop_, ear_);
  }
  // As a link would say it.
  void introduce(const UdpSocket& socket, std::uint32_t magic = 0x50445554, std::uint8_t version = 2) {
    std::array<std::byte, 40> said{};
    const auto port = static_cast<std::uint16_t>(socket.address().port());
    std::memcpy(said.data(), &magic, 4);
    std::memcpy(said.data() + 4, &port, 2);
    said[6] = std::byte{version};
    // In pieces, as it may come.
    for (const auto& [from, bytes] : {std::pair{0UL, 3UL}, {3UL, 30UL}, {33UL, 7UL}}) {
      ASSERT_EQ(::send(other_.get(), said.data() + from, bytes, 0), static_cast<ssize_t>(bytes));
      loop_.poll();
    }
  }
  void send_frame() {
    OutFrame frame;
    frame.header = encode(wire::CallId{}, wire::Announce{});
    link_->send(std::move(frame));
    link_->flush();
  }

  EventLoop loop_;
  Ear ear_;
  FileDescriptor other_;
  UdpSocket there_{UdpAddress("127.0.0.1:0")};
  std::optional<UdpLink> link_;
};

TEST_F(UdpLinkAlone, WaitsWithItsFramesUntilItKnowsWhereTo) {
  open(15'000'000'000);
  send_frame();
  EXPECT_TRUE(link_->unsent());
  UdpReceiver receiver(there_);
  int came = 0;
  receiver.receive([&](UdpReceiver::Datagram&) { ++came; });
  EXPECT_EQ(came, 0);
  introduce(there_);
  EXPECT_FALSE(link_->gone());
  receiver.receive([&](UdpReceiver::Datagram& d) {
    ++came;
    wire::DatagramHeader header;
    EXPECT_EQ(decode(d.bytes, wire::DatagramProtection::authenticated, header), wire::DatagramRefusal::none);
  });
  EXPECT_GE(came, 1);
  EXPECT_TRUE(link_->unsent()) << "nobody has acknowledged it";
}

TEST_F(UdpLinkAlone, EndsWhenTheOtherSideSpeaksOfSomethingElse) {
  open(15'000'000'000);
  introduce(there_, 0x32574c54);
  EXPECT_EQ(ear_.ends, 1);
  EXPECT_EQ(ear_.failure, ErrorCode::version);
}

TEST_F(UdpLinkAlone, EndsWhenTheOtherSideHasAnotherVersion) {
  open(15'000'000'000);
  introduce(there_, 0x50445554, 3);
  EXPECT_EQ(ear_.failure, ErrorCode::version);
}

TEST_F(UdpLinkAlone, BringsOverItsConnectionWhatIsNotAnswered) {
  open(15'000'000'000);
  introduce(there_);
  ASSERT_EQ(::send(other_.get(), "M", 1, 0), 1);
  std::array<std::byte, 256> said{};
  ASSERT_EQ(::recv(other_.get(), said.data(), said.size(), 0), 40 + 1)
      << "an introduction, and that it has met";
  send_frame();
  ssize_t n = 0;
  for (int i = 0; n <= 0 && i < 300; ++i) {
    loop_.sleep(100);
    loop_.poll();
    EXPECT_FALSE(link_->passes());
    n = ::recv(other_.get(), said.data(), said.size(), MSG_DONTWAIT);
  }
  std::uint16_t length = 0;
  ASSERT_GT(n, 2);
  std::memcpy(&length, said.data(), 2);
  EXPECT_EQ(n, 2 + length);
  wire::DatagramHeader header;
  EXPECT_EQ(decode({said.data() + 2, length}, wire::DatagramProtection::authenticated, header),
            wire::DatagramRefusal::none);
  EXPECT_TRUE(link_->unsent());
  EXPECT_FALSE(link_->gone());
}

TEST_F(UdpLinkAlone, EndsWhenTheOtherSideSaysSomethingElseFirst) {
  open(15'000'000'000);
  introduce(there_);
  ASSERT_EQ(::send(other_.get(), "?", 1, 0), 1);
  loop_.poll();
  EXPECT_EQ(ear_.failure, ErrorCode::corrupted);
}

TEST_F(UdpLinkAlone, TakesNothingThatIsNotSealedForItOverItsConnection) {
  open(15'000'000'000);
  introduce(there_);
  const std::array<std::byte, 100> nonsense{std::byte{'M'}, std::byte{97}};
  for (const std::byte& one : nonsense) {  // in pieces, as it may come
    ASSERT_EQ(::send(other_.get(), &one, 1, 0), 1);
    loop_.poll();
  }
  EXPECT_FALSE(link_->gone());
  EXPECT_EQ(ear_.frames, 0);
  EXPECT_EQ(link_->measured().acked_bytes, 0U);
}

TEST_F(UdpLinkAlone, SaysWhichRankCannotSendDatagrams) {
  open(15'000'000'000, 10);
  introduce(there_);
  EXPECT_EQ(ear_.failure, ErrorCode::system);
  EXPECT_THAT(ear_.why, ::testing::HasSubstr("rank 0 cannot send it datagrams: "));
}

TEST_F(UdpLinkAlone, CountsWhatWaitsAsSentWhenTheOtherSideHasEnded) {
  open(15'000'000'000);
  OutFrame frame;
  const std::byte payload[10]{};
  frame.header = encode(wire::CallId{}, wire::Chunk{true, 0, 0, 10});
  frame.payload = payload;
  frame.reported = false;
  EXPECT_FALSE(link_->send(std::move(frame)));
  other_.reset();
  loop_.poll();
  EXPECT_EQ(ear_.ends, 1);
  EXPECT_EQ(ear_.failure, ErrorCode::peer_failed);
  EXPECT_EQ(ear_.sent, 1);
  EXPECT_FALSE(link_->unsent());
  EXPECT_TRUE(link_->part());
}

}  // namespace
}  // namespace talweg::live
