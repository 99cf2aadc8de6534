// Groups whose network has an aggregator: a process beside the ranks that sums for them.
#include "group/aggregator.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <latch>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>

#include "ranks.h"

namespace talweg {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

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
  void start_aggregator(const char* name = "agg") {
    pid_ = fork();
    if (pid_ > 0) return;
    try {
      group::serve_group({.name = name,
                          .rendezvous = "file:" + store_.path(),
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
};
INSTANTIATE_TEST_SUITE_P(SharedMemory, Aggregated, ::testing::Values("on", "off"),
                         [](const auto& test) { return std::string(test.param); });

float sum_of_ranks(std::size_t i) {
  float sum = 0;
  for (int r = 0; r < kHelped; ++r) sum += static_cast<float>((i + 7 * static_cast<std::size_t>(r)) % 100);
  return sum;
}

void expect_all_reduce(Group& g, std::size_t count) {
  std::vector<float> data(count);
  for (std::size_t i = 0; i < count; ++i)
    data[i] = static_cast<float>((i + 7 * static_cast<std::size_t>(g.rank())) % 100);
  g.all_reduce(data.data(), data.data(), count, DataType::f32, ReduceOp::sum);
  for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(data[i], sum_of_ranks(i)) << i << " of " << count;
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

TEST_P(Aggregated, OneThatIsNotThereIsPlannedWithout) {
  ranks([](Group& g) {
    EXPECT_THAT(g.describe(), HasSubstr("aggregators: none\n"));
    expect_all_reduce(g, 100'000);
  });
}

TEST_P(Aggregated, GroupsThatAreSplitOffDoWithoutIt) {
  start_aggregator();
  ranks([](Group& g) {
    const std::vector<int> members{2, 0};
    const auto part = g.split(members);
    expect_all_reduce(g, 100'000);
    if (!part) return;
    float one = 1;
    part->all_reduce(&one, &one, 1, DataType::f32, ReduceOp::sum);
    EXPECT_EQ(one, 2.0F);
  });
}

// Whose connections stay, for a group that was split off: then nothing but its word says that it has left.
TEST_P(Aggregated, ARankThatLeavesFailsTheCallsThatWaitForItBehindTheAggregator) {
  start_aggregator();
  std::mutex mutex;
  std::vector<std::shared_ptr<Group>> parts;
  ranks([&](Group& g) {
    expect_all_reduce(g, 1000);
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

// Calls `calls` times; which of them failed, and with which words.
std::set<int> failures_of(Group& g, int calls, std::size_t count, const std::function<void(int)>& before) {
  std::set<int> failed;
  for (int i = 0; i < calls; ++i) {
    before(i);
    try {
      expect_all_reduce(g, count);
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
    std::mutex mutex;
    std::vector<std::set<int>> failed;
    std::latch at_work(kHelped);
    std::optional<std::thread> killer;
    ranks([&](Group& g) {
      const auto own = failures_of(g, 12, count, [&](int call) {
        if (call != 3) return;
        at_work.arrive_and_wait();
        if (g.rank() == 0)
          killer.emplace([&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(count > 1000 ? 5 : 0));
            stop();
          });
      });
      const std::lock_guard lock(mutex);
      failed.push_back(own);
    });
    killer->join();
    // Of what was in flight some ranks may have had all that they needed.
    std::set<int> any;
    for (const auto& own : failed) any.insert(own.begin(), own.end());
    EXPECT_LE(any.size(), 3U) << count;
    EXPECT_FALSE(any.contains(11)) << "the group goes on";
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
      expect_all_reduce(g, 100'000);
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
