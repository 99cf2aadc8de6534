// Two racks of two workers, each rack with a switch of its own, and one switch above both: sums are those of
// all four, with loss on each hop; whoever is lost is named, and nothing hangs.
#include <sys/socket.h>

#include <atomic>
#include <cmath>
#include <memory>
#include <mutex>
#include <optional>

#include "live/aggregation/switch_line.h"
#include "live/join/gate.h"
#include "live/join/interface.h"
#include "served_switch.h"

namespace talweg::live {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using wire::AggregationFormat;

constexpr std::uint16_t kOfRack = 2, kRacks = 2, kInAll = kOfRack * kRacks;

const Case kTreeCases[] = {{1, AggregationFormat::f32},
                           {100'000, AggregationFormat::f32},
                           {5'000, AggregationFormat::i32},
                           {70'001, AggregationFormat::scaled},
                           {256, AggregationFormat::bf16},
                           {0, AggregationFormat::f32},
                           {100'000, AggregationFormat::f32, true, 0.05},
                           {64'000, AggregationFormat::scaled, true, 0.1},
                           {100'000, AggregationFormat::pairs, true, 0.05},
                           {777, AggregationFormat::pairs}};

// Which of all it is.
std::uint16_t in_all(const SwitchClientOptions& o) {
  return static_cast<std::uint16_t>(o.rack * kOfRack + o.worker);
}

struct Tree {
  explicit Tree(const SwitchServiceOptions& of_top = {}, const SwitchServiceOptions& of_racks = {}) {
    top = std::make_unique<Served>(of_top);
    for (std::uint16_t r = 0; r < kRacks; ++r) start_rack(r, of_racks);
  }
  void start_rack(std::uint16_t r, SwitchServiceOptions options) {
    if (!options.above) options.above = {top->service().address()};
    racks[r] = std::make_unique<Served>(options);
  }
  std::vector<SwitchClientOptions> workers(const std::string& job = "a") const {
    std::vector<SwitchClientOptions> all;
    for (std::uint16_t r = 0; r < kRacks; ++r)
      for (std::uint16_t w = 0; w < kOfRack; ++w) {
        SwitchClientOptions& o = all.emplace_back(racks[r]->worker(w, kOfRack, job));
        o.rack = r;
        o.racks = kRacks;
        o.all_workers = kInAll;
      }
    return all;
  }
  std::unique_ptr<Served> top;
  std::unique_ptr<Served> racks[kRacks];
};

// All of them; `work` is told which of all it is.
std::vector<std::string> run_tree(const std::vector<SwitchClientOptions>& workers, const Worker& work) {
  std::vector<std::string> errors(workers.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < workers.size(); ++i)
    threads.emplace_back([&, i] {
      try {
        SwitchClient client(workers[i]);
        work(client, in_all(workers[i]));
      } catch (const Error& e) {
        errors[i] = std::string(name(e.code())) + ": " + e.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

// Each datagram, or the run of them that leaves as one, is lost with a probability.
UdpSender::SendCall losing(std::uint64_t seed, double loss) {
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
      if (::sendmmsg(fd, messages + i, 1, MSG_DONTWAIT) < 0) return i == 0 ? -1 : static_cast<int>(i);
    }
    return static_cast<int>(n);
  };
}

TEST(SwitchTree, SumsWhatAllRacksSendInOneStreamOfEach) {
  std::mutex mutex;
  std::map<std::string, SwitchStatus::Job> seen;
  SwitchServiceOptions top, rack;
  top.describe = [&](const SwitchStatus& status) {
    const std::lock_guard lock(mutex);
    for (const auto& job : status.jobs) seen["top"] = job;
    return std::string();
  };
  rack.describe = [&](const SwitchStatus& status) {
    const std::lock_guard lock(mutex);
    EXPECT_NE(status.above, "");
    for (const auto& job : status.jobs) seen["rack"] = job;
    return std::string();
  };
  const Tree tree(top, rack);
  std::atomic<int> asked{0};
  expect_none(run_tree(tree.workers(), [&](SwitchClient& client, std::uint16_t number) {
    for (const Case& c : kTreeCases) sum_and_check(client, number, kInAll, 3, c);
    if (number == 0) {
      give_order(tree.top->service().address(), {}, wire::SwitchDo::status, soon());
      give_order(tree.racks[0]->service().address(), {}, wire::SwitchDo::status, soon());
      asked = 1;
    }
    wait_until([&] { return asked == 1; });
  }));
  const SwitchStatus::Job& above = seen["top"];
  const SwitchStatus::Job& below = seen["rack"];
  EXPECT_EQ(above.workers, kRacks);
  EXPECT_FALSE(above.above);
  EXPECT_EQ(below.workers, kOfRack);
  EXPECT_EQ(below.racks, kRacks);
  EXPECT_TRUE(below.above);
  // Each round is one part of each rack: half as many as its workers have sent here.
  EXPECT_EQ(below.counters.passed_up, below.counters.rounds);
  EXPECT_EQ(above.counters.contributions + above.counters.adverts, kRacks * above.counters.rounds);
  EXPECT_EQ(above.counters.rounds, below.counters.rounds);
}

// Each rack's switch codes its sum, the one above that of all, which is passed on as it is. What a worker has
// contributed is what its residual does not hold. A unit of 4 bits may be more than that: whether each worker
// is in the sum once is seen by what all errors have in common with its values, which is nothing.
TEST(SwitchTree, SumsOfCodesAreTheSameBitsInAllRacksAndOffByWhatCodingTakes) {
  for (const AggregationFormat format : {AggregationFormat::block8, AggregationFormat::block4}) {
    const Tree tree({}, {});
    constexpr std::size_t kCount = 50'000;
    std::vector<std::vector<float>> sums(kInAll), sent(kInAll);
    expect_none(run_tree(tree.workers(), [&](SwitchClient& client, std::uint16_t number) {
      std::vector<float> in(kCount), data(kCount), residual(kCount, 0.0F);
      for (std::size_t i = 0; i < kCount; ++i)
        in[i] = static_cast<float>(Random(number, i).uniform() * 2 - 1);
      const auto bytes = std::as_writable_bytes(std::span(data));
      SwitchVector vector{std::as_bytes(std::span(in)).data(), bytes.data(), bytes.size(), bytes.size(),
                          format};
      vector.tolerance.residual = std::as_writable_bytes(std::span(residual)).data();
      client.all_reduce(vector, soon());
      sums[number] = data;
      for (std::size_t i = 0; i < kCount; ++i) in[i] -= residual[i];
      sent[number] = in;
    }));
    if (testing::Test::HasFailure()) return;
    const double top = format == AggregationFormat::block8 ? 127 : 7;
    for (const auto& sum : sums) ASSERT_TRUE(sum == sums[0]);
    // A unit of each rack, and one of the switch above, each of what is no larger than this.
    const double unit = (kInAll + (kInAll + kInAll / top)) / top * 1.0001;
    double along[kInAll] = {}, squares[kInAll] = {};
    for (std::size_t i = 0; i < kCount; ++i) {
      double error = static_cast<double>(sums[0][i]);
      for (const auto& its : sent) error -= static_cast<double>(its[i]);
      ASSERT_LE(std::abs(error), unit) << i;
      for (std::uint16_t w = 0; w < kInAll; ++w) {
        along[w] += error * static_cast<double>(sent[w][i]);
        squares[w] += static_cast<double>(sent[w][i]) * static_cast<double>(sent[w][i]);
      }
    }
    // Hoeffding: errors of mean zero are beyond 4 of these with a probability of 3e-14.
    for (std::uint16_t w = 0; w < kInAll; ++w)
      EXPECT_LE(std::abs(along[w]), 4 * unit * std::sqrt(squares[w])) << "worker " << w;
  }
}

TEST(SwitchTree, ExactSumsAreThoseOfOneSwitchToTheBit) {
  const auto results = [](const std::vector<SwitchClientOptions>& workers) {
    std::vector<std::vector<float>> out(workers.size());
    expect_none(run_tree(workers, [&](SwitchClient& client, std::uint16_t number) {
      std::vector<float> data(20'000);
      for (std::size_t i = 0; i < data.size(); ++i)
        data[i] = static_cast<float>(Random(number, i).uniform() - 0.5) * 1e3F;
      auto* const bytes = reinterpret_cast<std::byte*>(data.data());
      const std::size_t size = data.size() * sizeof(float);
      client.all_reduce({bytes, bytes, size, size, AggregationFormat::scaled}, soon());
      out[number] = data;
    }));
    return out;
  };
  const Tree tree;
  const Served alone;
  std::vector<SwitchClientOptions> at_one = all(alone, kInAll);
  const auto two_levels = results(tree.workers());
  const auto one_level = results(at_one);
  for (const auto& each : two_levels) EXPECT_EQ(each, one_level[0]);
}

TEST(SwitchTree, HasThreadsAndSlotsThatAllOfItsSwitchesHave) {
  SwitchServiceOptions top, narrow;
  top.threads = 3;
  top.quotas.slots = 9;
  Tree tree(top);
  narrow.threads = 2;
  narrow.quotas.slots = 5;
  tree.start_rack(1, narrow);
  narrow.threads = 4;
  tree.start_rack(0, narrow);
  expect_none(run_tree(tree.workers(), [&](SwitchClient& client, std::uint16_t number) {
    EXPECT_EQ(client.terms().threads, 2);
    EXPECT_EQ(client.terms().slots, 5);
    for (const Case& c : kTreeCases) sum_and_check(client, number, kInAll, 4, c);
  }));
}

// C16 of SwitchML's conformance cases
TEST(SwitchTree, SumsAreRightWhateverIsLostOnWhicheverHop) {
  for (const int hop : {0, 1, 2}) {
    SwitchServiceOptions top, rack;
    if (hop == 1) rack.send = losing(7, 0.02);  // to its workers and up
    if (hop == 2) top.send = losing(8, 0.02);
    const Tree tree(top, rack);
    std::vector<SwitchClientOptions> workers = tree.workers();
    if (hop == 0)
      for (std::size_t w = 0; w < workers.size(); ++w) workers[w].send = losing(10 + w, 0.02);
    std::atomic<std::uint64_t> again{0};
    expect_none(run_tree(workers, [&](SwitchClient& client, std::uint16_t number) {
      for (const Case& c : kTreeCases) sum_and_check(client, number, kInAll, 5, c);
      again += client.counters().asked_for + client.counters().named + client.counters().timeouts;
    }));
    EXPECT_GT(again, 0U) << "hop " << hop;
  }
}

TEST(SwitchTree, EncryptsBothHopsOfAJobBesideOneThatIsNot) {
  const wire::Secret key = wire::secret_from_text("a key that all of them hold");
  constexpr float kEach = 1234.5F;
  Wiretap of_racks(kOfRack * kEach), of_top(kInAll * kEach);
  SwitchServiceOptions top, rack;
  top.key = rack.key = [&] { return key; };
  top.send = of_top.call();
  rack.send = of_racks.call();
  const Tree tree(top, rack);
  const auto sum = [&](bool encrypted) {
    std::vector<SwitchClientOptions> workers = tree.workers(encrypted ? "secret" : "open");
    for (SwitchClientOptions& w : workers) {
      w.key = key;
      w.encrypted = encrypted;
    }
    expect_none(run_tree(workers, [&](SwitchClient& client, std::uint16_t number) {
      for (const AggregationFormat format : {AggregationFormat::f32, AggregationFormat::scaled})
        sum_and_check(client, number, kInAll, 3, {30'000, format});
      std::vector<float> data(30'000, kEach);
      const auto bytes = std::as_writable_bytes(std::span(data));
      client.all_reduce({bytes.data(), bytes.data(), bytes.size(), bytes.size()}, soon());
      EXPECT_EQ(data, std::vector<float>(data.size(), kInAll * kEach));
    }));
  };
  sum(true);
  EXPECT_GT(of_racks.sent, 10);
  EXPECT_GT(of_top.sent, 10);
  EXPECT_EQ(of_racks.found + of_top.found, 0);
  std::thread beside([&] { sum(false); });
  sum(true);
  beside.join();
  EXPECT_GT(of_racks.found, 0);
  EXPECT_GT(of_top.found, 0);
}

TEST(SwitchTree, AJobOfOneRackIsSummedThereAlone) {
  const Tree tree;
  tree.top->stop();
  expect_none(run(all(*tree.racks[0], 2), [&](SwitchClient& client, std::uint16_t number) {
    sum_and_check(client, number, 2, 1, {1000});
  }));
}

TEST(SwitchTree, AnyOfItsSwitchesThatIsStoppedIsAnErrorOfAllWorkersAtOnceAndTheyMayComeAgain) {
  for (const bool stop_top : {true, false}) {
    Tree tree;
    const std::int64_t begin_ns = now_ns();
    std::atomic<int> summed{0};
    std::thread stopper([&] {
      wait_until([&] { return summed == kInAll; });
      stop_top ? tree.top->stop() : tree.racks[1]->stop();
    });
    const auto errors = run_tree(tree.workers(), [&](SwitchClient& client, std::uint16_t number) {
      sum_and_check(client, number, kInAll, 1, {1000});
      ++summed;
      for (;;) {
        std::vector<std::byte> bytes(4000);
        client.all_reduce(vector_of(bytes, AggregationFormat::f32), soon());
      }
    });
    stopper.join();
    EXPECT_LT(now_ns() - begin_ns, 15 * kSwitchSecond);
    for (const std::string& error : errors)
      EXPECT_THAT(error, AllOf(HasSubstr("peer_failed"), AnyOf(HasSubstr("the switch has been stopped"),
                                                               HasSubstr("has ended the connection"))));
    if (stop_top) {
      EXPECT_THAT(errors[0], HasSubstr("the switch above, " + to_string(tree.top->service().address())));
      // It comes back at the same place.
      SwitchServiceOptions again;
      again.listen = tree.top->service().address();
      tree.top.reset();
      tree.top = std::make_unique<Served>(again);
    } else {
      EXPECT_THAT(errors[0], AllOf(HasSubstr("the switch above"), HasSubstr("rack 1")));
      tree.start_rack(1, {});
    }
    expect_none(run_tree(tree.workers(), [&](SwitchClient& client, std::uint16_t number) {
      sum_and_check(client, number, kInAll, 2, {1000});
    }));
  }
}

TEST(SwitchTree, TellsAllRacksWhenAWorkerOfOneDiesGivesUpOrLeaves) {
  for (const int how : {0, 1, 2}) {
    const Tree tree;
    const auto errors = run_tree(tree.workers(), [&](SwitchClient& client, std::uint16_t number) {
      sum_and_check(client, number, kInAll, 1, {100});
      if (number == 3 && how == 0) return;  // it leaves
      if (number == 3 && how == 1) return client.give_up(ErrorCode::aborted, "it has had enough");
      std::vector<std::byte> bytes(8'000'000);  // more than leaves at once
      if (number == 3) {                        // goes in the middle of a sum
        client.start(vector_of(bytes, AggregationFormat::f32), soon());
        return;
      }
      client.all_reduce(vector_of(bytes, AggregationFormat::f32), soon());
    });
    EXPECT_EQ(errors[3], "");
    const char* const at_home[] = {"worker 1 has left after sum 1", "it has had enough",
                                   "worker 1 of job a is gone"};
    const char* const elsewhere[] = {"rack 1 has left after sum 1", "it has had enough",
                                     "worker 1 of job a is gone"};
    EXPECT_THAT(errors[2], HasSubstr(at_home[how]));
    EXPECT_THAT(errors[0], HasSubstr(elsewhere[how]));
    EXPECT_THAT(errors[1], HasSubstr(elsewhere[how]));
  }
}

TEST(SwitchTree, RacksThatDoNotMeanTheSameSumAllHearThat) {
  const Tree tree;
  const auto errors = run_tree(tree.workers(), [&](SwitchClient& client, std::uint16_t number) {
    std::vector<std::byte> bytes(number < kOfRack ? 4096 : 8192);
    // Who has less may be through with the first one before that is known.
    for (int i = 0; i < 2; ++i) client.all_reduce(vector_of(bytes, AggregationFormat::f32), soon());
  });
  for (const std::string& error : errors)
    EXPECT_THAT(error,
                AllOf(HasSubstr("mismatch"), HasSubstr("the switch above"),
                      HasSubstr("1024 elements of f32, dense"), HasSubstr("2048"), HasSubstr("rack 1")));
}

TEST(SwitchTree, RanksThatNameTheSameSwitchAreARack) {
  const std::uint64_t switches[] = {7, 5, 7, 5, 9};
  SwitchClientOptions o;
  sit_down(o, 3, switches);
  EXPECT_EQ(o.worker, 1);
  EXPECT_EQ(o.workers, 2);
  EXPECT_EQ(o.rack, 1);
  EXPECT_EQ(o.racks, 3);
  EXPECT_EQ(o.all_workers, 5);
  const Endpoint near{"127.0.0.1", 1}, far{"10.0.0.9", 1};
  EXPECT_NE(switch_number(near, "a"), switch_number(near, "b"));
  EXPECT_EQ(switch_number(far, "a"), switch_number(far, "b"));
  EXPECT_NE(switch_number(far, "a"), switch_number({"10.0.0.9", 2}, "a"));
}

TEST(SwitchTree, SaysInOneLineWhatIsWrongWithTheSwitchAbove) {
  const wire::Secret key = wire::secret_from_text("one key"), other = wire::secret_from_text("another key");
  SwitchServiceOptions keyed, wrong;
  keyed.key = [&] { return key; };
  Tree tree(keyed);
  const auto join = [&](const char* text, ErrorCode code) {
    std::vector<SwitchClientOptions> workers = tree.workers();
    workers.resize(kOfRack);
    for (const std::string& error : run_tree(workers, [](SwitchClient&, std::uint16_t) {})) {
      EXPECT_THAT(error, AllOf(HasSubstr(name(code)), HasSubstr(text),
                               HasSubstr("the switch above, " + to_string(tree.top->service().address()))));
      EXPECT_EQ(error.find('\n'), std::string::npos);
    }
  };
  wrong.above = SwitchAboveOptions{tree.top->service().address(), [&] { return other; }};
  tree.start_rack(0, wrong);
  join("--above-key-file", ErrorCode::invalid_argument);
  wrong.above->key = [&] { return key; };
  tree.start_rack(0, wrong);
  give_order(tree.top->service().address(), key, wire::SwitchDo::drain, soon());
  join("it has not answered for 2 s: connecting",
       ErrorCode::timeout);  // it has ended, as it had nothing to do
}

TEST(SwitchTree, ReadsTheKeyOfTheSwitchAboveAgain) {
  const wire::Secret key = wire::secret_from_text("one key"), other = wire::secret_from_text("another key");
  std::atomic<const wire::Secret*> read{&other};
  SwitchServiceOptions keyed, below;
  keyed.key = [&] { return key; };
  Tree tree(keyed);
  below.above = SwitchAboveOptions{tree.top->service().address(), [&] { return *read.load(); }};
  for (std::uint16_t r = 0; r < kRacks; ++r) tree.start_rack(r, below);
  read = &key;
  for (const auto& rack : tree.racks)
    EXPECT_EQ(give_order(rack->service().address(), {}, wire::SwitchDo::reload, soon()),
              "the key has been read again");
  expect_none(run_tree(tree.workers(), [&](SwitchClient& client, std::uint16_t number) {
    sum_and_check(client, number, kInAll, 1, {1000});
  }));
}

TEST(SwitchTree, NamesTheRackThatHasNotJoined) {
  const Tree tree;
  std::vector<SwitchClientOptions> workers = tree.workers();
  workers.resize(kOfRack);
  for (SwitchClientOptions& w : workers) w.join_deadline_ns = now_ns() + kSwitchSecond;
  // The other one may hear that the first has gone.
  EXPECT_THAT(run_tree(workers, [](SwitchClient&, std::uint16_t) {}),
              testing::Contains(HasSubstr("1 of 2 racks' switches have not joined: 1")));
}

TEST(SwitchTree, RefusesWorkersThatDoNotAgreeWhereTheyAre) {
  const Tree tree;
  const auto refused = [&](const Served& served, std::uint16_t rack, std::uint16_t racks,
                           std::uint16_t in_all, const char* text) {
    SwitchClientOptions o = served.worker(0, 1);
    o.rack = rack;
    o.racks = racks;
    o.all_workers = in_all;
    expect_error([&] { const SwitchClient client(o); }, ErrorCode::invalid_argument, text);
  };
  refused(*tree.racks[0], 2, 2, 4, "has none of number 2");
  refused(*tree.racks[0], 0, 2, 1, "has 1 workers at this one and 1 in all");
  refused(*tree.racks[0], 0, 1, 4, "has 1 workers at this one and 4 in all");
  SwitchClientOptions o = tree.top->worker(0, 1);
  o.racks = 2;
  o.all_workers = 2;
  expect_error([&] { const SwitchClient client(o); }, ErrorCode::unsupported, "start it with --above");

  std::vector<SwitchClientOptions> workers = tree.workers();
  workers[1].all_workers = 5;
  workers.resize(kOfRack);
  for (SwitchClientOptions& w : workers) w.join_deadline_ns = now_ns() + kSwitchSecond;
  const auto errors = run_tree(workers, [](SwitchClient&, std::uint16_t) {});
  EXPECT_THAT(errors, testing::Contains(AllOf(HasSubstr("mismatch"), HasSubstr("this is switch 0 of 2 for"),
                                              HasSubstr(" 4"), HasSubstr(" 5"))));
}

TEST(SwitchTree, ASwitchIsNotAboveItselfByAnyOfItsAddresses) {
  SwitchServiceOptions options;
  options.listen = {"0.0.0.0", 4711};
  for (const Interface& interface : interfaces()) {
    options.above = {{interface.address, 4711}};
    expect_error([&] { const SwitchService service(options); }, ErrorCode::invalid_argument,
                 "--above: a switch is not above itself: " + interface.address + ":4711");
  }
}

TEST(SwitchTree, SwitchesThatAreAboveEachOtherAskWhetherTheyAre) {
  SwitchServiceOptions first, second;
  second.listen = Served().service().address();
  first.above = {second.listen};
  const Served one(first);
  second.above = {one.service().address()};
  const Served other(second);
  std::vector<SwitchClientOptions> workers{one.worker(0, 1), other.worker(0, 1)};
  for (SwitchClientOptions& w : workers) {
    w.racks = w.all_workers = 2;
    w.join_deadline_ns = now_ns() + 2 * kSwitchSecond;
  }
  workers[1].rack = 1;
  // Whoever comes first may wait for the other one, which is refused.
  EXPECT_THAT(run_tree(workers, [](SwitchClient&, std::uint16_t) {}),
              testing::Contains(AllOf(HasSubstr("mismatch"), HasSubstr("both workers and other switches"),
                                      HasSubstr("also above that one?"))));
}

// Who says whatever it likes.
SwitchLine stranger_at(const Endpoint& address) {
  wire::Introduction introduction;
  introduction.purpose = wire::Purpose::aggregation;
  introduction.encrypt = true;
  return {knock([&] { return connect_tcp(address, soon()); }, {}, introduction, soon(), {}, ""),
          wire::kMaxSwitchReason + 64};
}
wire::SwitchMessage answer_to(SwitchLine& line) {
  for (bool open = true; open;) {
    open = wait_ready(line.socket(), false, soon()) && line.receive();
    if (auto message = line.next()) return *message;
  }
  return wire::SwitchRefused{ErrorCode::peer_failed, "no answer"};
}
wire::SwitchJoin one_of_two_racks() {
  wire::SwitchJoin join;
  join.job = "a";
  join.payload = 1400;
  join.window = 1 << 20;
  join.racks = 2;
  join.all = 2;
  return join;
}

TEST(SwitchTree, RefusesSwitchesThatCannotBeOfRacks) {
  const Tree tree;
  const auto refused = [](const Served& served, const wire::SwitchJoin& join, const char* text) {
    SwitchLine line = stranger_at(served.service().address());
    line.say(join);
    line.flush();
    const wire::SwitchMessage answer = answer_to(line);
    ASSERT_TRUE(std::holds_alternative<wire::SwitchRefused>(answer));
    EXPECT_THAT(std::get<wire::SwitchRefused>(answer).reason, HasSubstr(text));
  };
  wire::SwitchJoin join = one_of_two_racks();
  join.threads = join.slots = 1;
  refused(*tree.racks[0], join, "there are two levels and no more");
  join.racks = 1;
  join.slots = 0;
  refused(*tree.top, join, "rack 0 of job a has no slots for it");
}

TEST(SwitchTree, KeepsLittleForASwitchAboveThatDoesNotRead) {
  FileDescriptor listener = listen_tcp({"127.0.0.1", 0});
  const int few = 4096;
  ASSERT_EQ(::setsockopt(listener.get(), SOL_SOCKET, SO_RCVBUF, &few, sizeof few), 0);
  SwitchServiceOptions options;
  options.above = SwitchAboveOptions{local_endpoint(listener), {}};
  const wire::Secret none{};
  Gate gate(
      none, [](const wire::Introduction&) { return true; }, Logger(-1));
  gate.listen(std::move(listener));
  const Served rack(options);
  SwitchLine worker = stranger_at(rack.service().address());
  worker.say(one_of_two_racks());
  worker.flush();
  std::optional<SwitchLine> top;
  wait_until([&] {
    for (Visitor& v : gate.step(now_ns())) top.emplace(std::move(v), wire::kMaxSwitchRequest);
    return top.has_value();
  });
  ASSERT_TRUE(std::holds_alternative<wire::SwitchJoin>(answer_to(*top)));
  wire::SwitchOpened opened;
  opened.job = opened.epoch = 1;
  opened.port = 9;
  opened.block = 256;
  top->say(opened);
  top->flush();
  ASSERT_TRUE(std::holds_alternative<wire::SwitchOpened>(answer_to(worker)));

  std::optional<wire::SwitchMessage> said;
  std::uint32_t sum = 0;
  while (!said && sum < 2'000'000) {
    for (int i = 0; i < 1000; ++i) worker.say(wire::SwitchSum{++sum, 1, 0, false});
    while (worker.flush() && worker.unsent() > 0) wait_ready(worker.socket(), true, soon());
    worker.receive();
    said = worker.next();
  }
  ASSERT_TRUE(said && std::holds_alternative<wire::SwitchRefused>(*said)) << sum;
  EXPECT_THAT(std::get<wire::SwitchRefused>(*said).reason,
              AllOf(HasSubstr("the switch above, "), HasSubstr("it does not read what it is told")));
}

}  // namespace
}  // namespace talweg::live
