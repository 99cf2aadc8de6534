// Links of all kinds, two ends in one thread: what link.h promises of every link.
#include "live/link.h"

#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <tuple>
#include <vector>

#include "live/either/either_link.h"
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

enum class Kind {
  one_stream,
  three_streams,
  shared,
  datagrams,
  either,
  turning,
  blocked,
  preferred,
  preferred_blocked,
  closing,
  narrow
};

void connect_over_tcp(int (&fds)[2]) {
  const FileDescriptor listener(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* const raw = reinterpret_cast<sockaddr*>(&address);
  EXPECT_EQ(::bind(listener.get(), raw, length) + ::listen(listener.get(), 1), 0);
  EXPECT_EQ(::getsockname(listener.get(), raw, &length), 0);
  fds[0] = ::socket(AF_INET, SOCK_STREAM, 0);
  EXPECT_EQ(::connect(fds[0], raw, length), 0);
  fds[1] = ::accept(listener.get(), nullptr, nullptr);
}

void stranger_sends_to_all() {
  const FileDescriptor stranger(::socket(AF_INET, SOCK_DGRAM, 0));
  for (int fd = 3; fd < 64; ++fd) {
    sockaddr_in address{};
    socklen_t length = sizeof address;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0 && address.sin_port != 0)
      ::sendto(stranger.get(), "?", 1, 0, reinterpret_cast<sockaddr*>(&address), length);
  }
}

// A firewall's way with datagrams.
int lost_on_the_way(int, mmsghdr* messages, unsigned n) {
  for (unsigned i = 0; i < n; ++i)
    for (std::size_t p = 0; p < messages[i].msg_hdr.msg_iovlen; ++p)
      messages[i].msg_len += static_cast<unsigned>(messages[i].msg_hdr.msg_iov[p].iov_len);
  return static_cast<int>(n);
}

// One that closes when so many messages have passed.
UdpSender::SendCall passes_at_first(int messages) {
  return [left = messages](int fd, mmsghdr* m, unsigned n) mutable {
    if (left <= 0) return lost_on_the_way(fd, m, n);
    const int sent = ::sendmmsg(fd, m, n, MSG_DONTWAIT);
    left -= std::max(sent, 0);
    return sent;
  };
}

class Links : public ::testing::TestWithParam<Kind> {
 protected:
  static constexpr std::int64_t kHostTimeoutNs = 200'000'000;
  static bool preferred() { return GetParam() >= Kind::preferred; }
  Links() {
    Connection to[2];
    const bool either = GetParam() >= Kind::either;
    const int streams = GetParam() == Kind::three_streams || either ? 3 : 1;
    for (int s = 0; s < streams; ++s) {
      int fds[2];
      // What TCP says of what has arrived is not what a socket within a machine says.
      if (either)
        connect_over_tcp(fds);
      else
        EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
      for (int side = 0; side < 2; ++side) to[side].streams.emplace_back(fds[side]);
      last_stream_ = fds[0];
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
      if (either) {
        UdpLinkOptions datagrams;
        datagrams.end.send = [this, side](int fd, mmsghdr* m, unsigned n) {
          return on_its_way_[side] ? on_its_way_[side](fd, m, n) : ::sendmmsg(fd, m, n, MSG_DONTWAIT);
        };
        if (GetParam() == Kind::blocked || GetParam() == Kind::preferred_blocked)
          datagrams.end.send = lost_on_the_way;
        if (GetParam() == Kind::closing) datagrams.end.send = passes_at_first(25);
        if (GetParam() == Kind::narrow) datagrams.end.most_payload = 500;  // fewer than a flow needs
        TcpOptions tcp;
        tcp.host_timeout_ns = kHostTimeoutNs;
        const EitherLinkOptions options{preferred() ? Preference::datagrams : Preference::the_quicker, {}};
        ends_[side] = std::make_unique<EitherLink>(std::move(c), side, options, tcp, datagrams, loops_[side],
                                                   logs_[side]);
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

  void send(std::uint32_t chunk, std::uint32_t tree, std::size_t bytes, int priority = 0, int by = 0) {
    payloads_.emplace_back(bytes, static_cast<std::byte>(chunk));
    OutFrame frame;
    frame.header = encode(wire::CallId{}, wire::Chunk{true, tree, chunk, static_cast<std::uint32_t>(bytes)});
    frame.payload = payloads_.back().data();
    frame.token.piece = chunk;
    frame.priority = priority;
    frame.reported = false;
    if (ends_[by]->send(std::move(frame))) logs_[by].sent.push_back(chunk);
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
  // One end has a look at what is there. Now and then frames go another way, where there are two.
  void look(int side) {
    if (GetParam() == Kind::turning && ends_[0] && ++looks_ % 32 == 0)
      dynamic_cast<EitherLink&>(*ends_[0]).keep_to(looks_ % 64 == 0 ? Way::tcp : Way::datagrams);
    ends_[side]->poll();
    loops_[side].poll();
    if (!ends_[side]->gone()) ends_[side]->flush();
  }
  void run() {
    for (int i = 0; i < 2000 || (from().unsent() && i < 200'000'000); ++i) look(i % 2);
    look(1);
    // What a kernel has taken is not unsent, and may wait for an acknowledgement.
    for (const std::int64_t until = now_ns() + 500'000'000;
         now_ns() < until && to().statistics().bytes_received < from().statistics().bytes_sent;)
      look(1);
  }

  unsigned looks_ = 0;
  EventLoop loops_[2];
  Log logs_[2];
  std::vector<std::vector<std::byte>> payloads_;
  std::unique_ptr<Link> ends_[2];
  int last_stream_ = -1;
  UdpSender::SendCall on_its_way_[2];  // of datagrams, by who sends; null: they pass
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
  if (GetParam() == Kind::turning) {
    EXPECT_GT(dynamic_cast<EitherLink&>(from()).turns(), 2U);
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
    int type = 0;
    socklen_t type_length = sizeof type;
    if (::getsockname(fd, &address, &length) == 0 &&
        ::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_length) == 0 && type == SOCK_STREAM)
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

using EitherWay = Links;

// What lies in the kernel of a process that has been stopped is not taken: datagrams behind it could be
// followed by more over TCP, and nothing would say where one ends. A stranger's datagram lies there before.
TEST_P(EitherWay, TurnsFromTcpOnceTheOtherProcessHasTakenWhatWentThere) {
  run();  // both ends have met
  auto& sends = dynamic_cast<EitherLink&>(from());
  stranger_sends_to_all();
  for (std::uint32_t i = 0; i < 10; ++i) send(i, 0, 1000);
  sends.keep_to(Way::datagrams);
  for (std::uint32_t i = 10; i < 20; ++i) send(i, 0, 1000);
  for (const std::int64_t until = now_ns() + 20'000'000; now_ns() < until;) look(0);
  ASSERT_EQ(sends.way(), Way::tcp);
  ASSERT_TRUE(receiver().frames.empty());
  run();
  EXPECT_EQ(sends.way(), Way::datagrams);
  ASSERT_EQ(receiver().frames.size(), 20U);
  for (std::uint32_t i = 0; i < 20; ++i) EXPECT_EQ(receiver().frames[i].second, i);
}

TEST_P(EitherWay, HoldsBackWhatIsNewUntilTheOldWayHasBroughtEverything) {
  run();
  auto& sends = dynamic_cast<EitherLink&>(from());
  for (std::uint32_t i = 0; i < 64; ++i) send(i, 0, 1'000'000);  // more than two kernels take
  from().flush();
  sends.keep_to(Way::datagrams);
  send(64, 0, 100);
  send(65, 0, 100);
  for (int i = 0; i < 1000; ++i) look(0);
  EXPECT_EQ(sends.way(), Way::tcp);
  EXPECT_TRUE(from().unsent());
  from().cancel(0, 0);
  EXPECT_EQ(sender().sent.size(), 66U) << "what is held back, too";
  send(66, 0, 100);
  run();
  EXPECT_EQ(sends.way(), Way::datagrams);
  ASSERT_GE(receiver().frames.size(), 2U);
  EXPECT_EQ(receiver().frames.back().second, 66U);
  for (std::size_t i = 1; i < receiver().frames.size(); ++i)
    EXPECT_LT(receiver().frames[i - 1].second, receiver().frames[i].second);
  EXPECT_EQ(sender().sent.size(), 67U);
}

TEST_P(EitherWay, WhatIsHeldBackIsUnsent) {
  run();
  auto& sends = dynamic_cast<EitherLink&>(from());
  for (std::uint32_t i = 0; i < 64; ++i) send(i, 0, 1'000'000);
  from().flush();
  for (int i = 0; i < 100'000 && from().unsent(); ++i) {
    look(0);
    if (from().unsent()) look(1);
  }
  sends.keep_to(Way::datagrams);  // what the kernel has may not have arrived yet
  send(64, 0, 100);
  EXPECT_TRUE(from().unsent());
}

// What goes over TCP between the two questions has not been taken when the first one is answered.
TEST_P(EitherWay, AnAnswerToAnEarlierQuestionIsNone) {
  run();
  auto& sends = dynamic_cast<EitherLink&>(from());
  sends.keep_to(Way::datagrams);
  for (int i = 0; i < 10; ++i) look(1);
  sends.keep_to(Way::tcp);
  send(0, 0, 1000);
  sends.keep_to(Way::datagrams);
  send(1, 0, 1000);
  for (const std::int64_t until = now_ns() + 20'000'000; now_ns() < until;) look(0);
  EXPECT_EQ(sends.way(), Way::tcp);
  run();
  EXPECT_EQ(sends.way(), Way::datagrams);
  ASSERT_EQ(receiver().frames.size(), 2U);
  EXPECT_EQ(receiver().frames[0].second, 0U);
}

TEST_P(EitherWay, WhatIsHeldBackLeavesBeforeAnOrderlyEnd) {
  run();
  dynamic_cast<EitherLink&>(from()).keep_to(Way::datagrams);
  send(0, 0, 1000);
  for (int i = 0; i < 1'000'000 && !from().part(); ++i) look(1);
  ends_[0].reset();
  for (int i = 0; i < 1000 && !to().gone(); ++i) look(1);
  EXPECT_EQ(receiver().frames.size(), 1U);
  EXPECT_EQ(receiver().ends, 1);
  EXPECT_EQ(receiver().failure, std::nullopt);
}

// Or a turn would always be put off where much is sent both ways.
TEST_P(EitherWay, AnAnswerDoesNotWaitBehindWhatTheOtherSideSends) {
  run();
  auto& sends = dynamic_cast<EitherLink&>(from());
  for (std::uint32_t i = 0; i < 64; ++i) send(i, 0, 1'000'000, 1, 1);
  to().flush();
  sends.keep_to(Way::datagrams);
  for (int i = 0; i < 1'000'000 && sends.way() != Way::datagrams; ++i) look(i % 2);
  ASSERT_EQ(sends.way(), Way::datagrams);
  EXPECT_LT(sender().frames.size(), 64U);
  EXPECT_TRUE(to().unsent());
}

// The receiver gets no answers to its own datagrams, and acknowledges what comes at once. Just then the
// sender turns to TCP.
TEST_P(EitherWay, WhatIsAcknowledgedAtOnceHasBeenHandedOver) {
  run();
  auto& sends = dynamic_cast<EitherLink&>(from());
  sends.keep_to(Way::datagrams);
  for (int i = 0; i < 100'000 && sends.way() != Way::datagrams; ++i) look(i % 2);
  dynamic_cast<EitherLink&>(to()).keep_to(Way::datagrams);
  run();
  on_its_way_[1] = lost_on_the_way;
  send(0, 0, 1000, 0, 1);
  for (const std::int64_t until = now_ns() + 20'000'000'000; now_ns() < until && sender().frames.empty();) {
    look(0);
    look(1);
  }
  ASSERT_EQ(sender().frames.size(), 1U) << "over the lifeline";
  send(1, 0, 1000);
  sends.keep_to(Way::tcp);
  send(2, 0, 1000);
  on_its_way_[1] = [&](int fd, mmsghdr* m, unsigned n) {
    const int sent = ::sendmmsg(fd, m, n, MSG_DONTWAIT);
    for (int i = 0; i < 10'000 && sends.way() != Way::tcp; ++i) look(0);
    return sent;
  };
  run();
  on_its_way_[1] = nullptr;
  EXPECT_EQ(sends.way(), Way::tcp);
  ASSERT_EQ(receiver().frames.size(), 2U);
  EXPECT_EQ(receiver().frames[0].second, 1U);
  EXPECT_EQ(receiver().frames[1].second, 2U);
}

TEST_P(EitherWay, DatagramsWhoseConnectionAloneIsLostAreAFailure) {
  run();
  auto& sends = dynamic_cast<EitherLink&>(from());
  sends.keep_to(Way::datagrams);
  for (int i = 0; i < 100'000 && sends.way() != Way::datagrams; ++i) look(i % 2);
  ASSERT_EQ(sends.way(), Way::datagrams);
  ::shutdown(last_stream_, SHUT_RDWR);
  for (const std::int64_t until = now_ns() + 10 * kHostTimeoutNs;
       now_ns() < until && (!from().gone() || !to().gone());)
    for (const int side : {0, 1}) {
      look(side);
      if (!ends_[side]->gone()) ends_[side]->check_host();
    }
  EXPECT_EQ(sender().failure, ErrorCode::peer_failed);
  EXPECT_EQ(receiver().failure, ErrorCode::peer_failed);
}

// Within the handing over of the first datagram's frame TCP's end is found.
TEST_P(EitherWay, WhatHadArrivedOfWhoHasDiedIsHandedOverInOrder) {
  run();
  auto& sends = dynamic_cast<EitherLink&>(from());
  stranger_sends_to_all();
  for (std::uint32_t i = 0; i < 10; ++i) send(i, 0, 1000);
  sends.keep_to(Way::datagrams);
  for (int i = 0; i < 100'000 && sends.way() != Way::datagrams; ++i) look(i % 2);
  for (std::uint32_t i = 10; i < 20; ++i) send(i, 0, 1000);
  for (const std::int64_t until = now_ns() + 20'000'000; now_ns() < until;) look(0);
  ends_[0].reset();
  for (int i = 0; i < 100; ++i) look(1);
  ASSERT_EQ(receiver().frames.size(), 20U);
  for (std::uint32_t i = 0; i < 20; ++i) EXPECT_EQ(receiver().frames[i].second, i);
  EXPECT_EQ(receiver().ends, 1);
  EXPECT_EQ(receiver().failure, ErrorCode::peer_failed);
}

TEST_P(EitherWay, WithoutDescriptorsLeftItIsNotMadeAndNothingIsTold) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  for (int left = 0; left < 4; ++left) {
    Connection c;
    for (int s = 0; s < 2; ++s) {
      int fds[2];
      connect_over_tcp(fds);
      c.streams.emplace_back(fds[0]);
      ::close(fds[1]);
    }
    const FileDescriptor next(::dup(0));
    rlimit few = before;
    few.rlim_cur = static_cast<rlim_t>(next.get() + 1 + left);
    EventLoop loop;
    Log log;
    ::setrlimit(RLIMIT_NOFILE, &few);
    try {
      const EitherLink link(std::move(c), 0, {}, TcpOptions{}, UdpLinkOptions{}, loop, log);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::system);
    }
    ::setrlimit(RLIMIT_NOFILE, &before);
    EXPECT_EQ(log.ends, 0);
  }
}

using PreferredWay = Links;

TEST_P(PreferredWay, WithoutAnAnswerATurnIsPutOffAndWhatWasHeldBackGoesOverTcp) {
  auto& sends = dynamic_cast<EitherLink&>(from());
  const auto alone_for = [&](std::int64_t ns) {
    for (const std::int64_t until = now_ns() + ns; now_ns() < until;) look(0);
  };
  for (int i = 0; i < 1'000'000 && from().statistics().bytes_sent == 0; ++i) look((i + 1) % 2);
  const std::uint64_t asked = from().statistics().bytes_sent;
  ASSERT_GT(asked, 0U);
  send(0, 0, 1000);
  alone_for(EitherLink::kPatienceNs / 2);
  EXPECT_TRUE(from().unsent());
  alone_for(EitherLink::kPatienceNs);
  EXPECT_FALSE(from().unsent());
  const std::uint64_t sent = from().statistics().bytes_sent;
  EXPECT_GE(sent, asked + 1000);
  EXPECT_LT(sent, asked + 1000 + 4 * sizeof(wire::Header)) << "it is not asked again at once";
  for (const std::int64_t until = now_ns() + 20 * EitherLink::kPatienceNs;
       now_ns() < until && sends.way() != Way::datagrams;) {
    look(0);
    look(1);
  }
  EXPECT_EQ(sends.way(), Way::datagrams);
  EXPECT_EQ(receiver().frames.size(), 1U);
}

INSTANTIATE_TEST_SUITE_P(All, EitherWay, ::testing::Values(Kind::either));
INSTANTIATE_TEST_SUITE_P(All, PreferredWay, ::testing::Values(Kind::preferred));
INSTANTIATE_TEST_SUITE_P(All, Links,
                         ::testing::Values(Kind::one_stream, Kind::three_streams, Kind::shared,
                                           Kind::datagrams, Kind::either, Kind::turning, Kind::blocked,
                                           Kind::preferred, Kind::preferred_blocked, Kind::closing,
                                           Kind::narrow),
                         [](const auto& test) {
                           return test.param == Kind::shared              ? "Shared"
                                  : test.param == Kind::datagrams         ? "Datagrams"
                                  : test.param == Kind::either            ? "Either"
                                  : test.param == Kind::turning           ? "EitherThatTurns"
                                  : test.param == Kind::blocked           ? "EitherWhereUdpIsBlocked"
                                  : test.param == Kind::preferred         ? "Preferred"
                                  : test.param == Kind::preferred_blocked ? "PreferredWhereUdpIsBlocked"
                                  : test.param == Kind::closing           ? "WhereUdpIsBlockedLater"
                                  : test.param == Kind::narrow            ? "WhereNoDatagramFits"
                                  : test.param == Kind::three_streams     ? "ThreeStreams"
                                                                          : "OneStream";
                         });

}  // namespace
}  // namespace talweg::live
