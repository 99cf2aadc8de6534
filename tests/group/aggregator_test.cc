// Groups whose network has an aggregator: a process beside the ranks that sums for them.
#include "group/aggregator.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <fstream>
#include <iterator>
#include <latch>
#include <mutex>
#include <optional>
#include <set>
#include <sstream>

#include "base/random.h"
#include "ranks.h"
#include "steer/shared_plans.h"

namespace talweg {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kHelped = 3;  // ranks

// Hosts with a port of the aggregator each: whatever is large goes through it.
std::string cluster_text() {
  std::string text = "nodes:\n";
  for (int r = 0; r < kHelped; ++r) text += fmt::format("  - {{name: h{}, kind: worker}}\n", r);
  text += "  - {name: agg, kind: aggregator}\nlinks:\n";
  for (int r = 0; r < kHelped; ++r)
    text += fmt::format("  - {{between: [h{}, agg], capacity: 1Gbit/s, latency: 30us}}\n", r);
  return text;
}

class Aggregated : public ::testing::TestWithParam<const char*> {
 protected:
  Aggregated() { std::ofstream(cluster_.path()) << cluster_text(); }
  ~Aggregated() override { stop(); }

  // A process of its own, which can be killed. Before there are threads.
  void start_aggregator(const char* name = "agg", const std::string& meeting = {}) {
    pid_ = fork();
    if (pid_ > 0) return;
    try {
      group::serve_group({.name = name,
                          .rendezvous = "file:" + (meeting.empty() ? store_.path() : meeting),
                          .prefix = "",
                          .interface = "lo",
                          .timeout = std::chrono::seconds(60)});
      _exit(0);
    } catch (const std::exception& e) {
      fmt::print(stderr, "{}\n", e.what());
      _exit(1);
    }
  }
  // Its exit code; once the group has ended, it ends.
  int wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  void stop(int signal = SIGKILL) {
    if (pid_ <= 0) return;
    kill(pid_, signal);
    if (signal == SIGKILL) wait();
  }

  // By all ranks, once in a test: what is started after it is started without the aggregator.
  void stop_between_calls(Group& g) {
    g.barrier();
    rested_.arrive_and_wait();
    if (g.rank() == 0) {
      stop();  // the system has closed all that it held
      dead_.count_down();
    }
    dead_.wait();
    // Between calls that follow each other at once nobody looks.
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }

  void ranks(const std::function<void(Group&)>& body) {
    run_ranks(kHelped, body, [this](GroupOptions& options) {
      options.store = file_store(store_.path());
      options.cluster_file = cluster_.path();
      options.algorithm = "packed";
    });
  }

  Variable shm_{"TALWEG_SHM", GetParam()};
  TemporaryFile store_, cluster_;
  pid_t pid_ = -1;
  std::latch rested_{kHelped}, dead_{1};
};
INSTANTIATE_TEST_SUITE_P(SharedMemory, Aggregated, ::testing::Values("on", "off"),
                         [](const auto& test) { return std::string(test.param); });

float value_of(int rank, std::size_t i) {
  return static_cast<float>((i + 7 * static_cast<std::size_t>(rank)) % 100);
}

// `begun` is called while the call is in flight.
void expect_all_reduce(Group& g, std::size_t count, const std::function<void()>& begun = {}) {
  std::vector<float> data(count);
  for (std::size_t i = 0; i < count; ++i) data[i] = value_of(g.rank(), i);
  const WorkPtr work = g.start_all_reduce(data.data(), data.data(), count, DataType::f32, ReduceOp::sum);
  if (begun) begun();
  work->wait();
  for (std::size_t i = 0; i < count; ++i) {
    float sum = 0;
    for (int r = 0; r < g.size(); ++r) sum += value_of(r, i);
    ASSERT_EQ(data[i], sum) << i << " of " << count;
  }
}

std::vector<float> of_all_magnitudes(int rank, std::size_t count) {
  Random random(static_cast<std::uint64_t>(rank));
  std::vector<float> data(count);
  for (float& x : data)
    x = std::ldexp(static_cast<float>(random.uniform() - 0.5), static_cast<int>(random.below(24)));
  return data;
}

std::string plan_of(Group& g, std::size_t count) {
  return g.explain(Collective::all_reduce, count, DataType::f32);
}

TEST_P(Aggregated, CollectivesAreRightAndTheAggregatorEndsWithItsGroup) {
  start_aggregator();
  ranks([](Group& g) {
    EXPECT_EQ(g.size(), kHelped) << "it is no rank";
    EXPECT_THAT(g.describe(), HasSubstr("aggregators: agg\n"));
    for (const std::size_t count : {1UL, 1000UL, 300'000UL}) {
      for (int i = 0; i < 3; ++i) expect_all_reduce(g, count);
      const auto rank = static_cast<std::size_t>(g.rank());
      std::vector<float> in(count, static_cast<float>(rank)), out(count, -1.0F);
      g.reduce(in.data(), out.data(), count, DataType::f32, ReduceOp::max, 1);
      EXPECT_THAT(out, Each(g.rank() == 1 ? 2.0F : -1.0F));
      g.broadcast(in.data(), count, DataType::f32, 2);
      EXPECT_THAT(in, Each(2.0F));
      const std::vector<std::size_t> counts{count, 2 * count, 0};
      std::vector<float> all(3 * count, static_cast<float>(rank + 1)), part(counts[rank], -1.0F);
      g.reduce_scatter(all.data(), part.data(), counts, DataType::f32, ReduceOp::avg);
      EXPECT_THAT(part, Each(2.0F));
      g.all_gather(part.data(), all.data(), counts, DataType::f32);
      EXPECT_THAT(all, Each(2.0F));
      g.barrier();
    }
  });
  EXPECT_EQ(wait(), 0);
}

TEST_P(Aggregated, SumsThatRoundAreTheSameBitsOnEveryRankAndInEveryRun) {
  constexpr std::size_t kCount = 100'003;
  std::vector<std::vector<float>> results(kHelped);
  std::vector<float> first;
  for (int round = 0; round < 2; ++round) {
    start_aggregator();
    ranks([&](Group& g) {
      EXPECT_THAT(plan_of(g, kCount), HasSubstr("through agg"));
      const std::vector<float> in = of_all_magnitudes(g.rank(), kCount);
      std::vector<float>& out = results[static_cast<std::size_t>(g.rank())];
      for (int late = 0; late < kHelped; ++late) {  // the others' data are there before
        std::vector<float> sum(kCount);
        g.barrier();
        if (g.rank() == late) std::this_thread::sleep_for(std::chrono::milliseconds(10));
        g.all_reduce(in.data(), sum.data(), kCount, DataType::f32, ReduceOp::sum);
        EXPECT_TRUE(late == 0 || sum == out) << "when rank " << late << " is late";
        out = std::move(sum);
      }
    });
    EXPECT_EQ(wait(), 0);
    if (round == 0) first = results[0];
    for (const auto& result : results) EXPECT_EQ(result, first);
  }
  const std::vector<float> a = of_all_magnitudes(0, kCount), b = of_all_magnitudes(1, kCount),
                           c = of_all_magnitudes(2, kCount);
  std::size_t rounded = 0;
  for (std::size_t i = 0; i < kCount; ++i) rounded += (a[i] + b[i]) + c[i] != a[i] + (b[i] + c[i]) ? 1U : 0U;
  EXPECT_GT(rounded, kCount / 10) << "the order of the sums matters";
}

void expect_planned_without(Group& g) {
  EXPECT_THAT(g.describe(), HasSubstr("aggregators: none\n"));
  EXPECT_THAT(plan_of(g, 100'000), Not(HasSubstr("through")));
  expect_all_reduce(g, 100'000);
}

TEST_P(Aggregated, OneThatIsNotThereIsPlannedWithoutWhichIsSaidOnce) {
  testing::internal::CaptureStderr();
  ranks(expect_planned_without);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("planned without aggregator agg: it was not there when all 3 ranks were\n"));
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
}

TEST_P(Aggregated, OneOfAnotherVersionIsPlannedWithoutWhichIsSaidOnce) {
  file_store(store_.path())->set("node/agg", "talweg 3 a card of the past");
  testing::internal::CaptureStderr();
  ranks(expect_planned_without);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("planned without aggregator agg: aggregator agg speaks protocol version 3, the "
                              "others speak"));
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
}

// The ranks and the aggregator are told why; nobody waits for it.
class AggregatedByMeasurement : public Aggregated {
 protected:
  void expect_refused(const char* setting) {
    const Variable on(setting, "1");
    testing::internal::CaptureStderr();
    start_aggregator();
    ranks(expect_planned_without);
    EXPECT_EQ(wait(), 1);
    const std::string said = testing::internal::GetCapturedStderr();
    const std::string why = fmt::format("groups with {} plan without aggregators\n", setting);
    EXPECT_THAT(said, HasSubstr("planned without aggregator agg: " + why));
    EXPECT_THAT(said, AnyOf(HasSubstr("\n" + why), ::testing::StartsWith(why))) << "the aggregator's";
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 2) << said;
  }
};
INSTANTIATE_TEST_SUITE_P(SharedMemory, AggregatedByMeasurement, ::testing::Values("on"));

TEST_P(AggregatedByMeasurement, PlansThatFollowTheNetworkDoWithoutIt) {
  expect_refused("TALWEG_REPLAN");
}

TEST_P(AggregatedByMeasurement, PlansByWhatWasMeasuredDoWithoutIt) {
  expect_refused("TALWEG_PROBE");
}

// Its card is taken, and then nobody is there.
TEST_P(Aggregated, OneThatDiesWhileItJoinsIsPlannedWithoutWhichIsSaidOnce) {
  std::thread dies([&] {
    const auto store = file_store(store_.path());
    std::istringstream first(
        store->get("rank0", std::chrono::steady_clock::now() + std::chrono::seconds(30)));
    std::vector<std::string> card{std::istream_iterator<std::string>(first), {}};
    ASSERT_EQ(card.at(4), "-");
    card[4] = "agg";
    store->set("node/agg", fmt::format("{}", fmt::join(card, " ")));
  });
  testing::internal::CaptureStderr();
  ranks([&](Group& g) {
    for (int call = 0; call < 3; ++call) expect_all_reduce(g, 100'000);
    expect_planned_without(g);
    // The ranks are all there, and share their connections with a group that is made from this one.
    GroupOptions options = options_for(g.rank(), 2, store_.path());
    options.prefix = "part/";
    options.cluster_file = cluster_.path();
    options.within = std::shared_ptr<Group>(&g, [](Group*) {});
    if (g.rank() < 2) expect_all_reduce(*Group::join(options), 1000);
    g.barrier();
  });
  dies.join();
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("aggregator agg is lost: the group goes on without it\n"));
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
}

TEST_P(Aggregated, GroupsThatAreSplitOffDoWithoutIt) {
  start_aggregator();
  ranks([](Group& g) {
    const std::vector<int> members{2, 0};
    const auto part = g.split(members);
    EXPECT_THAT(plan_of(g, 100'000), HasSubstr("through agg"));
    expect_all_reduce(g, 100'000);
    if (!part) return;
    expect_planned_without(*part);
  });
}

// Whose connections stay, for a group that was split off: then nothing but its word says that it has left.
TEST_P(Aggregated, ARankThatLeavesFailsTheCallsThatWaitForItBehindTheAggregator) {
  start_aggregator();
  std::mutex mutex;
  std::vector<std::shared_ptr<Group>> parts;
  ranks([&](Group& g) {
    expect_all_reduce(g, 1000);
    EXPECT_THAT(plan_of(g, 1'000'000), HasSubstr("through agg"));
    const std::vector<int> everybody{0, 1, 2};
    auto part = g.split(everybody);
    {
      const std::lock_guard lock(mutex);
      parts.push_back(std::move(part));
    }
    if (g.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      return;
    }
    g.set_timeout(std::chrono::seconds(20));
    try {
      expect_all_reduce(g, 1'000'000);
      ADD_FAILURE() << "rank 1 has not called it";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::peer_failed) << e.what();
      EXPECT_THAT(e.what(), HasSubstr("has left the group"));
    }
  });
  parts.clear();
  EXPECT_EQ(wait(), 0);
}

// Calls `calls` times; which of them failed, all of them for want of the aggregator.
std::set<int> failures_of(
    Group& g, int calls, std::size_t count, const std::function<void(int)>& before,
    const std::function<void(int)>& begun = [](int) {}) {
  EXPECT_THAT(plan_of(g, count), HasSubstr("through agg"));
  std::set<int> failed;
  for (int i = 0; i < calls; ++i) {
    before(i);
    try {
      expect_all_reduce(g, count, [&] { begun(i); });
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::peer_failed) << e.what();
      EXPECT_THAT(e.what(), HasSubstr("aggregator agg ("));
      failed.insert(i);
    }
  }
  return failed;
}

TEST_P(Aggregated, OneThatDiesFailsTheCallsInFlightByNameAndTheGroupGoesOnWithoutIt) {
  for (const std::size_t count : {1000UL, 4'000'000UL}) {
    start_aggregator();
    std::latch begun(kHelped), dead(1);
    ranks([&](Group& g) {
      // Rank 2 has its earlier sums when the aggregator dies, and no part in the call before that: nobody can
      // have the call's sum.
      const auto failed = failures_of(
          g, 6, count,
          [&](int call) {
            if (call != 3 || g.rank() != 2) return;
            begun.count_down();
            dead.wait();
          },
          [&](int call) {
            if (call != 3 || g.rank() == 2) return;
            begun.arrive_and_wait();
            if (g.rank() != 0) return;
            stop();
            dead.count_down();
          });
      // Who hears of the failed call before it hears of the death begins one call more.
      EXPECT_THAT(failed, AnyOf(ElementsAre(3), ElementsAre(3, 4))) << count;
    });
  }
}

TEST_P(Aggregated, OneThatDiesWhileNothingIsInFlightFailsNoCall) {
  start_aggregator();
  ranks([&](Group& g) {
    expect_all_reduce(g, 1000);
    EXPECT_THAT(plan_of(g, 1000), HasSubstr("through agg"));
    stop_between_calls(g);
    for (int i = 0; i < 3; ++i) expect_all_reduce(g, 1000);
  });
}

TEST_P(Aggregated, ARankThatIsLateAfterADeathIsNamedAndNoOther) {
  start_aggregator();
  std::latch gave_up(kHelped - 1);
  ranks([&](Group& g) {
    expect_all_reduce(g, 100'000);
    stop_between_calls(g);
    if (g.rank() == 2) {
      for (int i = 0; i < 300 && !gave_up.try_wait(); ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
      return;
    }
    g.set_timeout(std::chrono::milliseconds(1500));
    try {
      expect_all_reduce(g, 100'000);
      ADD_FAILURE() << "rank 2 has no part in it";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::timeout) << e.what();
      EXPECT_THAT(e.what(), HasSubstr("rank 2 ("));
      EXPECT_THAT(e.what(), HasSubstr("has not started it"));
      EXPECT_THAT(std::string(e.what()).substr(std::string(e.what()).find("timed out")),
                  Not(HasSubstr("rank 0")));
    }
    gave_up.count_down();
  });
}

TEST_P(Aggregated, OneThatDiesAtAnyMomentFailsWhatIsInFlightAtMost) {
  start_aggregator();
  std::mutex mutex;
  std::set<int> failed;  // on any rank: some may have had all that they needed
  std::latch at_work(kHelped);
  std::optional<std::thread> killer;
  ranks([&](Group& g) {
    const auto own = failures_of(g, 400, 1000, [&](int call) {
      if (call != 3) return;
      at_work.arrive_and_wait();
      if (g.rank() == 0)
        killer.emplace([&] {
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
          stop();
        });
    });
    const std::lock_guard lock(mutex);
    failed.insert(own.begin(), own.end());
  });
  killer->join();
  EXPECT_LE(failed.size(), 3U) << "one, one that a rank was ahead, one begun before the death was heard of";
}

// However many calls are in flight, each by a plan of its own.
TEST_P(Aggregated, KnowsThePlansOfAllCallsThatWaitForALateRank) {
  constexpr int kCalls = 2 * static_cast<int>(steer::SharedPlans::kMostRequests) + 30;
  start_aggregator();
  std::latch ahead(kHelped);
  ranks([&](Group& g) {
    g.set_timeout(std::chrono::seconds(30));
    EXPECT_THAT(plan_of(g, 100), HasSubstr("through agg"));
    if (g.rank() == 2) ahead.arrive_and_wait();
    std::vector<std::vector<float>> data;
    std::vector<WorkPtr> works;
    for (std::size_t i = 0; i < kCalls; ++i) {
      std::vector<float>& x = data.emplace_back(100 + i, value_of(g.rank(), i));
      works.push_back(g.start_reduce(x.data(), x.data(), x.size(), DataType::f32, ReduceOp::sum, 0));
    }
    if (g.rank() != 2) ahead.arrive_and_wait();
    for (std::size_t i = 0; i < kCalls; ++i) {
      works[i]->wait();
      if (g.rank() == 0) {
        ASSERT_THAT(data[i], Each(value_of(0, i) + value_of(1, i) + value_of(2, i))) << i;
      }
    }
    expect_all_reduce(g, 1000);
  });
  EXPECT_EQ(wait(), 0);
}

TEST_P(Aggregated, RanksThatDisagreeAreNamedAndNotTheAggregator) {
  start_aggregator();
  ranks([&](Group& g) {
    for (std::size_t i = 0; i < 60; ++i) {
      std::vector<float> in(3 * 20'000, 1), out(in.size());
      const std::size_t count = i % 2 == 0 ? 10 : 20'000;
      const bool other = g.rank() == static_cast<int>(i % kHelped);
      try {
        if (i % 4 < 2 && other)
          g.reduce_scatter(in.data(), out.data(), std::vector<std::size_t>(3, count), DataType::f32,
                           ReduceOp::sum);
        else
          g.all_reduce(in.data(), out.data(), other ? 2 * count : count, DataType::f32, ReduceOp::sum);
        ADD_FAILURE() << "call " << i;
      } catch (const Error& e) {
        const std::string text = e.what();
        EXPECT_EQ(e.code(), ErrorCode::mismatch) << text;
        EXPECT_THAT(text.substr(text.find("phase")),
                    AllOf(HasSubstr(": ranks disagree: rank "),
                          HasSubstr(fmt::format("rank {} (", i % kHelped)), Not(HasSubstr("by plan"))));
        EXPECT_THAT(text, Not(HasSubstr("aggregator")));
      }
    }
    expect_all_reduce(g, 1000);
  });
}

// The aggregator may be the first to notice.
TEST_P(Aggregated, ARankThatDiesIsNamedByAllThatWaitForIt) {
  for (int round = 0; round < 8; ++round) {
    TemporaryFile meeting;
    start_aggregator("agg", meeting.path());
    std::vector<pid_t> pids;
    for (int r = 0; r < kHelped; ++r) {
      pids.push_back(fork());
      if (pids.back() > 0) continue;
      try {
        GroupOptions options = options_for(r, kHelped, meeting.path());
        options.cluster_file = cluster_.path();
        options.algorithm = "packed";
        const auto g = Group::join(options);
        std::vector<float> x(10'000, 1);
        for (int i = 0;; ++i) {
          if (r == 1 && i == 20 + round) kill(getpid(), SIGKILL);
          g->all_reduce(x.data(), x.data(), x.size(), DataType::f32, ReduceOp::max);
        }
      } catch (const Error& e) {
        const std::string text = e.what();
        const std::size_t phase = text.find("phase");
        const bool named = e.code() == ErrorCode::peer_failed && phase != std::string::npos &&
                           text.find(": rank 1 (", phase) != std::string::npos;
        if (!named) fmt::print(stderr, "rank {}: {}\n", r, e.what());
        _exit(named ? 0 : 1);
      }
    }
    for (const int r : {0, 1, 2}) {
      int status = 0;
      waitpid(pids[static_cast<std::size_t>(r)], &status, 0);
      EXPECT_TRUE(r == 1 || (WIFEXITED(status) && WEXITSTATUS(status) == 0))
          << "round " << round << " rank " << r;
    }
    stop();
  }
}

TEST_P(Aggregated, OneThatStopsIsNamedByCallsThatTimeOut) {
  start_aggregator();
  ranks([&](Group& g) {
    expect_all_reduce(g, 100'000);
    g.barrier();
    if (g.rank() == 0) stop(SIGSTOP);
    g.set_timeout(std::chrono::milliseconds(700));
    try {
      expect_all_reduce(g, 100'000, [&] {
        const std::string record = g.flight_record();
        EXPECT_THAT(record.substr(record.rfind("\"sequence\":2")), HasSubstr("aggregator agg ("));
      });
      FAIL() << "nobody sums";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::timeout);
      EXPECT_THAT(e.what(), HasSubstr("aggregator agg ("));
    }
  });
  stop();
}

}  // namespace
}  // namespace talweg
