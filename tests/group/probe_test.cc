#include <gmock/gmock.h>

#include <atomic>
#include <mutex>
#include <set>

#include "cluster/cluster.h"
#include "group/ranks.h"
#include "talweg/error.h"
#include "talweg/group.h"

namespace talweg {
namespace {

using testing::HasSubstr;

// Ranks that do not share memory are hosts of their own.
class Probe : public testing::Test {
 private:
  const Variable shm_{"TALWEG_SHM", "0"};
};

ProbeOptions quick() {
  ProbeOptions options;
  options.confidence = 0.5;
  options.budget = std::chrono::milliseconds(1);  // nothing is repeated for long
  return options;
}

void expect_sums(Group& group) {
  std::vector<float> data(10'000, static_cast<float>(group.rank() + 1));
  group.all_reduce(data.data(), data.data(), data.size(), DataType::f32, ReduceOp::sum);
  const auto n = static_cast<float>(group.size());
  EXPECT_EQ(std::set<float>(data.begin(), data.end()), std::set<float>{n * (n + 1) / 2});
}

TEST_F(Probe, GivesAllRanksTheSameClusterAndPlansByIt) {
  std::mutex mutex;
  std::set<std::string> files, plans;
  std::vector<std::string> lines;
  run_ranks(3, [&](Group& group) {
    ProbeOptions options = quick();
    options.progress = [&](const std::string& line) { lines.push_back(line); };
    const auto plan = [&] { return group.explain(Collective::all_reduce, 1 << 20, DataType::f32); };
    const std::string assumed = plan();
    const std::string file = group.probe(options);
    EXPECT_NE(plan(), assumed) << "of 10 Gbit/s to the bit";
    expect_sums(group);
    const int some[] = {2, 0};
    if (const auto part = group.split(some)) expect_sums(*part);
    const std::lock_guard guard(mutex);
    files.insert(file);
    plans.insert(plan());
  });
  ASSERT_EQ(files.size(), 1u);
  EXPECT_EQ(plans.size(), 1u);
  const cluster::Cluster network = cluster::parse_cluster(*files.begin(), "probe");
  EXPECT_EQ(network.workers(), 3);
  EXPECT_EQ(network.measured.size(), 20u);
  for (const cluster::Link& link : network.links) {
    EXPECT_GT(link.capacity.bits_per_second, 1e6);
    EXPECT_LT(link.latency.value, 1'000'000'000);
  }
  ASSERT_GE(lines.size(), 2u);
  EXPECT_THAT(lines[0], HasSubstr("3 ranks on 3 hosts"));
}

TEST_F(Probe, TwoHostsAreEnough) {
  run_ranks(2, [](Group& group) {
    const auto network = cluster::parse_cluster(group.probe(quick()), "probe");
    EXPECT_EQ(network.links.size(), 2u);
    expect_sums(group);
  });
}

TEST_F(Probe, AtTheStartTheSettingAsksForIt) {
  const Variable probe("TALWEG_PROBE", "1");
  run_ranks(2, [](Group& group) {
    EXPECT_THAT(group.describe(), HasSubstr("network: measured at the start (TALWEG_PROBE)"));
    expect_sums(group);
  });
}

TEST(ProbeOnOneHost, SaysThatThereIsNoNetwork) {
  run_ranks(2, [](Group& group) {
    try {
      group.probe();
      ADD_FAILURE() << "measured";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_THAT(error.what(), HasSubstr("all 2 ranks are on one host, "));
    }
    expect_sums(group);
  });
  const Variable probe("TALWEG_PROBE", "1");  // asks for what cannot be had, and does no harm
  run_ranks(2, [](Group& group) {
    EXPECT_THAT(group.describe(), HasSubstr("network: assumed"));
    expect_sums(group);
  });
}

TEST_F(Probe, ValuesOutOfRangeAreRefused) {
  run_ranks(2, [](Group& group) {
    for (const double wrong : {0.0, 1.0, -1.0}) {
      ProbeOptions options;
      options.confidence = wrong;
      EXPECT_THROW(group.probe(options), Error);
    }
    ProbeOptions options;
    options.budget = std::chrono::milliseconds(-1);
    EXPECT_THROW(group.probe(options), Error);
    expect_sums(group);
  });
}

TEST_F(Probe, ARankThatLeavesInTheMiddleEndsItWithItsName) {
  std::atomic<int> errors{0};
  run_ranks(3, [&](Group& group) {
    if (group.rank() == 2) return;  // leaves while the others wait for it
    try {
      group.probe(quick());
      ADD_FAILURE() << "measured without rank 2";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("rank 2"));
      ++errors;
    }
  });
  EXPECT_EQ(errors, 2);
}

TEST_F(Probe, AnAbortInTheMiddleLeavesNothingInFlight) {
  std::atomic<int> errors{0};
  run_ranks(3, [&](Group& group) {
    ProbeOptions options = quick();
    options.progress = [&](const std::string& line) {
      if (line.find("first look") != std::string::npos) group.abort("the test says so");
    };
    try {
      group.probe(options);
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("the test says so"));
      ++errors;
    }
  });
  EXPECT_EQ(errors, 3);
}

}  // namespace
}  // namespace talweg
