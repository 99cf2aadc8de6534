// Shards between ranks of one process, over real sockets, with losses made on the way into the kernel.
#include "live/bounded/bounded_exchange.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "by_socket.h"
#include "live/system.h"

namespace talweg::live {
namespace {

constexpr std::int64_t kOneSecond = 1'000'000'000;

// How often a datagram gets out of its sender: 0 when it is lost.
using Copies = std::function<int()>;

Copies lossy(double loss, double twice, unsigned seed) {
  return [loss, twice, random = std::mt19937(seed)]() mutable {
    const double drawn = std::uniform_real_distribution<>(0, 1)(random);
    return drawn < loss ? 0 : drawn < loss + twice ? 2 : 1;
  };
}

class Ranks {
 public:
  Ranks(std::vector<std::uint64_t> shards, std::uint32_t ppm, const Copies& copies,
        const std::function<void(BoundedExchangeOptions&)>& change = {},
        const std::vector<UdpAddress>& own = {})
      : shards_(std::move(shards)) {
    std::vector<UdpSocket> sockets;
    std::vector<BoundedPeer> peers;
    for (std::size_t r = 0; r < shards_.size(); ++r) {
      sockets.emplace_back(own.empty() ? UdpAddress("127.0.0.1:0")
                                       : listening(UdpAddress("127.0.0.1:0"), {1, own}));
      std::vector<UdpAddress> reached = own.empty() ? std::vector{sockets[r].address()} : own;
      for (UdpAddress& address : reached)
        address.set_port(static_cast<std::uint16_t>(sockets[r].address().port()));
      BoundedPeer peer{reached, {}, static_cast<std::uint32_t>(sockets[r].window() / shards_.size())};
      wire::fill_random(peer.secret);
      peers.push_back(peer);
    }
    BoundedExchangeOptions options;
    options.bounds = {ppm, ppm, ppm, 1};
    options.stride = 400;
    options.warm_up = false;
    options.sender.offload = false;  // so that a message is a datagram
    options.send = [copies](int fd, mmsghdr* messages, unsigned n) {
      for (unsigned i = 0; i < n; ++i)
        for (int left = copies(); left > 0; --left) ::sendmmsg(fd, messages + i, 1, 0);
      return static_cast<int>(n);
    };
    options.sender.paths.addresses = own;
    if (change) change(options);
    for (std::size_t r = 0; r < shards_.size(); ++r) {
      exchanges_.push_back(
          std::make_unique<BoundedExchange>(std::move(sockets[r]), static_cast<int>(r), peers, options));
      exchanges_.back()->add(shards_, DataType::f32);
      data_.emplace_back();
    }
  }

  void begin(std::int64_t deadline_ns = now_ns() + 20 * kOneSecond) {
    ++calls_;
    std::vector<protocol::MeasuredTransfer> told;
    for (const auto& exchange : exchanges_) told.push_back(exchange->last_transfer(0));
    for (std::size_t r = 0; r < size(); ++r) {
      std::uint64_t bytes = 0;
      for (const std::uint64_t shard : shards_) bytes += shard;
      data_[r].resize(bytes);
      for (std::uint64_t i = 0; i < bytes; ++i) data_[r][i] = value(r, i);
      exchanges_[r]->begin(0, data_[r].data(), {}, told, deadline_ns, now_ns());
    }
  }
  // Until all have settled, or one has failed. Ranks that `are_gone` do nothing.
  void run(const std::function<bool(std::size_t)>& are_gone = [](std::size_t) { return false; }) {
    for (bool busy = true; busy;) {
      busy = false;
      for (std::size_t r = 0; r < size(); ++r) {
        if (are_gone(r)) continue;
        exchanges_[r]->step(now_ns());
        if (exchanges_[r]->failure()) return;
        busy = busy || !exchanges_[r]->received() || !exchanges_[r]->settled();
      }
    }
  }
  void call() {
    begin();
    run();
    for (const auto& exchange : exchanges_) ASSERT_EQ(why(*exchange), "");
  }
  static std::string why(const BoundedExchange& exchange) {
    return exchange.failure() ? exchange.failure()->text : "";
  }

  // What arrived is what was sent, but for what is said to be missing, which both ends say alike and is no
  // more than may be. How many bytes that are, of all.
  std::uint64_t missing(std::uint32_t ppm) {
    std::uint64_t sum = 0;
    for (std::size_t to = 0; to < size(); ++to)
      for (std::size_t from = 0; from < size(); ++from)
        if (from != to) sum += missing_of(from, to, ppm);
    return sum;
  }
  BoundedExchange& operator[](std::size_t r) { return *exchanges_[r]; }
  std::size_t size() const { return shards_.size(); }

 private:
  std::uint64_t missing_of(std::size_t from, std::size_t to, std::uint32_t ppm) {
    const int f = static_cast<int>(from), t = static_cast<int>(to);
    const BoundedExchange& at = *exchanges_[to];
    const protocol::PacketSet& missing = at.missing(f);
    EXPECT_EQ(missing, exchanges_[from]->lost(t)) << from << " to " << to;
    EXPECT_LE(at.missing_bytes(f), shards_[to] * ppm / 1'000'000) << from << " to " << to;
    std::uint64_t offset = 0;
    for (std::size_t r = 0; r < to; ++r) offset += shards_[r];
    std::uint64_t wrong = 0;
    for (std::uint64_t i = 0; i < shards_[to]; ++i) {
      const bool lost = missing.has(static_cast<std::uint32_t>(i / at.shape(t).stride));
      if (at.arrived(f)[i] != (lost ? std::byte{0} : value(from, offset + i))) ++wrong;
    }
    EXPECT_EQ(wrong, 0U) << "bytes of " << from << " at " << to;
    return at.missing_bytes(f);
  }
  std::byte value(std::size_t rank, std::uint64_t i) const {
    return static_cast<std::byte>(1 + (i * 7 + rank * 31 + calls_ * 13) % 251);
  }

  const std::vector<std::uint64_t> shards_;
  std::vector<std::unique_ptr<BoundedExchange>> exchanges_;
  std::vector<std::vector<std::byte>> data_;
  std::uint64_t calls_ = 0;
};

TEST(BoundedExchange, BringsEverythingWhereNothingMayBeMissing) {
  Ranks ranks({48'000, 48'000, 47'984}, 0, lossy(0.2, 0.05, 1));
  for (int call = 0; call < 5; ++call) {
    ranks.call();
    EXPECT_EQ(ranks.missing(0), 0U);
  }
  EXPECT_GT(ranks[0].sent(1).again, 0U);
}

TEST(BoundedExchange, LosesNoMoreThanItMayAndSaysWhat) {
  constexpr std::uint32_t kPpm = 50'000;
  Ranks ranks({80'000, 80'000, 80'000, 79'200}, kPpm, lossy(0.03, 0, 2));
  std::uint64_t lost = 0;
  for (int call = 0; call < 10; ++call) {
    ranks.call();
    lost += ranks.missing(kPpm);
  }
  EXPECT_GT(lost, 0U);
}

TEST(BoundedExchange, AsksAgainWhereMoreIsMissingThanMayBe) {
  constexpr std::uint32_t kPpm = 20'000;
  Ranks ranks({80'000, 80'000}, kPpm, lossy(0.3, 0.1, 3));
  for (int call = 0; call < 10; ++call) {
    ranks.call();
    ranks.missing(kPpm);
  }
  EXPECT_GT(ranks[0].sent(1).again + ranks[1].sent(0).again, 0U);
}

TEST(BoundedExchange, LosesNothingOfTheFirstCalls) {
  constexpr std::uint32_t kPpm = 100'000;
  Ranks ranks({40'000, 40'000}, kPpm, lossy(0.05, 0, 4),
              [](BoundedExchangeOptions& options) { options.warm_up = true; });
  for (std::size_t call = 0; call < protocol::AdaptiveDeadline::kWarmUp; ++call) {
    ranks.call();
    EXPECT_TRUE(ranks[0].exact());
    EXPECT_EQ(ranks.missing(kPpm), 0U);
  }
  std::uint64_t lost = 0;
  for (int call = 0; call < 10; ++call) {
    ranks.call();
    EXPECT_FALSE(ranks[0].exact());
    lost += ranks.missing(kPpm);
  }
  EXPECT_GT(lost, 0U);
}

TEST(BoundedExchange, KnowsShardsOfNothing) {
  Ranks ranks({4'000, 0, 16, 0}, 0, lossy(0, 0, 5));
  for (int call = 0; call < 3; ++call) {
    ranks.call();
    EXPECT_EQ(ranks.missing(0), 0U);
  }
}

TEST(BoundedExchange, TakesMemoryForOneCallAtATime) {
  Ranks ranks({4000, 4000}, 0, lossy(0, 0, 7));
  ranks.call();
  const std::byte* const inbox = ranks[1].arrived(0);
  const std::vector<std::uint64_t> shards{2000, 2400};
  const std::vector<std::byte> data(4400, std::byte{7});
  for (std::size_t r = 0; r < ranks.size(); ++r)
    ranks[r].begin(ranks[r].add(shards, DataType::f32), data.data(), {}, {}, now_ns() + 20 * kOneSecond,
                   now_ns());
  ranks.run();
  EXPECT_EQ(ranks[1].arrived(0), inbox);
  EXPECT_TRUE(std::equal(inbox, inbox + shards[1], data.begin()));
  ranks.call();
  EXPECT_EQ(ranks.missing(0), 0U);
}

TEST(BoundedExchange, SendsNoMoreAtOnceThanItHasCreditFor) {
  Ranks ranks({400'000, 400'000}, 0, lossy(0, 0, 6),
              [](BoundedExchangeOptions& options) { options.rate.enabled = false; });
  ranks.call();
  EXPECT_EQ(ranks.missing(0), 0U);
  EXPECT_EQ(ranks[0].flight(1).rate_waits, 0U);
  EXPECT_EQ(ranks[1].socket().dropped(), 0U);
}

TEST(BoundedExchange, NamesWhoseDataHaveNotCome) {
  Ranks ranks({8'000, 8'000, 8'000}, 10'000, lossy(0, 0, 7));
  ranks.begin(now_ns() + kOneSecond / 2);
  ranks.run([](std::size_t r) { return r == 2; });
  ASSERT_TRUE(ranks[0].failure() || ranks[1].failure());
  BoundedExchange& failed = ranks[ranks[0].failure() ? 0 : 1];
  EXPECT_EQ(failed.failure()->code, ErrorCode::timeout);
  EXPECT_THAT(failed.failure()->text, ::testing::HasSubstr("rank 2"));
}

TEST(BoundedExchange, SendsBySeveralPathsAndLeavesADeadOne) {
  BySocket by;
  Ranks ranks({200'000, 200'000}, 1000, {}, [&](BoundedExchangeOptions& options) {
    options.paths = 4;
    options.send = by.call(3);
  });
  for (int i = 0; i < 10; ++i) {
    ranks.call();
    ranks.missing(1000);
  }
  ASSERT_EQ(by.sockets.size(), 8U);
  for (int i = 0; i < 10'000 && ranks[0].paths(1).dead() == 0; ++i) ranks.call();
  for (int r = 0; r < 2; ++r) {
    const bool dead = r == 0;  // to which the fourth socket belongs
    EXPECT_EQ(ranks[static_cast<std::size_t>(r)].left_a_path(), dead ? 1 - r : -1);
    EXPECT_EQ(ranks[static_cast<std::size_t>(r)].left_a_path(), -1) << "once";
  }
  const std::uint64_t then = by.datagrams[3];
  std::uint64_t all = 0;
  for (const std::uint64_t n : by.datagrams) all -= n;
  for (int i = 0; i < 10; ++i) ranks.call();
  for (const std::uint64_t n : by.datagrams) all += n;
  EXPECT_LT((by.datagrams[3] - then) * 40, all);
}

// As of a machine with two interfaces: each path comes from one of its addresses, and goes to one.
TEST(BoundedExchange, GoesFromAndToSeveralAddressesInTurn) {
  const std::vector<UdpAddress> two{UdpAddress("127.0.0.2:0"), UdpAddress("127.0.0.3:0")};
  std::set<std::pair<std::string, std::string>> ways;
  bool one_is_dead = false;
  Ranks ranks(
      {80'000, 80'000}, 0, {},
      [&](BoundedExchangeOptions& options) {
        options.paths = 3;
        options.send = [&](int fd, mmsghdr* messages, unsigned n) {
          for (unsigned i = 0; i < n; ++i) {
            UdpAddress from, to;
            socklen_t length = sizeof(sockaddr_in6);
            ::getsockname(fd, from.raw(), &length);
            std::memcpy(to.raw(), messages[i].msg_hdr.msg_name, messages[i].msg_hdr.msg_namelen);
            for (UdpAddress* address : {&from, &to}) address->set_port(0);
            if (to == two[1] && one_is_dead) continue;
            ::sendmmsg(fd, messages + i, 1, 0);
            ways.emplace(to_string(from), to_string(to));
          }
          return static_cast<int>(n);
        };
      },
      two);
  for (int call = 0; call < 5; ++call) ranks.call();
  EXPECT_EQ(ranks.missing(0), 0U);
  const std::set<std::pair<std::string, std::string>> expected{
      {"0.0.0.0:0", "127.0.0.2:0"},  // the first, by the kernel's route
      {"127.0.0.3:0", "127.0.0.3:0"},
      {"127.0.0.2:0", "127.0.0.2:0"}};
  EXPECT_EQ(ways, expected);
  one_is_dead = true;
  for (int call = 0; call < 10'000 && ranks[0].paths(1).in_use(1); ++call) ranks.call();
  EXPECT_EQ(ranks.missing(0), 0U);
  EXPECT_FALSE(ranks[0].paths(1).in_use(1));
  EXPECT_TRUE(ranks[0].paths(1).in_use(0) && ranks[0].paths(1).in_use(2));
}

TEST(BoundedExchange, TakesNothingFromStrangers) {
  Ranks ranks({8'000, 8'000}, 0, lossy(0, 0, 8));
  const UdpSocket stranger(UdpAddress("127.0.0.1:0"));
  const UdpAddress& to = ranks[0].socket().address();
  // Well-formed, with a tag that is none.
  wire::DatagramHeader header;
  header.type = static_cast<std::uint8_t>(wire::BoundedType::data);
  header.sender = 1;
  std::byte datagram[wire::kDatagramHeaderBytes + 16] = {};
  encode(header, datagram);
  for (int i = 0; i < 3; ++i)
    ASSERT_EQ(::sendto(stranger.fd(), datagram, sizeof datagram, 0, to.raw(), to.bytes()),
              static_cast<ssize_t>(sizeof datagram));
  ranks.call();
  EXPECT_EQ(ranks.missing(0), 0U);
  EXPECT_EQ(ranks[0].refusals()[wire::DatagramRefusal::damaged], 3U);
}

TEST(BoundedStride, IsWhatAPathTakes) {
  using wire::DatagramProtection;
  EXPECT_EQ(bounded_stride(1500, false, DatagramProtection::authenticated, 8192), 1392);
  EXPECT_EQ(bounded_stride(65536, false, DatagramProtection::authenticated, 8192), 8192);
  EXPECT_EQ(bounded_stride(0, false, DatagramProtection::authenticated, 8192), 0);
  EXPECT_EQ(bounded_stride(576, false, DatagramProtection::authenticated, 8192), 0);
}

}  // namespace
}  // namespace talweg::live
