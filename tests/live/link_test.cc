// Links of all kinds, two ends in one thread: what link.h promises of every link.
#include "live/link.h"

#include <gmock/gmock.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <tuple>
#include <vector>

#include "live/shared/shared_link.h"
#include "live/tcp/tcp_link.h"
#include "live/udp/udp_link.h"

namespace talweg::live {
namespace {

using wire::FrameType;

class Log : public FrameHandler {
 public:
  Place place(int, const wire::Header&) override { return {}; }
  void on_frame(int, const wire::Header& header, const std::byte* payload) override {
    frames.emplace_back(header.type, header.chunk);
    for (std::uint32_t i = 0; i < header.length; i += 997)
      EXPECT_EQ(payload[i], static_cast<std::byte>(header.chunk));
  }
  void on_sent(std::uint32_t, const protocol::Token& token) override { sent.push_back(token.piece); }
  void on_peer_gone(int, std::optional<ErrorCode> code, const std::string& reason) override {
    ++ends;
    failure = code;
    why = reason;
  }

  std::vector<std::pair<FrameType, std::uint32_t>> frames;
  std::vector<std::uint32_t> sent;
  int ends = 0;
  std::optional<ErrorCode> failure;
  std::string why;
};

enum class Kind { one_stream, three_streams, shared, datagrams };

class Links : public ::testing::TestWithParam<Kind> {
 protected:
  Links() {
    Connection to[2];
    const int streams = GetParam() == Kind::three_streams ? 3 : 1;
    for (int s = 0; s < streams; ++s) {
      int fds[2];
      EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
      for (int side = 0; side < 2; ++side) to[side].streams.emplace_back(fds[side]);
    }
    FileDescriptor files[2];
    for (int side = 0; side < 2; ++side) files[side] = Segment::create(2);
    for (int side = 0; side < 2; ++side) {
      Connection& c = to[side];
      c.rank = 1 - side;
      if (GetParam() == Kind::datagrams) {
        ends_[side] =
            std::make_unique<UdpLink>(std::move(c), side, UdpLinkOptions{}, loops_[side], logs_[side]);
        continue;
      }
      if (GetParam() != Kind::shared) {
        ends_[side] = std::make_unique<TcpLink>(std::move(c), TcpOptions{}, loops_[side], logs_[side]);
        continue;
      }
      c.local = true;
      c.local_index = 1 - side;
      c.segment.emplace(files[1 - side], 2);
      ends_[side] =
          std::make_unique<SharedLink>(std::move(c), std::make_shared<SharedSender>(Segment(files[side], 2)),
                                       side, loops_[side], logs_[side]);
    }
  }

  Link& from() { return *ends_[0]; }
  Link& to() { return *ends_[1]; }
  Log& sender() { return logs_[0]; }
  Log& receiver() { return logs_[1]; }

  void send(std::uint32_t chunk, std::uint32_t tree, std::size_t bytes, int priority = 0) {
    payloads_.emplace_back(bytes, static_cast<std::byte>(chunk));
    OutFrame frame;
    frame.header = encode(wire::CallId{}, wire::Chunk{true, tree, chunk, static_cast<std::uint32_t>(bytes)});
    frame.payload = payloads_.back().data();
    frame.token.piece = chunk;
    frame.priority = priority;
    frame.reported = false;
    if (from().send(std::move(frame))) sender().sent.push_back(chunk);
  }
  void announce(std::uint32_t chunk, std::uint32_t tree, int priority) {
    OutFrame frame;
    frame.header = encode(wire::CallId{}, wire::Announce{});
    frame.header.chunk = chunk;  // by which it is known here
    frame.header.tree = tree;
    frame.priority = priority;
    from().send(std::move(frame));
  }
  void leave(std::uint32_t group, int priority) {
    OutFrame frame;
    frame.header = encode(wire::Leave{group});
    frame.header.chunk = group;
    frame.priority = priority;
    from().send(std::move(frame));
  }
  // One end has a look at what is there.
  void look(int side) {
    ends_[side]->poll();
    loops_[side].poll();
    if (!ends_[side]->gone()) ends_[side]->flush();
  }
  void run() {
    for (int i = 0; i < 2000 || (from().unsent() && i < 2'000'000); ++i) look(i % 2);
  }

  EventLoop loops_[2];
  Log logs_[2];
  std::vector<std::vector<std::byte>> payloads_;
  std::unique_ptr<Link> ends_[2];
};

TEST_P(Links, BringEverythingAndSayWhenItIsSent) {
  std::vector<std::uint32_t> all;
  for (std::uint32_t i = 0; i < 200; ++i) {
    send(i, i % 7, i % 10 == 0 ? 100'000 : 3000);
    all.push_back(i);
  }
  from().flush();
  run();
  EXPECT_FALSE(from().unsent());
  std::vector<std::uint32_t> arrived;
  for (const auto& [type, chunk] : receiver().frames) arrived.push_back(chunk);
  EXPECT_THAT(arrived, ::testing::UnorderedElementsAreArray(all));
  EXPECT_THAT(sender().sent, ::testing::UnorderedElementsAreArray(all));
  EXPECT_GT(from().statistics().bytes_sent, 20U * 100'000);
  EXPECT_EQ(from().statistics().bytes_sent, to().statistics().bytes_received);
}

TEST_P(Links, BringFramesOfATreeAndPriorityInTheOrderInWhichTheyWereSent) {
  constexpr std::uint32_t kTrees = 7, kOfThem = 2, kFrames = 600;  // no multiple of a number of streams
  for (std::uint32_t i = 0; i < kFrames; ++i) {
    const std::uint32_t tree = i % kTrees;
    const auto priority = static_cast<int>(i / kTrees % kOfThem);
    if (i % 4 == 0)
      announce(i, tree, priority);
    else
      send(i, tree, i / 7 % 2 == 0 ? 60'000 : 100, priority);
    if (i % 50 == 0) look(0);
  }
  run();
  std::vector<std::uint32_t> last(kTrees * kOfThem, 0);
  ASSERT_EQ(receiver().frames.size(), kFrames);
  for (const auto& [type, chunk] : receiver().frames) {
    std::uint32_t& before = last[chunk % (kTrees * kOfThem)];
    EXPECT_GE(chunk, before) << "of tree " << chunk % kTrees;
    before = chunk;
  }
}

// The trees' ways differ in how much waits on them.
TEST_P(Links, NothingArrivesAfterWhatIsToComeBehindAll) {
  for (const int priority : {0, 1, protocol::kUrgent}) {
    receiver().frames.clear();
    for (std::uint32_t i = 0; i < 30; ++i) send(i, i < 25 ? 1 : i, 200'000, static_cast<int>(i % 3));
    leave(77, priority);
    leave(78, priority);
    from().flush();
    run();
    ASSERT_EQ(receiver().frames.size(), 32U) << "and each of them once";
    EXPECT_EQ(receiver().frames[30], std::pair(FrameType::leave, 77U));
    EXPECT_EQ(receiver().frames[31], std::pair(FrameType::leave, 78U));
  }
}

TEST_P(Links, ACancelledRunIsReportedAndItsMemoryNotReadAgain) {
  for (std::uint32_t i = 0; i < 60; ++i) send(i, 0, 250'000);
  from().flush();
  ASSERT_TRUE(from().unsent());
  from().cancel(0, 0);
  EXPECT_EQ(sender().sent.size(), 60U);
  for (auto& payload : payloads_) payload.assign(payload.size(), std::byte{0xee});
  run();
  EXPECT_FALSE(from().unsent());
  EXPECT_LT(receiver().frames.size(), 60U);
}

TEST_P(Links, AnOrderlyEndComesBehindAllThatWasSent) {
  for (std::uint32_t i = 0; i < 40; ++i) send(i, i, 100'000);
  bool parted = false;
  for (int i = 0; i < 2'000'000 && !parted; ++i) {
    parted = from().part();
    look(1);
  }
  EXPECT_TRUE(parted);
  ends_[0].reset();
  for (int i = 0; i < 100; ++i) look(1);
  EXPECT_EQ(receiver().frames.size(), 40U);
  EXPECT_EQ(receiver().ends, 1);
  EXPECT_FALSE(receiver().failure) << receiver().why;
  EXPECT_TRUE(to().gone());
}

TEST_P(Links, AnEndWithoutAGoodbyeIsAFailureToldOnce) {
  send(1, 0, 100);
  from().flush();
  ends_[0].reset();
  for (int i = 0; i < 100; ++i) look(1);
  EXPECT_EQ(receiver().frames.size(), 1U) << "what it sent before is heard";
  EXPECT_EQ(receiver().ends, 1);
  EXPECT_EQ(receiver().failure, ErrorCode::peer_failed);
}

// A forked child holds the sockets open, and the loop with them.
TEST_P(Links, AnEndedLinkKeepsTheLoopNoLongerAwake) {
  std::vector<FileDescriptor> held;
  for (int fd = 3; fd < 64; ++fd) {
    sockaddr address{};
    socklen_t length = sizeof address;
    if (::getsockname(fd, &address, &length) == 0 && address.sa_family == AF_UNIX)
      held.emplace_back(::dup(fd));
  }
  ASSERT_GE(held.size(), 2U);
  bool parted = false;
  for (int i = 0; i < 2'000'000 && !parted; ++i) {
    parted = from().part();
    look(1);
  }
  ends_[0].reset();
  for (FileDescriptor& fd : held) ::shutdown(fd.get(), SHUT_RDWR);
  for (int i = 0; i < 100; ++i) look(1);
  ASSERT_TRUE(to().gone());
  const std::int64_t before = now_ns();
  loops_[1].sleep(30);
  EXPECT_GE(now_ns() - before, 20'000'000);
}

INSTANTIATE_TEST_SUITE_P(All, Links,
                         ::testing::Values(Kind::one_stream, Kind::three_streams, Kind::shared,
                                           Kind::datagrams),
                         [](const auto& test) {
                           return test.param == Kind::shared          ? "Shared"
                                  : test.param == Kind::datagrams     ? "Datagrams"
                                  : test.param == Kind::three_streams ? "ThreeStreams"
                                                                      : "OneStream";
                         });

}  // namespace
}  // namespace talweg::live
