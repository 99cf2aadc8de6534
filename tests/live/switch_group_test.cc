// Results by multicast, over loopback: they leave a switch once for all workers that hear them, and sums are
// right whoever hears what; who may not have a group is told in one line.
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "live/aggregation/group_ear.h"
#include "live/aggregation/switch_groups.h"
#include "live/udp/multicast.h"
#include "served_switch.h"

namespace talweg::live {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using wire::AggregationFormat;
using wire::GroupWord;

const Case kGroupCases[] = {{1, AggregationFormat::f32},
                            {30'000, AggregationFormat::f32},
                            {5'000, AggregationFormat::i32},
                            {20'001, AggregationFormat::scaled},
                            {13'333, AggregationFormat::f16},
                            {256, AggregationFormat::bf16},
                            {0, AggregationFormat::f32},
                            {30'000, AggregationFormat::f32, true, 0.05},
                            {30'000, AggregationFormat::pairs, true, 0.05}};

// As of addresses: no test beside this one has these.
std::string own_groups() {
  const int pid = ::getpid();
  return fmt::format("239.{}.{}.0", 1 + (pid >> 8) % 250, pid % 256);
}

UdpOptions small_and_shared() {
  UdpOptions options;
  options.shared = true;
  return options;
}

// Whether this host passes multicast over loopback at all.
bool passes_multicast() {
  try {
    const UdpSocket ear(UdpAddress(own_groups() + ":60999"), small_and_shared());
    const UdpSocket mouth(UdpAddress("127.0.0.1:0"));
    join_group(ear, mouth.address());
    send_to_groups(mouth, 1);
    const char word = 'x';
    if (::sendto(mouth.fd(), &word, 1, 0, ear.address().raw(), ear.address().bytes()) != 1) return false;
    char back = 0;
    for (const std::int64_t until_ns = now_ns() + kSwitchSecond; now_ns() < until_ns;)
      if (::recv(ear.fd(), &back, 1, 0) == 1) return back == word;
  } catch (const Error&) {
  }
  return false;
}

struct SwitchGroup : testing::Test {
  static void SetUpTestSuite() { passes = passes_multicast(); }
  void SetUp() override {
    if (!passes) GTEST_SKIP() << "this host passes no multicast over loopback";
  }
  // What is said, and what was last seen of each job when its status was asked for.
  SwitchServiceOptions options() {
    SwitchServiceOptions o;
    o.multicast = SwitchMulticastOptions{own_groups()};
    o.say = [this](const std::string& text) {
      const std::lock_guard guard(mutex);
      said.push_back(text);
    };
    o.describe = [this](const SwitchStatus& status) {
      const std::lock_guard guard(mutex);
      for (const SwitchStatus::Job& job : status.jobs) seen[job.name] = job;
      return std::string();
    };
    return o;
  }
  SwitchStatus::Job look(const Served& served, const wire::Secret& key = {}, const std::string& job = "a") {
    give_order(served.service().address(), key, wire::SwitchDo::status, soon());
    const std::lock_guard guard(mutex);
    return seen[job];
  }
  bool has_said() {
    const std::lock_guard guard(mutex);
    return !said.empty();
  }
  static bool passes;
  std::mutex mutex;
  std::vector<std::string> said;
  std::map<std::string, SwitchStatus::Job> seen;
};
bool SwitchGroup::passes = false;

// Whether all of them say so; a sum itself.
bool all_say(SwitchClient& client, std::uint16_t workers, bool yes) {
  std::vector<std::byte> bytes = encoded({yes ? 1 : 0}, AggregationFormat::i32);
  client.all_reduce(vector_of(bytes, AggregationFormat::i32), soon());
  return bytes == encoded({workers}, AggregationFormat::i32);
}
// Sums until all of them have got a result by the group, beside probes.
void until_by_group(SwitchClient& client, std::uint16_t workers) {
  const std::int64_t deadline_ns = soon();
  const std::uint64_t first = client.terms().threads * std::uint64_t{protocol::ResultGroup::kProbes};
  while (!all_say(client, workers, client.received_by_group().datagrams > first))
    if (now_ns() > deadline_ns) return ADD_FAILURE() << "nothing comes by multicast";
}

// All but what is wanted is lost.
UdpReceiver::ReceiveCall hearing(std::function<bool()> wanted) {
  return [wanted = std::move(wanted)](int fd, mmsghdr* messages, unsigned n) {
    const int came = ::recvmmsg(fd, messages, n, MSG_DONTWAIT, nullptr);
    if (came <= 0 || wanted()) return came;
    errno = EAGAIN;
    return -1;
  };
}

TEST_F(SwitchGroup, BringsAResultToAllWorkersAtOnce) {
  const wire::Secret key = wire::secret_from_text("one long key of all of them");
  for (const int threads : {1, 3})
    for (const bool encrypted : {false, true}) {
      SwitchServiceOptions o = options();
      o.threads = threads;
      o.key = [&] { return key; };
      const Served served(o);
      auto workers = all(served, 3);
      for (SwitchClientOptions& w : workers) {
        w.key = key;
        w.encrypted = encrypted;
      }
      expect_none(run(workers, [&](SwitchClient& client, std::uint16_t number) {
        until_by_group(client, 3);
        const std::uint64_t before = client.received_by_group().datagrams;
        for (const Case& c : kGroupCases) sum_and_check(client, number, 3, 3, c);
        EXPECT_GT(client.received_by_group().datagrams - before, 20U);
        // What came by its own address, too, would have come twice.
        EXPECT_EQ(client.refusals().total(), 0U) << client.refusals().to_string();
        if (number == 0) {
          const SwitchStatus::Job job = look(served, key);
          EXPECT_TRUE(job.by_group);
          EXPECT_GT(job.counters.multicast, 20U);
        }
        all_say(client, 3, true);
      }));
      EXPECT_THAT(said, IsEmpty());
    }
}

// One in sixteen, of each worker others.
TEST_F(SwitchGroup, IsKeptWhereALittleOfItIsLost) {
  const Served served(options());
  auto workers = all(served, 3);
  for (SwitchClientOptions& w : workers)
    w.receive_group = [calls = std::make_shared<unsigned>(w.worker * 5)](int fd, mmsghdr* messages,
                                                                         unsigned) {
      const int came = ::recvmmsg(fd, messages, 1, MSG_DONTWAIT, nullptr);
      if (came <= 0 || ++*calls % 16 != 0) return came;
      return ::recvmmsg(fd, messages, 1, MSG_DONTWAIT, nullptr);
    };
  for (SwitchClientOptions& w : workers) w.socket.merge = false;
  SwitchStatus::Job job;
  expect_none(run(workers, [&](SwitchClient& client, std::uint16_t number) {
    until_by_group(client, 3);
    for (int i = 0; i < 3; ++i)
      for (const Case& c : kGroupCases) sum_and_check(client, number, 3, 9, c);
    if (number == 0) job = look(served);
    all_say(client, 3, true);
  }));
  EXPECT_TRUE(job.by_group);
  EXPECT_GT(job.counters.repeated, 0U);
  EXPECT_THAT(said, IsEmpty());
}

TEST_F(SwitchGroup, IsLeftOnceAWorkerHearsTooLittleAndThatIsSaidOnce) {
  const Served served(options());
  auto workers = all(served, 3);
  std::atomic<bool> filtered{false};
  workers[1].receive_group = hearing([&] { return !filtered; });
  SwitchStatus::Job job;
  expect_none(run(workers, [&](SwitchClient& client, std::uint16_t number) {
    until_by_group(client, 3);
    filtered = true;
    const std::int64_t deadline_ns = now_ns() + 120 * kSwitchSecond;
    do {
      if (now_ns() > deadline_ns) return ADD_FAILURE() << "results go where one does not hear them";
      sum_and_check(client, number, 3, 9, {50'000});
    } while (!all_say(client, 3, has_said()));
    if (number == 0) job = look(served);
    // From now on nothing comes by it.
    all_say(client, 3, true);
    const std::uint64_t before = client.received_by_group().datagrams;
    for (const Case& c : kGroupCases) sum_and_check(client, number, 3, 4, c);
    EXPECT_EQ(client.received_by_group().datagrams, before);
    all_say(client, 3, true);
  }));
  EXPECT_FALSE(job.by_group);
  EXPECT_GT(job.counters.multicast, 0U);
  EXPECT_THAT(said, ElementsAre("job a: results go to each worker by itself again: too few of those to the "
                                "multicast group " +
                                own_groups() + ":61000 come to worker 1"));
}

TEST_F(SwitchGroup, IsNotUsedWhereAWorkerHearsNothingOrDoesNotKnowOfIt) {
  for (const bool knows : {true, false}) {
    const Served served(options());
    auto workers = all(served, 2);
    workers[1].by_group = knows;
    workers[1].receive_group = hearing([] { return false; });
    SwitchStatus::Job job;
    expect_none(run(workers, [&](SwitchClient& client, std::uint16_t number) {
      for (const Case& c : kGroupCases) sum_and_check(client, number, 2, 9, c);
      if (number == 0) job = look(served);
      all_say(client, 2, true);
      EXPECT_TRUE(knows || client.sockets()[2] == -1) << "somebody was offered one";
    }));
    EXPECT_FALSE(job.by_group);
    EXPECT_EQ(job.counters.multicast, 0U);
  }
}

TEST_F(SwitchGroup, IsNotThereForOneWorkerAlone) {
  const Served served(options());
  SwitchClient client(served.worker(0, 1));
  for (const Case& c : kGroupCases) sum_and_check(client, 0, 1, 9, c);
  EXPECT_EQ(client.sockets()[2], -1);
  EXPECT_FALSE(look(served).by_group);
}

// Nobody's datagrams, and what the switch has said before, to the group of a job with a key.
TEST_F(SwitchGroup, AStrangersDatagramsAreDropped) {
  const wire::Secret key = wire::secret_from_text("one long key of all of them");
  SwitchServiceOptions o = options();
  o.key = [&] { return key; };
  const Served served(o);
  const UdpSocket stranger(UdpAddress("127.0.0.1:0"));
  send_to_groups(stranger, 1);
  const UdpAddress group(own_groups() + ":61000");
  const auto say = [&](std::span<const std::byte> bytes) {
    EXPECT_EQ(::sendto(stranger.fd(), bytes.data(), bytes.size(), 0, group.raw(), group.bytes()),
              static_cast<ssize_t>(bytes.size()));
  };
  auto workers = all(served, 2);
  for (SwitchClientOptions& w : workers) w.key = key;
  // What worker 0 gets is sent to both once more; it is not merged, and so a datagram.
  workers[0].socket.merge = false;
  workers[0].receive_group = [&](int fd, mmsghdr* messages, unsigned) {
    const int came = ::recvmmsg(fd, messages, 1, MSG_DONTWAIT, nullptr);
    if (came != 1) return came;
    const msghdr& message = messages[0].msg_hdr;
    if (ntohs(static_cast<const sockaddr_in*>(message.msg_name)->sin_port) != stranger.address().port())
      say({static_cast<const std::byte*>(message.msg_iov->iov_base), messages[0].msg_len});
    return came;
  };
  expect_none(run(workers, [&](SwitchClient& client, std::uint16_t number) {
    until_by_group(client, 2);
    // A header that is right for a result to all, behind which nothing has a tag.
    wire::DatagramHeader forged;
    forged.type = static_cast<std::uint8_t>(wire::AggregationType::result);
    forged.flags = wire::kDatagramToAll;
    forged.job = client.terms().job;
    forged.epoch = client.terms().epoch;
    forged.sender = 2;
    forged.number = 1'000'000;
    forged.length = 100;
    std::vector<std::byte> bytes(wire::kDatagramHeaderBytes + forged.length + 16);
    wire::encode(forged, bytes.data());
    say(bytes);
    say(std::span(bytes).first(20));
    for (const Case& c : kGroupCases) sum_and_check(client, number, 2, 9, c);
    // It has come before the results that are sent from here on.
    all_say(client, 2, true);
    EXPECT_GT(client.refusals()[wire::DatagramRefusal::damaged], 0U);
    EXPECT_GT(client.refusals()[wire::DatagramRefusal::too_short], 0U);
    EXPECT_GT(client.refusals()[wire::DatagramRefusal::replayed], 0U);
    all_say(client, 2, true);
  }));
}

TEST_F(SwitchGroup, IsOneOfItsOwnForEachJob) {
  const Served served(options());
  std::vector<std::thread> jobs;
  for (const std::string job : {"one", "two", "three"})
    jobs.emplace_back([&, job] {
      expect_none(run(all(served, 2, job), [&](SwitchClient& client, std::uint16_t number) {
        until_by_group(client, 2);
        for (const Case& c : kGroupCases) sum_and_check(client, number, 2, 9, c);
        EXPECT_EQ(client.refusals().total(), 0U) << client.refusals().to_string();
      }));
    });
  for (std::thread& job : jobs) job.join();
  // Who comes next has the place of one that has gone.
  expect_none(
      run(all(served, 2, "four"), [&](SwitchClient& client, std::uint16_t) { until_by_group(client, 2); }));
}

// What comes from above goes down by the rack's group; between switches there is none.
TEST_F(SwitchGroup, OfARackBringsDownWhatComesFromAbove) {
  const Served top(options());
  SwitchServiceOptions of_rack = options();
  of_rack.above = SwitchAboveOptions{top.service().address()};
  const Served first(of_rack);
  of_rack.multicast.reset();
  const Served second(of_rack);
  std::vector<SwitchClientOptions> workers;
  for (const Served* const rack : {&first, &second})
    for (std::uint16_t w = 0; w < 2; ++w) {
      SwitchClientOptions& o = workers.emplace_back(rack->worker(w, 2));
      o.rack = rack == &first ? 0 : 1;
      o.racks = 2;
      o.all_workers = 4;
    }
  expect_none(run(workers, [&](SwitchClient& client, std::uint16_t) {
    const bool by_group = client.terms().port == first.service().address().port;
    const std::int64_t deadline_ns = soon();
    while (!all_say(client, 4, !by_group || client.received_by_group().datagrams > 20))
      if (now_ns() > deadline_ns) return ADD_FAILURE() << "nothing comes by multicast";
    EXPECT_EQ(client.sockets()[2] >= 0, by_group);
  }));
}

// Without threads and sockets: what each job is told, and who has what.
struct GroupJobs {
  explicit GroupJobs(std::size_t most)
      : groups(UdpAddress("239.1.2.0:61000"), most,
               {[this](std::uint32_t job, const UdpAddress& at) {
                  done += fmt::format("group {} {}\n", job, to_string(at));
                },
                [this](std::uint32_t job) { done += fmt::format("probe {}\n", job); },
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
  SwitchGroups groups;
};

TEST(SwitchGroups, ArePlacesThatAreFreeAgainWhenTheirJobIsOver) {
  GroupJobs jobs(2);
  EXPECT_EQ(jobs.groups.describe(), "239.1.2.0 to 239.1.2.1, UDP ports 61000 to 61001");
  EXPECT_EQ(jobs.groups.open(GroupJobs::job(7, 2))->at, "239.1.2.0:61000");
  EXPECT_EQ(jobs.groups.open(GroupJobs::job(8, 2))->at, "239.1.2.1:61001");
  EXPECT_FALSE(jobs.groups.open(GroupJobs::job(9, 2)));
  jobs.groups.close(7);
  EXPECT_FALSE(jobs.groups.open(GroupJobs::job(9, 1))) << "of one worker";
  SwitchJobs::Job mixed = GroupJobs::job(9, 3);
  mixed.workers[1].asked.by_group = false;
  EXPECT_FALSE(jobs.groups.open(mixed)) << "one of them does not know of it";
  EXPECT_EQ(jobs.groups.open(GroupJobs::job(9, 2))->at, "239.1.2.0:61000");
  EXPECT_EQ(jobs.take(), "group 7 239.1.2.0:61000\ngroup 8 239.1.2.1:61001\ngroup 9 239.1.2.0:61000\n");
}

TEST(SwitchGroups, SayOnceWhoIsNotReached) {
  GroupJobs jobs(2);
  const SwitchJobs::Job job = GroupJobs::job(7, 12);
  jobs.groups.open(job);
  for (std::uint16_t w = 0; w < 12; ++w) jobs.groups.says(job, w, GroupWord::joined, 0);
  jobs.groups.says(job, 3, GroupWord::heard, 0);
  jobs.take();
  while (jobs.groups.next_time_ns() < soon()) jobs.groups.on_time(jobs.groups.next_time_ns());
  std::string probes;
  for (int i = 0; i < protocol::ResultGroup::kProbes; ++i) probes += "probe 7\n";
  EXPECT_EQ(jobs.take(), probes +
                             "each 7\njob j7: results go to each worker by itself: what is sent to the "
                             "multicast group 239.1.2.0:61000 does not come to workers 0, 1, 2, 4, 5, "
                             "6, 7, 8 and 3 more\n");
  jobs.groups.says(job, 1, GroupWord::lost, 0);
  EXPECT_EQ(jobs.take(), "");

  const SwitchJobs::Job two = GroupJobs::job(8, 2);
  jobs.groups.open(two);
  for (const GroupWord word : {GroupWord::joined, GroupWord::heard}) {
    for (std::uint16_t w = 0; w < 2; ++w) jobs.groups.says(two, w, word, 5);
    jobs.groups.on_time(5);
  }
  EXPECT_TRUE(jobs.groups.by_group(8));
  EXPECT_FALSE(jobs.groups.by_group(7));
  jobs.groups.says(two, 1, GroupWord::lost, 6);
  jobs.groups.says(two, 0, GroupWord::lost, 7);
  EXPECT_FALSE(jobs.groups.by_group(8));
  EXPECT_EQ(jobs.take(),
            "group 8 239.1.2.1:61001\nprobe 8\nonce 8\neach 8\njob j8: results go to each worker "
            "by itself again: too few of those to the multicast group 239.1.2.1:61001 come to "
            "worker 1\n");
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
