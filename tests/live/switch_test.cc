// A switch and its workers on loopback: sums are right, with loss too; whatever is wrong is said in one line.
#include <gmock/gmock.h>
#include <poll.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/random.h"
#include "kernel/half.h"
#include "live/aggregation/switch_client.h"
#include "live/aggregation/switch_service.h"
#include "talweg/error.h"

namespace talweg::live {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using wire::AggregationFormat;

constexpr std::int64_t kSwitchSecond = 1'000'000'000;
// Nothing here takes as long unless it hangs.
std::int64_t soon() {
  return now_ns() + 20 * kSwitchSecond;
}

// Ends, and is an error, when nothing comes of it.
void wait_until(const std::function<bool()>& holds) {
  const std::int64_t deadline_ns = soon();
  while (!holds()) {
    if (now_ns() > deadline_ns) return ADD_FAILURE() << "what was waited for has not come";
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// A switch that serves in a thread of its own.
class Served {
 public:
  explicit Served(SwitchServiceOptions options = {}) : service_(with_place(std::move(options))) {
    thread_ = std::thread([this] { service_.serve(); });
  }
  ~Served() { stop(); }
  void stop() {
    service_.stop();
    if (thread_.joinable()) thread_.join();
  }
  void join() { thread_.join(); }
  SwitchService& service() { return service_; }
  SwitchClientOptions worker(std::uint16_t number, std::uint16_t of, const std::string& job = "a") const {
    SwitchClientOptions o;
    o.address = service_.address();
    o.job = job;
    o.worker = number;
    o.workers = of;
    o.join_deadline_ns = soon();
    return o;
  }

 private:
  static SwitchServiceOptions with_place(SwitchServiceOptions o) {
    o.listen = {"127.0.0.1", 0};
    return o;
  }
  SwitchService service_;
  std::thread thread_;
};

// All workers of a job, each in a thread; the errors, by worker.
using Worker = std::function<void(SwitchClient&, std::uint16_t number)>;
std::vector<std::string> run(const std::vector<SwitchClientOptions>& workers, const Worker& work) {
  std::vector<std::string> errors(workers.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < workers.size(); ++i)
    threads.emplace_back([&, i] {
      try {
        SwitchClient client(workers[i]);
        work(client, workers[i].worker);
      } catch (const Error& e) {
        errors[i] = std::string(name(e.code())) + ": " + e.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}
std::vector<SwitchClientOptions> all(const Served& served, std::uint16_t n, const std::string& job = "a") {
  std::vector<SwitchClientOptions> workers;
  for (std::uint16_t w = 0; w < n; ++w) workers.push_back(served.worker(w, n, job));
  return workers;
}
void expect_none(const std::vector<std::string>& errors) {
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}
// `what` fails, with this in its text.
void expect_error(const std::function<void()>& what, ErrorCode code, const std::string& text) {
  try {
    what();
    ADD_FAILURE() << "no error, expected: " << text;
  } catch (const Error& e) {
    EXPECT_EQ(name(e.code()), std::string(name(code))) << e.what();
    EXPECT_THAT(e.what(), HasSubstr(text));
  }
}

SwitchVector vector_of(std::vector<std::byte>& bytes, AggregationFormat format, bool sparse = false) {
  return {bytes.data(), bytes.data(), bytes.size(), bytes.size(), format, sparse};
}

// Small whole numbers, which every format holds and adds without rounding. Zero in all of a block of 64 where
// the draw says so.
int value_of(std::uint64_t seed, std::uint16_t worker, std::size_t i, double density) {
  if (Random(seed, worker * 100'000ULL + i / 64).uniform() >= density) return 0;
  return static_cast<int>((i * 7 + worker * 13 + seed) % 17) - 8;
}
std::vector<std::byte> encoded(const std::vector<int>& values, AggregationFormat format) {
  std::vector<std::byte> bytes(values.size() * wire::element_bytes(format));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto number = static_cast<float>(values[i]);
    const auto put = [&](auto v) { std::memcpy(bytes.data() + i * sizeof v, &v, sizeof v); };
    if (format == AggregationFormat::i32)
      put(values[i]);
    else if (format == AggregationFormat::f16)
      put(kernel::f32_to_f16(number));
    else if (format == AggregationFormat::bf16)
      put(kernel::f32_to_bf16(number));
    else
      put(number);
  }
  return bytes;
}
struct Case {
  std::size_t count = 0;
  AggregationFormat format = AggregationFormat::f32;
  bool sparse = false;
  double density = 1;
};
void sum_and_check(SwitchClient& client, std::uint16_t number, std::uint16_t workers, std::uint64_t seed,
                   const Case& c) {
  std::vector<int> mine(c.count), sum(c.count);
  for (std::size_t i = 0; i < c.count; ++i)
    for (std::uint16_t w = 0; w < workers; ++w) {
      const int value = value_of(seed, w, i, c.density);
      sum[i] += value;
      if (w == number) mine[i] = value;
    }
  std::vector<std::byte> bytes = encoded(mine, c.format);
  client.all_reduce(vector_of(bytes, c.format, c.sparse), soon());
  EXPECT_TRUE(bytes == encoded(sum, c.format))
      << c.count << " of " << wire::name(c.format) << " at worker " << number;
}
const Case kCases[] = {{1, AggregationFormat::f32},
                       {100'000, AggregationFormat::f32},
                       {5'000, AggregationFormat::i32},
                       {70'001, AggregationFormat::scaled},
                       {33'333, AggregationFormat::f16},
                       {256, AggregationFormat::bf16},
                       {0, AggregationFormat::f32},
                       {200'000, AggregationFormat::f32, true, 0.05},
                       {50'000, AggregationFormat::bf16, true, 0.3},
                       {64'000, AggregationFormat::scaled, true, 0.1}};

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
      const std::uint64_t again = after.timeouts - before.timeouts + after.asked_for - before.asked_for;
      EXPECT_LT(after.contributions - before.contributions, kBlocks / 5 + again) << wire::name(format);
      EXPECT_GE(after.contributions - before.contributions, kBlocks / 20);
    }
  }));
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
  give_order(served.service().address().port, key, wire::SwitchDo::status, soon());
  EXPECT_GT(replayed, 100U);
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
    again += client.counters().timeouts + client.counters().asked_for;
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
    EXPECT_THAT(error, AllOf(HasSubstr("peer_failed: sum "), HasSubstr("of job a at the switch 127.0.0.1:"),
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
                               HasSubstr("the switch has not answered"), HasSubstr("no datagram has come")));
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
      {{1000, f32, false, "of f32"}, {1000, i32, false, "of i32"}}};
  for (const int alike : {0, 3})
    for (const auto& [first, second] : kPairs) {
      const auto errors = run(all(served, 2), [&](SwitchClient& client, std::uint16_t number) {
        const Own& own = number == 0 ? first : second;
        for (int i = 0; i < alike; ++i) sum_and_check(client, number, 2, 1, {1000});
        // Who has less may be through with it: then the next sum says so.
        std::vector<std::byte> bytes(own.count * wire::element_bytes(own.format));
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

TEST(Switch, RefusesInOneLineWhoCannotJoin) {
  SwitchServiceOptions options;
  options.quotas.jobs = 2;
  options.quotas.workers = 5;
  options.describe = [](const SwitchStatus& status) { return std::to_string(status.jobs.size()) + " jobs"; };
  Served served(options);
  const auto joins = [](SwitchClientOptions o) { return [o] { SwitchClient client(o); }; };
  expect_error(joins(served.worker(4, 4)), ErrorCode::invalid_argument,
               "a job of 4 workers has none of number 4");
  expect_error(joins(served.worker(0, 6)), ErrorCode::unsupported,
               "the switch is busy: it takes 5 workers of all jobs");
  expect_error(joins(served.worker(0, 1, "two words")), ErrorCode::invalid_argument, "a job's name has");
  SwitchClientOptions large = served.worker(0, 1);
  large.block = 30'000;
  expect_error(joins(large), ErrorCode::invalid_argument, "a block of 30000 elements does not fit");

  expect_none(run(all(served, 2), [&](SwitchClient& client, std::uint16_t number) {
    sum_and_check(client, number, 2, 1, {10});
    if (number == 0) {
      expect_error(joins(served.worker(0, 2)), ErrorCode::unsupported,
                   "job a is in use: its 2 workers are here");
      expect_error(joins(served.worker(0, 3)), ErrorCode::mismatch,
                   "announced with 2 workers, this one says 3");
      SwitchClient other(served.worker(0, 1, "b"));
      expect_error(joins(served.worker(0, 1, "c")), ErrorCode::unsupported,
                   "all 2 jobs that it takes are there");
      std::vector<std::byte> in(40), out(36);
      expect_error(
          [&] {
            other.start({in.data(), out.data(), 40, 36}, soon());
          },
          ErrorCode::invalid_argument,
          "the buffer for the result is too small: it has 36 bytes, the vector has 40");
      expect_error(
          [&] {
            other.start({in.data(), in.data(), 39, 39}, soon());
          },
          ErrorCode::invalid_argument, "39 bytes are no whole number of elements of f32");
    }
    sum_and_check(client, number, 2, 1, {10});
  }));

  // Of a job that is not complete yet.
  const int port = served.service().address().port;
  std::thread first([&] {
    expect_error(joins(served.worker(0, 3)), ErrorCode::unsupported, "the switch is being drained");
  });
  wait_until([&] { return give_order(port, {}, wire::SwitchDo::status, soon()) == "1 jobs"; });
  expect_error(joins(served.worker(0, 3)), ErrorCode::mismatch, "worker 0 of job a is here already");
  SwitchClientOptions second = served.worker(1, 3);
  second.block = 64;
  expect_error(joins(second), ErrorCode::mismatch, "asks for blocks of 64 elements, worker 0 for 0");
  second.block = 0;
  second.ordered = true;
  expect_error(joins(second), ErrorCode::mismatch,
               "workers 1 and 0 of job a disagree whether sums have an order");
  give_order(port, {}, wire::SwitchDo::drain, soon());
  first.join();
  served.join();

  SwitchClientOptions nobody = served.worker(0, 1);
  nobody.join_deadline_ns = now_ns() + kSwitchSecond / 5;
  expect_error(joins(nobody), ErrorCode::timeout, "joining job a at the switch 127.0.0.1:");
}

TEST(Switch, HasOneKeyAndListensNowhereElseWithout) {
  SwitchServiceOptions open;
  open.listen = {"0.0.0.0", 0};
  expect_error([&] { SwitchService service(open); }, ErrorCode::invalid_argument,
               "will not listen where others can reach it without a job key");
  open.listen = {"127.0.0.1", 65535};
  open.threads = 2;
  expect_error([&] { SwitchService service(open); }, ErrorCode::invalid_argument, "none behind 65535");

  SwitchServiceOptions options;
  wire::Secret key = wire::secret_from_text("the first of two long keys");
  std::mutex mutex;
  bool broken = false;
  options.key = [&]() -> std::optional<wire::Secret> {
    const std::lock_guard lock(mutex);
    if (broken) throw Error(ErrorCode::invalid_argument, "the file is gone");
    return key;
  };
  options.describe = [](const SwitchStatus& status) { return std::to_string(status.refused_connections); };
  Served served(options);
  const int port = served.service().address().port;
  SwitchClientOptions worker = served.worker(0, 1);
  expect_error([&] { SwitchClient client(worker); }, ErrorCode::invalid_argument,
               "the two sides do not hold the same job key");
  worker.key = wire::secret_from_text("the second of two long keys");
  expect_error([&] { SwitchClient client(worker); }, ErrorCode::invalid_argument, "the same job key");
  const wire::Secret first = key;
  {
    const std::lock_guard lock(mutex);
    key = *worker.key;
  }
  EXPECT_EQ(give_order(port, first, wire::SwitchDo::reload, soon()), "the key has been read again");
  SwitchClient client(worker);
  sum_and_check(client, 0, 1, 1, {1000});
  {
    const std::lock_guard lock(mutex);
    broken = true;
  }
  expect_error([&] { give_order(port, key, wire::SwitchDo::reload, soon()); }, ErrorCode::invalid_argument,
               "the file is gone");
  EXPECT_NE(give_order(port, key, wire::SwitchDo::status, soon()), "0");
  expect_error([&] { give_order(port, first, wire::SwitchDo::status, soon()); }, ErrorCode::invalid_argument,
               "the same job key");
}

TEST(Switch, IsDrainedWhenItsLastJobHasEnded) {
  Served served;
  const int port = served.service().address().port;
  {
    SwitchClient client(served.worker(0, 1));
    EXPECT_EQ(give_order(port, {}, wire::SwitchDo::drain, soon()), "draining: 1 jobs are still there");
    expect_error([&] { SwitchClient other(served.worker(0, 1, "b")); }, ErrorCode::unsupported,
                 "is being drained");
    sum_and_check(client, 0, 1, 1, {1000});
  }
  served.join();
  expect_error([&] { give_order(port, {}, wire::SwitchDo::status, now_ns() + kSwitchSecond / 5); },
               ErrorCode::peer_failed, "no order to a switch at port");
}

TEST(Switch, LendsNoMoreThanItsQuotas) {
  SwitchServiceOptions options;
  options.memory_bytes = 60'000;
  options.quotas.slots = 3;
  options.quotas.bytes_per_second = 100e3;
  const Served served(options);
  EXPECT_THAT(const_cast<Served&>(served).service().memory(), HasSubstr("at most "));
  SwitchClientOptions narrow = served.worker(0, 1, "b");
  narrow.most_payload = 1400;
  SwitchClient client(narrow);
  EXPECT_EQ(client.terms().slots, 3);
  EXPECT_EQ(client.terms().columns, 1);
  EXPECT_EQ(client.terms().block, 336);
  // Far beyond its rate, and no machine takes as long for it: it is held back, and comes through.
  sum_and_check(client, 0, 1, 1, {80'000});
  EXPECT_GT(client.counters().held_back, 0U);
  SwitchClientOptions wide = served.worker(0, 1, "c");
  wide.block = 1024;
  expect_error([&] { SwitchClient other(wide); }, ErrorCode::unsupported, "the switch is busy: ");
}

}  // namespace
}  // namespace talweg::live
