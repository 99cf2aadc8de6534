// What bounded sums tell once of what makes them slower than they could be, or do less than was asked for.
#include <gmock/gmock.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "group/bounded.h"
#include "lossy.h"
#include "ranks.h"
#include "talweg/bounded_loss.h"

namespace talweg::group {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

std::size_t warnings(const std::string& text) {
  std::size_t n = 0;
  for (std::size_t at = text.find(" WARN "); at != std::string::npos; at = text.find(" WARN ", at + 1)) ++n;
  return n;
}

std::string said_by(int size, const std::function<void(Group&)>& body) {
  testing::internal::CaptureStderr();
  run_ranks(size, body);
  return testing::internal::GetCapturedStderr();
}

void sum_once(BoundedSums& sums, const Group& group) {
  std::vector<float> values(10'000, 1.F);
  sums.all_reduce({.in = values.data(), .out = values.data(), .count = values.size()});
  EXPECT_THAT(values, ::testing::Each(static_cast<float>(group.size())));
}

// As a host gives it, whose net.core.rmem_max is so large.
std::string said_with_buffers_of(int bytes, int of_rank, BoundedLossOptions options = {}) {
  return said_by(4, [&](Group& group) {
    BoundedSeams seams = lossy(0, 1);
    if (group.rank() >= of_rank) seams.socket.receive_bytes = bytes;
    sum_once(*make_bounded(group, options, seams), group);
  });
}

TEST(BoundedWarnings, BuffersThatAreTooSmallForAllSendersAreTold) {
  const std::string said = said_with_buffers_of(36 << 10, 3);
  EXPECT_EQ(warnings(said), 1U) << said;
  EXPECT_THAT(said, MatchesRegex(
                        "talweg: [^\n]* \\[0\\] WARN bounded: the kernel gives rank 3 \\([^\n]*\\) 36 KiB to "
                        "receive datagrams, 12 KiB for each of 3 senders, where 16 KiB are needed: over "
                        "a round trip of 100 us none of them sends more than 0.98 Gbit/s, and bounded "
                        "sums are slower; more with sysctl -w net.core.rmem_max=4194304\n"));
  const std::string all = said_with_buffers_of(36 << 10, 1);
  EXPECT_EQ(warnings(all), 1U) << all;
  EXPECT_THAT(all, HasSubstr("16 KiB are needed (so it is for 3 ranks): over"));
}

TEST(BoundedWarnings, BuffersThatHoldWhatIsNeededAreNot) {
  EXPECT_EQ(said_with_buffers_of(48 << 10, 0), "");
  EXPECT_EQ(said_with_buffers_of(212'992, 0), "") << "what Linux gives where nobody has set anything";
  EXPECT_EQ(said_with_buffers_of(36 << 10, 3, {.servers = {0, 1}}), "") << "nobody sends datagrams there";
}

TEST(BoundedWarnings, ClassesThatTheHostRefusesAreToldOnce) {
  const auto said = [](int error) {
    return said_by(2, [error](Group& group) {
      BoundedSeams seams = lossy(0, 1);
      if (group.rank() == 1)
        seams.send = [error](int fd, mmsghdr* messages, unsigned n) {
          if (messages->msg_hdr.msg_controllen == 0) return ::sendmmsg(fd, messages, n, MSG_DONTWAIT);
          errno = error;
          return -1;
        };
      const auto sums = make_bounded(group, {.classes = {.droppable_front = 0.5, .queues = 4}}, seams);
      for (int call = 0; call < 2; ++call) sum_once(*sums, group);
    });
  };
  EXPECT_THAT(
      said(EPERM),
      MatchesRegex(
          "talweg: [^\n]* \\[1\\] WARN net: bounded loss: this host refuses DSCP and ECN of datagrams "
          "\\(Operation not permitted\\): they travel in one class, [^\n]*set IP_TOS[^\n]*\n"));
  EXPECT_THAT(said(EINVAL), HasSubstr("(Invalid argument): they travel"));
}

}  // namespace
}  // namespace talweg::group
