// The re-planner against fluid networks whose rates it is not told.
#include "steer/replanner.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <iostream>
#include <map>
#include <optional>
#include <utility>

#include "base/random.h"
#include "cloud_rates.h"
#include "forest/planner.h"
#include "forest/verify.h"
#include "sanitized.h"

namespace talweg::steer {
namespace {

using cluster::Cluster;

constexpr double kGigabit = 1e9;
constexpr double kEpochSeconds = 0.2;  // a group's are twice as short or one call
// Changes in a quarter of an hour, at most: one a minute, the few that may come in a row, and one that went
// back on credit.
constexpr int kAMinute = 15 + 3 + 1;
constexpr double kPayload = ReplanOptions{}.payload;

forest::Request all_reduce(int ranks) {
  return {.op = Collective::all_reduce, .ranks = ranks, .counts = {4 << 20}, .element_size = 4};
}

Cluster star(int hosts) {
  return cluster::uniform_star(hosts, {kGigabit}, {30000});
}

// Both directions of a host of a star.
void set_rate(Cluster& network, int host, double bits_per_second) {
  for (cluster::Link& link : network.links)
    if (link.from == host || link.to == host) link.capacity = {bits_per_second};
}

double rate_up(const Cluster& network, int host) {
  for (const cluster::Link& link : network.links)
    if (link.from == host) return link.capacity.bits_per_second;
  return 0;
}

// What a plan puts on each link, and sends from worker to worker.
struct Load {
  Load(const forest::Forest& forest, const Cluster& network) : routes(network) {
    for (const Bytes bytes : forest::verify(forest, &network).link_bytes)
      links.push_back(static_cast<double>(bytes.value) * 8 / kPayload);
    for (const forest::Tree& tree : forest.trees) {
      const double slice = static_cast<double>(tree.slice.count * forest.request.element_size);
      for (const forest::Edge& edge : tree.up) edges[{edge.child, edge.parent}] += slice;
      for (const forest::Edge& edge : tree.down) edges[{edge.parent, edge.child}] += slice;
    }
  }
  cluster::Routes routes;
  std::vector<double> links;                    // bits on the wire
  std::map<std::pair<int, int>, double> edges;  // bytes
};

// A fluid: every link carries its load at an even rate, the fullest one all the time.
double seconds_of(const Load& load, const Cluster& network) {
  double result = 0;
  for (std::size_t i = 0; i < network.links.size(); ++i)
    result = std::max(result, load.links[i] / network.links[i].capacity.bits_per_second);
  return result;
}
std::vector<EdgeTraffic> traffic(const Load& load, const Cluster& network, Random& random) {
  const double seconds = seconds_of(load, network);
  std::vector<EdgeTraffic> result;
  for (const auto& [ends, amount] : load.edges) {
    double need = 0;
    for (const int link : load.routes.path(ends.first, ends.second)) {
      const auto l = static_cast<std::size_t>(link);
      need = std::max(need, load.links[l] / network.links[l].capacity.bits_per_second);
    }
    // Those that share what is full are on their way all the time; others now and then.
    const double busy = need > 0.98 * seconds ? seconds : need * (0.6 + 0.4 * random.uniform());
    const double counted = amount * (0.99 + 0.02 * random.uniform());
    result.push_back({ends.first, ends.second, counted, busy});
  }
  return result;
}

// Calls after calls, at rates that change with time. As in a group, what an epoch has seen is known to all at
// the end of the next one.
struct Job {
  Job(Cluster network, std::function<void(double seconds, Cluster&)> change, ReplanOptions options = {})
      : truth(network), weather(std::move(change)), replanner(std::move(network), options) {}

  // Since the machine was started, which is long ago.
  std::int64_t time_ns() const { return static_cast<std::int64_t>((now + 1e6) * 1e9); }

  void run_for(double seconds) {
    // Connections have said hello, and waited for acknowledgements that were in no hurry.
    TrafficEpoch hello{time_ns(), {}};
    for (const auto& [ends, amount] : load().edges)
      hello.edges.push_back({ends.first, ends.second, 300, 0.04});
    EXPECT_FALSE(replanner.observe(hello, request));
    const double end = now + seconds;
    while (now < end) {
      TrafficEpoch epoch;
      std::map<std::pair<int, int>, EdgeTraffic> sum;
      const double begin = now;
      while (now < begin + kEpochSeconds) {
        weather(now, truth);
        for (const EdgeTraffic& edge : traffic(load(), truth, random)) {
          EdgeTraffic& all =
              sum.try_emplace({edge.from, edge.to}, EdgeTraffic{edge.from, edge.to}).first->second;
          all.bytes += edge.bytes;
          all.busy += edge.busy;
        }
        now += seconds_of(load(), truth);
      }
      for (const auto& [ends, edge] : sum) epoch.edges.push_back(edge);
      epoch.time_ns = time_ns();
      const auto known = std::exchange(last_epoch, epoch);
      if (known && replanner.observe(*known, request)) {
        ++changes;
        loaded.reset();
      }
    }
  }
  const Load& load() {
    if (!loaded) loaded.emplace(forest::plan_best(request, replanner.network()), truth);
    return *loaded;
  }
  // What a call takes now, and what it would take with the plan that is best.
  double seconds() { return seconds_of(load(), truth); }
  double best_seconds() const { return best_seconds(truth); }
  double best_seconds(const Cluster& network) const {
    return seconds_of(Load(forest::plan_best(request, network), network), network);
  }

  Random random{7};
  Cluster truth;
  std::function<void(double, Cluster&)> weather;
  Replanner replanner;
  forest::Request request = all_reduce(truth.workers());
  std::optional<Load> loaded;
  std::optional<TrafficEpoch> last_epoch;
  double now = 0;
  int changes = 0;
};

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
    EXPECT_LE(job.changes, 2 * kAMinute) << c.falling << " of " << c.hosts;
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
    until = now + 1;
    for (int host = 0; host < 8; ++host) set_rate(c, host, kGigabit * (0.6 + 0.6 * noise.uniform()));
  });
  job.run_for(fewer(900));
  EXPECT_LE(job.changes, kAMinute);
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

// What calls take while each host has the rate of its sample: with the plan that follows, with the first one,
// and with the one that is best for the rates of the moment, which only somebody clairvoyant would have.
struct Replay {
  double followed = 0;
  double kept = 0;
  double best = 0;
  int changes = 0;
};
std::ostream& operator<<(std::ostream& out, const Replay& r) {
  return out << "following takes " << r.followed / r.best << " of the least time, staying " << r.kept / r.best
             << "; " << r.changes << " changes";
}
Replay replay(double nominal, const std::function<double(std::size_t host, std::size_t sample)>& rate) {
  Replay result;
  std::optional<Load> first;
  Cluster known;
  double known_best = 0;
  Job job(cluster::uniform_star(8, {nominal}, {30000}), [&](double now, Cluster& c) {
    const auto sample = static_cast<std::size_t>(now / kCloudSampleSeconds);
    for (int h = 0; h < 8; ++h) set_rate(c, h, rate(static_cast<std::size_t>(h), sample));
    if (!first) first = job.load();
    if (c != known) {
      known = c;
      known_best = job.best_seconds(c);
    }
    result.followed += seconds_of(job.load(), c);
    result.kept += seconds_of(*first, c);
    result.best += known_best;
  });
  job.request.counts = {16 << 20};
  job.run_for(fewer(900));
  result.changes = job.changes;
  std::cout << result << "\n";
  return result;
}

constexpr std::size_t kReplaySamples = 180;  // a quarter of an hour

// When each host loses its burst.
std::array<std::size_t, 8> cliffs(Random& luck) {
  std::array<std::size_t, 8> result{};
  for (std::size_t& sample : result) sample = static_cast<std::size_t>(kReplaySamples * luck.uniform());
  return result;
}

TEST(Replanner, LosesLittleWhereEc2TakesItsBurstsBack) {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    Random luck{seed};
    const auto cliff = cliffs(luck);
    std::array<std::array<bool, 2 * kReplaySamples>, 8> blips{};
    for (auto& host : blips)
      for (bool& blip : host) blip = luck.uniform() < 1 / kEc2BlipEvery;
    const Replay r = replay(kEc2Burst, [&](std::size_t host, std::size_t sample) {
      return sample < cliff[host] ? kEc2Burst : blips[host][sample] ? kEc2Blip : kEc2Base;
    });
    EXPECT_LE(r.followed, 1.1 * r.best) << r << ", seed " << seed;
    EXPECT_LE(r.changes, kAMinute) << r << ", seed " << seed;
  }
}

TEST(Replanner, LosesLittleWhereEc2ThrottlesToASeventh) {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    Random luck{seed};
    const auto cliff = cliffs(luck);
    const Replay r = replay(kEc2SpreadBurst, [&](std::size_t host, std::size_t sample) {
      return sample < cliff[host] ? kEc2SpreadBurst : sample == cliff[host] ? kEc2SpreadEdge : kEc2SpreadBase;
    });
    EXPECT_LE(r.followed, 1.1 * r.best) << r << ", seed " << seed;
    EXPECT_LE(r.changes, kAMinute) << r << ", seed " << seed;
  }
}

// Nobody can follow dips that are over before they are known; but trying must not make it worse.
TEST(Replanner, NoiseAsOfHuaweiCostsLittleMoreThanStaying) {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    Random luck{seed};
    std::array<std::size_t, 8> begin{};
    for (std::size_t& b : begin) b = static_cast<std::size_t>(kHuawei.size() * luck.uniform());
    const Replay r = replay(14.6e9, [&](std::size_t host, std::size_t sample) {
      return 1e9 * kHuawei[(begin[host] + sample) % kHuawei.size()];
    });
    EXPECT_LE(r.followed, 1.1 * r.kept) << r << ", seed " << seed;
    EXPECT_LE(r.changes, kAMinute) << r << ", seed " << seed;
  }
}

// Harsher than any of these traces: rates that fall and rise by half within minutes, each host by its own
// luck.
TEST(Replanner, LosesMuchLessThanAPlanThatStaysWhereRatesComeAndGo) {
  Replay sum;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    Random luck{seed};
    std::array<std::size_t, 8> next{};
    std::array<double, 8> rate{}, now{};
    rate.fill(kEc2Burst);
    const Replay r = replay(kEc2Burst, [&](std::size_t host, std::size_t sample) {
      for (; next[host] <= sample; ++next[host]) {
        const double draw = luck.uniform();
        if (draw < 0.008) rate[host] = kEc2Burst;
        if (draw > 0.992) rate[host] = kEc2Base;
        now[host] = draw > 0.5 && draw < 0.51 ? 3.77e9 : rate[host];
      }
      return now[host];
    });
    sum.followed += r.followed;
    sum.kept += r.kept;
    sum.best += r.best;
    sum.changes += r.changes;
  }
  EXPECT_LT(sum.followed - sum.best, 0.7 * (sum.kept - sum.best)) << sum;
}

}  // namespace
}  // namespace talweg::steer
