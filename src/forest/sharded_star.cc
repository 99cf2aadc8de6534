// Sharded star: a parameter server on each of the k best-connected workers and aggregators, with a share of
// the vector in proportion to its capacity. On equal links k = N is a direct reduce-scatter and all-gather:
// 2(N-1)/N of the vector on each link, in two latencies. Where some hosts are slow, servers on the fast ones
// alone let a slow host move the vector once each way instead of 2(N-1)/N times; so does an aggregator with
// as much as all hosts together.
#include <algorithm>

#include "forest/algorithms.h"
#include "forest/trees.h"

namespace talweg::forest {
namespace {

// Worth trying: one server, all, all of some capacity or better, and powers of two in between (small vectors
// like few messages). Everything else would cost planning time and cannot change the busiest link.
bool worth_trying(std::size_t servers, const std::vector<double>& capacities) {
  const bool power_of_two = (servers & (servers - 1)) == 0;
  return servers == capacities.size() || power_of_two || capacities[servers] < capacities[servers - 1];
}

std::vector<double> sorted_capacities(const CostModel& model) {
  std::vector<double> capacities;
  for (const NodeId node : model.servers()) capacities.push_back(model.capacity(node));
  return capacities;
}

Forest with_servers(const Request& request, std::span<const NodeId> servers,
                    std::span<const double> weights) {
  const auto slices = split_by_weight(request, weights);
  std::vector<Tree> trees;
  for (std::size_t i = 0; i < servers.size(); ++i) {
    trees.push_back(collective_tree(request, slices[i], servers[i], star_shape(request.ranks, servers[i])));
  }
  return useful_forest("sharded_star", request, std::move(trees));
}

}  // namespace

std::int64_t sharded_star_steps(const CostModel& model) {
  constexpr std::int64_t kStepsPerEdge = 100;  // to make it and to price it
  const auto capacities = sorted_capacities(model);
  std::size_t servers = 0;
  for (std::size_t k = 1; k <= capacities.size(); ++k)
    if (worth_trying(k, capacities)) servers += k;
  return 2 * kStepsPerEdge * static_cast<std::int64_t>(servers * capacities.size());
}

Forest plan_sharded_star(const Request& request, const CostModel& model) {
  const auto& nodes = model.servers();
  const auto capacities = sorted_capacities(model);
  Forest best;
  double least = 0;
  for (std::size_t k = 1; k <= nodes.size(); ++k) {
    if (!worth_trying(k, capacities)) continue;
    Forest forest = with_servers(request, std::span(nodes).first(k), std::span(capacities).first(k));
    model.choose_chunks(forest);
    const double seconds = model.seconds(forest);
    if (k == 1 || seconds < least) {
      least = seconds;
      best = std::move(forest);
    }
  }
  return best;
}

}  // namespace talweg::forest
