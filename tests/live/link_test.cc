// What link.h promises of every link.
#include "live/link.h"

#include <sys/socket.h>
#include <unistd.h>

#include <vector>

#include "link_pair.h"

namespace talweg::live {
namespace {

using wire::FrameType;

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
  if (turning()) {
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

INSTANTIATE_TEST_SUITE_P(All, Links,
                         ::testing::Values(Kind::one_stream, Kind::three_streams, Kind::shared,
                                           Kind::datagrams, Kind::either, Kind::turning,
                                           Kind::turning_encrypted, Kind::blocked, Kind::preferred,
                                           Kind::preferred_blocked, Kind::closing, Kind::narrow),
                         [](const auto& test) {
                           return test.param == Kind::shared      ? "Shared"
                                  : test.param == Kind::datagrams ? "Datagrams"
                                  : test.param == Kind::either    ? "Either"
                                  : test.param == Kind::turning   ? "EitherThatTurns"
                                  : test.param == Kind::turning_encrypted
                                      ? "EitherThatTurnsEncryptedByFourPaths"
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
