// Sockets for datagrams: what is sent arrives as it was, with offload and without, whatever the kernel
// refuses.
#include <gmock/gmock.h>
#include <netinet/udp.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "base/random.h"
#include "by_socket.h"
#include "live/udp/class_socket.h"
#include "live/udp/udp_end.h"
#include "talweg/error.h"

namespace talweg::live {
namespace {

// Where IPv6 is switched off, IPv4 alone.
std::vector<UdpAddress> loopbacks() {
  std::vector<UdpAddress> all{UdpAddress("127.0.0.1:0")};
  try {
    UdpSocket(UdpAddress("[::1]:0"));
    all.emplace_back("[::1]:0");
  } catch (const Error&) {
  }
  return all;
}

bool has_control(const msghdr& header, int level, int type) {
  for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(const_cast<msghdr*>(&header), c))
    if (c->cmsg_level == level && c->cmsg_type == type) return true;
  return false;
}
bool offloaded(const mmsghdr& m) {
  return has_control(m.msg_hdr, IPPROTO_UDP, UDP_SEGMENT);
}
bool classed(const mmsghdr& m) {
  return has_control(m.msg_hdr, IPPROTO_IP, IP_TOS) || has_control(m.msg_hdr, IPPROTO_IPV6, IPV6_TCLASS);
}

int fail_with(int error) {
  errno = error;
  return -1;
}

// A sender to a receiver, with whatever stands in for sendmmsg.
struct Way {
  explicit Way(const UdpAddress& local, UdpSender::SendCall send = {}, bool merge = true)
      : from(local),
        to(local, {.merge = merge}),
        sender(from, {}, std::move(send)),
        receiver(to),
        there(sender.add(to.address())) {}

  void send(std::size_t bytes, std::uint8_t service = 0) {
    std::byte* at = sender.place(there, service, bytes);
    if (at == nullptr) {
      EXPECT_TRUE(sender.flush());
      take();
      at = sender.place(there, service, bytes);
    }
    ASSERT_NE(at, nullptr);
    std::memset(at, static_cast<int>(sent.size() % 251), bytes);
    sender.placed(bytes);
    sent.push_back(bytes);
  }
  // What is there by now.
  void take() {
    while (receiver.receive([&](UdpReceiver::Datagram& d) {
      EXPECT_EQ(d.from, from.address());
      for (const std::byte b : d.bytes) ASSERT_EQ(b, static_cast<std::byte>(got.size() % 251)) << got.size();
      got.push_back(d.bytes.size());
      marked += d.marked ? 1 : 0;
    })) {
    }
  }

  UdpSocket from, to;
  UdpSender sender;
  UdpReceiver receiver;
  UdpSender::Destination there;
  std::vector<std::size_t> sent, got;
  int marked = 0;
};

TEST(Udp, AddressesAreReadAndWritten) {
  for (const char* text : {"127.0.0.1:4000", "0.0.0.0:0", "[::1]:65535", "[2001:db8::7]:80"})
    EXPECT_EQ(to_string(UdpAddress(text)), text);
  for (const char* text :
       {"", ":", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1:4x", "::1:80",
        "[::1]", "[::1:80", "[]:80", "localhost:80", "[127.0.0.1.1]:80", "1.2.3:80"})
    EXPECT_THROW(UdpAddress{text}, Error) << text;
  EXPECT_EQ(UdpAddress("[::1]:80"), UdpAddress("[::1]:80"));
  EXPECT_FALSE(UdpAddress("[::1]:80") == UdpAddress("[::1]:81"));
  EXPECT_FALSE(UdpAddress("[::1]:80") == UdpAddress("1.2.3.4:80"));
}

TEST(Udp, DatagramsOfAllSizesArriveEachAsItWas) {
  for (const UdpAddress& local : loopbacks()) {
    for (const bool merge : {true, false}) {
      Way way(local, {}, merge);
      Random random{5};
      for (int i = 0; i < 3000; ++i) way.send(random.below(3) == 0 ? 1 + random.below(9000) : 1448);
      EXPECT_TRUE(way.sender.flush());
      way.take();
      EXPECT_EQ(way.got, way.sent);
      const UdpSendStatistics& s = way.sender.statistics();
      EXPECT_EQ(s.datagrams, 3000U);
      EXPECT_EQ(s.dropped + s.too_large, 0U);
      EXPECT_EQ(way.receiver.statistics().datagrams, 3000U);
      EXPECT_EQ(way.receiver.statistics().bytes, s.bytes);
      EXPECT_TRUE(merge || way.receiver.statistics().merged == 0U);
    }
  }
}

TEST(Udp, EveryTrafficClassComesAsItLeftWithItsTime) {
  for (const UdpAddress& local : loopbacks()) {
    ClassSocket from(local), to(local);
    for (int value = 0; value < 256; ++value) {
      const std::int64_t before = wall_ns();
      const std::array byte{static_cast<std::byte>(value)};
      ASSERT_EQ(from.send(to.socket().address(), static_cast<std::uint8_t>(value), byte), 0) << value;
      to.wait(false, 30'000);
      int came = 0;
      EXPECT_TRUE(to.receive([&](UdpReceiver::Datagram& d) {
        ++came;
        ASSERT_EQ(d.bytes.size(), 1U);
        EXPECT_EQ(d.bytes[0], byte[0]);
        EXPECT_EQ(d.traffic_class, value);
        EXPECT_EQ(d.marked, value % 4 == 3);
        EXPECT_GE(d.came_ns, before);
        EXPECT_LE(d.came_ns, wall_ns());
      }));
      EXPECT_EQ(came, 1);
    }
    EXPECT_FALSE(to.receive([](UdpReceiver::Datagram&) {}));
    EXPECT_NE(from.send(to.socket().address(), 0, std::vector<std::byte>(65'508)), 0)
        << "longer than UDP can be";
  }
}

TEST(Udp, ManyOfOneSizeLeaveInFewMessagesAndOneAloneWithoutOffload) {
  std::size_t messages = 0, with_offload = 0;
  Way way(UdpAddress("127.0.0.1:0"), [&](int fd, mmsghdr* m, unsigned n) {
    for (unsigned i = 0; i < n; ++i) with_offload += offloaded(m[i]) ? 1 : 0;
    messages += n;
    return ::sendmmsg(fd, m, n, MSG_DONTWAIT);
  });
  for (int i = 0; i < 90; ++i) way.send(1448);
  way.sender.flush();
  EXPECT_LE(messages, 3U);
  EXPECT_EQ(with_offload, messages);
  messages = with_offload = 0;
  way.send(700);
  way.sender.flush();
  EXPECT_EQ(messages, 1U);
  EXPECT_EQ(with_offload, 0U);
  way.take();
  EXPECT_EQ(way.got, way.sent);
}

TEST(Udp, WhereOffloadIsRefusedEverythingLeavesOneByOneFromThenOn) {
  for (const int error : {EIO, EINVAL, ENOPROTOOPT, EOPNOTSUPP}) {
    std::size_t refused = 0, calls = 0;
    Way way(UdpAddress("127.0.0.1:0"), [&](int fd, mmsghdr* m, unsigned) {
      if (++calls > 1 && offloaded(m[0])) {  // works once, as where routes change
        ++refused;
        return fail_with(error);
      }
      return ::sendmmsg(fd, m, 1, MSG_DONTWAIT);
    });
    for (int i = 0; i < 200; ++i) way.send(1000);
    EXPECT_TRUE(way.sender.flush());
    for (int i = 0; i < 50; ++i) way.send(1000);
    EXPECT_TRUE(way.sender.flush());
    way.take();
    EXPECT_EQ(way.got, way.sent);
    EXPECT_EQ(refused, 1U) << "it is remembered";
    EXPECT_EQ(way.sender.statistics().offload_refused, 1U);
    EXPECT_FALSE(way.sender.offloads(way.there));
    const auto other = way.sender.add(way.to.address());
    EXPECT_TRUE(way.sender.offloads(other)) << "of that destination alone";
  }
}

TEST(Udp, WhereClassesAreRefusedDatagramsLeaveWithoutThem) {
  Way way(UdpAddress("127.0.0.1:0"), [&](int fd, mmsghdr* m, unsigned) {
    return classed(m[0]) ? fail_with(EINVAL) : ::sendmmsg(fd, m, 1, MSG_DONTWAIT);
  });
  for (int i = 0; i < 20; ++i) way.send(1000 - static_cast<std::size_t>(i));
  for (int i = 0; i < 20; ++i) way.send(500);
  EXPECT_TRUE(way.sender.flush());
  way.take();
  EXPECT_EQ(way.got, way.sent);
  EXPECT_EQ(way.sender.statistics().class_refused, 1U);
  EXPECT_EQ(way.sender.statistics().class_error, EINVAL);
  EXPECT_THAT(
      classes_refused(way.sender.statistics()),
      ::testing::HasSubstr("refuses DSCP and ECN of datagrams (Invalid argument): they travel in one"));
}

// As often in a row as says nothing yet; then one is taken with its class, and all begins anew.
TEST(Udp, RefusalsThatTheNextDatagramIsSparedAreNotOfTheClass) {
  std::size_t with_class = 0;
  Way way(UdpAddress("127.0.0.1:0"), [&](int fd, mmsghdr* m, unsigned) {
    const bool refuses = classed(m[0]) && ++with_class % UdpSender::kClassRefusals != 0;
    return refuses ? fail_with(EPERM) : ::sendmmsg(fd, m, 1, MSG_DONTWAIT);
  });
  for (std::size_t i = 0; i < 40; ++i) way.send(500 + i);  // none joins one that is smaller
  EXPECT_TRUE(way.sender.flush());
  way.take();
  EXPECT_EQ(way.got, way.sent);
  EXPECT_EQ(with_class, 40U) << "each was tried with its class";
  EXPECT_EQ(way.sender.statistics().class_refused, 0U);
}

TEST(Udp, AClassIsRefusedAfterAFewDatagramsByOneDestinationAlone) {
  const UdpSocket other(UdpAddress("127.0.0.1:0"));
  std::size_t refused = 0;
  Way way(UdpAddress("127.0.0.1:0"), [&, taking = other.address()](int fd, mmsghdr* m, unsigned) {
    const bool taken = std::memcmp(m[0].msg_hdr.msg_name, taking.raw(), sizeof(sockaddr_in)) == 0;
    if (classed(m[0]) && !taken) return ++refused, fail_with(EPERM);
    return ::sendmmsg(fd, m, 1, MSG_DONTWAIT);
  });
  const std::array there{way.there, way.sender.add(other.address())};
  for (std::size_t i = 0; i < 4 * UdpSender::kClassRefusals; ++i) way.there = there[i % 2], way.send(500 + i);
  EXPECT_TRUE(way.sender.flush());
  EXPECT_EQ(refused, UdpSender::kClassRefusals);
  EXPECT_EQ(way.sender.statistics().class_refused, 1U);
}

TEST(Udp, WhereAllIsRefusedForATimeItIsNotTheClass) {
  bool closed = true;
  std::size_t with_class = 0;
  Way way(UdpAddress("127.0.0.1:0"), [&](int fd, mmsghdr* m, unsigned n) {
    if (closed) return fail_with(EPERM);
    for (unsigned i = 0; i < n; ++i) with_class += classed(m[i]) ? 1 : 0;
    return ::sendmmsg(fd, m, n, MSG_DONTWAIT);
  });
  for (int i = 0; i < 20; ++i) way.send(1000 - static_cast<std::size_t>(i));
  EXPECT_TRUE(way.sender.flush());
  EXPECT_EQ(way.sender.statistics().dropped, 20U);
  way.sent.clear();
  closed = false;
  way.send(500);
  EXPECT_TRUE(way.sender.flush());
  way.take();
  EXPECT_EQ(way.got, way.sent);
  EXPECT_EQ(with_class, 1U);
  EXPECT_EQ(way.sender.statistics().class_refused, 0U);
}

TEST(Udp, ARemovedDestinationIsAnothersOnceWhatWaitedHasLeft) {
  UdpSocket from(UdpAddress("127.0.0.1:0")), old(UdpAddress("127.0.0.1:0")), next(UdpAddress("127.0.0.1:0"));
  UdpSender sender(from);
  const auto send = [&](UdpSender::Destination to, char what) {
    std::byte* const at = sender.place(to, wire::kOrdinary, 1);
    ASSERT_NE(at, nullptr);
    *at = static_cast<std::byte>(what);
    sender.placed(1);
  };
  const auto received = [](const UdpSocket& socket) {
    pollfd polled{socket.fd(), POLLIN, 0};
    char what = 0;
    if (::poll(&polled, 1, 30'000) == 1 && ::recv(socket.fd(), &what, 1, 0) != 1) what = 0;
    return what;
  };
  const auto first = sender.add(old.address());
  send(first, 'a');
  sender.remove(first);
  const auto second = sender.add(next.address());
  EXPECT_EQ(second, first);
  send(second, 'b');
  EXPECT_TRUE(sender.flush());
  EXPECT_EQ(received(old), 'a');
  EXPECT_EQ(received(next), 'b');
}

TEST(Udp, WhenTheKernelHasNoRoomNothingIsLostOrSentTwice) {
  Random random{3};
  Way way(UdpAddress("127.0.0.1:0"), [&](int fd, mmsghdr* m, unsigned n) {
    const auto what = random.below(4);
    if (what == 0) return fail_with(EAGAIN);
    if (what == 1) return fail_with(EINTR);
    return ::sendmmsg(fd, m, 1 + static_cast<unsigned>(random.below(n)), MSG_DONTWAIT);
  });
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 60; ++i) {
      std::byte* at = nullptr;
      const std::size_t bytes = random.below(4) == 0 ? 1 + random.below(2000) : 1448;
      while ((at = way.sender.place(way.there, 0, bytes)) == nullptr) way.sender.flush();
      std::memset(at, static_cast<int>(way.sent.size() % 251), bytes);
      way.sender.placed(bytes);
      way.sent.push_back(bytes);
    }
    while (!way.sender.flush()) EXPECT_FALSE(way.sender.empty());
    way.take();
  }
  EXPECT_EQ(way.got, way.sent);
  EXPECT_GT(way.sender.statistics().blocked, 0U);
}

TEST(Udp, WhatIsTooLargeForThePathIsDroppedAndThePathRemembered) {
  constexpr std::size_t kPath = 1000;
  Way way(UdpAddress("127.0.0.1:0"), [&](int fd, mmsghdr* m, unsigned n) {
    if (!offloaded(m[0]) && m[0].msg_hdr.msg_iov->iov_len > kPath) return fail_with(EMSGSIZE);
    if (offloaded(m[0])) {  // as some kernels say it
      std::uint16_t segment = 0;
      std::memcpy(&segment, CMSG_DATA(CMSG_FIRSTHDR(&m[0].msg_hdr)), sizeof segment);
      if (segment > kPath) return fail_with(EMSGSIZE);
    }
    return ::sendmmsg(fd, m, n, MSG_DONTWAIT);
  });
  EXPECT_GE(way.sender.mtu(way.there), 1280U);
  std::size_t bytes = 1448;
  while (way.sender.statistics().datagrams == 0) {
    for (int i = 0; i < 5; ++i) {
      std::byte* const at = way.sender.place(way.there, 0, bytes);
      std::memset(at, 0, bytes);
      way.sender.placed(bytes);
    }
    ASSERT_TRUE(way.sender.flush());
    ASSERT_LT(way.sender.mtu(way.there), bytes + 28 + (way.sender.statistics().datagrams > 0 ? 1 : 0));
    bytes = way.sender.mtu(way.there) - 28;
    ASSERT_GE(bytes, 500U);
  }
  EXPECT_GT(way.sender.statistics().too_large, 0U);
  EXPECT_TRUE(way.sender.offloads(way.there));
}

TEST(Udp, ThatNobodyListensEndsNothing) {
  UdpAddress nobody;
  {
    const UdpSocket closed(UdpAddress("127.0.0.1:0"));
    nobody = closed.address();
  }
  Way way(UdpAddress("127.0.0.1:0"));
  const auto gone = way.sender.add(nobody);
  UdpReceiver own(way.from);
  for (int i = 0; i < 50; ++i) {
    std::memset(way.sender.place(gone, 0, 100), 0, 100);
    way.sender.placed(100);
    way.send(100);
    EXPECT_TRUE(way.sender.flush());
    own.receive([](UdpReceiver::Datagram&) { FAIL(); });
  }
  way.take();
  EXPECT_EQ(way.got, way.sent);
}

TEST(Udp, WhatTheNetworkSaysOfSomethingElseIsPassedOver) {
  const UdpAddress local("127.0.0.1:0");
  UdpSocket from(local), to(local);
  UdpSender sender(from);
  int errors = 3;
  UdpReceiver receiver(to, [&](int fd, mmsghdr* m, unsigned n) {
    return errors-- > 0 ? fail_with(ECONNREFUSED) : ::recvmmsg(fd, m, n, MSG_DONTWAIT, nullptr);
  });
  const auto there = sender.add(to.address());
  std::memset(sender.place(there, 0, 5), 0, 5);
  sender.placed(5);
  sender.flush();
  int got = 0;
  receiver.receive([&](UdpReceiver::Datagram&) { ++got; });
  EXPECT_EQ(got, 1);
  EXPECT_EQ(receiver.statistics().errors, 3U);
}

TEST(Udp, AnEndlessRowOfErrorsIsNoEndlessLoop) {
  const UdpSocket socket(UdpAddress("127.0.0.1:0"));
  UdpReceiver receiver(socket, [](int, mmsghdr*, unsigned) { return fail_with(ECONNREFUSED); });
  EXPECT_FALSE(receiver.receive([](UdpReceiver::Datagram&) {}));
}

TEST(Udp, MarksOfTheNetworkAreSeen) {
  for (const UdpAddress& local : loopbacks()) {
    Way way(local, [&](int fd, mmsghdr* m, unsigned n) {
      for (unsigned i = 0; i < n; ++i)  // a switch on the way
        for (cmsghdr* c = CMSG_FIRSTHDR(&m[i].msg_hdr); c != nullptr; c = CMSG_NXTHDR(&m[i].msg_hdr, c)) {
          if (c->cmsg_level == IPPROTO_UDP) continue;
          const int congestion_experienced = 3;
          std::memcpy(CMSG_DATA(c), &congestion_experienced, sizeof(int));
        }
      return ::sendmmsg(fd, m, n, MSG_DONTWAIT);
    });
    for (int i = 0; i < 10; ++i) way.send(100);
    way.sender.flush();
    way.take();
    EXPECT_EQ(way.marked, 10);
    Way plain(local);
    plain.send(100);
    plain.sender.flush();
    plain.take();
    EXPECT_EQ(plain.marked, 0);
    EXPECT_EQ(plain.got.size(), 1U);
  }
}

TEST(Udp, DatagramsOfDifferentClassesAreNotMerged) {
  std::size_t messages = 0;
  Way way(UdpAddress("127.0.0.1:0"), [&](int fd, mmsghdr* m, unsigned n) {
    messages += n;
    return ::sendmmsg(fd, m, n, MSG_DONTWAIT);
  });
  for (int i = 0; i < 10; ++i) way.send(100, i % 2 == 0 ? 0 : wire::kDroppable);
  way.sender.flush();
  EXPECT_EQ(messages, 10U);
  way.take();
  EXPECT_EQ(way.got, way.sent);
}

TEST(Udp, ABufferThatIsTooSmallIsSaidWithWhatHelps) {
  EXPECT_EQ(buffer_shortage(true, 1000, 1000), "");
  EXPECT_EQ(
      buffer_shortage(true, 4 << 20, 208 << 10),
      "the kernel gives UDP sockets 208 KiB to receive, not 4 MiB: over a round trip of 100 us no more than "
      "17.0 Gbit/s; more with sysctl -w net.core.rmem_max=4194304");
  EXPECT_THAT(buffer_shortage(false, 4 << 20, 1 << 20), ::testing::HasSubstr("net.core.wmem_max="));
  const UdpSocket socket(UdpAddress("127.0.0.1:0"), {.receive_bytes = 1 << 16});
  EXPECT_EQ(socket.window(), 1U << 16);
}

// Two ends with sockets, in a time of the test's own.
class Ends : public ::testing::Test {
 protected:
  void open(const UdpAddress& local, UdpEndOptions options, UdpSender::SendCall send = {}) {
    UdpSocket sockets[2] = {UdpSocket(local), UdpSocket(local)};
    const UdpAddress addresses[2] = {sockets[0].address(), sockets[1].address()};
    const wire::Secret key = wire::secret_from_text("a key for this test");
    options.send = std::move(send);
    for (std::uint16_t i = 0; i < 2; ++i) {
      const wire::DatagramScope outward{9, 1, i, static_cast<std::uint16_t>(1 - i)};
      ends_[i].emplace(std::move(sockets[i]), std::span(&addresses[1 - i], 1), UdpKeys{key, key}, outward,
                       options);
    }
  }
  // `bytes` in each direction; every one of them is compared.
  bool exchange(std::size_t bytes) {
    std::size_t written[2] = {0, 0}, read[2] = {0, 0};
    for (int i = 0; i < 1'000'000; ++i) {
      now_ns_ += 20'000;
      for (int side = 0; side < 2; ++side) {
        UdpEnd& end = *ends_[side];
        std::byte some[5000];
        const std::size_t n = std::min(sizeof some, bytes - written[side]);
        for (std::size_t k = 0; k < n; ++k) some[k] = static_cast<std::byte>((written[side] + k) * 7 / 3);
        written[side] += end.flow().write(0, {some, n});
        end.receive(now_ns_);
        end.flow().on_time(now_ns_);
        end.send(now_ns_);
        for (auto piece = end.flow().readable(0); !piece.empty(); piece = end.flow().readable(0)) {
          for (std::size_t k = 0; k < piece.size(); ++k) {
            if (piece[k] != static_cast<std::byte>((read[side] + k) * 7 / 3)) return false;
          }
          read[side] += piece.size();
          end.flow().consumed(0, piece.size());
        }
      }
      if (read[0] == bytes && read[1] == bytes && ends_[0]->flow().all_arrived() &&
          ends_[1]->flow().all_arrived())
        return true;
    }
    return false;
  }
  std::optional<UdpEnd> ends_[2];
  std::int64_t now_ns_ = 1'000'000'000;
};

TEST_F(Ends, BringEverythingOverEachKindOfAddressAndProtection) {
  for (const UdpAddress& local : loopbacks()) {
    for (const auto protection : {wire::DatagramProtection::checksum, wire::DatagramProtection::authenticated,
                                  wire::DatagramProtection::encrypted}) {
      UdpEndOptions options;
      options.suite.protection = protection;
      open(local, options);
      ASSERT_TRUE(exchange(500'000));
      EXPECT_EQ(ends_[0]->refusals().total(), 0U);
      EXPECT_EQ(ends_[0]->flow().payload(), options.most_payload);
    }
  }
}

TEST_F(Ends, BringEverythingThroughLossRefusalsAndAPathThatShrinks) {
  Random random{11};
  std::size_t path = 9000;
  int calls = 0;
  UdpEndOptions options;
  open(UdpAddress("127.0.0.1:0"), options, [&](int fd, mmsghdr* m, unsigned) {
    if (++calls == 30) path = 1400;
    if (random.below(40) == 0) return fail_with(EAGAIN);
    if (offloaded(m[0]) && calls > 20) return fail_with(EIO);
    if (!offloaded(m[0]) && m[0].msg_hdr.msg_iov->iov_len > path) return fail_with(EMSGSIZE);
    if (random.below(10) == 0) return 1;  // lost
    if (random.below(20) == 0) return fail_with(ECONNREFUSED);
    return ::sendmmsg(fd, m, 1, MSG_DONTWAIT);
  });
  ASSERT_TRUE(exchange(400'000));
  EXPECT_LE(ends_[0]->flow().payload(), 1400U);
  EXPECT_GT(ends_[0]->sent().too_large + ends_[1]->sent().too_large, 0U);
  EXPECT_GT(ends_[0]->flow().statistics().bytes_sent_again, 0U);
}

TEST_F(Ends, SendBySeveralPathsFromAsManyPorts) {
  for (const UdpAddress& local : loopbacks()) {
    BySocket by;
    UdpEndOptions options;
    options.flow.paths = 4;
    options.most_payload = 1400;
    open(local, options, by.call(SIZE_MAX));
    ASSERT_TRUE(exchange(3'000'000));
    EXPECT_EQ(by.sockets.size(), 8U);
    for (const auto& end : ends_) {
      EXPECT_EQ(end->flow().statistics().bytes_sent_again, 0U);
      for (std::size_t p = 0; p < 4; ++p) EXPECT_TRUE(end->flow().paths().in_use(p)) << p;
    }
  }
}

TEST_F(Ends, LeaveAPathThatIsDead) {
  BySocket by;
  UdpEndOptions options;
  options.flow.paths = 4;
  options.most_payload = 1400;
  open(UdpAddress("127.0.0.1:0"), options, by.call(2));
  ASSERT_TRUE(exchange(3'000'000));
  ASSERT_EQ(by.sockets.size(), 8U);
  std::size_t unused = 0;
  for (const auto& end : ends_)
    for (std::size_t p = 0; p < 4; ++p) unused += end->flow().paths().in_use(p) ? 0 : 1;
  EXPECT_EQ(unused, 1U);
  const std::uint64_t then = by.datagrams[2];
  ASSERT_TRUE(exchange(3'000'000));
  EXPECT_LT(by.datagrams[2] - then, 20U);
}

TEST(Udp, PathsGoToTheAddressesThatBothHaveElseToTheUsualOne) {
  const std::vector<UdpAddress> two{UdpAddress("10.0.0.1:0"), UdpAddress("10.1.0.1:0")};
  const UdpAddress usual("10.9.0.1:4711");
  EXPECT_EQ(addressed(packed(two), {1, two}, usual),
            (std::vector<UdpAddress>{UdpAddress("10.0.0.1:4711"), UdpAddress("10.1.0.1:4711")}));
  EXPECT_EQ(addressed(packed(two), {4, {}}, usual), std::vector<UdpAddress>{usual});
  EXPECT_EQ(addressed(packed({}), {1, two}, usual), std::vector<UdpAddress>{usual});
  const std::vector<UdpAddress> many(kMostPathAddresses + 1, two[0]);
  EXPECT_EQ(addressed(packed(many), {1, two}, usual).size(), kMostPathAddresses);
  EXPECT_EQ(listening(usual, {1, two}), UdpAddress("0.0.0.0:0"));
  EXPECT_EQ(listening(usual, {4, {}}), UdpAddress("10.9.0.1:0"));
}

TEST(Udp, PathsAreToldByTheirNumberAndAddresses) {
  EXPECT_EQ(paths_left(1, 4, "rank 7"), "1 of 4 paths to rank 7 answers nothing; it is left");
  EXPECT_EQ(origin_of({4, {UdpAddress("10.0.0.1:0")}}), "") << "there is nothing to tell apart";
  EXPECT_EQ(origin_of({4, {UdpAddress("10.0.0.1:0"), UdpAddress("10.1.0.1:0")}}), " from 10.0.0.1, 10.1.0.1");
  EXPECT_EQ(paths_left(3, 4, "rank 7"), "3 of 4 paths to rank 7 answer nothing; they are left");
}

TEST(Udp, ADeafSocketIsNeverReadable) {
  const UdpSocket deaf(UdpAddress("127.0.0.1:0"), {.deaf = true}), other(UdpAddress("127.0.0.1:0"));
  for (int i = 0; i < 10; ++i)
    ASSERT_EQ(::sendto(other.fd(), "x", 1, 0, deaf.address().raw(), deaf.address().bytes()), 1);
  pollfd polled{deaf.fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&polled, 1, 20), 0);
}

TEST_F(Ends, TakeNothingFromStrangers) {
  open(UdpAddress("127.0.0.1:0"), {});
  ASSERT_TRUE(exchange(10'000));
  const UdpSocket stranger(UdpAddress("127.0.0.1:0"));
  UdpSender sender(stranger);
  const auto there = sender.add(ends_[0]->socket().address());
  wire::DatagramSealer sealer(wire::secret_from_text("not the key of this job"), {9, 1, 1, 0}, {});
  Random random{1};
  for (int i = 0; i < 100; ++i) {
    std::byte* const at = sender.place(there, 0, 2000);
    std::byte payload[100]{};
    wire::DatagramHeader header{.type = static_cast<std::uint8_t>(1 + i % 3), .length = 100};
    std::size_t n = sealer.seal(header, payload, at);
    if (i % 2 == 0) n = random.below(n) + 1;
    sender.placed(n);
  }
  sender.flush();
  ASSERT_TRUE(exchange(10'000));
  EXPECT_EQ(ends_[0]->refusals().total(), 100U) << ends_[0]->refusals().to_string();
  EXPECT_EQ(ends_[0]->flow().statistics().malformed, 0U);
}

}  // namespace
}  // namespace talweg::live
