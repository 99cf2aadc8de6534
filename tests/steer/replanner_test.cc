// The re-planner against fluid networks whose rates it is not told.
#include "steer/replanner.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iostream>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
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

// All are equally loaded then, and nobody has room to be a witness: only another trial shows it.
TEST(Replanner, WhatWasTriedInVainIsTriedAgainAndFoundToBeQuick) {
  ReplanOptions options;
  options.threshold = 0.05;
  Job job(
      star(4), [](double now, Cluster& c) { set_rate(c, 1, (now < 600 ? 0.65 : 1) * kGigabit); }, options);
  job.run_for(600);
  EXPECT_GT(job.changes, 2) << "it was tried in vain";
  job.run_for(3000);
  EXPECT_LT(job.seconds(), 1.02 * job.best_seconds());
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

// Two leaves of four hosts, and two spines over which all that leaves a leaf spreads.
TEST(Replanner, KnowsThatTrafficSpreadsOverEqualWays) {
  constexpr double kUplink = 0.6 * kGigabit;
  for (const bool uplink_falls : {false, true}) {
    Cluster network;
    for (int h = 0; h < 8; ++h) network.nodes.push_back({"h" + std::to_string(h)});
    for (const char* name : {"leaf0", "leaf1", "spine0", "spine1"})
      network.nodes.push_back({name, cluster::NodeKind::switch_});
    const auto join = [&](int a, int b, double rate) {
      network.links.push_back({a, b, {rate}, {20000}});
      network.links.push_back({b, a, {rate}, {20000}});
    };
    for (int h = 0; h < 8; ++h) join(h, 8 + h / 4, kGigabit);
    for (const int leaf : {8, 9})
      for (const int spine : {10, 11}) join(leaf, spine, kUplink);
    Job job(network, [&](double now, Cluster& c) {
      if (now < 10) return;
      if (!uplink_falls) set_rate(c, 3, kGigabit / 5);
      for (std::size_t i = c.links.size() - 2; uplink_falls && i < c.links.size(); ++i)
        c.links[i].capacity = {kUplink / 8};  // leaf 1 and spine 1
    });
    job.run_for(10);
    EXPECT_EQ(job.changes, 0) << uplink_falls;
    const auto& estimated = job.replanner.estimate().links;
    for (std::size_t l = 0; l < network.links.size(); ++l)
      EXPECT_NEAR(estimated[l].capacity.bits_per_second / network.links[l].capacity.bits_per_second, 1, 0.05)
          << uplink_falls << " " << l;
    job.run_for(90);
    EXPECT_LT(job.seconds(), 1.05 * job.best_seconds()) << uplink_falls;
    const double first_uplink = estimated[16].capacity.bits_per_second;  // it stands for all that are alike
    EXPECT_NEAR(first_uplink / (uplink_falls ? kUplink / 8 : kUplink), 1, 0.15) << uplink_falls;
    if (!uplink_falls) {
      EXPECT_NEAR(rate_up(job.replanner.estimate(), 3) / rate_up(job.truth, 3), 1, 0.15);
    }
  }
}

// Four leaves of two hosts each, from one to the other over two spines, which both carry half of it.
Cluster leaf_spine() {
  Cluster network;
  for (int h = 0; h < 8; ++h) network.nodes.push_back({"h" + std::to_string(h)});
  for (const char* name : {"leaf0", "leaf1", "leaf2", "leaf3", "spine0", "spine1"})
    network.nodes.push_back({name, cluster::NodeKind::switch_});
  const auto join = [&](int a, int b) {
    network.links.push_back({a, b, {kGigabit}, {20000}});
    network.links.push_back({b, a, {kGigabit}, {20000}});
  };
  for (int h = 0; h < 8; ++h) join(h, 8 + h / 2);
  for (int leaf = 8; leaf < 12; ++leaf)
    for (const int spine : {12, 13}) join(leaf, spine);
  return network;
}

// All bytes on one of the ways would be twice what it has carried, and nothing would be known of the other.
// Where just one of them is slow, both carry as little: nothing tells them apart.
TEST(Replanner, ChargesEachOfSeveralEquallyGoodWaysWithItsPart) {
  constexpr int kLeaf = 9;
  for (const int last_slow_spine : {12, 13}) {
    const auto leads = [&](const cluster::Link& link, int last_spine) {
      const auto [low, high] = std::minmax(link.from, link.to);
      return low == kLeaf && high >= 12 && high <= last_spine;
    };
    Job job(leaf_spine(), [&](double now, Cluster& c) {
      for (cluster::Link& link : c.links)
        link.capacity = {now >= 10 && leads(link, last_slow_spine) ? kGigabit / 4 : kGigabit};
    });
    job.run_for(9);
    EXPECT_EQ(job.changes, 0);
    job.run_for(81);
    EXPECT_GT(job.changes, 0);
    for (const cluster::Link& link : job.replanner.estimate().links)
      EXPECT_NEAR(link.capacity.bits_per_second / (leads(link, 13) ? kGigabit / 4 : kGigabit), 1, 0.15)
          << link.from << " to " << link.to << ", slow up to node " << last_slow_spine;
    EXPECT_LT(job.seconds(), 1.05 * job.best_seconds());
  }
}

// A port that becomes slow is not mistaken for a way that leads on from it.
TEST(Replanner, FindsTheSlowHostBehindSeveralEquallyGoodWays) {
  for (const int slow : {0, 5}) {
    Job job(leaf_spine(),
            [&](double now, Cluster& c) { set_rate(c, slow, now < 10 ? kGigabit : kGigabit / 5); });
    job.run_for(30);
    EXPECT_EQ(job.changes, 1) << slow;
    for (const cluster::Link& link : job.replanner.estimate().links)
      EXPECT_NEAR(
          link.capacity.bits_per_second / (link.from == slow || link.to == slow ? kGigabit / 5 : kGigabit), 1,
          0.15)
          << link.from << " to " << link.to << ", slow host " << slow;
    EXPECT_LT(job.seconds(), 1.05 * job.best_seconds()) << slow;
  }
}

// Who decides in the background may be told at any moment that nobody waits for it any more.
TEST(Replanner, LeavesADecisionWhereverItIs) {
  const Cluster said = star(8);
  Cluster truth = said;
  set_rate(truth, 2, kGigabit / 5);
  const forest::Request request = all_reduce(8);
  const Load load(forest::plan_best(request, said), truth);
  Random random{1};
  std::optional<Replanner> replanner(said);
  for (const int epoch : {0, 1}) {
    const TrafficEpoch seen{epoch * std::int64_t{1'000'000'000},
                            traffic(load, truth, seconds_of(load, truth), random)};
    std::int64_t last = std::numeric_limits<std::int64_t>::max(), asked = 0;
    const forest::WorkLimit limit(last, [&] { return ++asked >= last; });
    Replanner next = *replanner;
    EXPECT_FALSE(next.observe(seen, request, &limit)) << "nothing is saved yet";
    EXPECT_NE(next.estimate() == said, epoch > 0) << "the middle one of three values counts";
    const std::int64_t most = asked;
    EXPECT_GT(most, 0) << epoch;
    for (const std::int64_t n : {std::int64_t{1}, most / 2, most}) {
      last = n;
      asked = 0;
      Replanner given_up = *replanner;
      EXPECT_THROW(given_up.observe(seen, request, &limit), forest::WorkLimit::Reached) << epoch << " " << n;
      EXPECT_EQ(asked, n) << "it went on";
    }
    replanner.emplace(next);
  }
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

// The price of a change: not before, and soon after.
TEST(Replanner, ChangesPlansWhenOthersWouldHaveSavedThreeSeconds) {
  constexpr double kBegin = 10, kPriceSeconds = 3;
  for (const double part : {0.65, 0.5, 0.2}) {
    Job job(star(8), [&](double now, Cluster& c) { set_rate(c, 5, kGigabit * (now < kBegin ? 1 : part)); });
    job.run_for(kBegin);
    set_rate(job.truth, 5, part * kGigabit);
    const double call = job.seconds(), gain = 1 - job.best_seconds() / call;
    job.run_for(50);
    ASSERT_GT(job.changes, 0) << part;
    const double saved = gain * (job.changed_at[0] - kBegin);
    EXPECT_GT(saved, kPriceSeconds) << part;
    // Predictions count more than the fluid does; and what an epoch has seen is known an epoch later.
    EXPECT_LT(saved, 1.5 * kPriceSeconds + 4 * gain * std::max(call, kEpochSeconds)) << part;
  }
}

// That costs a fiftieth of the time among eight hosts, and more than a thirtieth among four.
TEST(Replanner, OneThatIsQuickHasALittleLessToCarryWhileAnotherIsSlow) {
  for (const int hosts : {8, 4}) {
    Job job(star(hosts), [](double, Cluster& c) { set_rate(c, 0, 0.7 * kGigabit); });
    job.run_for(40);
    EXPECT_GT(job.changes, 0) << hosts;
    int spared = 0;
    for (int host = 0; host < hosts; ++host) {
      const double part = rate_up(job.replanner.network(), host) / kGigabit;
      if (host == 0 || part == 1) continue;
      EXPECT_DOUBLE_EQ(part, 0.85) << hosts;
      ++spared;
    }
    EXPECT_EQ(spared, hosts == 8 ? 1 : 0) << hosts;
  }
}

// Too short, too few bytes, or no more than what acknowledges others: each as if links were slow.
TEST(Replanner, LearnsNothingFromWhatSaysNothing) {
  const Cluster network = star(4);
  Replanner replanner(network);
  std::int64_t now_ns = 0;
  const auto see = [&](const std::vector<EdgeTraffic>& edges, const char* what) {
    for (int epoch = 0; epoch < 10; ++epoch)
      EXPECT_FALSE(replanner.observe({now_ns += 1'000'000'000, edges}, all_reduce(4))) << what;
    for (int host = 0; host < 4; ++host)
      EXPECT_NEAR(rate_up(replanner.estimate(), host) / kGigabit, 1, 0.01) << what;
  };
  const ReplanOptions least;
  see({{0, 1, 1.1 * least.least_bytes, 0.9 * least.least_seconds}}, "short");
  see({{0, 1, 0.9 * least.least_bytes, 1}}, "few bytes");
  const double seconds = 1e8 * 8 / kPayload / kGigabit;
  see({{0, 1, 1e8, seconds}, {1, 0, 0.9e6, seconds}}, "acknowledgements");
}

TEST(Replanner, FollowsForCallsThatHaveBecomeLarger) {
  Job job(star(8), [](double now, Cluster& c) { set_rate(c, 2, now < 10 ? kGigabit : kGigabit / 5); });
  job.request.counts = {1 << 18};
  job.run_for(5);
  job.request.counts = {4 << 20};
  job.loaded.reset();
  job.run_for(40);
  EXPECT_EQ(job.changes, 1);
}

// Other calls take another time per byte: nobody can tell whether the change has helped.
TEST(Replanner, ATrialWithOtherCallsThanBeforeDoesNotFail) {
  Job job(star(8), [](double, Cluster& c) { set_rate(c, 2, kGigabit / 5); });
  while (job.changes == 0 && job.now < 60) job.run_for(0.01);
  ASSERT_EQ(job.changes, 1);
  job.request.op = Collective::broadcast;
  job.loaded.reset();
  job.run_for(20);
  EXPECT_EQ(job.changes, 1);
}

// The same drop, but now another plan helps, and stays.
TEST(Replanner, PlansStayWhereOthersHelp) {
  Job job(star(8), [](double, Cluster& c) { set_rate(c, 2, kGigabit / 5); });
  job.run_for(300);
  EXPECT_EQ(job.changes, 1);
}

// The buckets of a job's gradients differ, and over a slow network each of them is an epoch.
class Buckets {
 public:
  void next(Job& job) {
    job.request.counts = {kBuckets[at_++ % kBuckets.size()]};
    job.loaded.reset();
  }

 private:
  static constexpr std::array<std::int64_t, 5> kBuckets = {5'123'000, 6'555'904, 6'295'040, 7'344'128,
                                                           6'560'000};
  std::size_t at_ = 0;
};

TEST(Replanner, FollowsAJobWhoseCallsDifferFromEpochToEpoch) {
  Buckets buckets;
  Job job(star(8), [&](double now, Cluster& c) {
    set_rate(c, 2, now < 10 ? kGigabit : kGigabit / 5);
    buckets.next(job);
  });
  job.run_for(60);
  EXPECT_EQ(job.changes, 1);
  EXPECT_LT(job.seconds(), 1.05 * job.best_seconds());
}

TEST(Replanner, PlansGoBackWhereOthersDoNotHelpCallsThatDiffer) {
  Buckets buckets;
  Job job(star(8), [&](double, Cluster&) { buckets.next(job); });
  job.held_up_by = 2;
  job.held_up_seconds = 2;
  job.run_for(300);
  EXPECT_GE(job.changes, 2);
  EXPECT_EQ(job.replanner.network(), star(8));
}

// Counters that have run wild on some rank must not end calls: plans can be made for whatever is learned.
TEST(Replanner, WhateverIsReportedPlansAreMadeForANetworkThatThereCanBe) {
  Random random{5};
  for (const double wild : {1e-300, 1e-9, 1e9, 1e300, 1e308})
    for (const bool bytes : {false, true}) {
      Replanner replanner(star(4));
      for (int epoch = 0; epoch < 60; ++epoch) {
        TrafficEpoch traffic{(epoch + 1) * std::int64_t{60'000'000'000}, {}};
        for (int from = 0; from < 4; ++from)
          for (int to = 0; to < 4; ++to) {
            const double odd = random.uniform() < 0.2 ? wild : 1;
            if (from != to)
              traffic.edges.push_back({from, to, bytes ? 1e8 * odd : 1e8, bytes ? 1. : 1. * odd});
          }
        replanner.observe(traffic, all_reduce(4));
        EXPECT_FALSE(cluster::find_problem(replanner.network())) << wild << " " << bytes << " " << epoch;
        EXPECT_FALSE(cluster::find_problem(replanner.estimate())) << wild << " " << bytes << " " << epoch;
      }
    }
}

// A host's rate, over what it was given, `seconds` after it began to fall.
using Falling = std::function<double(double seconds)>;

// In sixteen steps.
Falling falls_to(double part, double duration) {
  return
      [=](double seconds) { return 1 - (1 - part) * std::min(1., std::floor(16 * seconds / duration) / 16); };
}
Falling falls_twice(double first, double part, double duration) {
  return [=](double seconds) { return seconds < duration ? first : part; };
}

// The time of calls since then, for 200 s, over what they would take with plans that are always the best.
// `known`: what a call takes with those, by the host's part.
double time_over_best(int host, const Falling& falling, std::map<double, double>& known) {
  constexpr double kBegin = 30;
  double best = 0;
  Job job(star(8), [&](double now, Cluster& c) {
    if (now < kBegin) return;
    const double part = falling(now - kBegin);
    set_rate(c, host, part * kGigabit);
    const auto [at, is_new] = known.try_emplace(part);
    if (is_new) at->second = job.best_seconds();
    best += at->second;
  });
  job.run_for(kBegin);
  EXPECT_EQ(job.changes, 0);
  const double begin = job.now;
  best = 0;
  job.run_for(200);
  EXPECT_LE(most_in_a_quarter_of_an_hour(job.changed_at), kReached);
  return (job.now - begin) / best;
}

// While a rate falls, a plan is soon no longer the best, and a change that helps may leave calls as long as
// they were.
TEST(Replanner, ARateThatKeepsFallingCostsLittle) {
  double worst = 0;
  std::map<double, double> known;
  for (const int host : {0, 2, 7})
    for (const double part : {0.5, 0.3, 0.15})
      for (const double duration : {1., 2., 3., 4., 6., 8., 12., 16., 20.}) {
        if (kSanitized && host + duration > 4) continue;
        const double over = time_over_best(host, falls_to(part, duration), known);
        EXPECT_LE(over, 1.1) << "host " << host << " to " << part << " in " << duration << " s";
        worst = std::max(worst, over);
      }
  std::cout << "time over that of the best plans: " << worst << "\n";
}

TEST(Replanner, ARateThatFallsTwiceCostsLittle) {
  double worst = 0;
  std::map<double, double> known;
  for (const auto& [first, part] :
       std::vector<std::pair<double, double>>{{0.7, 0.3}, {0.6, 0.35}, {0.5, 0.25}, {0.5, 0.1}, {0.3, 0.1}})
    for (int tenths = 6; tenths <= 120; tenths += kSanitized ? 24 : 6) {
      const double over = time_over_best(2, falls_twice(first, part, 0.1 * tenths), known);
      EXPECT_LE(over, 1.1) << "to " << first << " and " << 0.1 * tenths << " s later to " << part;
      worst = std::max(worst, over);
    }
  std::cout << "time over that of the best plans: " << worst << "\n";
}

// The rate falls again as plans change, so far that calls take as long as before.
TEST(Replanner, WhatHelpedWithoutMakingCallsQuickerIsDoneAgain) {
  Job job(star(8), [&](double now, Cluster& c) {
    set_rate(c, 2, kGigabit * (now < 10 ? 1 : job.changes == 0 ? 0.5 : 0.5 / 1.75));
  });
  job.run_for(45);
  EXPECT_EQ(job.changes, 3) << "there, back and there again";
  EXPECT_LT(job.seconds(), 1.05 * job.best_seconds());
}

// Hosts become slow together, and all are quick again at once. Nothing is tried: one that was quick all the
// time, and has room, shows it.
TEST(Replanner, SeesAtOnceWhatIsQuickAgainThoughAllWereFull) {
  Job job(star(8), [](double now, Cluster& c) {
    for (const int host : {1, 4, 6}) set_rate(c, host, kGigabit * (now > 10 && now < 300 ? 0.55 : 1));
  });
  job.run_for(299);
  EXPECT_EQ(job.changes, 1);
  job.run_for(40);
  EXPECT_EQ(job.changes, 2);
  EXPECT_LT(job.seconds(), 1.02 * job.best_seconds());
}

}  // namespace
}  // namespace talweg::steer
