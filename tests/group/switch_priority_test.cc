// All_reduces of a group through a switch, some of which have a priority.
#include <gmock/gmock.h>

#include <atomic>
#include <cstring>

#include "switched.h"

namespace talweg {
namespace {

struct Filled {
  Filled(const Group& group, std::size_t count) : data(count, static_cast<float>(group.rank() + 1)) {}
  WorkPtr start(Group& group, const CallOptions& options) {
    return group.start_all_reduce(data.data(), data.data(), data.size(), DataType::f32, ReduceOp::sum,
                                  options);
  }
  void expect_sum() const { EXPECT_THAT(data, ::testing::Each(6.0F)); }
  std::vector<float> data;
};

// What the switch says of other sums is held back until the urgent one is done.
TEST(Switched, ACallWithAPriorityDoesNotWaitForThoseBeforeIt) {
  std::atomic<std::uint64_t> others{0};  // the first job's number, and 1
  std::atomic<bool> held{false};
  live::SwitchServiceOptions options;
  options.send = [&](int fd, mmsghdr* messages, unsigned n) {
    for (unsigned i = 0; i < n; ++i) {
      wire::DatagramHeader header;
      std::memcpy(&header, messages[i].msg_hdr.msg_iov[0].iov_base, sizeof header);
      const std::uint64_t job = header.job + std::uint64_t{1};
      std::uint64_t nobody = 0;
      const bool first = others.compare_exchange_strong(nobody, job) || nobody == job;
      if (!first || !held) ::sendmmsg(fd, messages + i, 1, 0);
    }
    return static_cast<int>(n);
  };
  const live::Served served(options);
  CallOptions urgent;
  urgent.priority = 1;
  run_ranks(
      kRanks,
      [&](Group& group) {
        sum_until_there(group);
        EXPECT_EQ(sums_of_each(group).size(), 1U);
        sum_until(group, 1000, [&] {
          Filled few(group, 1000);
          few.start(group, urgent)->wait();
          few.expect_sum();
          const std::vector<int> of_each = sums_of_each(group);
          return of_each.size() == 2 && of_each[1] > 0;
        });
        group.barrier();
        held = true;
        Filled many(group, 100'000), few(group, 1000);
        const WorkPtr before = many.start(group, {});
        few.start(group, urgent)->wait();
        EXPECT_EQ(last_way(group), "dense") << switch_line(group);
        few.expect_sum();
        group.barrier();
        held = false;
        before->wait();
        many.expect_sum();
        group.barrier();
      },
      through(at(served)));
}

// In flight together, in whatever order the two lines come to them.
TEST(Switched, CallsThatSomeRanksGiveAPriorityGoThroughItAsThoseOfNone) {
  const live::Served served;
  run_ranks(
      kRanks,
      [&](Group& group) {
        CallOptions urgent, own;
        urgent.priority = 3;
        own.priority = group.rank() == 1 ? 0 : 7;
        sum_until_there(group);
        sum_until(group, 1000, [&] {
          Filled(group, 1000).start(group, urgent)->wait();
          const std::vector<int> of_each = sums_of_each(group);
          return of_each.size() == 2 && of_each[1] > 0;
        });
        const std::vector<int> then = sums_of_each(group);
        constexpr int kCalls = 30;
        std::vector<Filled> all(kCalls, Filled(group, 5'000));
        std::vector<WorkPtr> works;
        for (int i = 0; i < kCalls; ++i)
          works.push_back(all[static_cast<std::size_t>(i)].start(group, i % 3 == 0   ? urgent
                                                                        : i % 3 == 1 ? own
                                                                                     : CallOptions()));
        for (const WorkPtr& work : works) work->wait();
        for (const Filled& each : all) each.expect_sum();
        const std::vector<int> now = sums_of_each(group);
        EXPECT_EQ(now[0] - then[0], 2 * kCalls / 3) << switch_line(group);
        EXPECT_EQ(now[1] - then[1], kCalls / 3);
        group.barrier();
      },
      through(at(served)));
}

}  // namespace
}  // namespace talweg
