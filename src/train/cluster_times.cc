#include "train/cluster_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "base/fail.h"
#include "cluster/capacity.h"
#include "forest/packed.h"
#include "forest/planner.h"
#include "sim/collectives.h"

namespace talweg::train {
namespace {

constexpr std::int64_t kElement = 4;
constexpr int kManyRanks = 64;  // from here on planning takes long enough to plan for fewer sizes
constexpr Bytes kLarge{1 << 20};
constexpr double kStraight = 0.02;  // of a time: what lies so near a line is on it
constexpr double kNear = 1.1;       // times a size: between sizes nearer than that nothing is looked for
constexpr std::int64_t kMarkedBytes = 100 << 10;
constexpr double kEndless = 1e3;  // times a link's rate: what is left is not the links'
constexpr std::int64_t kMostSimulated = 16 << 20;
constexpr std::array<Bytes, 10> kSizes{{{4 << 10},
                                        {16 << 10},
                                        {64 << 10},
                                        {256 << 10},
                                        {1 << 20},
                                        {4 << 20},
                                        {16 << 20},
                                        {64 << 20},
                                        {256 << 20},
                                        {1 << 30}}};

forest::Request request_for(Collective op, int ranks, Bytes bytes) {
  return forest::even_request(op, ranks, 0, std::max<std::int64_t>(1, bytes.value / kElement), kElement);
}

// Calls of a step follow each other, and find a token bucket as full as the time since the one before lets it
// be: plans are those that groups make for the cluster as it is, but what they take is without bursts, which
// NetworkTimes::burst has.
cluster::Cluster without_bursts(cluster::Cluster cluster) {
  for (cluster::Link& link : cluster.links) link.burst = {};
  return cluster;
}

Bandwidth endless_of(Bandwidth capacity) {
  return {std::min(capacity.bits_per_second * kEndless, cluster::kMostCapacity.bits_per_second)};
}

// As if processors took no time, and calls found token buckets full.
forest::CostModel of_links_alone(cluster::Cluster cluster) {
  cluster.processor = {};
  forest::CostParameters parameters;
  parameters.burst_share = 1;
  for (forest::CostParameters::Transport* transport : {&parameters.tcp, &parameters.memory})
    transport->per_batch = transport->per_byte = 0;
  parameters.reduce_per_byte = 0;
  return forest::CostModel(cluster, parameters);
}

// What the same plans take, and what of it links would take alone.
struct Priced {
  TransferTimes all{}, links{};
};

void add_missing(const forest::Choice& choice, NetworkTimes::Interim& interim) {
  if (choice.missing.empty()) return;
  interim.taken.insert(choice.taken);
  interim.missing.insert(choice.missing.begin(), choice.missing.end());
}

class Pricer {
 public:
  Pricer(const cluster::Cluster& cluster, std::int64_t most_steps)
      : most_steps_(most_steps),
        planned_for_(cluster),
        priced_by_(without_bursts(cluster)),
        links_alone_(of_links_alone(without_bursts(cluster))) {
    if (std::ranges::any_of(cluster.links, [](const cluster::Link& link) { return link.burst.value > 0; }))
      links_with_bursts_ = of_links_alone(cluster);
  }

  Priced times(Collective op, std::span<const Bytes> sizes) {
    std::vector<Point> points;
    for (const Bytes bytes : sizes) points.push_back(priced(op, bytes));
    return tables(points);
  }

  // All sizes, and between two of them those where another plan takes over.
  Priced times_and_bends(Collective op, std::span<const Bytes> sizes) {
    std::vector<Point> points{priced(op, sizes.front())};
    for (const Bytes bytes : sizes.subspan(1)) {
      const Point last = points.back(), next = priced(op, bytes);
      points.push_back(next);
      bend_between(op, last, next, points);
      std::ranges::sort(points, {}, &Point::bytes);
    }
    return tables(points);
  }

  // All small sizes, between which plans change; of large ones, where rates alone count, only as many as
  // differ from the line between those around them.
  Priced times_where_they_bend(Collective op, std::span<const Bytes> sizes) {
    std::vector<Point> points;
    while (sizes.front() < kLarge) {
      points.push_back(priced(op, sizes.front()));
      sizes = sizes.subspan(1);
    }
    const Point first = priced(op, sizes.front()), last = priced(op, sizes.back());
    points.insert(points.end(), {first, last});
    bend(op, sizes, first, last, points);
    return tables(points);
  }

  const NetworkTimes::Interim& interim() const { return interim_; }
  // Seconds that full token buckets save the largest call that was priced, whatever it is that limits: the
  // busiest link, or another whose bucket is smaller, or a group, which has none.
  double saved_by_bursts() const { return saved_; }

 private:
  // What a call takes, and of that its work on the busiest resource.
  struct Time {
    double all = 0, in_turn = 0;
  };
  struct Point {
    double bytes = 0;
    Time time, of_links;
  };

  static Time time_of(const forest::CostModel& model, const forest::Forest& forest) {
    return {model.seconds(forest), model.busiest(forest)};
  }

  Point priced(Collective op, Bytes bytes) {
    const auto planned = plan(request_for(op, planned_for_.network().workers(), bytes));
    if (links_with_bursts_ && bytes > largest_) {
      largest_ = bytes;
      saved_ = links_alone_.busiest(planned.forest) - links_with_bursts_->busiest(planned.forest);
    }
    return {static_cast<double>(bytes.value), time_of(priced_by_, planned.forest),
            time_of(links_alone_, planned.forest)};
  }

  // What is too much for one collective is for the others, too.
  forest::Planned plan(const forest::Request& request) {
    forest::Planned planned = forest::plan_within(most_steps_, request, planned_for_, memo_);
    if (planned.complete()) return planned;
    add_missing(planned.choice, interim_);
    most_steps_ = std::min(most_steps_, forest::kMostStepsAtOnce);
    return planned;
  }

  static TransferTimes table(std::span<const Point> points, Time Point::*which) {
    std::vector<Sample> all, in_turn;
    for (const Point& point : points) {
      all.push_back({point.bytes, (point.*which).all});
      in_turn.push_back({point.bytes, (point.*which).in_turn});
    }
    return table_times(all).in_turn(table_times(in_turn));
  }
  static Priced tables(std::span<const Point> points) {
    return {table(points, &Point::time), table(points, &Point::of_links)};
  }

  static bool is_straight(const Point& first, const Point& seen, const Point& last) {
    const double part = (seen.bytes - first.bytes) / (last.bytes - first.bytes);
    const auto on_line = [&](double Time::*what) {
      const double between = first.time.*what + part * (last.time.*what - first.time.*what);
      return std::abs(between - seen.time.*what) <= kStraight * seen.time.all;
    };
    return on_line(&Time::all) && on_line(&Time::in_turn);
  }

  // Of the sizes between the first of `sizes` and the last, which took that.
  void bend(Collective op, std::span<const Bytes> sizes, const Point& first, const Point& last,
            std::vector<Point>& points) {
    if (sizes.size() < 3) return;
    const std::size_t middle = sizes.size() / 2;
    const Point seen = priced(op, sizes[middle]);
    points.push_back(seen);
    if (is_straight(first, seen, last)) return;
    bend(op, sizes.first(middle + 1), first, seen, points);
    bend(op, sizes.subspan(middle), seen, last, points);
  }

  // Of all sizes between two.
  void bend_between(Collective op, const Point& first, const Point& last, std::vector<Point>& points) {
    if (last.bytes < kNear * kNear * first.bytes) return;
    const auto elements = static_cast<std::int64_t>(std::sqrt(first.bytes * last.bytes)) / kElement;
    const Point seen = priced(op, Bytes{elements * kElement});
    points.push_back(seen);
    if (is_straight(first, seen, last)) return;
    bend_between(op, first, seen, points);
    bend_between(op, seen, last, points);
  }

  std::int64_t most_steps_;
  NetworkTimes::Interim interim_;
  forest::CostModel planned_for_;
  forest::CostModel priced_by_, links_alone_;
  std::optional<forest::CostModel> links_with_bursts_;  // none: no link has any
  Bytes largest_{};
  double saved_ = 0;
  forest::PackingMemo memo_{forest::Trees::any};
};

std::string title_of(const cluster::Cluster& cluster, const char* how) {
  return fmt::format("{} workers, {}", cluster.workers(), how);
}

cluster::Cluster first_workers(const cluster::Cluster& cluster, int ranks) {
  cluster::validate(cluster);
  if (ranks < 1 || ranks > cluster.workers())
    refuse("the cluster has {} workers, not {}", cluster.workers(), ranks);
  std::vector<int> first(static_cast<std::size_t>(ranks));
  std::iota(first.begin(), first.end(), 0);
  return cluster::restrict_to(cluster, first);
}

}  // namespace

std::span<const Bytes> table_sizes() {
  return kSizes;
}

NetworkTimes cluster_times(const cluster::Cluster& cluster, std::span<const Bytes> sizes,
                           std::int64_t most_steps) {
  cluster::validate(cluster);
  const int ranks = cluster.workers();
  if (ranks == 1) return no_network(1);
  struct Both {
    NetworkTimes::Each all, links;
    NetworkTimes::Interim interim;
    double saved_by_bursts = 0;
  };
  const auto times_of = [&](const cluster::Cluster& its) -> Both {
    Pricer pricer(its, most_steps);
    const auto of = [&](Collective op) {
      if (!sizes.empty()) return pricer.times(op, sizes);
      if (ranks < kManyRanks) return pricer.times_and_bends(op, kSizes);
      return pricer.times_where_they_bend(op, kSizes);
    };
    const Priced sums = of(Collective::all_reduce), scattered = of(Collective::reduce_scatter),
                 gathered = of(Collective::all_gather);
    return {{sums.all, scattered.all, gathered.all},
            {sums.links, scattered.links, gathered.links},
            pricer.interim(),
            pricer.saved_by_bursts()};
  };
  const auto [now, links, interim, saved_by_bursts] = times_of(cluster);
  cluster::Cluster endless = cluster;
  for (cluster::Link& link : endless.links) link.capacity = endless_of(link.capacity);
  for (cluster::CapacityGroup& group : endless.groups) group.capacity = endless_of(group.capacity);
  // Plans for endless links need not be quicker than those for these.
  NetworkTimes::Each least = times_of(endless).all;
  least = {least.all_reduce.at_most(now.all_reduce), least.reduce_scatter.at_most(now.reduce_scatter),
           least.all_gather.at_most(now.all_gather)};
  return {.name = title_of(cluster, "predicted"),
          .ranks = ranks,
          .all_reduce = now.all_reduce,
          .reduce_scatter = now.reduce_scatter,
          .all_gather = now.all_gather,
          .least = least,
          .links = links,
          .interim = interim,
          .burst = saved_by_bursts};
}

NetworkTimes cluster_times_at(const cluster::Cluster& cluster, int ranks, std::span<const Bytes> sizes) {
  return cluster_times(first_workers(cluster, ranks), sizes);
}

sim::SimulationOptions marking_switches() {
  sim::SimulationOptions options;
  options.transport.turns = true;
  options.network.switch_queue.limit_bytes = 1 << 20;
  options.network.switch_queue.mark_bytes = kMarkedBytes;
  options.network.switch_queue.mark_by_delay = true;
  return options;
}

NetworkTimes simulated_times(const cluster::Cluster& cluster, const sim::SimulationOptions& options,
                             const sim::RanksOptions& hosts, std::span<const Bytes> sizes) {
  cluster::validate(cluster);
  const int ranks = cluster.workers();
  if (ranks == 1) return no_network(1);
  const forest::CostModel model(cluster);
  forest::PackingMemo memo(forest::Trees::any);
  std::vector<Sample> samples;
  NetworkTimes::Interim interim;
  for (const Bytes bytes : sizes.empty() ? table_sizes() : sizes) {
    if (sizes.empty() && bytes.value > kMostSimulated) continue;
    auto planned = forest::plan_within(kMostStepsToPredict, request_for(Collective::all_reduce, ranks, bytes),
                                       model, memo);
    add_missing(planned.choice, interim);
    sim::Simulation simulation(cluster, options);
    sim::RanksOptions empty = hosts;
    empty.carry_payloads = false;
    sim::Ranks simulated(simulation, empty);
    const auto times = sim::run_calls(simulation, simulated,
                                      std::make_shared<const forest::Forest>(std::move(planned.forest)),
                                      DataType::f32, {}, sim::kNever);
    samples.push_back({static_cast<double>(bytes.value), static_cast<double>(times.of_call.front()) * 1e-12});
  }
  NetworkTimes times = network_of(title_of(cluster, "simulated"), ranks, table_times(samples));
  times.interim = std::move(interim);
  return times;
}

NetworkTimes simulated_times_at(const cluster::Cluster& cluster, int ranks) {
  return simulated_times(first_workers(cluster, ranks));
}

}  // namespace talweg::train
