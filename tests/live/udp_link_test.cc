// What a link of datagrams makes of what it is told over its TCP connection; what holds of every link is in
// link_test.cc.
#include "live/udp/udp_link.h"

#include <gmock/gmock.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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
  void open(std::int64_t host_timeout_ns, std::size_t most_payload = UdpEndOptions{}.most_payload,
            bool narrow = false, std::size_t paths = 1) {
    int fds[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    const int least = 1;  // the kernel makes some kilobytes of it
    ASSERT_TRUE(!narrow || ::setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &least, sizeof least) == 0);
    other_ = FileDescriptor(fds[1]);
    lifeline_ = FileDescriptor(::dup(fds[0]));
    Connection connection;
    connection.rank = 1;
    connection.streams.emplace_back(fds[0]);
    UdpLinkOptions options = options_;
    options.host_timeout_ns = host_timeout_ns;
    options.end.most_payload = most_payload;
    options.end.flow.paths = paths;
    link_.emplace(std::move(connection), 0, options, loop_, ear_);
  }
  // As a link would say it.
  void introduce(const UdpSocket& socket, std::uint32_t magic = 0x50445554, std::uint8_t version = 3) {
    std::array<std::byte, 72> said{};
    const auto port = static_cast<std::uint16_t>(socket.address().port());
    std::memcpy(said.data(), &magic, 4);
    std::memcpy(said.data() + 4, &port, 2);
    said[6] = std::byte{version};
    // In pieces, as it may come.
    for (const auto& [from, bytes] : {std::pair{0UL, 3UL}, {3UL, 30UL}, {33UL, 39UL}}) {
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

  UdpLinkOptions options_;  // but for what open() sets
  EventLoop loop_;
  Ear ear_;
  FileDescriptor other_, lifeline_;  // another descriptor of the link's own end
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
  introduce(there_, 0x50445554, 4);
  EXPECT_EQ(ear_.failure, ErrorCode::version);
}

TEST_F(UdpLinkAlone, BringsOverItsConnectionWhatIsNotAnswered) {
  open(15'000'000'000);
  introduce(there_);
  ASSERT_EQ(::send(other_.get(), "M", 1, 0), 1);
  std::array<std::byte, 256> said{};
  ASSERT_EQ(::recv(other_.get(), said.data(), said.size(), 0), 72 + 1)
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

// However much of it is there, and however much comes meanwhile.
TEST_F(UdpLinkAlone, ReadsSoMuchOfItsConnectionAndThenOthersHaveTheirTurn) {
  open(15'000'000'000);
  introduce(there_);
  ASSERT_EQ(::send(other_.get(), "M", 1, 0), 1);
  loop_.poll();
  const auto unread = [&] {
    int bytes = 0;
    ::ioctl(lifeline_.get(), FIONREAD, &bytes);
    return static_cast<std::size_t>(bytes);
  };
  std::array<std::byte, 8192> datagram{};
  constexpr std::uint16_t kLength = sizeof datagram - 2;
  std::memcpy(datagram.data(), &kLength, sizeof kLength);
  ASSERT_EQ(unread(), 0U);
  for (const bool ends : {false, true}) {
    std::size_t written = 0;
    while (::send(other_.get(), datagram.data(), datagram.size(), MSG_DONTWAIT) == sizeof datagram)
      written += sizeof datagram;
    ASSERT_GT(written, 2 * UdpLink::kLifelineBudget);
    if (ends) other_.reset();
    std::size_t turns = 0;
    for (std::size_t left = written; left > 0; ++turns) {
      const std::size_t before = left;
      loop_.poll();
      left = unread();
      EXPECT_LE(before - left, UdpLink::kLifelineBudget);
      ASSERT_LT(left, before);
    }
    EXPECT_GE(turns, 3U);
    EXPECT_FALSE(link_->gone()) << "its end is not read yet";
  }
  loop_.poll();
  EXPECT_EQ(ear_.failure, ErrorCode::peer_failed);
}

TEST_F(UdpLinkAlone, SaysOnceOfAllLinksThatTheHostRefusesClasses) {
  options_.end.sender.offload = false;  // so that a class is the only thing that is asked for
  options_.end.send = [](int fd, mmsghdr* messages, unsigned n) {
    if (n > 0 && messages->msg_hdr.msg_controllen == 0) return ::sendmmsg(fd, messages, 1, MSG_DONTWAIT);
    errno = EPERM;
    return -1;
  };
  testing::internal::CaptureStderr();
  for (int link = 0; link < 2; ++link) {
    open(15'000'000'000);
    introduce(there_);
    UdpReceiver receiver(there_);
    for (unsigned came = 0; came <= UdpSender::kClassRefusals;) {
      send_frame();
      receiver.receive([&](UdpReceiver::Datagram&) { ++came; });
    }
  }
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              ::testing::MatchesRegex(
                  "talweg: [^\n]* \\[0\\] WARN net: datagrams to rank 1: this host refuses DSCP "
                  "and ECN of datagrams \\(Operation not permitted\\): [^\n]*set IP_TOS[^\n]*\n"));
}

TEST_F(UdpLinkAlone, SaysWhichRankCannotSendDatagrams) {
  open(15'000'000'000, 10);
  introduce(there_);
  EXPECT_EQ(ear_.failure, ErrorCode::system);
  EXPECT_THAT(ear_.why, ::testing::HasSubstr("rank 0 cannot send it datagrams: "));
}

// As where the kernel watches no more descriptors for this user. The link finds it out where nobody may
// throw.
TEST_F(UdpLinkAlone, IsLostWhereItsSocketsCannotBeWatched) {
  open(15'000'000'000, UdpEndOptions{}.most_payload, false, 4);
  const FileDescriptor nothing(::dup(other_.get()));
  int loops = 0;
  for (int fd = 3; fd < 64; ++fd) {
    std::array<char, 64> is{};
    const std::string entry = "/proc/self/fd/" + std::to_string(fd);
    if (::readlink(entry.c_str(), is.data(), is.size() - 1) < 0) continue;
    if (std::string_view(is.data()) != "anon_inode:[eventpoll]") continue;
    ASSERT_EQ(::dup2(nothing.get(), fd), fd);
    ++loops;
  }
  ASSERT_EQ(loops, 1);
  introduce(there_);
  EXPECT_NO_THROW(link_->flush());
  EXPECT_EQ(ear_.ends, 1);
  EXPECT_EQ(ear_.failure, ErrorCode::system);
  EXPECT_THAT(ear_.why, ::testing::HasSubstr("rank 0 cannot send it datagrams: watching"));
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

TEST_F(UdpLinkAlone, HasNothingToDoWhileItsConnectionIsFull) {
  open(15'000'000'000, UdpEndOptions{}.most_payload, true);
  introduce(there_);
  ASSERT_EQ(::send(other_.get(), "M", 1, 0), 1);
  OutFrame frame;
  const std::vector<std::byte> payload(100'000);
  frame.header = encode(wire::CallId{}, wire::Chunk{true, 0, 0, 100'000});
  frame.payload = payload.data();
  link_->send(std::move(frame));
  link_->flush();
  const auto lie_there = [&] {
    int bytes = 0;
    ::ioctl(other_.get(), FIONREAD, &bytes);
    return bytes;
  };
  const int before = lie_there();
  for (int i = 0; i < 10'000 && lie_there() == before; ++i) {
    loop_.sleep(100);
    loop_.poll();
  }
  ASSERT_GT(lie_there(), before) << "it carries";
  // The other side takes nothing more.
  const std::byte any{};
  while (::send(lifeline_.get(), &any, 1, MSG_DONTWAIT) == 1) {
  }
  // Its timeouts are shorter than this.
  int wakes = 0;
  for (const std::int64_t began = now_ns(); now_ns() - began < 4'000'000'000; ++wakes) {
    loop_.sleep(100);
    loop_.poll();
  }
  EXPECT_LT(wakes, 100);
  EXPECT_FALSE(link_->gone());
}

// Two links, and between them a firewall with datagrams. What it drops counts as sent.
class UdpLinkPair : public ::testing::Test {
 protected:
  explicit UdpLinkPair(std::size_t paths = 1, std::size_t largest = SIZE_MAX,
                       const std::vector<UdpAddress>& of_0 = {}, const std::vector<UdpAddress>& of_1 = {})
      : largest_(largest) {
    int fds[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    for (int side = 0; side < 2; ++side) {
      Connection connection;
      connection.rank = 1 - side;
      connection.streams.emplace_back(fds[side]);
      UdpLinkOptions options;
      options.end.flow.paths = paths;
      options.end.sender.paths.addresses = side == 0 ? of_0 : of_1;
      options.end.send = [this, side](int fd, mmsghdr* messages, unsigned n) {
        note_way(side, fd, messages[0].msg_hdr);
        const auto fits = [this](mmsghdr& m) { return datagram_bytes(m.msg_hdr) <= largest_; };
        if (!fits(messages[0])) return ++dropped_[side], 1;
        n = static_cast<unsigned>(std::find_if_not(messages, messages + n, fits) - messages);
        const int sent = blocked_[side] ? static_cast<int>(n) : ::sendmmsg(fd, messages, n, MSG_DONTWAIT);
        (blocked_[side] ? dropped_ : passed_)[side] += std::max(sent, 0);
        return sent;
      };
      links_[side].emplace(std::move(connection), side, options, loop_, ears_[side]);
    }
  }
  // Of a message, which is of one path.
  void note_way(int side, int fd, const msghdr& message) {
    UdpAddress from, to;
    socklen_t length = sizeof(sockaddr_in6);
    ::getsockname(fd, from.raw(), &length);
    std::memcpy(to.raw(), message.msg_name, message.msg_namelen);
    for (UdpAddress* address : {&from, &to}) address->set_port(0);
    ways_[side].emplace(to_string(from), to_string(to));
  }
  // Of the largest in a message: the kernel cuts it.
  static std::size_t datagram_bytes(msghdr& message) {
    for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c))
      if (std::uint16_t bytes = 0; c->cmsg_level == IPPROTO_UDP && c->cmsg_type == UDP_SEGMENT)
        return std::memcpy(&bytes, CMSG_DATA(c), sizeof bytes), bytes;
    return message.msg_iov[0].iov_len;
  }
  void send_frame(int side, std::span<const std::byte> payload = {}) {
    OutFrame frame;
    const auto bytes = static_cast<std::uint32_t>(payload.size());
    frame.header = bytes > 0 ? encode(wire::CallId{}, wire::Chunk{true, 0, 0, bytes})
                             : encode(wire::CallId{}, wire::Announce{});
    frame.payload = payload.data();
    links_[side]->send(std::move(frame));
    links_[side]->flush();
  }
  template <class Holds>
  bool until(Holds&& holds) {
    for (const std::int64_t began = now_ns(); !holds() && now_ns() - began < 60'000'000'000;) {
      loop_.sleep(10);
      loop_.poll();
    }
    return holds();
  }

  EventLoop loop_;
  bool blocked_[2] = {};  // what this side sends
  std::size_t largest_;   // that passes
  int dropped_[2] = {}, passed_[2] = {};
  std::set<std::pair<std::string, std::string>> ways_[2];  // from and to
  Ear ears_[2];
  std::optional<UdpLink> links_[2];
};

TEST_F(UdpLinkPair, SendsDatagramsAgainOnceTheyPassAgain) {
  ASSERT_TRUE(until([&] { return links_[0]->passes() && links_[1]->passes(); }));
  // By who sends: both ways are blocked, or one.
  for (const auto& [first, second] : {std::pair{true, true}, {true, false}, {false, true}}) {
    blocked_[0] = first;
    blocked_[1] = second;
    const int before = ears_[0].frames + ears_[1].frames;
    send_frame(0);
    send_frame(1);
    ASSERT_TRUE(until([&] { return !links_[0]->passes() && !links_[1]->passes(); }));
    ASSERT_TRUE(until([&] { return ears_[0].frames + ears_[1].frames == before + 2; })) << "carried";
    const int tried = dropped_[0] + dropped_[1];
    ASSERT_TRUE(until([&] { return dropped_[0] + dropped_[1] > tried; })) << "it tries again";
    EXPECT_FALSE(links_[0]->passes() && links_[1]->passes());
    blocked_[0] = blocked_[1] = false;
    ASSERT_TRUE(until([&] { return links_[0]->passes() && links_[1]->passes(); }));
    ASSERT_TRUE(until([&] { return !links_[0]->unsent() && !links_[1]->unsent(); }));
    const int passed = passed_[0];
    send_frame(0);
    ASSERT_TRUE(until([&] { return !links_[0]->unsent(); }));
    EXPECT_GT(passed_[0], passed);
    EXPECT_TRUE(links_[0]->passes());
  }
}

TEST_F(UdpLinkPair, TriesDatagramsEverMoreRarelyWhereNonePass) {
  ASSERT_TRUE(until([&] { return links_[0]->passes() && links_[1]->passes(); }));
  blocked_[0] = blocked_[1] = true;
  send_frame(0);
  ASSERT_TRUE(until([&] { return !links_[0]->passes(); }));
  const int before = dropped_[0];
  ASSERT_TRUE(until([&] { return dropped_[0] > before; }));
  const std::int64_t first = now_ns();
  const int tried = dropped_[0];
  ASSERT_TRUE(until([&] { return dropped_[0] > tried; }));
  EXPECT_GE(now_ns() - first, TryTimes::kLeastNs * 3 / 2) << "twice as long after the first as before it";
}

TEST_F(UdpLinkPair, SendsSmallerDatagramsOnceOnlyThesePass) {
  ASSERT_TRUE(until([&] { return links_[0]->passes() && links_[1]->passes(); }));
  const std::vector<std::byte> payload(20'000);
  for (const std::size_t largest : {1300, 750}) {
    blocked_[0] = blocked_[1] = true;
    send_frame(0);
    send_frame(1);
    ASSERT_TRUE(until([&] { return !links_[0]->passes() && !links_[1]->passes(); }));
    largest_ = largest;
    blocked_[0] = blocked_[1] = false;
    ASSERT_TRUE(until([&] { return links_[0]->passes() && links_[1]->passes(); }));
    ASSERT_TRUE(until([&] {
      const int dropped = dropped_[0], passed = passed_[0];
      send_frame(0, payload);
      return until([&] { return !links_[0]->unsent(); }) && links_[0]->passes() && dropped_[0] == dropped &&
             passed_[0] > passed;
    }));
  }
}

class NarrowUdpLinkPair : public UdpLinkPair {
 protected:
  NarrowUdpLinkPair() : UdpLinkPair(4, 600) {}
};

TEST_F(NarrowUdpLinkPair, TakesNoTrialOfAPathForDatagramsThatPass) {
  ASSERT_TRUE(until([&] {
    EXPECT_FALSE(links_[0]->passes());
    return dropped_[0] >= 8 && passed_[0] > 0 && passed_[1] > 0;
  }));
  send_frame(0);
  ASSERT_TRUE(until([&] { return ears_[1].frames == 1; })) << "carried";
  EXPECT_FALSE(links_[0]->passes());
}

using Ways = std::set<std::pair<std::string, std::string>>;
const std::vector<UdpAddress> kTwo{UdpAddress("127.0.0.2:0"), UdpAddress("127.0.0.3:0")};
const std::vector<UdpAddress> kTwoMore{UdpAddress("127.0.0.4:0"), UdpAddress("127.0.0.5:0")};

class UdpLinkPairOfTwoWays : public UdpLinkPair {
 protected:
  explicit UdpLinkPairOfTwoWays(const std::vector<UdpAddress>& of_1 = kTwoMore)
      : UdpLinkPair(2, SIZE_MAX, kTwo, of_1) {}
  void go_by(const Ways& of_0, const Ways& of_1) {
    ASSERT_TRUE(until([&] { return links_[0]->passes() && links_[1]->passes(); }));
    const std::vector<std::byte> payload(200'000);
    ASSERT_TRUE(until([&] {
      for (const int side : {0, 1}) send_frame(side, payload);
      return until([&] { return !links_[0]->unsent() && !links_[1]->unsent(); }) &&
             ways_[0].size() >= of_0.size() && ways_[1].size() >= of_1.size();
    }));
    EXPECT_EQ(ways_[0], of_0);
    EXPECT_EQ(ways_[1], of_1);
    EXPECT_TRUE(links_[0]->passes() && links_[1]->passes());
  }
};

TEST_F(UdpLinkPairOfTwoWays, GoesFromAndToBothAddressesOfBoth) {
  go_by({{"0.0.0.0:0", "127.0.0.4:0"}, {"127.0.0.3:0", "127.0.0.5:0"}},
        {{"0.0.0.0:0", "127.0.0.2:0"}, {"127.0.0.5:0", "127.0.0.3:0"}});
}

class UnevenUdpLinkPair : public UdpLinkPairOfTwoWays {
 protected:
  UnevenUdpLinkPair() : UdpLinkPairOfTwoWays({}) {}
};

// It knows nothing of the networks that the other side's interfaces are in.
TEST_F(UnevenUdpLinkPair, GoesToTheUsualAddressFromWhoHasNoOther) {
  go_by({{"0.0.0.0:0", "127.0.0.1:0"}, {"127.0.0.3:0", "127.0.0.1:0"}}, {{"127.0.0.1:0", "127.0.0.1:0"}});
}

}  // namespace
}  // namespace talweg::live
