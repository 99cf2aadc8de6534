// Groups whose plans follow the network, over TCP on loopback. What the cluster file says of it is far from
// what it is, so that plans may change; that they do is tested where rates are known (tests/faults).
#include <gmock/gmock.h>

#include <array>
#include <fstream>
#include <future>
#include <mutex>

#include "ranks.h"

namespace talweg {
namespace {

using ::testing::HasSubstr;

constexpr int kReplanRanks = 4;
constexpr std::size_t kReplanCount = 1 << 20;  // floats: a call or a few are an epoch

// Host 1 is said to be ten times slower than the others.
std::string wrong_network(int hosts) {
  std::string text = "nodes:\n";
  for (int h = 0; h < hosts; ++h) text += "  - {name: h" + std::to_string(h) + ", kind: worker}\n";
  text += "  - {name: sw, kind: switch}\nlinks:\n";
  for (int h = 0; h < hosts; ++h)
    text += "  - {between: [h" + std::to_string(h) +
            ", sw], capacity: " + (h == 1 ? "100Mbit/s" : "1Gbit/s") + ", latency: 30us}\n";
  return text;
}

class Replanning : public ::testing::Test {
 protected:
  Replanning() {
    std::ofstream(network_.path()) << wrong_network(kReplanRanks);
    std::ofstream(two_.path()) << wrong_network(2);
  }
  TemporaryFile network_, two_;
  Variable cluster_{"TALWEG_CLUSTER", network_.path()};
  Variable shm_{"TALWEG_SHM", "0"};
  Variable replan_{"TALWEG_REPLAN", "1"};
};

// Whether they change depends on how fast this machine is; faults/test_links.py has a network where they
// must.
TEST_F(Replanning, ChangesOnAllRanksAtTheSameCallAndSumsStayRight) {
  std::mutex mutex;
  std::vector<std::vector<std::string>> plans(kReplanRanks);
  run_ranks(kReplanRanks, [&](Group& g) {
    EXPECT_THAT(g.describe(), HasSubstr("plans: follow the network"));
    std::vector<float> x(kReplanCount);
    std::vector<std::string> seen;
    for (int call = 0; call < 64; ++call) {
      for (std::size_t i = 0; i < kReplanCount; i += 4097) x[i] = static_cast<float>(g.rank() + call);
      g.all_reduce(x.data(), x.data(), kReplanCount, DataType::f32, ReduceOp::sum);
      for (std::size_t i = 0; i < kReplanCount; i += 4097) ASSERT_EQ(x[i], static_cast<float>(6 + 4 * call));
      seen.push_back(g.explain(Collective::all_reduce, kReplanCount, DataType::f32));
    }
    const std::lock_guard guard(mutex);
    plans[static_cast<std::size_t>(g.rank())] = seen;
  });
  for (int r = 1; r < kReplanRanks; ++r) EXPECT_EQ(plans[static_cast<std::size_t>(r)], plans[0]);
}

TEST_F(Replanning, BetweenRanksOfOneHostPlansStayAndThatIsSaid) {
  const Variable shared("TALWEG_SHM", "1");
  run_ranks(
      2, [](Group& g) { EXPECT_THAT(g.describe(), HasSubstr("plans: stay: all ranks are on this host")); },
      [&](GroupOptions& o) { o.cluster_file = two_.path(); });
}

// One rank runs far ahead of another that waits for its message first: nobody may wait for a decision inside
// a call.
TEST_F(Replanning, CallsNeverBlockOnADecision) {
  constexpr int kCalls = 40;
  run_ranks(
      2,
      [&](Group& g) {
        std::vector<std::vector<float>> x(kCalls, std::vector<float>(kReplanCount, 1.0F));
        std::vector<WorkPtr> works;
        float token = 7;
        if (g.rank() == 1) g.recv(&token, 1, DataType::f32, 0);
        for (auto& v : x)
          works.push_back(g.start_all_reduce(v.data(), v.data(), kReplanCount, DataType::f32, ReduceOp::sum));
        for (std::size_t i = 0; i < works.size(); ++i) EXPECT_EQ(works[i]->sequence(), i);
        if (g.rank() == 0) g.send(&token, 1, DataType::f32, 1);
        for (const WorkPtr& work : works) work->wait();
        for (const auto& v : x) ASSERT_EQ(v[kReplanCount / 2], 2.0F);
      },
      [&](GroupOptions& o) { o.cluster_file = two_.path(); });
}

TEST_F(Replanning, AHeldCallKeepsItsDeadline) {
  std::promise<void> given_up;
  run_ranks(
      2,
      [&](Group& g) {
        std::vector<std::vector<float>> x(40, std::vector<float>(kReplanCount, 1.0F));
        if (g.rank() == 1) {
          given_up.get_future().wait();  // calls nothing
          return;
        }
        std::vector<WorkPtr> works;
        CallOptions options;
        options.timeout = std::chrono::milliseconds(300);
        for (auto& v : x)
          works.push_back(
              g.start_all_reduce(v.data(), v.data(), kReplanCount, DataType::f32, ReduceOp::sum, options));
        for (const WorkPtr& work : works) try {
            work->wait();
            ADD_FAILURE() << "rank 1 calls nothing";
          } catch (const Error& e) {
            EXPECT_EQ(e.code(), ErrorCode::timeout) << e.what();
          }
        given_up.set_value();
      },
      [&](GroupOptions& o) { o.cluster_file = two_.path(); });
}

// Rank 0 decides for all, so that nobody can be left behind.
TEST_F(Replanning, AfterCallsThatFailedAllRanksGoOnWithTheSamePlans) {
  constexpr int kCalls = 12;
  std::promise<void> failed;
  std::array<std::vector<std::string>, 2> plans;  // by rank, then call
  run_ranks(
      2,
      [&](Group& g) {
        std::vector<std::vector<float>> x(kCalls, std::vector<float>(kReplanCount, 1.0F));
        std::vector<WorkPtr> works;
        CallOptions options;
        if (g.rank() == 0) options.timeout = std::chrono::milliseconds(300);
        if (g.rank() == 1) failed.get_future().wait();
        for (auto& v : x)
          works.push_back(
              g.start_all_reduce(v.data(), v.data(), kReplanCount, DataType::f32, ReduceOp::sum, options));
        for (const WorkPtr& work : works) EXPECT_THROW(work->wait(), Error);
        if (g.rank() == 0) failed.set_value();
        for (int call = 0; call < 3 * kCalls; ++call) {
          x[0][kReplanCount / 2] = static_cast<float>(g.rank() + call);
          g.all_reduce(x[0].data(), x[0].data(), kReplanCount, DataType::f32, ReduceOp::sum);
          ASSERT_EQ(x[0][kReplanCount / 2], static_cast<float>(1 + 2 * call));
          plans.at(static_cast<std::size_t>(g.rank()))
              .push_back(g.explain(Collective::all_reduce, kReplanCount, DataType::f32));
        }
      },
      [&](GroupOptions& o) { o.cluster_file = two_.path(); });
  EXPECT_EQ(plans[0].size(), static_cast<std::size_t>(3 * kCalls));
  EXPECT_EQ(plans[0], plans[1]);
}

// After any call, what rank 0 has just begun to decide included; the others learn of it in their next call.
TEST_F(Replanning, ARankMayLeaveWhateverIsBeingDecided) {
  for (int calls = 1; calls <= 6; ++calls)
    run_ranks(kReplanRanks, [&](Group& g) {
      std::vector<float> x(kReplanCount, 1.0F);
      const auto call = [&] {
        g.all_reduce(x.data(), x.data(), kReplanCount, DataType::f32, ReduceOp::max);
        ASSERT_EQ(x[kReplanCount / 2], 1.0F);
      };
      for (int i = 0; i < calls; ++i) call();
      if (g.rank() == calls % kReplanRanks) return;
      EXPECT_THROW(call(), Error) << "one rank has left";
    });
}

TEST_F(Replanning, AGroupMayBeLeftWithHeldCalls) {
  std::vector<std::vector<float>> x(12, std::vector<float>(kReplanCount, 1.0F));
  std::vector<WorkPtr> works;
  run_ranks(
      2,
      [&](Group& g) {
        if (g.rank() == 1) return;
        for (auto& v : x)
          works.push_back(g.start_all_reduce(v.data(), v.data(), kReplanCount, DataType::f32, ReduceOp::sum));
      },
      [&](GroupOptions& o) { o.cluster_file = two_.path(); });
  ASSERT_EQ(works.size(), x.size());
  for (const WorkPtr& work : works) EXPECT_THROW(work->wait(), Error) << "nobody else has called it";
}

}  // namespace
}  // namespace talweg
