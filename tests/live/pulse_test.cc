#include "live/tcp/pulse.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "live/tcp/tcp_traffic.h"

namespace talweg::live {
namespace {

using Verdict = Pulse::Verdict;
constexpr std::int64_t kPatienceNs = 64 * kMillisecondNs;
constexpr std::int64_t kLookNs = kPatienceNs / 32;

TEST(Pulse, AMachineIsAskedAtEachLookAfterAQuarterOfThePatienceAndLostAfterAllOfIt) {
  Pulse pulse;
  for (std::int64_t silence = 0; silence < kPatienceNs; silence += kLookNs)
    EXPECT_EQ(pulse.judge(silence, kPatienceNs), silence < kPatienceNs / 4 ? Verdict::alive : Verdict::ask);
  EXPECT_EQ(pulse.judge(kPatienceNs, kPatienceNs), Verdict::lost);
}

TEST(Pulse, SilenceThatIsLongAllAtOnceIsNoDeath) {
  Pulse pulse;
  for (int round = 0; round < 2; ++round) {
    int asked = 0;
    while (asked < 1000 && pulse.judge(100 * kPatienceNs, kPatienceNs) == Verdict::ask) ++asked;
    EXPECT_GT(asked, 8);
    EXPECT_LT(asked, 32);
    EXPECT_EQ(pulse.judge(0, kPatienceNs), Verdict::alive);  // all questions are forgotten
  }
}

// A connection within this machine, of which nothing more is heard.
struct Silent {
  explicit Silent(int backlog) : listener(listen_tcp({"127.0.0.1", 0})) {
    ::listen(listener.get(), backlog);
    socket = connect_tcp(local_endpoint(listener), now_ns() + 10'000'000'000);
  }
  FileDescriptor listener, socket;
};

TEST(Pulse, WhoAnswersQuestionsIsNeverLostHoweverSilentTheConnectionIs) {
  for (const bool refuses : {false, true}) {
    Silent silent(1000);  // nobody takes from its queue what a question leaves there
    const FileDescriptor other(::accept(silent.listener.get(), nullptr, nullptr));
    if (refuses) silent.listener.reset();
    Pulse pulse;
    for (const std::int64_t until = now_ns() + 4 * kPatienceNs; now_ns() < until; ::usleep(kLookNs / 1000))
      EXPECT_FALSE(pulse.lost(silent.socket.get(), 1, kPatienceNs));
  }
}

TEST(Pulse, WhoAnswersNoQuestionIsLost) {
  Silent silent(0);  // the connection fills the queue: the kernel drops all further ones
  Pulse pulse;
  int looks = 0;
  const std::int64_t begin = now_ns();
  while (!pulse.lost(silent.socket.get(), 1, kPatienceNs) && now_ns() - begin < 1000 * kPatienceNs) {
    ++looks;
    ::usleep(kLookNs / 1000);
  }
  EXPECT_GE(now_ns() - begin, kPatienceNs);
  EXPECT_LT(now_ns() - begin, 1000 * kPatienceNs);
  EXPECT_GT(looks, 8);
}

TEST(Pulse, WhoStopsAnsweringQuestionsIsLost) {
  Silent silent(1000);
  Pulse pulse;
  const auto begin = now_ns();
  for (; now_ns() < begin + 2 * kPatienceNs; ::usleep(kLookNs / 1000))
    EXPECT_FALSE(pulse.lost(silent.socket.get(), 1, kPatienceNs));
  ::listen(silent.listener.get(), 0);  // its queue is full now
  while (!pulse.lost(silent.socket.get(), 1, kPatienceNs) && now_ns() - begin < 1000 * kPatienceNs)
    ::usleep(kLookNs / 1000);
  EXPECT_LT(now_ns() - begin, 1000 * kPatienceNs);
}

TEST(Pulse, FewQuestionsAreOpenAtATimeAndNoneOnceThereIsAnAnswer) {
  const auto open_files = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  };
  Silent silent(0);
  Pulse pulse;
  const auto before = open_files();
  auto most = before;
  const std::int64_t begin = now_ns();
  while (!pulse.lost(silent.socket.get(), 1, kPatienceNs) && now_ns() - begin < 1000 * kPatienceNs) {
    most = std::max(most, open_files());
    ::usleep(kLookNs / 1000);
  }
  EXPECT_GT(most, before);
  EXPECT_LE(most, before + 8);
  EXPECT_FALSE(pulse.lost(silent.socket.get(), 2, kPatienceNs));
  EXPECT_EQ(open_files(), before);
}

TEST(Pulse, WhateverIsHeardOrAcknowledgedIsAnAnswer) {
  const Silent silent(8);
  const FileDescriptor other(::accept(silent.listener.get(), nullptr, nullptr));
  const std::int64_t deadline = now_ns() + 10'000'000'000;
  std::byte byte{};
  const std::uint64_t before = tcp_answers(silent.socket.get());
  EXPECT_GT(before, 0);
  EXPECT_EQ(tcp_answers(silent.socket.get()), before);
  send_all(silent.socket, &byte, 1, deadline);
  receive_all(other, &byte, 1, deadline);
  send_all(other, &byte, 1, deadline);
  receive_all(silent.socket, &byte, 1, deadline);
  EXPECT_GT(tcp_answers(silent.socket.get()), before + 1);
  EXPECT_EQ(tcp_answers(STDIN_FILENO), 0);
}

}  // namespace
}  // namespace talweg::live
