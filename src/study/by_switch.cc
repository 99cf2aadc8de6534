#include "study/by_switch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <set>

#include "base/fail.h"
#include "cluster/racks.h"
#include "forest/planner.h"
#include "forest/switch_cost.h"
#include "study/by_bounded_loss.h"
#include "talweg/error.h"
#include "wire/aggregation.h"

namespace talweg::study {

void check_algorithm(const std::string& name) {
  if (name == kBySwitch || name == kBounded) return;
  try {
    forest::find_planner(name);
  } catch (const Error& error) {
    throw_error(error.code(), "{}, {}, {}", error.what(), kBySwitch, kBounded);
  }
}

bool serves(const std::string& algorithm, const forest::Request& request) {
  if (algorithm == kBySwitch || algorithm == kBounded) return request.op == Collective::all_reduce;
  return forest::find_planner(algorithm).serves(request);
}

std::vector<int> summing_racks(const cluster::Cluster& network) {
  std::vector<int> racks = cluster::racks_of(network);
  if (std::ranges::adjacent_find(racks, std::ranges::not_equal_to()) == racks.end()) racks.clear();
  return racks;
}

std::vector<int> summing_nodes(const cluster::Cluster& network) {
  const std::vector<int> able = cluster::nodes_that_sum(network);
  const auto is_able = [&](int node) { return std::ranges::find(able, node) != able.end(); };
  const std::vector<int> racks = cluster::racks_of(network);
  if (!std::ranges::all_of(racks, is_able)) return {};
  if (!racks.empty() && summing_racks(network).empty()) return {racks[0]};
  std::vector<int> named;
  std::ranges::copy_if(able, std::back_inserter(named), [&](int node) {
    const cluster::Node& at = network.nodes[static_cast<std::size_t>(node)];
    return !at.switch_at.empty() && at.above.empty();
  });
  return named.empty() && racks.empty() ? able : named;
}

std::string why_no_switch(const SimulateOptions& o) {
  if (o.perf.op != Collective::all_reduce) return fmt::format("it does all_reduce, not {}", name(o.perf.op));
  if (!wire::aggregation_format(o.perf.types[0]))
    return fmt::format("it sums float, half, bfloat16 and int32, not {}", name(o.perf.types[0]));
  if (summing_nodes(o.cluster).empty())
    return fmt::format("{} has no switch or aggregator that all workers reach", o.network);
  if (o.simulation.transport.kind == sim::TransportKind::fluid)
    return "its datagrams are packets, and --fluid has none";
  try {
    sim::switch_job(switch_sums_options(o, o.perf.types[0]), o.simulation.transport, o.cluster.workers());
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

sim::SwitchSumsOptions switch_sums_options(const SimulateOptions& o, DataType type) {
  sim::SwitchSumsOptions how;
  how.switches = summing_nodes(o.cluster);
  how.racks = summing_racks(o.cluster);
  how.costs = o.ranks.costs;
  how.format = o.sparse.by_pairs() ? wire::AggregationFormat::pairs
               : o.floats_as && type == DataType::f32
                   ? *o.floats_as
                   : wire::aggregation_format(type).value_or(wire::AggregationFormat::f32);
  how.sparse = o.sparse.by_blocks();
  how.may_lose = o.switch_may_lose;
  return how;
}

Prediction predict_switch(const forest::CostModel& model, std::int64_t bytes, DataType type,
                          const sim::SwitchJob& job, const SparseShape& sparse) {
  const double summed = travelling(sparse, model.network().workers(), job.terms.block);
  const double sent = sent_by_each(sparse, job.terms.block);
  bytes = static_cast<std::int64_t>(std::ceil(static_cast<double>(bytes) * summed));
  const cluster::Cluster& network = model.network();
  const auto switches = summing_nodes(network);
  const auto racks = summing_racks(network);
  const auto element = static_cast<std::int64_t>(size_of(type));
  const std::int64_t elements = std::int64_t{job.terms.columns} * job.terms.block;
  // Of types of two bytes, or codes of less, a block fills less of its datagram.
  const bool coded = wire::is_coded(job.format);
  const std::int64_t vector =
      coded ? static_cast<std::int64_t>(job.terms.columns * wire::data_bytes(job.format, job.terms.block))
            : elements * element;
  if (coded)
    bytes = static_cast<std::int64_t>(std::ceil(static_cast<double>(bytes) * static_cast<double>(vector) /
                                                static_cast<double>(elements * element)));
  const forest::SwitchedShape shape{vector,
                                    static_cast<std::int64_t>(job.datagram_bytes) - elements * 4 + vector,
                                    job.terms.slots, summed > 0 ? std::min(1.0, sent / summed) : 1};
  Prediction prediction;
  prediction.breakdown = forest::switched_breakdown(model, switches, bytes, shape, racks);
  prediction.seconds = prediction.breakdown.seconds();
  for (const int node : switches)
    prediction.through.push_back(network.nodes[static_cast<std::size_t>(node)].name);
  for (const int node : std::set<int>(racks.begin(), racks.end()))
    prediction.through.push_back(network.nodes[static_cast<std::size_t>(node)].name);
  return prediction;
}

}  // namespace talweg::study
