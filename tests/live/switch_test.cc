// A switch and its workers on loopback: sums are right, with loss too; whatever is wrong is said in one line.
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <fstream>
#include <memory>
#include <mutex>
#include <regex>

#include "live/aggregation/switch_thread.h"
#include "sanitized.h"
#include "served_switch.h"

namespace talweg::live {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using wire::AggregationFormat;

const Case kCases[] = {{1, AggregationFormat::f32},
                       {100'000, AggregationFormat::f32},
                       {5'000, AggregationFormat::i32},
                       {70'001, AggregationFormat::scaled},
                       {33'333, AggregationFormat::f16},
                       {256, AggregationFormat::bf16},
                       {0, AggregationFormat::f32},
                       {200'000, AggregationFormat::f32, true, 0.05},
                       {50'000, AggregationFormat::bf16, true, 0.3},
                       {64'000, AggregationFormat::scaled, true, 0.1},
                       {100'000, AggregationFormat::pairs, true, 0.05},
                       {777, AggregationFormat::pairs}};

// In KiB, of this process, as the kernel counts it.
long anonymous_memory() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("RssAnon:")) return std::stol(line.substr(8));
  return 0;
}

TEST(Switch, GivesTheMemoryOfJobsThatAreOverBackToTheSystem) {
  SwitchThreadOptions options;
  options.limits.memory_bytes = std::size_t{64} << 20;
  options.limits.jobs = 1;
  options.limits.bytes_per_second = 1e9;
  options.has_key = false;
  SwitchThread thread(UdpAddress("127.0.0.1:0"), options);
  protocol::JobTerms terms;
  terms.epoch = 1;
  terms.workers = terms.self = 2;
  terms.slots = 256;
  terms.columns = 8;
  terms.block = protocol::kUsualBlock;
  terms.bytes_per_second = 1e9;
  const auto bytes = static_cast<long>(protocol::memory_of(terms).total);
  const auto open_and_close = [&] {
    ++terms.job;
    const auto refused = thread.open(terms, {}, {wire::DatagramProtection::checksum});
    ASSERT_FALSE(refused) << refused->text;
    thread.close(terms.job);
  };
  for (int i = 0; i < 2; ++i) open_and_close();
  const long before = anonymous_memory();
  for (int i = 0; i < 20; ++i) open_and_close();
  // Sanitizers keep notes of memory that is gone.
  EXPECT_TRUE(kSanitized || anonymous_memory() - before < bytes / 1024)
      << "jobs of " << bytes << " bytes have left " << anonymous_memory() - before << " KiB";
}

TEST(Switch, SumsWhatAnyNumberOfWorkersAndThreadsSend) {
  for (const int threads : {1, 3})
    for (const std::uint16_t workers : std::initializer_list<std::uint16_t>{1, 2, 4}) {
      SwitchServiceOptions options;
      options.threads = threads;
      const Served served(options);
      expect_none(run(all(served, workers), [&](SwitchClient& client, std::uint16_t number) {
        EXPECT_EQ(client.terms().threads, threads);
        for (const Case& c : kCases) sum_and_check(client, number, workers, 3, c);
      }));
    }
}

TEST(Switch, BlocksOfSparseVectorsThatAreZeroDoNotTravel) {
  SwitchServiceOptions options;
  options.quotas.slots = 2;
  const Served served(options);
  using enum AggregationFormat;
  expect_none(run(all(served, 2), [&](SwitchClient& client, std::uint16_t) {
    constexpr std::size_t kBlocks = 1000;
    for (const AggregationFormat format : {f32, i32, bf16, scaled}) {
      const auto before = client.counters();
      std::vector<int> values(kBlocks * client.terms().block);
      for (std::size_t i = 0; i < values.size(); i += 20 * std::size_t{client.terms().block}) values[i] = 3;
      std::vector<std::byte> bytes = encoded(values, format);
      client.all_reduce(vector_of(bytes, format, true), soon());
      for (int& value : values) value *= 2;
      EXPECT_TRUE(bytes == encoded(values, format));
      // What a slow machine has let them send again does not count.
      const auto after = client.counters();
      const std::uint64_t again = after.asked_for + after.named - before.asked_for - before.named;
      EXPECT_LT(after.contributions - before.contributions, kBlocks / 5 + again) << wire::name(format);
      EXPECT_GE(after.contributions - before.contributions, kBlocks / 20);
    }
  }));
}

// As long as rows of a table, say; where sums are ordered, of three numbers that come to something else where
// the last one is not added last.
TEST(Switch, HasBlocksOfAnyMultipleOfEightThatADatagramHoldsAndSumsInOrder) {
  const Served served;
  for (const std::uint16_t block : std::initializer_list<std::uint16_t>{8, 24, 1000, 4000}) {
    auto workers = all(served, 3);
    for (SwitchClientOptions& w : workers) {
      w.block = block;
      w.ordered = true;
    }
    expect_none(run(workers, [&](SwitchClient& client, std::uint16_t number) {
      EXPECT_EQ(client.terms().block, block);
      for (const Case& c : kCases) sum_and_check(client, number, 3, 7, c);
      constexpr float kSmall = 0x1p-24F;
      std::vector<float> data(50'000, number == 2 ? 1.0F : kSmall);
      const auto bytes = std::as_writable_bytes(std::span(data));
      client.all_reduce({bytes.data(), bytes.data(), bytes.size(), bytes.size()}, soon());
      EXPECT_EQ(data, std::vector<float>(data.size(), 1.0F + 2 * kSmall));
    }));
  }
}

TEST(Switch, KeepsJobsApart) {
  const Served served;
  std::vector<std::thread> jobs;
  for (const std::uint16_t workers : std::initializer_list<std::uint16_t>{2, 3})
    jobs.emplace_back([&, workers] {
      expect_none(run(all(served, workers, "job" + std::to_string(workers)),
                      [&](SwitchClient& client, std::uint16_t number) {
                        for (std::uint64_t seed = 0; seed < 20; ++seed)
                          sum_and_check(client, number, workers, seed * workers, {20'000});
                      }));
    });
  for (std::thread& job : jobs) job.join();
}

TEST(Switch, ServesAKeyedJobAndTakesNoDatagramTwice) {
  SwitchServiceOptions options;
  const wire::Secret key = wire::secret_from_text("a key that all of them hold");
  options.key = [&] { return key; };
  std::atomic<std::uint64_t> replayed{0};
  options.describe = [&](const SwitchStatus& status) {
    replayed = status.threads[0].refusals[wire::DatagramRefusal::replayed];
    return std::string();
  };
  Served served(options);
  auto workers = all(served, 2);
  for (SwitchClientOptions& w : workers) {
    w.key = key;
    // All that it sends is sent twice.
    w.send = [](int fd, mmsghdr* messages, unsigned n) {
      ::sendmmsg(fd, messages, n, MSG_DONTWAIT);
      return ::sendmmsg(fd, messages, n, MSG_DONTWAIT);
    };
  }
  expect_none(run(workers, [&](SwitchClient& client, std::uint16_t number) {
    EXPECT_EQ(client.terms().protection, wire::DatagramProtection::authenticated);
    for (const Case& c : kCases) sum_and_check(client, number, 2, 5, c);
  }));
  give_order(served.service().address(), key, wire::SwitchDo::status, soon());
  EXPECT_GT(replayed, 100U);
}

// Beside a job of the same switch that is not encrypted, in which the same is found.
TEST(Switch, NobodyElseReadsDatagramsOfAJobThatIsEncrypted) {
  const wire::Secret key = wire::secret_from_text("a key that all of them hold");
  constexpr float kEach = 1234.5F, kSum = 2 * kEach;
  Wiretap of_workers(kEach), of_switch(kSum);
  std::atomic<std::uint64_t> replayed{0}, of_other_mode{0};
  SwitchServiceOptions options;
  options.key = [&] { return key; };
  options.send = of_switch.call();
  options.describe = [&](const SwitchStatus& status) {
    replayed = status.threads[0].refusals[wire::DatagramRefusal::replayed];
    of_other_mode = status.threads[0].refusals[wire::DatagramRefusal::mode];
    return std::string();
  };
  const Served served(options);
  for (const bool encrypted : {true, false, true}) {
    of_workers.sent = of_workers.found = of_switch.sent = of_switch.found = 0;
    auto workers = all(served, 2, encrypted ? "secret" : "open");
    for (SwitchClientOptions& w : workers) {
      w.key = key;
      w.encrypted = encrypted;
      w.send = of_workers.call();
    }
    expect_none(run(workers, [&](SwitchClient& client, std::uint16_t number) {
      EXPECT_EQ(client.terms().protection,
                encrypted ? wire::DatagramProtection::encrypted : wire::DatagramProtection::authenticated);
      for (const Case& c : kCases) sum_and_check(client, number, 2, 5, c);
      std::vector<float> data(100'000, kEach);
      const auto bytes = std::as_writable_bytes(std::span(data));
      client.all_reduce({bytes.data(), bytes.data(), bytes.size(), bytes.size()}, soon());
      EXPECT_EQ(data, std::vector<float>(data.size(), kSum));
      EXPECT_GT(client.refusals()[wire::DatagramRefusal::replayed], 0U);
    }));
    EXPECT_GT(of_workers.sent, 10);
    EXPECT_GT(of_switch.sent, 10);
    EXPECT_EQ(of_workers.found > 0, !encrypted);
    EXPECT_EQ(of_switch.found > 0, !encrypted);
    give_order(served.service().address(), key, wire::SwitchDo::status, soon());
    EXPECT_GT(replayed, encrypted ? 20U : 40U);
    EXPECT_EQ(of_other_mode, 0U);
  }
}

// Each datagram, or the run of them that leaves as one, is lost with a probability.
UdpSender::SendCall lossy(std::uint64_t seed, double loss) {
  struct State {
    std::mutex mutex;
    Random random;
    explicit State(std::uint64_t s) : random(s) {}
  };
  auto state = std::make_shared<State>(seed);
  return [state, loss](int fd, mmsghdr* messages, unsigned n) {
    for (unsigned i = 0; i < n; ++i) {
      {
        const std::lock_guard lock(state->mutex);
        if (state->random.uniform() < loss) continue;
      }
      ::sendmsg(fd, &messages[i].msg_hdr, MSG_DONTWAIT);
    }
    return static_cast<int>(n);
  };
}

TEST(Switch, SumsAreRightWhateverIsLost) {
  SwitchServiceOptions options;
  options.threads = 2;
  options.send = lossy(1, 0.1);
  const Served served(options);
  auto workers = all(served, 3);
  for (SwitchClientOptions& w : workers) w.send = lossy(2U + w.worker, 0.1);
  std::atomic<std::uint64_t> again{0};
  expect_none(run(workers, [&](SwitchClient& client, std::uint16_t number) {
    for (const Case& c : kCases) sum_and_check(client, number, 3, 11, c);
    again += client.counters().asked_for + client.counters().named;
  }));
  EXPECT_GT(again, 0U);
}

TEST(Switch, ThatIsStoppedIsAnErrorOfItsWorkersAtOnce) {
  Served served;
  const std::int64_t begin = now_ns();
  std::atomic<int> here{0};
  const auto errors = run(all(served, 2), [&](SwitchClient& client, std::uint16_t number) {
    std::vector<std::byte> bytes(4096);
    ++here;
    wait_until([&] { return here == 2; });
    if (number == 0) served.stop();
    client.all_reduce(vector_of(bytes, AggregationFormat::f32), begin + 300 * kSwitchSecond);
    client.all_reduce(vector_of(bytes, AggregationFormat::f32), begin + 300 * kSwitchSecond);
  });
  for (const std::string& error : errors)
    EXPECT_THAT(error, AllOf(HasSubstr("peer_failed: sum "),
                             HasSubstr("of job a at the switch " + own_address() + ":"),
                             HasSubstr("the switch has")));
  EXPECT_LT(now_ns() - begin, 100 * kSwitchSecond);
}

TEST(Switch, ThatNoDatagramComesBackFromIsATimeoutThatSaysSo) {
  SwitchServiceOptions options;
  options.send = [](int, mmsghdr*, unsigned n) { return static_cast<int>(n); };
  const Served served(options);
  const auto errors = run(all(served, 1), [&](SwitchClient& client, std::uint16_t) {
    std::vector<std::byte> bytes(4096);
    client.all_reduce(vector_of(bytes, AggregationFormat::f32), now_ns() + kSwitchSecond / 5);
  });
  EXPECT_THAT(errors[0], AllOf(HasSubstr("timeout: sum 1 of job a at the switch"),
                               HasSubstr("the switch has not answered"), HasSubstr("no datagram has come"),
                               HasSubstr("is UDP blocked on the way")));
}

// What leaves, datagram by datagram, and what the network does to those whose packets have more than `most`
// bytes.
UdpSender::SendCall narrow_way(std::size_t most, int error) {
  return [=](int fd, mmsghdr* messages, unsigned n) {
    for (unsigned i = 0; i < n; ++i) {
      if (messages[i].msg_hdr.msg_iov->iov_len + 28 <= most) {
        if (::sendmmsg(fd, messages + i, 1, 0) != 1) return static_cast<int>(i);
      } else if (error != 0) {
        errno = error;
        return i == 0 ? -1 : static_cast<int>(i);
      }
    }
    return static_cast<int>(n);
  };
}

TEST(Switch, OfAPathThatTakesNoPacketsAsLargeAsWasThoughtTheSizesAreNamed) {
  constexpr std::size_t kNarrow = 300;
  const Served served;
  const auto error_of = [&](int error) {
    auto workers = all(served, 1);
    workers[0].most_payload = 2000;
    workers[0].sender.offload = false;
    workers[0].send = narrow_way(kNarrow, error);
    return run(workers, [](SwitchClient& client, std::uint16_t) {
      std::vector<std::byte> bytes(40'000);
      client.all_reduce(vector_of(bytes, AggregationFormat::f32), now_ns() + kSwitchSecond);
    })[0];
  };
  std::smatch sizes;
  std::string said = error_of(0);
  const std::regex lost("packets of (\\d+) bytes to it are lost, and nobody says so; those of (\\d+) pass");
  ASSERT_TRUE(std::regex_search(said, sizes, lost)) << said;
  EXPECT_GT(std::stoul(sizes[1]), kNarrow);
  EXPECT_LE(std::stoul(sizes[2]), kNarrow);
  said = error_of(EMSGSIZE);
  const std::regex refused(
      "packets of (\\d+) bytes do not pass on the way to it, and none of more than (\\d+) do");
  ASSERT_TRUE(std::regex_search(said, sizes, refused)) << said;
  EXPECT_GT(std::stoul(sizes[1]), std::stoul(sizes[2]));
}

TEST(Switch, NamesWhoIsMissing) {
  const Served served;
  SwitchClientOptions alone = served.worker(1, 4);
  alone.join_deadline_ns = now_ns() + kSwitchSecond;
  expect_error([&] { SwitchClient client(alone); }, ErrorCode::timeout,
               "3 of 4 workers have not joined: 0, 2, 3");

  // Worker 1 is there, and does not sum.
  std::atomic<bool> over{false};
  const auto errors = run(all(served, 2, "b"), [&](SwitchClient& client, std::uint16_t number) {
    std::vector<std::byte> bytes(4096);
    if (number == 1) return wait_until([&] { return over.load(); });
    try {
      client.all_reduce(vector_of(bytes, AggregationFormat::f32), now_ns() + kSwitchSecond);
    } catch (...) {
      over = true;
      throw;
    }
  });
  EXPECT_THAT(errors[0], AllOf(HasSubstr("timeout: "), HasSubstr("the switch waits for worker 1")));
}

TEST(Switch, TellsTheOthersWhenAWorkerDiesOrLeaves) {
  const Served served;
  auto errors = run(all(served, 3), [&](SwitchClient& client, std::uint16_t number) {
    sum_and_check(client, number, 3, 1, {1000});
    if (number == 2) {  // in the middle of a sum: it is given up
      std::vector<std::byte> bytes(16'000'000);
      client.start(vector_of(bytes, AggregationFormat::f32), soon());
      return;
    }
    sum_and_check(client, number, 3, 1, {4'000'000});
  });
  for (const int w : {0, 1})
    EXPECT_THAT(errors[w], AllOf(HasSubstr("peer_failed: sum "), HasSubstr("worker 2 of job a is gone")));

  errors = run(all(served, 2), [&](SwitchClient& client, std::uint16_t number) {
    sum_and_check(client, number, 2, 1, {1000});
    if (number == 0) sum_and_check(client, number, 2, 1, {1000});
  });
  EXPECT_THAT(errors[0], HasSubstr("worker 1 has left after sum 1"));
  EXPECT_EQ(errors[1], "");
}

// What a worker sums `alike` times, and then instead of what the other has.
struct Own {
  std::size_t count = 0;
  AggregationFormat format = AggregationFormat::f32;
  bool sparse = false;
  std::string words;  // of it
};

TEST(Switch, WorkersThatDoNotMeanTheSameSumAllHearThatAndNotByTheirDeadline) {
  SwitchServiceOptions options;
  options.threads = 2;
  const Served served(options);
  using enum AggregationFormat;
  const std::pair<Own, Own> kPairs[] = {
      {{512, f32, false, "512 elements of f32, dense"}, {100'000, f32, false, "100000 elements of f32"}},
      {{256, f32, false, "256 elements"}, {257, f32, false, "257 elements"}},
      {{0, f32, false, "0 elements"}, {1000, f32, false, "1000 elements"}},
      {{1000, f32, true, "1000 elements of f32, sparse"}, {3000, f32, true, "3000 elements of f32, sparse"}},
      {{1000, f32, false, "of f32, dense"}, {1000, f32, true, "of f32, sparse"}},
      {{1000, f32, true, "of f32, sparse"}, {1000, pairs, false, "1000 elements of pairs, sparse"}},
      {{1000, f32, false, "of f32"}, {1000, i32, false, "of i32"}}};
  for (const int alike : {0, 3})
    for (const auto& [first, second] : kPairs) {
      const auto errors = run(all(served, 2), [&](SwitchClient& client, std::uint16_t number) {
        const Own& own = number == 0 ? first : second;
        for (int i = 0; i < alike; ++i) sum_and_check(client, number, 2, 1, {1000});
        // Who has less may be through with it: then the next sum says so.
        std::vector<std::byte> bytes(own.count * wire::bytes_in_memory(own.format));
        for (const std::int64_t deadline_ns = soon(); now_ns() < deadline_ns;)
          client.all_reduce(vector_of(bytes, own.format, own.sparse), deadline_ns);
      });
      for (const std::string& error : errors)
        EXPECT_THAT(error, AllOf(HasSubstr("mismatch: sum "),
                                 HasSubstr(": sum " + std::to_string(alike + 1) + ": worker "),
                                 HasSubstr(first.words), HasSubstr(second.words)));
    }
}

TEST(Switch, ThatAWorkerHasLeftAfterAnotherSumIsAMismatchToo) {
  const Served served;
  const auto errors = run(all(served, 2), [&](SwitchClient& client, std::uint16_t number) {
    for (int i = 0; i < 2; ++i) sum_and_check(client, number, 2, 1, {1024});
    // Worker 0 goes on as before, so that it has no reason to speak of it.
    std::vector<std::byte> bytes(number == 0 ? 4096 : 400'000);
    client.all_reduce(vector_of(bytes, AggregationFormat::f32), soon());
  });
  EXPECT_EQ(errors[0], "");
  EXPECT_THAT(errors[1], AllOf(HasSubstr("mismatch: sum 3 of job a"), HasSubstr("has 1024 elements"),
                               HasSubstr("has 100000 elements")));
}

TEST(Switch, WhoGivesUpTellsTheOthersWhy) {
  const Served served;
  std::atomic<int> failed{0};
  const auto errors = run(all(served, 3), [&](SwitchClient& client, std::uint16_t number) {
    std::vector<std::byte> bytes(4096);
    if (number == 2) return wait_until([&] { return failed == 2; });
    try {
      client.all_reduce(vector_of(bytes, AggregationFormat::f32),
                        number == 0 ? now_ns() + kSwitchSecond / 5 : soon());
    } catch (...) {
      ++failed;
      throw;
    }
  });
  EXPECT_THAT(errors[0], AllOf(HasSubstr("timeout: "), HasSubstr("the switch waits for worker 2")));
  EXPECT_THAT(errors[1], AllOf(HasSubstr("peer_failed: "), HasSubstr("worker 0 of job a has given up: "),
                               HasSubstr("the switch waits for worker 2")));
}

TEST(Switch, ASumOfNothingIsDoneWhoeverHasLeftAfterIt) {
  const Served served;
  std::thread other([&] {
    SwitchClient client(served.worker(1, 2));
    sum_and_check(client, 1, 2, 1, {1000});
    sum_and_check(client, 1, 2, 1, {0});
  });
  SwitchClient client(served.worker(0, 2));
  sum_and_check(client, 0, 2, 1, {1000});
  other.join();
  // The notice that it has left has come when this is readable.
  pollfd polled{client.sockets()[1], POLLIN, 0};
  EXPECT_EQ(::poll(&polled, 1, 20'000), 1);
  sum_and_check(client, 0, 2, 1, {0});
  std::vector<std::byte> bytes(400);
  expect_error([&] { client.all_reduce(vector_of(bytes, AggregationFormat::f32), soon()); },
               ErrorCode::peer_failed, "worker 1 has left after sum 2");
}

}  // namespace
}  // namespace talweg::live
