// What a link of datagrams makes of what it is told over its TCP connection; what holds of every link is in
// link_test.cc.
#include "live/udp/udp_link.h"

#include <gmock/gmock.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <cstring>
#include <optional>
#include <string>
#include <thread>

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
  void introduce(const UdpSocket& socket, std::uint32_t magic = 0x50445554, std::uint8_t version = 1) {
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
  introduce(there_, 0x50445554, 2);
  EXPECT_EQ(ear_.failure, ErrorCode::version);
}

TEST_F(UdpLinkAlone, SaysThatUdpIsBlockedWhenTheOtherSideIsThereAndItsDatagramsAreNot) {
  open(1);
  introduce(there_);
  link_->check_host();
  EXPECT_FALSE(link_->gone()) << "it has not met us yet, or is stopped";
  ASSERT_EQ(::send(other_.get(), "M", 1, 0), 1);
  loop_.poll();
  link_->check_host();
  EXPECT_EQ(ear_.failure, ErrorCode::system);
  EXPECT_THAT(ear_.why, ::testing::HasSubstr("is UDP blocked between the two hosts?"));
}

TEST_F(UdpLinkAlone, WarnsOnceBeforeThat) {
  open(60'000'000'000);
  introduce(there_);
  ASSERT_EQ(::send(other_.get(), "M", 1, 0), 1);
  loop_.poll();
  ::testing::internal::CaptureStderr();
  link_->check_host();
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  std::this_thread::sleep_for(std::chrono::milliseconds(2'100));
  ::testing::internal::CaptureStderr();
  link_->check_host();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::HasSubstr("is UDP blocked between the two hosts?"));
  ::testing::internal::CaptureStderr();
  link_->check_host();
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  EXPECT_FALSE(link_->gone());
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
