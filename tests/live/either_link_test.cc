// What frames do where a link turns from TCP to datagrams, and back; what holds of every link is in
// link_test.cc.
#include "live/either/either_link.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utility>
#include <vector>

#include "link_pair.h"

namespace talweg::live {
namespace {

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

// Another process may be stopped for long.
TEST_P(EitherWay, WhoWaitsForAnAnswerToATurnHasLittleToDo) {
  run();
  dynamic_cast<EitherLink&>(from()).keep_to(Way::datagrams);
  int wakes = 0;
  for (const std::int64_t began = now_ns(); now_ns() - began < 1'000'000'000; ++wakes) {
    loops_[0].sleep(100);
    loops_[0].poll();
  }
  EXPECT_LT(wakes, 100);
  EXPECT_EQ(dynamic_cast<EitherLink&>(from()).way(), Way::tcp);
}

// Who asks without end and takes no answers: one waits, and the newest question is answered in the end.
TEST_P(EitherWay, AnswersToTurnsDoNotPileUp) {
  run();
  auto& asks = dynamic_cast<EitherLink&>(from());
  for (std::uint32_t i = 0; i < 4000; ++i) send(i, 0, 8000, 1, 1);  // more than two kernels take
  const auto sent = [&] { return to().statistics().bytes_sent; };
  std::uint64_t before = 0;
  for (std::int64_t since = now_ns(); now_ns() - since < 100'000'000;) {
    to().flush();
    loops_[1].poll();
    if (std::exchange(before, sent()) != sent()) since = now_ns();
  }
  ASSERT_TRUE(to().unsent());
  constexpr std::size_t kQuestions = 10'000, kCommitted = 256U << 10;
  for (std::size_t i = 0; i < kQuestions; ++i) {
    asks.keep_to(Way::datagrams);
    asks.keep_to(Way::tcp);
    loops_[1].poll();
  }
  asks.keep_to(Way::datagrams);
  loops_[1].poll();
  to().cancel(0, 0);
  run();
  EXPECT_EQ(asks.way(), Way::datagrams);
  EXPECT_LT(sent() - before, 2 * kCommitted);
}

// Who was asked goes first, with its answer behind what waits there; then who asked.
TEST_P(EitherWay, ItCanBeDestroyedInTheMiddleOfATurn) {
  run();
  auto& sends = dynamic_cast<EitherLink&>(from());
  for (std::uint32_t i = 0; i < 10; ++i) send(i, 0, 100'000);
  for (std::uint32_t i = 0; i < 64; ++i) send(i, 0, 1'000'000, 1, 1);
  sends.keep_to(Way::datagrams);
  for (std::uint32_t i = 10; i < 20; ++i) send(i, 0, 1000);
  for (int i = 0; i < 3; ++i) loops_[1].poll();  // it has been asked
  ASSERT_EQ(sends.way(), Way::tcp);
  ends_[1].reset();
  loops_[1].poll();
  for (int i = 0; i < 10'000 && !from().gone(); ++i) look(0);
  EXPECT_EQ(sender().ends, 1);
  EXPECT_EQ(sender().failure, ErrorCode::peer_failed);
  send(20, 0, 1000);
  ends_[0].reset();
  loops_[0].poll();
  EXPECT_EQ(sender().ends, 1);
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
  alone_for(TurnTimes::kPatienceNs / 2);
  EXPECT_TRUE(from().unsent());
  alone_for(TurnTimes::kPatienceNs);
  EXPECT_FALSE(from().unsent());
  const std::uint64_t sent = from().statistics().bytes_sent;
  EXPECT_GE(sent, asked + 1000);
  EXPECT_LT(sent, asked + 1000 + 4 * sizeof(wire::Header)) << "it is not asked again at once";
  for (const std::int64_t until = now_ns() + 20 * TurnTimes::kPatienceNs;
       now_ns() < until && sends.way() != Way::datagrams;) {
    look(0);
    look(1);
  }
  EXPECT_EQ(sends.way(), Way::datagrams);
  EXPECT_EQ(receiver().frames.size(), 1U);
}

INSTANTIATE_TEST_SUITE_P(All, EitherWay, ::testing::Values(Kind::either));
INSTANTIATE_TEST_SUITE_P(All, PreferredWay, ::testing::Values(Kind::preferred));

}  // namespace
}  // namespace talweg::live
