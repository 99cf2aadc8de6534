#include "study/by_bounded_loss.h"

#include <fmt/format.h>

#include "forest/packed.h"
#include "forest/planner.h"
#include "talweg/error.h"

namespace talweg::study {

std::string why_not_bounded(const SimulateOptions& o) {
  if (o.perf.op != Collective::all_reduce) return fmt::format("it does all_reduce, not {}", name(o.perf.op));
  if (o.simulation.transport.kind == sim::TransportKind::fluid)
    return "its datagrams are packets, and --fluid has none";
  try {
    sim::check_bounded_sums(bounded_sums_options(o, o.perf.types[0]), o.simulation.transport);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

sim::BoundedSumsOptions bounded_sums_options(const SimulateOptions& o, DataType type) {
  sim::BoundedSumsOptions how;
  how.p = o.may_lose;
  how.type = type;
  how.costs = o.ranks.costs;
  return how;
}

Prediction predict_bounded(const cluster::Cluster& network, const PerfCase& c) {
  const forest::Request even = forest::even_request(c.op, c.ranks, 0, static_cast<std::int64_t>(c.count),
                                                    static_cast<std::int64_t>(size_of(c.type)));
  const forest::CostModel model(network);
  forest::PackingMemo memo;
  const forest::Forest forest = forest::plan_by(forest::find_planner("sharded_star"), even, model, memo);
  Prediction prediction;
  prediction.seconds = model.seconds(forest);
  prediction.breakdown = model.breakdown(forest);
  return prediction;
}

}  // namespace talweg::study
