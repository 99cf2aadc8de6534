// A switch refuses whom it cannot serve, takes orders, lends no more than it has; each says so in one line.
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <limits>
#include <mutex>

#include "served_switch.h"

namespace talweg::live {
namespace {

using testing::HasSubstr;

TEST(SwitchOrders, RefusesInOneLineWhoCannotJoin) {
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
  expect_error(joins(large), ErrorCode::invalid_argument,
               "a block has a multiple of 8 elements, and no more than 16360: not 30000");
  large.block = 8'000;
  expect_error(joins(large), ErrorCode::invalid_argument, "a block of 8000 elements does not fit");
  large.block = 13;
  expect_error(joins(large), ErrorCode::invalid_argument, "not 13");

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
  const Endpoint at = served.service().address();
  std::thread first([&] {
    expect_error(joins(served.worker(0, 3)), ErrorCode::unsupported, "the switch is being drained");
  });
  wait_until([&] { return give_order(at, {}, wire::SwitchDo::status, soon()) == "1 jobs"; });
  expect_error(joins(served.worker(0, 3)), ErrorCode::mismatch, "worker 0 of job a is here already");
  SwitchClientOptions second = served.worker(1, 3);
  second.block = 64;
  expect_error(joins(second), ErrorCode::mismatch, "asks for blocks of 64 elements, worker 0 for 0");
  second.block = 0;
  second.ordered = true;
  expect_error(joins(second), ErrorCode::mismatch,
               "workers 1 and 0 of job a disagree whether sums have an order");
  give_order(at, {}, wire::SwitchDo::drain, soon());
  first.join();
  served.join();

  SwitchClientOptions nobody = served.worker(0, 1);
  nobody.join_deadline_ns = now_ns() + kSwitchSecond / 5;
  expect_error(joins(nobody), ErrorCode::timeout, "joining job a at the switch " + own_address() + ":");
}

TEST(SwitchOrders, EncryptsNothingWithoutAKeyNorForSomeWorkersOfAJobAlone) {
  const wire::Secret key = wire::secret_from_text("one long key of all of them");
  SwitchServiceOptions keyed;
  keyed.key = [&] { return key; };
  const Served with(keyed), without;
  SwitchClientOptions worker = with.worker(0, 1);
  worker.encrypted = true;
  worker.key_from = "--a-flag";
  expect_error([&] { SwitchClient client(worker); }, ErrorCode::invalid_argument,
               "datagrams are encrypted under the key of the switch: give it in --a-flag");
  worker = without.worker(0, 1);
  worker.encrypted = true;
  worker.key = wire::Secret{};  // as if there were none
  expect_error([&] { SwitchClient client(worker); }, ErrorCode::unsupported,
               "job a: its datagrams are to be encrypted, and this switch has no key: start it with one");
  auto both = all(with, 2);
  for (SwitchClientOptions& w : both) {
    w.key = key;
    w.encrypted = w.worker == 1;
    w.join_deadline_ns = now_ns() + kSwitchSecond;
  }
  const auto errors = run(both, [](SwitchClient&, std::uint16_t) {});
  EXPECT_THAT(errors, testing::Contains(HasSubstr("of job a disagree whether datagrams are encrypted")));
}

TEST(SwitchOrders, AReceiveBufferThatIsTooSmallIsSaidWithTheSlotsThatItCosts) {
  const Served served;
  SwitchClientOptions greedy = served.worker(0, 1);
  greedy.socket.receive_bytes = std::numeric_limits<int>::max();  // no kernel gives as much
  EXPECT_THAT(SwitchClient(greedy).shortage(),
              testing::AllOf(HasSubstr("the kernel gives UDP sockets "), HasSubstr(" net.core.rmem_max=")));

  wire::SwitchOpened terms;
  terms.threads = 2;
  terms.columns = 15;
  terms.block = 256;
  terms.slots = 6;
  EXPECT_EQ(slots_missed(terms, false, 208 << 10, 4 << 20),
            "; it costs slots: 6 of each of the switch's threads, and not up to 132");
  EXPECT_EQ(slots_missed(terms, false, 4 << 20, 4 << 20), "");
  terms.slots = 5;
  EXPECT_EQ(slots_missed(terms, false, 208 << 10, 4 << 20), "") << "another worker has less, or the switch";
}

// Between a worker and a switch: the one's hello says another version, and so does the other's challenge.
class OfAnotherVersion {
 public:
  static constexpr std::byte kVersion{99};
  explicit OfAnotherVersion(const Endpoint& at) : at_(at) {
    thread_ = std::thread([this] {
      const FileDescriptor worker = accept_tcp();
      const FileDescriptor there = connect_tcp(at_, soon());
      pass(worker, there, wire::kHelloBytes, 8);
      pass(there, worker, wire::kChallengeBytes, 2);
      is_cut = wait_ready(there, false, soon()) && ::recv(there.get(), &byte_, 1, 0) == 0;
    });
  }
  ~OfAnotherVersion() { thread_.join(); }
  Endpoint address() const { return local_endpoint(listener_); }
  std::atomic<bool> is_cut{false};  // by the switch, which waits for nothing more

 private:
  FileDescriptor accept_tcp() const {
    EXPECT_TRUE(wait_ready(listener_, false, soon()));
    return FileDescriptor(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  }
  static void pass(const FileDescriptor& from, const FileDescriptor& to, std::size_t bytes, std::size_t at) {
    std::vector<std::byte> data(bytes);
    receive_all(from, data.data(), bytes, soon());
    EXPECT_EQ(data[at], std::byte{wire::kProtocolVersion});
    data[at] = kVersion;
    send_all(to, data.data(), bytes, soon());
  }
  const Endpoint at_;
  const FileDescriptor listener_ = listen_tcp({own_address(), 0});
  std::byte byte_{};
  std::thread thread_;
};

TEST(SwitchOrders, WhoIsOfAnotherVersionIsToldBothAndOthersAreServed) {
  const Served served;
  const OfAnotherVersion between(served.service().address());
  SwitchClientOptions other = served.worker(0, 1);
  other.address = between.address();
  const std::string versions = fmt::format(
      "it speaks protocol version 99, this side speaks {}: install the same "
      "version everywhere",
      wire::kProtocolVersion);
  expect_error([&] { SwitchClient client(other); }, ErrorCode::version, versions);
  wait_until([&] { return between.is_cut.load(); });
  expect_none(run(all(served, 2), [](SwitchClient& client, std::uint16_t number) {
    sum_and_check(client, number, 2, 1, {1000});
  }));
}

TEST(SwitchOrders, HasOneKeyAndListensNowhereElseWithout) {
  SwitchServiceOptions open;
  open.listen = {"0.0.0.0", 0};
  expect_error([&] { SwitchService service(open); }, ErrorCode::invalid_argument,
               "will not listen where others can reach it without a job key");
  open.listen = {"127.0.0.1", 65535};
  open.threads = 2;
  expect_error([&] { SwitchService service(open); }, ErrorCode::invalid_argument, "none behind 65535");
  open.listen.port = 0;
  open.quotas.bytes_per_second = 999;
  expect_error([&] { SwitchService service(open); }, ErrorCode::invalid_argument, "at least 8 kbit/s");
  open.quotas.bytes_per_second = 1000;
  open.quotas.result_bytes_per_second = 999;
  expect_error([&] { SwitchService service(open); }, ErrorCode::invalid_argument,
               "gives results a rate of at least 8 kbit/s, or none");
  open.quotas.result_bytes_per_second = 0;
  open.memory_bytes = 4096;
  expect_error([&] { SwitchService service(open); }, ErrorCode::invalid_argument,
               "a switch of 2 threads lends at least ");

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
  const Endpoint at = served.service().address();
  SwitchClientOptions worker = served.worker(0, 1);
  worker.key_from = "--a-flag";
  expect_error([&] { SwitchClient client(worker); }, ErrorCode::invalid_argument,
               "the two sides do not hold the same job key: give the switch's secret in --a-flag");
  worker.key = wire::secret_from_text("the second of two long keys");
  expect_error([&] { SwitchClient client(worker); }, ErrorCode::invalid_argument, "the same job key");
  const wire::Secret first = key;
  {
    const std::lock_guard lock(mutex);
    key = *worker.key;
  }
  EXPECT_EQ(give_order(at, first, wire::SwitchDo::reload, soon()), "the key has been read again");
  SwitchClient client(worker);
  sum_and_check(client, 0, 1, 1, {1000});
  {
    const std::lock_guard lock(mutex);
    broken = true;
  }
  expect_error([&] { give_order(at, key, wire::SwitchDo::reload, soon()); }, ErrorCode::invalid_argument,
               "the file is gone");
  EXPECT_NE(give_order(at, key, wire::SwitchDo::status, soon()), "0");
  expect_error([&] { give_order(at, first, wire::SwitchDo::status, soon()); }, ErrorCode::invalid_argument,
               "the same job key");
}

TEST(SwitchOrders, TakesOrdersUnderItsOwnAddressAlone) {
  SwitchServiceOptions options;
  options.describe = [](const SwitchStatus&) { return "the first"; };
  const Served first(options);
  const Endpoint at = first.service().address();
  options.listen = {"127.0.0.2", at.port};
  options.describe = [](const SwitchStatus&) { return "the second"; };
  const Served second(options);
  EXPECT_EQ(give_order(at, {}, wire::SwitchDo::status, soon()), "the first");
  EXPECT_EQ(give_order(options.listen, {}, wire::SwitchDo::status, soon()), "the second");
  expect_error(
      [&] {
        give_order({"127.0.0.3", at.port}, {}, wire::SwitchDo::status, soon());
      },
      ErrorCode::peer_failed, "no order to a switch at 127.0.0.3:");
}

std::string lines(std::size_t bytes) {
  std::string text;
  while (text.size() + 64 <= bytes) text += std::string(63, 'x') + "\n";
  return text;
}

TEST(SwitchOrders, AnswersWithLongTextsAndCutsThemBetweenLines) {
  SwitchServiceOptions options;
  std::atomic<std::size_t> bytes{400'000};
  options.describe = [&](const SwitchStatus&) { return lines(bytes); };
  const Served served(options);
  const Endpoint at = served.service().address();
  EXPECT_EQ(give_order(at, {}, wire::SwitchDo::status, soon()), lines(bytes));
  bytes = 1'000'000;
  const std::string cut = give_order(at, {}, wire::SwitchDo::status, soon());
  EXPECT_LE(cut.size(), wire::kMaxSwitchText);
  EXPECT_GT(cut.size(), wire::kMaxSwitchText - 200);
  const std::string last = "x\n# The rest does not fit into an answer.\n";
  EXPECT_EQ(cut.substr(cut.size() - last.size()), last);
}

TEST(SwitchOrders, DoesNotSpinForWhoDoesNotReadItsAnswer) {
  SwitchServiceOptions options;
  options.describe = [](const SwitchStatus&) { return lines(500'000); };
  Served served(options);
  wire::Introduction introduction;
  introduction.purpose = wire::Purpose::aggregation;
  introduction.encrypt = true;
  SwitchLine line(knock([&] { return connect_unix(switch_control_name(served.service().address())); }, {},
                        introduction, soon()),
                  1024);
  line.say(wire::SwitchOrder{wire::SwitchDo::status});
  ASSERT_TRUE(line.flush());
  pollfd polled{line.socket().get(), POLLIN, 0};
  ASSERT_EQ(::poll(&polled, 1, 20'000), 1);  // the answer has begun
  const std::string junk(10'000, 'x');
  ASSERT_GT(::send(line.socket().get(), junk.data(), junk.size(), MSG_DONTWAIT | MSG_NOSIGNAL), 0);
  const std::int64_t before_ns = served.processor_ns();
  std::this_thread::sleep_for(std::chrono::milliseconds(800));
  EXPECT_LT(served.processor_ns() - before_ns, 100'000'000);
}

TEST(SwitchOrders, IsDrainedWhenItsLastJobHasEnded) {
  Served served;
  const Endpoint at = served.service().address();
  {
    SwitchClient client(served.worker(0, 1));
    EXPECT_EQ(give_order(at, {}, wire::SwitchDo::drain, soon()), "draining: 1 jobs are still there");
    expect_error([&] { SwitchClient other(served.worker(0, 1, "b")); }, ErrorCode::unsupported,
                 "is being drained");
    sum_and_check(client, 0, 1, 1, {1000});
  }
  served.join();
  expect_error([&] { give_order(at, {}, wire::SwitchDo::status, now_ns() + kSwitchSecond / 5); },
               ErrorCode::peer_failed, "no order to a switch at " + own_address() + ":");
}

TEST(SwitchOrders, LendsNoMoreThanItsQuotas) {
  SwitchServiceOptions options;
  options.memory_bytes = 60'000;
  options.quotas.slots = 3;
  options.quotas.bytes_per_second = 100e3;
  const Served served(options);
  EXPECT_THAT(served.service().memory(), HasSubstr("at most "));
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
  expect_error([&] { SwitchClient other(wide); }, ErrorCode::unsupported,
               "the switch is busy: job c: it needs ");
}

TEST(SwitchOrders, GivesResultsRatesByTheNamesOfJobsAndNewOnesToJobsThatAreOpen) {
  SwitchServiceOptions options;
  std::mutex mutex;
  std::string file = "# bytes of results\nslow 1.6 Mbit/s\n* none\n";
  options.result_rates = [&] {
    const std::lock_guard lock(mutex);
    return parse_result_rates(file, "rates");
  };
  options.describe = [](const SwitchStatus& status) {
    std::string text;
    for (const SwitchStatus::Job& job : status.jobs)
      text += fmt::format("{} {} {}, ", job.name, job.result_rate,
                          job.counters.delayed > 0 ? "waits" : "does not");
    return text;
  };
  options.threads = 2;
  const Served served(options);
  const Endpoint at = served.service().address();
  const auto status = [&] { return give_order(at, {}, wire::SwitchDo::status, soon()); };
  const auto reload = [&](const std::string& text) {
    const std::lock_guard lock(mutex);
    file = text;
  };
  SwitchClient slow(served.worker(0, 1, "slow")), quick(served.worker(0, 1, "quick"));
  // Far beyond its rate, and no machine takes as long for it.
  sum_and_check(slow, 0, 1, 1, {80'000});
  sum_and_check(quick, 0, 1, 1, {80'000});
  EXPECT_EQ(slow.counters().asked_for, 0U) << "what waits is not lost";
  EXPECT_EQ(status(), "quick 0 does not, slow 200000 waits, ");
  reload("slow none\nquick 1.6 Mbit/s\n");
  EXPECT_EQ(give_order(at, {}, wire::SwitchDo::reload, soon()), "the rates of results have been read again");
  sum_and_check(slow, 0, 1, 2, {80'000});
  sum_and_check(quick, 0, 1, 2, {80'000});
  EXPECT_EQ(status(), "quick 200000 waits, slow 0 waits, ");
  reload("slow none\nquick fast\n");
  expect_error([&] { give_order(at, {}, wire::SwitchDo::reload, soon()); }, ErrorCode::invalid_argument,
               "rates:2: a rate of results \"fast\"");
  EXPECT_EQ(status(), "quick 200000 waits, slow 0 waits, ") << "what was there stays";
}

TEST(SwitchOrders, TakesANewKeyWhateverIsWrongWithTheRatesAndNewRatesWhateverIsWrongWithTheKey) {
  std::mutex mutex;
  std::string key = "the first of two long keys", file = "* none\n";
  SwitchServiceOptions options;
  options.key = [&]() -> std::optional<wire::Secret> {
    const std::lock_guard lock(mutex);
    if (key.empty()) throw Error(ErrorCode::invalid_argument, "the key's file is gone");
    return wire::secret_from_text(key);
  };
  options.result_rates = [&] {
    const std::lock_guard lock(mutex);
    return parse_result_rates(file, "rates");
  };
  options.describe = [](const SwitchStatus& status) {
    std::string text;
    for (const SwitchStatus::Job& job : status.jobs) text += fmt::format("{} {}", job.name, job.result_rate);
    return text;
  };
  const Served served(options);
  const Endpoint at = served.service().address();
  const auto now_there_are = [&](const std::string& of_key, const std::string& rates) {
    const std::lock_guard lock(mutex);
    key = of_key;
    file = rates;
  };
  const auto reload = [&](const std::string& with) {
    give_order(at, wire::secret_from_text(with), wire::SwitchDo::reload, soon());
  };
  const std::string second = "the second of two long keys";
  now_there_are(second, "a fast\n");
  expect_error([&] { reload("the first of two long keys"); }, ErrorCode::invalid_argument, "rates:1: ");
  SwitchClientOptions worker = served.worker(0, 1);
  worker.key = wire::secret_from_text(second);
  SwitchClient client(worker);
  sum_and_check(client, 0, 1, 1, {1000});
  now_there_are("", "a 1.6 Mbit/s\n");
  expect_error([&] { reload(second); }, ErrorCode::invalid_argument,
               "the key's file is gone; the rates of results have been read again");
  EXPECT_EQ(give_order(at, *worker.key, wire::SwitchDo::status, soon()), "a 200000");
  now_there_are("", "a fast\n");
  expect_error([&] { reload(second); }, ErrorCode::invalid_argument, "the key's file is gone; rates:1: ");
}

TEST(SwitchOrders, SaysInWhichLineARateIsNone) {
  const ResultRates rates = parse_result_rates("\n a 8kbit/s\n\t# b 1Gbit/s\r\n* 2 Gbit/s\nb none", "f");
  EXPECT_EQ(rates.of_job("a", 7), 1000);
  EXPECT_EQ(rates.of_job("b", 7), 0);
  EXPECT_EQ(rates.of_job("c", 7), 250e6);
  EXPECT_EQ(parse_result_rates("", "f").of_job("c", 7), 7);
  const auto fails = [](const std::string& text, const std::string& why) {
    expect_error([&] { parse_result_rates(text, "f"); }, ErrorCode::bad_file, why);
  };
  fails("a 1Gbit/s\nb\n", "f:2: expected the name of a job and a rate, such as \"b 2 Gbit/s\"");
  fails("a 1Gbit/s\na none\n", "f:2: a has a rate already");
  fails("* none\n\n* none\n", "f:3: * has a rate already");
  fails("a\x1b[31m none\n",
        "f:1: expected the name of a job, of 1 to 64 printable ASCII characters, got \"a\\x1b[31m\"");
  fails("\xc3\xa4 none\n", "f:1: expected the name of a job");
  fails("a 1000.1 Tbit/s", "expected at least 8 kbit/s and at most 1000 Tbit/s");
  EXPECT_EQ(parse_result_rates("a 1000 Tbit/s", "f").of_job("a", 7), 1e15 / 8);
  for (const char* const rate : {"7.9 kbit/s", "1000000", "0Gbit/s", "-1Gbit/s", "fast", "1 Gbit/s of b"})
    fails(std::string("a ") + rate, "f:1: ");
}

}  // namespace
}  // namespace talweg::live
