#include "train/cluster_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <numeric>
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

// Calls of a step follow each other, and none finds a token bucket full as a call after a pause does: plans
// are those that groups make for the cluster as it is, but what they take is without bursts.
cluster::Cluster without_bursts(cluster::Cluster cluster) {
  for (cluster::Link& link : cluster.links) link.burst = {};
  return cluster;
}

Bandwidth endless_of(Bandwidth capacity) {
  return {std::min(capacity.bits_per_second * kEndless, cluster::kMostCapacity.bits_per_second)};
}

// As if processors took no time.
forest::CostModel of_links_alone(cluster::Cluster cluster) {
  cluster.processor = {};
  forest::CostParameters parameters;
  for (forest::CostParameters::Transport* transport : {&parameters.tcp, &parameters.memory})
    transport->per_batch = transport->per_byte = 0;
  parameters.reduce_per_byte = 0;
  return forest::CostModel(cluster, parameters);
}

// What the same plans take, and what of it links would take alone.
struct Priced {
  TransferTimes all{}, links{};
};

class Pricer {
 public:
  explicit Pricer(const cluster::Cluster& cluster)
      : planned_for_(cluster),
        priced_by_(without_bursts(cluster)),
        links_alone_(of_links_alone(without_bursts(cluster))) {}

  Priced times(Collective op, std::span<const Bytes> sizes) {
    std::vector<Sample> samples;
    for (const Bytes bytes : sizes) samples.push_back(priced(op, bytes));
    return tables(samples);
  }

  // All small sizes, between which plans change; of large ones, where rates alone count, only as many as
  // differ from the line between those around them.
  Priced times_where_they_bend(Collective op, std::span<const Bytes> sizes) {
    std::vector<Sample> samples;
    while (sizes.front() < kLarge) {
      samples.push_back(priced(op, sizes.front()));
      sizes = sizes.subspan(1);
    }
    const Sample first = priced(op, sizes.front()), last = priced(op, sizes.back());
    samples.insert(samples.end(), {first, last});
    bend(op, sizes, first, last, samples);
    return tables(samples);
  }

 private:
  Sample priced(Collective op, Bytes bytes) {
    const auto planned =
        forest::plan_at_once(request_for(op, planned_for_.network().workers(), bytes), planned_for_, memo_);
    const auto size = static_cast<double>(bytes.value);
    of_links_.push_back({size, links_alone_.seconds(planned.forest)});
    return {size, priced_by_.seconds(planned.forest)};
  }

  // Of what has been priced since the last ones.
  Priced tables(std::span<const Sample> samples) {
    return {table_times(samples), table_times(std::exchange(of_links_, {}))};
  }

  // Between the first of `sizes` and the last, which took that.
  void bend(Collective op, std::span<const Bytes> sizes, Sample first, Sample last,
            std::vector<Sample>& samples) {
    if (sizes.size() < 3) return;
    const std::size_t middle = sizes.size() / 2;
    const Sample seen = priced(op, sizes[middle]);
    samples.push_back(seen);
    const double part = (seen.bytes - first.bytes) / (last.bytes - first.bytes);
    const double between = first.seconds + part * (last.seconds - first.seconds);
    if (std::abs(between - seen.seconds) <= kStraight * seen.seconds) return;
    bend(op, sizes.first(middle + 1), first, seen, samples);
    bend(op, sizes.subspan(middle), seen, last, samples);
  }

  forest::CostModel planned_for_;
  forest::CostModel priced_by_, links_alone_;
  std::vector<Sample> of_links_;
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

NetworkTimes cluster_times(const cluster::Cluster& cluster, std::span<const Bytes> sizes) {
  cluster::validate(cluster);
  const int ranks = cluster.workers();
  if (ranks == 1) return no_network(1);
  struct Both {
    NetworkTimes::Each all, links;
  };
  const auto times_of = [&sizes, ranks](const cluster::Cluster& its) -> Both {
    Pricer pricer(its);
    const auto of = [&](Collective op) {
      if (!sizes.empty()) return pricer.times(op, sizes);
      if (ranks < kManyRanks) return pricer.times(op, kSizes);
      return pricer.times_where_they_bend(op, kSizes);
    };
    const Priced sums = of(Collective::all_reduce), scattered = of(Collective::reduce_scatter),
                 gathered = of(Collective::all_gather);
    return {{sums.all, scattered.all, gathered.all}, {sums.links, scattered.links, gathered.links}};
  };
  const auto [now, links] = times_of(cluster);
  cluster::Cluster endless = cluster;
  for (cluster::Link& link : endless.links) link.capacity = endless_of(link.capacity);
  for (cluster::CapacityGroup& group : endless.groups) group.capacity = endless_of(group.capacity);
  return {.name = title_of(cluster, "predicted"),
          .ranks = ranks,
          .all_reduce = now.all_reduce,
          .reduce_scatter = now.reduce_scatter,
          .all_gather = now.all_gather,
          .least = times_of(endless).all,
          .links = links};
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
  for (const Bytes bytes : sizes.empty() ? table_sizes() : sizes) {
    if (sizes.empty() && bytes.value > kMostSimulated) continue;
    auto planned = forest::plan_at_once(request_for(Collective::all_reduce, ranks, bytes), model, memo);
    sim::Simulation simulation(cluster, options);
    sim::RanksOptions empty = hosts;
    empty.carry_payloads = false;
    sim::Ranks simulated(simulation, empty);
    const auto times = sim::run_calls(simulation, simulated,
                                      std::make_shared<const forest::Forest>(std::move(planned.forest)),
                                      DataType::f32, {}, sim::kNever);
    samples.push_back({static_cast<double>(bytes.value), static_cast<double>(times.of_call.front()) * 1e-12});
  }
  return network_of(title_of(cluster, "simulated"), ranks, table_times(samples));
}

NetworkTimes simulated_times_at(const cluster::Cluster& cluster, int ranks) {
  return simulated_times(first_workers(cluster, ranks));
}

}  // namespace talweg::train
