// Strangers at the gate: what each kind costs, and that ranks get in all the same.
#include "live/join/gate.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "talweg/error.h"

namespace talweg::live {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kGateSecond = 1'000'000'000;

class AGate : public ::testing::Test {
 protected:
  AGate() {
    FileDescriptor listener = listen_tcp({"127.0.0.1", 0});
    endpoint = local_endpoint(listener);
    gate.listen(std::move(listener));
  }

  FileDescriptor stranger() const { return connect_tcp(endpoint, now_ns() + 5 * kGateSecond); }
  static void say(const FileDescriptor& socket, const std::string& text) {
    EXPECT_EQ(::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }
  // Everything that has been sent here has been heard.
  void hear_all(std::int64_t now) {
    while (wait_ready(gate.fd(), false, now_ns() + kGateSecond / 20)) gate.step(now);
  }
  static bool is_cut(const FileDescriptor& socket) {
    char byte = 0;
    if (!wait_ready(socket, false, now_ns() + 2 * kGateSecond)) return false;
    return ::recv(socket.get(), &byte, 1, 0) <= 0;
  }
  static wire::Introduction introduction() { return {wire::Purpose::data, false, 0, 1, 0, 42}; }
  Visitor enter(const wire::Secret& with, const wire::Introduction& as) const {
    const std::int64_t deadline = now_ns() + 10 * kGateSecond;
    return knock([&] { return connect_tcp(endpoint, deadline); }, with, as, deadline);
  }
  // Serves the gate until `n` have been let in.
  std::vector<Visitor> let_in(std::size_t n) {
    std::vector<Visitor> in;
    const std::int64_t deadline = now_ns() + 10 * kGateSecond;
    while (in.size() < n && now_ns() < deadline) {
      wait_ready(gate.fd(), false, now_ns() + kGateSecond / 100);
      for (Visitor& v : gate.step(now_ns())) in.push_back(std::move(v));
    }
    return in;
  }
  std::string refusal_of(const wire::Secret& with, const wire::Introduction& as) {
    std::string text;
    std::atomic<bool> over{false};
    std::thread knocking([&] {
      try {
        enter(with, as);
      } catch (const Error& e) {
        EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
        text = e.what();
      }
      over = true;
    });
    while (!over) {
      wait_ready(gate.fd(), false, now_ns() + kGateSecond / 100);
      EXPECT_TRUE(gate.step(now_ns()).empty());
    }
    knocking.join();
    return text;
  }

  const wire::Secret key = wire::secret_from_text("the key of this job");
  Gate gate{key, [](const wire::Introduction& i) { return i.job == 42; }, Logger(0, LogLevel::none)};
  Endpoint endpoint;
};

TEST_F(AGate, LetsInWhoHoldsTheKeyAndBothGetTheSameSecrets) {
  Visitor outside;
  std::thread knocking([&] { outside = enter(key, introduction()); });
  const auto inside = let_in(1);
  knocking.join();
  ASSERT_EQ(inside.size(), 1U);
  EXPECT_EQ(inside[0].introduction, introduction());
  EXPECT_EQ(inside[0].secrets.send, outside.secrets.receive);
  EXPECT_EQ(gate.half_open(), 0U);
  EXPECT_EQ(gate.counts().strangers(), 0U);
}

TEST_F(AGate, RefusesAnotherKeyAndAnotherJobByName) {
  EXPECT_THAT(refusal_of(wire::secret_from_text("the key of another job"), introduction()),
              HasSubstr("do not hold the same job key"));
  wire::Introduction other = introduction();
  other.job = 43;
  EXPECT_THAT(refusal_of(key, other), HasSubstr("another job"));
  EXPECT_EQ(gate.counts().refused, 2U);
}

TEST_F(AGate, DropsGarbageAtOnce) {
  const FileDescriptor a = stranger();
  say(a, "GET / HTTP/1.1\r\nHost: somewhere\r\nUser-Agent: a scanner of ports that is quite long\r\n\r\n" +
             std::string(50, 'x'));
  const FileDescriptor b = stranger();
  ::shutdown(b.get(), SHUT_WR);
  hear_all(now_ns());
  EXPECT_TRUE(is_cut(a));
  EXPECT_TRUE(is_cut(b));
  EXPECT_EQ(gate.counts().refused, 2U);
}

TEST_F(AGate, DropsTheSilentAndTheSlowAfterFiveSeconds) {
  const std::int64_t begin = now_ns();
  const FileDescriptor silent = stranger();
  const FileDescriptor slow = stranger();
  for (int second = 0; second < 5; ++second) {
    say(slow, "T");
    hear_all(begin + second * kGateSecond);
    EXPECT_EQ(gate.half_open(), 2U) << second;
  }
  EXPECT_LE(gate.next_ns(), begin + 6 * kGateSecond);
  gate.step(begin + 5 * kGateSecond);
  EXPECT_EQ(gate.half_open(), 0U);
  EXPECT_EQ(gate.counts().silent, 2U);
  EXPECT_TRUE(is_cut(silent));
  EXPECT_TRUE(is_cut(slow));
}

TEST_F(AGate, SweepsOutTheSilentWithoutHearingAnybody) {
  const FileDescriptor silent = stranger();
  const FileDescriptor loud = stranger();
  say(loud, std::string(500, 'x'));
  gate.sweep(0);
  EXPECT_EQ(gate.half_open(), 2U);
  gate.sweep(5 * kGateSecond);
  EXPECT_EQ(gate.half_open(), 0U);
  EXPECT_EQ(gate.counts().silent, 2U);
}

TEST_F(AGate, HoldsNoMoreThanItsLimitAndStillLetsARankIn) {
  std::vector<FileDescriptor> crowd;
  for (std::size_t i = 0; i < kMaxHalfOpen + 40; ++i) {
    crowd.push_back(stranger());
    gate.step(now_ns());
    EXPECT_LE(gate.half_open(), kMaxHalfOpen);
  }
  hear_all(now_ns());
  EXPECT_EQ(gate.half_open(), kMaxHalfOpen);
  EXPECT_EQ(gate.counts().pushed_out, 40U);
  EXPECT_TRUE(is_cut(crowd.front())) << "the oldest goes first";
  std::thread knocking([&] { enter(key, introduction()); });
  EXPECT_EQ(let_in(1).size(), 1U);
  knocking.join();
}

TEST_F(AGate, WhoIsCutOffWithoutAWordTriesAgain) {
  int tries = 0;
  std::thread knocking([&] {
    knock(
        [&] {
          if (++tries > 2) return stranger();
          int ends[2];
          EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
          ::close(ends[1]);
          return FileDescriptor(ends[0]);
        },
        key, introduction(), now_ns() + 10 * kGateSecond);
  });
  EXPECT_EQ(let_in(1).size(), 1U);
  knocking.join();
  EXPECT_EQ(tries, 3);
}

TEST_F(AGate, WithoutDescriptorsRestsInsteadOfSpinning) {
  const FileDescriptor waiting = stranger();
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{256, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  std::vector<FileDescriptor> used;
  for (int fd = ::dup(0); fd >= 0; fd = ::dup(0)) used.emplace_back(fd);
  gate.step(kGateSecond);
  EXPECT_EQ(gate.half_open(), 0U);
  EXPECT_FALSE(wait_ready(gate.fd(), false, now_ns() + kGateSecond / 50));
  used.clear();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  gate.step(gate.next_ns());
  gate.step(2 * kGateSecond);
  EXPECT_EQ(gate.half_open(), 1U);
}

}  // namespace
}  // namespace talweg::live
