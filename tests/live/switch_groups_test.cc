// Groups of results by multicast, of a switch's jobs: who has which, what people are told of it, what is
// refused.
#include "live/aggregation/switch_groups.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <limits>
#include <string>
#include <utility>

#include "live/aggregation/group_ear.h"
#include "live/udp/multicast.h"
#include "served_switch.h"

namespace talweg::live {
namespace {

using wire::GroupWord;

// Without threads and sockets: what each job is told, and who has what.
struct GroupJobs {
  explicit GroupJobs(std::size_t most)
      : groups(UdpAddress("239.1.2.0:61000"), most,
               {[this](std::uint32_t job, const UdpAddress& at) {
                  done += fmt::format("group {} {}\n", job, to_string(at));
                  return path;
                },
                [this](std::uint32_t job, std::uint32_t attempt) {
                  done += fmt::format("probe {} of {}\n", attempt, job);
                },
                [this](std::uint32_t job, bool by_group) {
                  done += fmt::format("{} {}\n", by_group ? "once" : "each", job);
                },
                [this](const std::string& text) { done += text + "\n"; }}) {}
  static SwitchJobs::Job job(std::uint32_t number, std::uint16_t workers) {
    SwitchJobs::Job job;
    job.name = fmt::format("j{}", number);
    job.opened.emplace().job = number;
    job.workers.resize(workers);
    for (SwitchJobs::Worker& worker : job.workers) worker.asked.by_group = true;
    return job;
  }
  std::string take() { return std::exchange(done, {}); }
  std::string done;
  SwitchThread::GroupPath path = {1500, 1500};
  SwitchGroups groups;
};

TEST(SwitchGroups, ArePlacesThatAreFreeAgainWhenTheirJobIsOver) {
  GroupJobs jobs(2);
  EXPECT_EQ(jobs.groups.describe(), "239.1.2.0 to 239.1.2.1, UDP ports 61000 to 61001");
  EXPECT_EQ(jobs.groups.open(GroupJobs::job(7, 2), 0)->at, "239.1.2.0:61000");
  EXPECT_EQ(jobs.groups.open(GroupJobs::job(8, 2), 0)->at, "239.1.2.1:61001");
  EXPECT_FALSE(jobs.groups.open(GroupJobs::job(9, 2), 0));
  jobs.groups.close(7);
  EXPECT_FALSE(jobs.groups.open(GroupJobs::job(9, 1), 0)) << "of one worker";
  SwitchJobs::Job mixed = GroupJobs::job(9, 3);
  mixed.workers[1].asked.by_group = false;
  EXPECT_FALSE(jobs.groups.open(mixed, 0)) << "one of them does not know of it";
  EXPECT_EQ(jobs.groups.open(GroupJobs::job(9, 2), 0)->at, "239.1.2.0:61000");
  EXPECT_EQ(jobs.take(), "group 7 239.1.2.0:61000\ngroup 8 239.1.2.1:61001\ngroup 9 239.1.2.0:61000\n");
}

TEST(SwitchGroups, SayOnceWhoIsNotReachedAndWhenAllAre) {
  GroupJobs jobs(2);
  const SwitchJobs::Job job = GroupJobs::job(7, 12);
  jobs.groups.open(job, 0);
  for (std::uint16_t w = 0; w < 12; ++w) jobs.groups.says(job, w, {GroupWord::joined}, 0);
  jobs.groups.says(job, 3, {GroupWord::heard, 1}, 0);
  jobs.take();
  std::string probes;
  for (const int attempt : {1, 2}) {
    probes.clear();
    for (int i = 0; i < protocol::ResultGroup::kProbes; ++i) {
      jobs.groups.on_time(jobs.groups.next_time_ns());
      probes += fmt::format("probe {} of 7\n", attempt);
    }
    jobs.groups.on_time(jobs.groups.next_time_ns());
    if (attempt == 1)
      probes += fmt::format(
          "job j7: results go to each worker by itself: of {} probes to the multicast group 239.1.2.0:61000 "
          "from each of the switch's threads, workers 0, 1, 2, 4, 5, 6, 7, 8 and 3 more did not say that one "
          "of each has come\n",
          protocol::ResultGroup::kProbes);
    EXPECT_EQ(jobs.take(), probes);
  }
  jobs.groups.on_time(jobs.groups.next_time_ns());
  for (std::uint16_t w = 0; w < 12; ++w) jobs.groups.says(job, w, {GroupWord::heard, 3}, 0);
  EXPECT_EQ(jobs.take(),
            "probe 3 of 7\nonce 7\njob j7: results go once to the multicast group "
            "239.1.2.0:61000: all of its workers hear it\n");
}

// Who joins late, and then hears nothing.
TEST(SwitchGroups, SayAReasonThatHasChanged) {
  GroupJobs jobs(1);
  const SwitchJobs::Job two = GroupJobs::job(7, 2);
  jobs.groups.open(two, 0);
  jobs.groups.says(two, 0, {GroupWord::joined}, 0);
  jobs.groups.on_time(jobs.groups.next_time_ns());
  EXPECT_THAT(jobs.take(), testing::HasSubstr("worker 1 did not say so far that the multicast group"));
  jobs.groups.says(two, 1, {GroupWord::joined}, 0);
  jobs.groups.says(two, 0, {GroupWord::heard, 1}, 0);
  for (int i = 0; i <= protocol::ResultGroup::kProbes; ++i) jobs.groups.on_time(jobs.groups.next_time_ns());
  EXPECT_THAT(jobs.take(), testing::HasSubstr("worker 1 did not say that one of each has come"));
  jobs.groups.says(two, 1, {GroupWord::heard, 1}, 0);
  EXPECT_EQ(jobs.take(),
            "once 7\njob j7: results go once to the multicast group 239.1.2.0:61000: all of its workers hear "
            "it\n");
}

TEST(SwitchGroups, SayHowMuchWasLost) {
  GroupJobs jobs(2);
  const SwitchJobs::Job two = GroupJobs::job(8, 2);
  jobs.groups.open(two, 5);
  for (const GroupWord word : {GroupWord::joined, GroupWord::heard}) {
    for (std::uint16_t w = 0; w < 2; ++w) jobs.groups.says(two, w, {word, 1}, 5);
    jobs.groups.on_time(5);
  }
  EXPECT_TRUE(jobs.groups.by_group(8));
  EXPECT_FALSE(jobs.groups.by_group(7));
  jobs.groups.says(two, 1, {GroupWord::lost, 1, 300, 1024}, 6);
  jobs.groups.says(two, 0, {GroupWord::lost, 1, 500, 1024}, 7);
  EXPECT_FALSE(jobs.groups.by_group(8));
  EXPECT_EQ(jobs.take(),
            "group 8 239.1.2.0:61000\nprobe 1 of 8\nonce 8\neach 8\njob j8: results go to each worker "
            "by itself again: 300 of 1024 to the multicast group 239.1.2.0:61000 did not come to worker 1\n");
}

TEST(SwitchGroups, SayWhoHasNotJoinedAndWhoCannot) {
  GroupJobs jobs(2);
  const SwitchJobs::Job slow = GroupJobs::job(7, 3), cannot = GroupJobs::job(8, 2);
  jobs.groups.open(slow, 0);
  jobs.groups.says(slow, 1, {GroupWord::joined}, 0);
  jobs.take();
  jobs.groups.on_time(jobs.groups.next_time_ns());
  EXPECT_EQ(jobs.take(),
            "job j7: results go to each worker by itself: workers 0, 2 did not say so far that the multicast "
            "group 239.1.2.0:61000 is joined\n");
  jobs.groups.says(slow, 2, {GroupWord::cannot, 0, 0, 0, "No such device"}, 1);
  EXPECT_EQ(jobs.take(),
            "job j7: results go to each worker by itself: worker 2 cannot join the multicast group "
            "239.1.2.0:61000: No such device\n")
      << "another reason than before";
  jobs.groups.open(cannot, 0);
  jobs.take();
  jobs.groups.says(cannot, 0, {GroupWord::cannot, 0, 0, 0, "No such device"}, 1);
  EXPECT_EQ(jobs.take(),
            "job j8: results go to each worker by itself: worker 0 cannot join the multicast group "
            "239.1.2.1:61001: No such device\n");
  EXPECT_EQ(jobs.groups.next_time_ns(), std::numeric_limits<std::int64_t>::max());
}

// As where the workers are on the switch's host, and speak to it by an interface of longer packets.
TEST(SwitchGroups, AreNotOfferedWhereTheWayThereIsTooNarrow) {
  GroupJobs jobs(2);
  jobs.path = {1500, 1501};
  EXPECT_FALSE(jobs.groups.open(GroupJobs::job(7, 2), 0));
  EXPECT_EQ(jobs.take(),
            "group 7 239.1.2.0:61000\njob j7: results go to each worker by itself: they are packets of up to "
            "1501 bytes, and the way to the multicast group 239.1.2.0:61000 takes 1500\n");
  // A job that is opened again is another one of this name: that is said again of another way alone.
  SwitchJobs::Job again = GroupJobs::job(8, 2);
  again.name = "j7";
  for (const std::size_t mtu : {1500U, 1500U, 1400U, 1400U}) {
    jobs.path.mtu = mtu;
    again.opened->job += 1;
    EXPECT_FALSE(jobs.groups.open(again, 0));
  }
  EXPECT_EQ(jobs.take(),
            "group 9 239.1.2.0:61000\ngroup 10 239.1.2.0:61000\ngroup 11 239.1.2.0:61000\njob j7: results go "
            "to each worker by itself: they are packets of up to 1501 bytes, and the way to the multicast "
            "group 239.1.2.0:61000 takes 1400\ngroup 12 239.1.2.0:61000\n");
  jobs.path.mtu = 0;  // it is not known
  EXPECT_EQ(jobs.groups.open(GroupJobs::job(8, 2), 0)->at, "239.1.2.0:61000");
}

TEST(SwitchGroups, RefuseWhatIsNoGroupOfTheirs) {
  const Endpoint here{"127.0.0.1", 4711};
  const auto given = [&](const std::string& group, std::size_t jobs = 16,
                         const Endpoint& listen = Endpoint{"127.0.0.1", 4711}) {
    return [=] { first_group({group}, listen, jobs); };
  };
  constexpr auto kBad = ErrorCode::invalid_argument;
  EXPECT_EQ(to_string(first_group({"239.255.255.240"}, here, 16)), "239.255.255.240:61000");
  for (const char* const none : {"", "x", "10.0.0.1", "224.0.0.251", "240.0.0.1", "239.1.2", "239.1.2.0:5"})
    expect_error(given(none), kBad,
                 fmt::format("--multicast: expected a multicast address, 224.0.1.0 to 239.255.255.255, got "
                             "\"{}\"",
                             none));
  expect_error(given("ff15::1"), kBad, "--multicast: ff15::1 is a group of IPv6");
  expect_error(given("239.255.255.241"), kBad, "16 jobs have as many groups from 239.255.255.241 on");
  expect_error(given("239.1.2.0", 16, {"0.0.0.0", 4711}), kBad, "give --listen the address of one");
  expect_error([&] { first_group({"239.1.2.0", 0}, here, 16); }, kBad, "--multicast-hops");
}

// The default route may lead elsewhere, by shorter packets, or there is none.
TEST(SwitchGroups, AreOnThePathOfTheInterfaceThatTheirSwitchSendsBy) {
  const UdpSocket socket(UdpAddress("127.0.0.1:0"));
  send_to_groups(socket, 1);
  const std::size_t here = socket.path_mtu(UdpAddress("127.0.0.1:9"));
  EXPECT_GT(here, 0U);
  EXPECT_EQ(socket.path_mtu(UdpAddress("239.1.2.3:9")), here);
}

TEST(SwitchGroups, AWorkerJoinsNothingElse) {
  const UdpAddress own("127.0.0.1:0");
  for (const char* const at : {"10.0.0.1:61000", "239.1.2.0:0", "[ff15::1]:61000"})
    expect_error([&] { GroupEar ear({at}, own, 1, {}, {}); }, ErrorCode::invalid_argument,
                 fmt::format("{} is no multicast group", at));
  expect_error([&] { GroupEar ear({"nowhere"}, own, 1, {}, {}); }, ErrorCode::invalid_argument,
               "\"nowhere\" is not an address and a port");
}

}  // namespace
}  // namespace talweg::live
