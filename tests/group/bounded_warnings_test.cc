// What bounded sums tell once of what makes them slower than they could be, or do less than was asked for.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "group/bounded.h"
#include "group/group_impl.h"
#include "lossy.h"
#include "ranks.h"
#include "talweg/bounded_loss.h"

namespace talweg::group {
namespace {

using ::testing::ContainsRegex;
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
          if (n > 0 && messages->msg_hdr.msg_controllen == 0)
            return ::sendmmsg(fd, messages, 1, MSG_DONTWAIT);
          errno = error;
          return -1;
        };
      const auto sums = make_bounded(group, {.classes = {.droppable_front = 0.5, .queues = 4}}, seams);
      for (int call = 0; call < 8; ++call) sum_once(*sums, group);  // refused once may be by chance
    });
  };
  EXPECT_THAT(
      said(EPERM),
      MatchesRegex(
          "talweg: [^\n]* \\[1\\] WARN net: bounded loss: this host refuses DSCP and ECN of datagrams "
          "\\(Operation not permitted\\): they travel in one class, [^\n]*set IP_TOS[^\n]*\n"));
  EXPECT_THAT(said(EINVAL), HasSubstr("(Invalid argument): they travel"));
}

// As ranks far away from each other have them, with deadlines that these three do keep.
TEST(BoundedWarnings, DeadlinesThatAreShorterThanARoundTripAreToldOnce) {
  const auto said = [](const std::vector<std::chrono::seconds>& timeouts) {
    return said_by(3, [&](Group& group) {
      BoundedSeams seams = lossy(0, 1);
      seams.round_trips_ns = {0, 400'000'000'000, 500'000'000'000};
      const auto sums = make_bounded(group, {}, seams);
      std::vector<float> values(10'000, 1.F);
      for (const std::chrono::seconds timeout : timeouts)
        sums->all_reduce(
            {.in = values.data(), .out = values.data(), .count = values.size(), .timeout = timeout});
    });
  };
  using std::chrono::seconds;
  EXPECT_EQ(said({seconds(500), seconds(1000)}), "");
  const std::string one = said({seconds(500), seconds(450), seconds(300)});
  EXPECT_EQ(warnings(one), 3U) << "ranks 0 and 1 of rank 2, which itself hears of rank 1 later: " << one;
  for (const char* const rank : {"0", "1"})
    EXPECT_THAT(
        one, ContainsRegex(fmt::format("\\[{}\\] WARN bounded: a deadline of 450000 ms is shorter than the "
                                       "round trip to rank 2 \\([^\n]*\\), which takes 500000 ms: no call of "
                                       "bounded sums ends by then[^\n]*TALWEG_TIMEOUT",
                                       rank)));
  EXPECT_THAT(one, HasSubstr("[2] WARN bounded: a deadline of 300000 ms"));
  EXPECT_THAT(
      said({seconds(100)}),
      ContainsRegex("\\[0\\] WARN bounded: a deadline of 100000 ms is shorter than the round trip to rank 1 "
                    "\\([^\n]*\\), rank 2 \\([^\n]*\\), which takes up to 500000 ms"));
}

TEST(BoundedWarnings, RoundTripsAreThoseThatConnectionsHaveMeasured) {
  const Variable no_shared_memory("TALWEG_SHM", "0");
  for (const char* const transport : {"tcp", "udp"}) {
    const Variable datagrams("TALWEG_TRANSPORT", transport);
    run_ranks(3, [&](Group& group) {
      float value = 1;
      for (int call = 0; call < 20; ++call) group.all_reduce(&value, &value, 1, DataType::f32, ReduceOp::max);
      const std::array<int, 3> turned{2, 1, 0};
      const auto split = group.split(turned);
      const auto trips = std::dynamic_pointer_cast<GroupImpl>(split)->least_round_trips_ns();
      ASSERT_EQ(trips.size(), 3U);
      for (int r = 0; r < 3; ++r)
        EXPECT_EQ(trips[static_cast<std::size_t>(r)] > 0, r != split->rank()) << transport << r;
    });
  }
}

}  // namespace
}  // namespace talweg::group
