// The re-planner against fluid networks whose rates it is not told.
#include "steer/replanner.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "base/random.h"
#include "fluid_job.h"
#include "sanitized.h"

namespace talweg::steer {
namespace {

using cluster::Cluster;

// Changes in any quarter of an hour; those that go back count as well.
constexpr int kReached = 15;

int most_in_a_quarter_of_an_hour(const std::vector<double>& at) {
  std::ptrdiff_t most = 0;
  for (auto first = at.begin(); first != at.end(); ++first)
    most = std::max(most, std::upper_bound(first, at.end(), *first + 900) - first);
  return static_cast<int>(most);
}

TEST(Replanner, LeavesANetworkAloneThatIsAsItWasSaidToBe) {
  Job job(star(8), [](double, Cluster&) {});
  job.run_for(600);
  EXPECT_EQ(job.changes, 0);
}

TEST(Replanner, FindsTheHostThatHasBecomeSlow) {
  for (int slow = 0; slow < 8; ++slow) {
    Job job(star(8), [&](double now, Cluster& c) { set_rate(c, slow, now < 10 ? kGigabit : kGigabit / 5); });
    job.run_for(30);
    EXPECT_EQ(job.changes, 1) << slow;
    for (int host = 0; host < 8; ++host) {
      const double truth = rate_up(job.truth, host);
      EXPECT_NEAR(rate_up(job.replanner.estimate(), host) / truth, 1, 0.15) << slow << " " << host;
    }
    EXPECT_LT(job.seconds(), 1.05 * job.best_seconds()) << slow;
  }
}

TEST(Replanner, ComesBackWhenTheHostHasRecovered) {
  Job job(star(8),
          [](double now, Cluster& c) { set_rate(c, 3, now > 10 && now < 100 ? kGigabit / 5 : kGigabit); });
  job.run_for(99);
  ASSERT_EQ(job.changes, 1);
  job.run_for(120);
  EXPECT_LT(job.seconds(), 1.1 * job.best_seconds());
}

TEST(Replanner, HostsThatFallTogetherAreNotMistakenForOne) {
  struct Case {
    int hosts, falling;
    double to;
  };
  for (const Case& c :
       {Case{4, 4, 0.5}, Case{4, 3, 0.5}, Case{4, 2, 0.5}, Case{8, 8, 0.2}, Case{8, 7, 0.2}}) {
    Job job(star(c.hosts), [&](double now, Cluster& network) {
      for (int host = 0; host < c.falling; ++host)
        set_rate(network, host, now < 5 ? kGigabit : c.to * kGigabit);
    });
    job.run_for(1800);  // until it was tried who has not fallen: one after the other
    EXPECT_LT(job.seconds(), 1.05 * job.best_seconds()) << c.falling << " of " << c.hosts;
    EXPECT_LE(most_in_a_quarter_of_an_hour(job.changed_at), kReached) << c.falling << " of " << c.hosts;
  }
}

TEST(Replanner, WhatStaysSlowIsTriedEverMoreRarely) {
  ReplanOptions options;
  options.threshold = 0.05;
  Job job(
      star(4), [](double, Cluster& c) { set_rate(c, 1, 0.65 * kGigabit); }, options);
  job.run_for(30);
  const int found = job.changes;
  job.run_for(1200);
  EXPECT_GT(job.changes, found);  // tried, and back
  EXPECT_LE(job.changes, found + 2 * 5);
  EXPECT_LT(job.seconds(), 1.05 * job.best_seconds());
}

TEST(Replanner, NoiseDoesNotMakeItFlap) {
  Random noise{3};
  Job job(star(8), [&](double, Cluster& c) {
    for (int host = 0; host < 8; ++host) set_rate(c, host, kGigabit * (0.9 + 0.2 * noise.uniform()));
  });
  job.run_for(900);
  EXPECT_EQ(job.changes, 0);
}

TEST(Replanner, HeavyNoiseCostsAtMostOneChangeAMinute) {
  Random noise{3};
  double until = 0;
  Job job(star(8), [&](double now, Cluster& c) {
    if (now < until) return;
    until = now + 10;
    for (int host = 0; host < 8; ++host) set_rate(c, host, kGigabit * (0.6 + 0.6 * noise.uniform()));
  });
  job.run_for(fewer(2700));
  EXPECT_GT(job.changes, 0);
  EXPECT_LE(most_in_a_quarter_of_an_hour(job.changed_at), kReached);
}

TEST(Replanner, KnowsThatWhatIsSharedIsFullAndNotTheHosts) {
  // Two racks of four, whose uplinks lose most of their rate.
  Cluster network;
  for (int h = 0; h < 8; ++h) network.nodes.push_back({"h" + std::to_string(h)});
  for (const char* name : {"leaf0", "leaf1"}) network.nodes.push_back({name, cluster::NodeKind::switch_});
  const auto join = [&](int a, int b, double rate) {
    network.links.push_back({a, b, {rate}, {20000}});
    network.links.push_back({b, a, {rate}, {20000}});
  };
  for (int h = 0; h < 8; ++h) join(h, 8 + h / 4, kGigabit);
  join(8, 9, 2 * kGigabit);
  Job job(network, [](double now, Cluster& c) {
    for (std::size_t i = c.links.size() - 2; i < c.links.size(); ++i)
      c.links[i].capacity = {now < 10 ? 2 * kGigabit : kGigabit / 4};
  });
  job.run_for(90);
  EXPECT_NEAR(job.replanner.estimate().links.back().capacity.bits_per_second / (kGigabit / 4), 1, 0.15);
  EXPECT_LT(job.seconds(), 1.05 * job.best_seconds());
}

TEST(Replanner, DecidesTheSameAgainFromTheSameTraffic) {
  const auto weather = [](double now, Cluster& c) { set_rate(c, 2, now < 5 ? kGigabit : kGigabit / 3); };
  Job one(star(4), weather), other(star(4), weather);
  one.run_for(20);
  other.run_for(20);
  EXPECT_EQ(one.replanner.network(), other.replanner.network());
  EXPECT_EQ(one.changes, other.changes);
  EXPECT_GT(one.changes, 0);
}

// Every change is on trial: what slows a job may be something else than its network. A rank that takes its
// time keeps the connections to it busy, as a slow link would; and no plan makes it quicker.
TEST(Replanner, PlansGoBackWhereOthersDoNotHelpAndTheNextTrialIsLater) {
  Job job(star(8), [](double, Cluster&) {});
  job.held_up_by = 2;
  job.held_up_seconds = 5 * job.seconds();
  job.run_for(300);
  EXPECT_EQ(job.replanner.network(), star(8));
  const std::size_t soon = job.changed_at.size();
  EXPECT_GE(soon, 2U);
  job.run_for(3300);
  EXPECT_EQ(job.replanner.network(), star(8));
  const auto& at = job.changed_at;
  ASSERT_EQ(at.size() % 2, 0U) << "each change went back";
  EXPECT_GT(at.size(), soon);
  EXPECT_LE(at.size(), 14U);
  for (std::size_t i = 4; i + 2 <= at.size(); i += 2)
    EXPECT_GT(at[i] - at[i - 1], 1.5 * (at[i - 2] - at[i - 3])) << "change " << i;
  for (std::size_t i = 0; i + 2 <= at.size(); i += 2)
    EXPECT_LT(at[i + 1] - at[i], 10) << "a trial that fails is soon over";
}

// The same drop, but now another plan helps, and stays.
TEST(Replanner, PlansStayWhereOthersHelp) {
  Job job(star(8), [](double, Cluster& c) { set_rate(c, 2, kGigabit / 5); });
  job.run_for(300);
  EXPECT_EQ(job.changes, 1);
}

}  // namespace
}  // namespace talweg::steer
