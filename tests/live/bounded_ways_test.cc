// Which datagrams pass between two ranks of one process, over real sockets.
#include "live/bounded/bounded_ways.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "live/bounded/bounded_exchange.h"
#include "live/system.h"
#include "wire/bounded.h"

namespace talweg::live {
namespace {

// Each datagram leaves `copies` times, but for those of more bytes than `most`.
UdpSender::SendCall up_to(std::size_t most, int copies = 1) {
  return [most, copies](int fd, mmsghdr* messages, unsigned n) {
    for (unsigned i = 0; i < n; ++i)
      for (int left = copies; left > 0 && messages[i].msg_hdr.msg_iov->iov_len <= most; --left)
        ::sendmmsg(fd, messages + i, 1, 0);
    return static_cast<int>(n);
  };
}

struct TwoRanks {
  explicit TwoRanks(const UdpSender::SendCall& send, std::size_t most = 8192, std::size_t paths = 1) {
    for (int r = 0; r < 2; ++r) {
      sockets.push_back(std::make_unique<UdpSocket>(UdpAddress("127.0.0.1:0")));
      BoundedPeer peer{{sockets.back()->address()}, {}};
      wire::fill_random(peer.secret);
      peers.push_back(peer);
    }
    for (int r = 0; r < 2; ++r) {
      const UdpSocket& socket = *sockets[static_cast<std::size_t>(r)];
      ways.push_back(std::make_unique<BoundedWays>(socket, r, peers, wire::DatagramSuite{}, most, send,
                                                   more_paths(socket, {paths, {}})));
    }
  }
  // Until that is so, or for far longer than it should take.
  template <class Condition>
  void run_until(Condition&& condition) {
    const std::int64_t end = now_ns() + 20'000 * kMillisecondNs;
    while (!condition() && now_ns() < end)
      for (const auto& w : ways) {
        w->step(now_ns());
        w->wait(now_ns() + kMillisecondNs);
      }
  }
  std::size_t came_to_0() { return ways[0]->trial().came(1); }
  bool ended() { return ways[0]->trial().ended(now_ns()) && ways[1]->trial().ended(now_ns()); }

  std::vector<std::unique_ptr<UdpSocket>> sockets;
  std::vector<BoundedPeer> peers;
  std::vector<std::unique_ptr<BoundedWays>> ways;
};

TEST(BoundedWays, EndWhenTheLargestHaveCome) {
  TwoRanks ranks(up_to(65'535));
  ranks.run_until([&] { return ranks.ended(); });
  EXPECT_TRUE(ranks.ended());
  EXPECT_EQ(ranks.ways[0]->wanted(), 8292U);
  EXPECT_EQ(ranks.came_to_0(), 8292U);
  EXPECT_EQ(ranks.ways[1]->trial().came(0), 8292U);
  EXPECT_EQ(bounded_stride(8292, false, wire::DatagramProtection::authenticated, 8192), 8192);
}

TEST(BoundedWays, TryNoneThatUdpCannotCarry) {
  TwoRanks ranks(up_to(65'535), wire::kMaxDatagramPayload);
  ranks.run_until([&] { return ranks.ended(); });
  EXPECT_TRUE(ranks.ended());
  EXPECT_EQ(ranks.came_to_0(), 65'535U);
}

TEST(BoundedWays, FindTheLargestThatPasses) {
  TwoRanks ranks(up_to(1450 - 28));
  ranks.run_until([&] { return ranks.came_to_0() == 1450; });
  EXPECT_EQ(ranks.came_to_0(), 1450U);
  EXPECT_FALSE(ranks.ended());
}

// What leaves by the first path goes nowhere, as where one of several equal ways is broken.
TEST(BoundedWays, FindTheOnlyPathThatPasses) {
  std::vector<int> dead;
  TwoRanks ranks(
      [&dead](int fd, mmsghdr* messages, unsigned n) {
        return std::ranges::count(dead, fd) > 0 ? static_cast<int>(n) : ::sendmmsg(fd, messages, n, 0);
      },
      8192, 2);
  for (const auto& socket : ranks.sockets) dead.push_back(socket->fd());
  ranks.run_until([&] { return ranks.ended(); });
  EXPECT_TRUE(ranks.ended());
  EXPECT_EQ(ranks.came_to_0(), 8292U);
  EXPECT_EQ(ranks.ways[0]->take_more().size(), 1U);
}

TEST(BoundedWays, SayThatTheSmallestOfUseAreTaken) {
  TwoRanks ranks(up_to(740 - 28));
  ranks.run_until([&] { return ranks.came_to_0() > 0; });
  EXPECT_EQ(ranks.ways[0]->least(), 740U);
  EXPECT_EQ(ranks.came_to_0(), 740U);
  EXPECT_GT(bounded_stride(740, false, wire::DatagramProtection::authenticated, 8192), 0);
  EXPECT_EQ(bounded_stride(739, false, wire::DatagramProtection::authenticated, 8192), 0);
}

TEST(BoundedWays, TakeNothingFromStrangersAndNothingTwice) {
  TwoRanks ranks(up_to(1450 - 28, 2));
  const UdpSocket stranger(UdpAddress("127.0.0.1:0"));
  const UdpAddress& to = ranks.peers[0].addresses[0];
  const auto send = [&](const std::vector<std::byte>& datagram, std::size_t bytes) {
    ASSERT_EQ(::sendto(stranger.fd(), datagram.data(), bytes, 0, to.raw(), to.bytes()),
              static_cast<ssize_t>(bytes));
  };
  // A large one whose tag is none, and one of the sums, which are sealed for another epoch.
  wire::DatagramHeader header;
  std::vector<std::byte> payload(8216), datagram(9000);
  encode(wire::BoundedTrial{8216, true}, header, payload.data());
  header.sender = 1;
  header.epoch = 1;
  encode(header, datagram.data());
  send(datagram, wire::kDatagramHeaderBytes + 8216 + 16);
  BoundedPeers of_sums(1, ranks.peers, {}, 0);
  send(datagram, of_sums.seal(0, header, payload.data(), datagram.data()));
  ranks.run_until([&] { return ranks.came_to_0() == 1450; });
  EXPECT_EQ(ranks.came_to_0(), 1450U);
  EXPECT_FALSE(ranks.ended());
  EXPECT_EQ(ranks.ways[0]->refusals()[wire::DatagramRefusal::damaged], 1U);
  EXPECT_EQ(ranks.ways[0]->refusals()[wire::DatagramRefusal::epoch], 1U);
  EXPECT_GT(ranks.ways[0]->refusals()[wire::DatagramRefusal::replayed], 0U);
}

}  // namespace
}  // namespace talweg::live
