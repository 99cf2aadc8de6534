// Results by multicast, over loopback: they leave a switch once for all workers that hear them, and sums are
// right whoever hears what.
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "live/aggregation/group_ear.h"
#include "live/udp/multicast.h"
#include "protocol/aggregation/result_tally.h"
#include "served_switch.h"

namespace talweg::live {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using wire::AggregationFormat;

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

// Of two lanes. Somebody brings copies of results by the worker's own address, one in ten: the rest is lost.
TEST_F(SwitchGroup, IsLostWhateverComesByAWorkersOwnAddress) {
  const UdpSocket own(UdpAddress("127.0.0.1:0"));
  GroupEar ear({own_groups() + ":60998"}, own.address(), 2, {}, {});
  constexpr std::uint32_t kTwoWindows = 2 * protocol::ResultTally::kOf;
  std::uint16_t number = 0;
  std::uint32_t missing = 0;
  const auto next = [&](std::size_t lane) {
    ++number;
    if (number % 10 == 0) return ear.result(lane, number, true, false);
    ++missing;
    return ear.result(lane, number, false, false);
  };
  for (std::uint32_t i = 0; i < 2 * kTwoWindows; ++i) ASSERT_FALSE(next(0)) << "no probe has come";
  EXPECT_FALSE(ear.probed(0, 1));
  EXPECT_EQ(ear.probed(1, 1)->what, wire::GroupWord::heard);
  // It is said again while it goes on: the switch may not have sent there so far, and did not mind.
  for (int times = 0; times < 2; ++times) {
    missing = 0;
    std::optional<wire::SwitchHears> word;
    while (!word && missing < 2 * kTwoWindows) word = next(1);
    ASSERT_TRUE(word);
    EXPECT_EQ(word->what, wire::GroupWord::lost);
    EXPECT_EQ(word->attempt, 1U);
    EXPECT_EQ(word->missing, kTwoWindows);
    EXPECT_EQ(word->of, kTwoWindows);
    EXPECT_EQ(missing, kTwoWindows);
  }
  for (std::uint32_t i = 0; i < 2 * kTwoWindows; ++i)
    EXPECT_FALSE(ear.result(1, ++number, true, false)) << "as it goes by each worker's own address";
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

// As where a host stops for a moment, and its buffer runs over: more than are let go by of a window.
TEST_F(SwitchGroup, IsKeptWhereAWorkerMissesManyOnce) {
  const Served served(options());
  auto workers = all(served, 3);
  for (SwitchClientOptions& w : workers) w.most_payload = 1400;
  workers[1].socket.merge = false;
  std::atomic<int> to_lose{0};
  workers[1].receive_group = [&](int fd, mmsghdr* messages, unsigned) {
    int came = ::recvmmsg(fd, messages, 1, MSG_DONTWAIT, nullptr);
    for (; came > 0 && to_lose > 0; came = ::recvmmsg(fd, messages, 1, MSG_DONTWAIT, nullptr)) --to_lose;
    return came;
  };
  SwitchStatus::Job job;
  expect_none(run(workers, [&](SwitchClient& client, std::uint16_t number) {
    until_by_group(client, 3);
    if (number == 1) to_lose = 2 * protocol::ResultTally::kMost;
    for (int sums = 0; sums < 20; ++sums) sum_and_check(client, number, 3, 9, {50'000});
    EXPECT_EQ(to_lose, 0);
    if (number == 0) job = look(served);
    all_say(client, 3, true);
  }));
  EXPECT_TRUE(job.by_group);
  EXPECT_GT(job.counters.repeated, protocol::ResultTally::kMost);
  EXPECT_GT(job.counters.multicast, 3 * protocol::ResultTally::kOf);
  EXPECT_THAT(said, IsEmpty());
}

// All that the group brings to worker 1 comes to it by its own address, as if a router or a stranger had sent
// it on: it does not hear the group.
TEST_F(SwitchGroup, IsNotHeardByWhomItsProbesReachAnotherWay) {
  const Served served(options());
  auto workers = all(served, 2);
  struct Passed {
    sockaddr_in from;
    std::vector<char> bytes;
  };
  std::vector<Passed> passed;  // of worker 1's thread
  int all_passed = 0;
  workers[1].receive_group = [&](int fd, mmsghdr*, unsigned) {
    std::vector<char> bytes(65'536);
    Passed next{};
    socklen_t length = sizeof next.from;
    for (;;) {
      const ssize_t n = ::recvfrom(fd, bytes.data(), bytes.size(), MSG_DONTWAIT,
                                   reinterpret_cast<sockaddr*>(&next.from), &length);
      if (n < 0) return -1;
      next.bytes.assign(bytes.begin(), bytes.begin() + n);
      passed.push_back(next);
    }
  };
  workers[1].socket.merge = false;
  workers[1].receive = [&](int fd, mmsghdr* messages, unsigned n) {
    if (passed.empty()) return ::recvmmsg(fd, messages, n, MSG_DONTWAIT, nullptr);
    const Passed next = passed.back();
    passed.pop_back();
    ++all_passed;
    msghdr& message = messages[0].msg_hdr;
    std::memcpy(message.msg_iov->iov_base, next.bytes.data(), next.bytes.size());
    std::memcpy(message.msg_name, &next.from, sizeof next.from);
    message.msg_namelen = sizeof next.from;
    message.msg_controllen = 0;
    messages[0].msg_len = static_cast<unsigned>(next.bytes.size());
    return 1;
  };
  SwitchStatus::Job job;
  expect_none(run(workers, [&](SwitchClient& client, std::uint16_t number) {
    const std::int64_t deadline_ns = soon();
    while (!all_say(client, 2, number == 0 || all_passed >= 4))
      if (now_ns() > deadline_ns) return ADD_FAILURE() << "no probes come";
    for (const Case& c : kGroupCases) sum_and_check(client, number, 2, 9, c);
    if (number == 1) {
      EXPECT_EQ(client.refusals()[wire::DatagramRefusal::sender], static_cast<std::uint64_t>(all_passed));
    }
    if (number == 0) job = look(served);
    all_say(client, 2, true);
  }));
  EXPECT_FALSE(job.by_group);
  EXPECT_EQ(job.counters.multicast, 0U);
}

// Another program of the host has the group's port for itself.
TEST_F(SwitchGroup, IsNotWaitedForWhereAHostCannotJoinItAndBothSay) {
  const UdpSocket taken(UdpAddress(own_groups() + ":61000"));
  const Served served(options());
  auto workers = all(served, 2);
  std::vector<std::vector<std::string>> workers_said(2);
  for (SwitchClientOptions& w : workers)
    w.say = [&its = workers_said[w.worker]](const std::string& text) { its.push_back(text); };
  expect_none(run(workers, [&](SwitchClient& client, std::uint16_t number) {
    const std::int64_t deadline_ns = soon();
    while (!all_say(client, 2, has_said()))
      if (now_ns() > deadline_ns) return ADD_FAILURE() << "nothing is said";
    for (const Case& c : kGroupCases) sum_and_check(client, number, 2, 9, c);
  }));
  const std::string why =
      fmt::format("binding a UDP socket to {}:61000: Address already in use", own_groups());
  for (const int w : {0, 1})
    EXPECT_THAT(
        workers_said[static_cast<std::size_t>(w)],
        ElementsAre(testing::MatchesRegex(fmt::format(
            "job a at the switch [0-9.:]+: results come to worker {} by its own address: {}", w, why))));
  EXPECT_THAT(said, ElementsAre(testing::MatchesRegex(fmt::format(
                        "job a: results go to each worker by itself: worker [01] cannot join the multicast "
                        "group {}:61000: {}",
                        own_groups(), why))));
}

TEST_F(SwitchGroup, IsLeftOnceAWorkerHearsTooLittleAndThatIsSaidOnce) {
  const Served served(options());
  auto workers = all(served, 3);
  for (SwitchClientOptions& w : workers) w.most_payload = 1400;  // more results of a sum
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
  ASSERT_EQ(said.size(), 1U);
  EXPECT_THAT(said[0], testing::MatchesRegex("job a: results go to each worker by itself again: [0-9]+ of "
                                             "[0-9]+ to the multicast group " +
                                             own_groups() + ":61000 did not come to worker 1"));
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

}  // namespace
}  // namespace talweg::live
