// A job whose calls a fluid network carries, at rates that change and that its re-planner is not told.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/at.h"
#include "base/random.h"
#include "forest/planner.h"
#include "forest/verify.h"
#include "steer/replanner.h"

namespace talweg::steer {

constexpr double kGigabit = 1e9;
constexpr double kEpochSeconds = 0.2;  // a group's are twice as short or one call
constexpr double kPayload = ReplanOptions{}.payload;

inline forest::Request all_reduce(int ranks) {
  return {.op = Collective::all_reduce, .ranks = ranks, .counts = {4 << 20}, .element_size = 4};
}

inline Cluster star(int hosts) {
  return cluster::uniform_star(hosts, {kGigabit}, {30000});
}

// Both directions of a host of a star.
inline void set_rate(Cluster& network, int host, double bits_per_second) {
  for (cluster::Link& link : network.links)
    if (link.from == host || link.to == host) link.capacity = {bits_per_second};
}

inline double rate_up(const Cluster& network, int host) {
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
inline double seconds_of(const Load& load, const Cluster& network) {
  double result = 0;
  for (std::size_t i = 0; i < network.links.size(); ++i)
    result = std::max(result, load.links[i] / network.links[i].capacity.bits_per_second);
  return result;
}
inline std::vector<EdgeTraffic> traffic(const Load& load, const Cluster& network, double seconds,
                                        Random& random) {
  std::vector<EdgeTraffic> result;
  for (const auto& [ends, amount] : load.edges) {
    double need = 0;
    load.routes.for_each_share(ends.first, ends.second, [&](int link, double) {
      for (int l = link, left = load.routes.followers(link); left > 0; ++l) {
        if (load.routes.leader(l) != link) continue;
        need = std::max(need, load.links[at(l)] / network.links[at(l)].capacity.bits_per_second);
        --left;
      }
    });
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
        const double took = std::max(seconds_of(load(), truth), held_up_seconds);
        for (const EdgeTraffic& edge : traffic(load(), truth, took, random)) {
          EdgeTraffic& all =
              sum.try_emplace({edge.from, edge.to}, EdgeTraffic{edge.from, edge.to}).first->second;
          all.bytes += edge.bytes;
          all.busy += edge.from == held_up_by || edge.to == held_up_by ? took : edge.busy;
        }
        now += took;
      }
      for (const auto& [ends, edge] : sum) epoch.edges.push_back(edge);
      epoch.time_ns = time_ns();
      const auto known = std::exchange(last_epoch, epoch);
      if (known && replanner.observe(*known, request)) {
        changed_at.push_back(now);
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
  double best_seconds() const { return seconds_of(Load(forest::plan_best(request, truth), truth), truth); }

  Random random{7};
  Cluster truth;
  std::function<void(double, Cluster&)> weather;
  Replanner replanner;
  forest::Request request = all_reduce(truth.workers());
  std::optional<Load> loaded;
  std::optional<TrafficEpoch> last_epoch;
  // A rank that takes so long for a call whatever its links carry, so that they are always on their way.
  int held_up_by = -1;
  double held_up_seconds = 0;
  double now = 0;
  int changes = 0;
  std::vector<double> changed_at;  // the same moments as in `now`
};

}  // namespace talweg::steer
